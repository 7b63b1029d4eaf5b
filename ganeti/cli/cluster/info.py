"""``gnt-cluster`` info, version, getmaster and master-ping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import ConfigurationError, NotMasterError
from ganeti.base.paths import Paths
from ganeti.cli.command import Context, Options, command, opt
from ganeti.cli.run.report import Facts, format_report, with_roman_numbers
from ganeti.cli.run.table import format_time
from ganeti.objects.uid_pool import format_uid_pool
from ganeti.store import ssconf


def version(context: Context, _options: Options, _args: list[str]) -> None:
    """Show the versions of the software."""
    found = context.client.query_cluster_info()
    lines = [
        f"Software version: {found.get('software_version')}",
        f"Internode protocol: {found.get('protocol_version')}",
        f"Configuration format: {found.get('config_version')}",
        f"OS api version: {found.get('os_api_version')}",
        f"Export interface: {found.get('export_version')}",
        f"VCS version: {found.get('vcs_version')}",
    ]
    context.terminal.write_lines(lines)


def getmaster(context: Context, _options: Options, _args: list[str]) -> None:
    """Show the name of the master node."""
    try:
        context.write(ssconf.master_node(context.paths))
    except ConfigurationError as err:
        raise NotMasterError(err.message) from err


def master_ping(context: Context, _options: Options, _args: list[str]) -> None:
    """See whether the master daemon answers."""
    context.client.query_cluster_info()


# titles and keys of the cluster info
_PARAMETERS: Final = (
    ("candidate pool size", "candidate_pool_size"),
    ("maximal number of jobs running simultaneously", "max_running_jobs"),
    ("maximal number of jobs simultaneously tracked by the scheduler", "max_tracked_jobs"),
    ("mac prefix", "mac_prefix"),
    ("master netdev", "master_netdev"),
    ("master netmask", "master_netmask"),
    ("use external master IP address setup script", "use_external_mip_script"),
    ("lvm volume group", "volume_group_name"),
    ("lvm reserved volumes", "reserved_lvs"),
    ("drbd usermode helper", "drbd_usermode_helper"),
    ("file storage path", "file_storage_dir"),
    ("shared file storage path", "shared_file_storage_dir"),
    ("gluster storage path", "gluster_storage_dir"),
    ("maintenance of node health", "maintain_node_health"),
    ("default instance allocator", "default_iallocator"),
    ("default instance allocator parameters", "default_iallocator_params"),
    ("primary ip version", "primary_ip_version"),
    ("preallocation wipe disks", "prealloc_wipe_disks"),
    ("enabled disk templates", "enabled_disk_templates"),
    ("install image", "install_image"),
    ("instance communication network", "instance_communication_network"),
    ("zeroing image", "zeroing_image"),
    ("compression tools", "compression_tools"),
    ("enabled user shutdown", "enabled_user_shutdown"),
    ("modify /etc/hosts", "modify_etc_hosts"),
    ("modify ssh setup", "modify_ssh_setup"),
    ("ssh_key_type", "ssh_key_type"),
    ("ssh_key_bits", "ssh_key_bits"),
)


def info(context: Context, options: Options, _args: list[str]) -> None:
    """Show the parameters of the cluster."""
    facts = describe(context.client.query_cluster_info(), Paths())
    if options.roman:
        facts = Facts(
            (title, with_roman_numbers(value) if title in _WITH_NUMBERS else value)
            for title, value in facts
        )
    context.terminal.write_lines(format_report(facts))


def describe(found: Mapping[str, object], paths: Paths) -> Facts:
    """Return the facts about a cluster.

    Args:
        paths: where definitions are looked for, as the nodes know it.
    """
    architecture = found.get("architecture")
    words = architecture if isinstance(architecture, list) else [architecture]
    return Facts(
        [
            ("Cluster name", found.get("name")),
            ("Cluster UUID", found.get("uuid")),
            ("Creation time", format_time(found.get("ctime"))),
            ("Modification time", format_time(found.get("mtime"))),
            ("Master node", found.get("master")),
            ("Architecture (this node)", " ".join(str(word) for word in words)),
            ("Tags", _joined(found.get("tags")) or "(none)"),
            ("Default hypervisor", found.get("default_hypervisor")),
            ("Enabled hypervisors", _joined(found.get("enabled_hypervisors"))),
            ("Hypervisor parameters", found.get("hvparams")),
            ("OS-specific hypervisor parameters", found.get("os_hvp")),
            ("OS parameters", found.get("osparams")),
            ("Hidden OSes", found.get("hidden_os")),
            ("Blacklisted OSes", found.get("blacklisted_os")),
            ("Cluster parameters", _parameters(found, paths)),
            ("Default parameters", _defaults(found)),
            ("Data collectors", _collectors(found)),
        ]
    )


_WITH_NUMBERS: Final = ("Cluster parameters", "Default parameters")


def _parameters(found: Mapping[str, object], paths: Paths) -> Facts:
    facts = Facts((title, _joined(found.get(key))) for title, key in _PARAMETERS)
    facts += [
        ("uid pool", _uid_pool(found.get("uid_pool"))),
        ("OS search path", _joined(paths.os_search_path)),
        ("ExtStorage Providers search path", _joined(paths.es_search_path)),
    ]
    states = [("hypervisor state", "hv_state_static"), ("disk state", "disk_state_static")]
    facts += [(title, found[key]) for title, key in states if found.get(key)]
    return facts


def _defaults(found: Mapping[str, object]) -> Facts:
    return Facts(
        [
            ("backend parameters", _nested(found, "beparams")),
            ("network interface parameters", _nested(found, "nicparams")),
            ("disk parameters", found.get("diskparams")),
            ("node parameters", found.get("ndparams")),
            ("instance policy", found.get("ipolicy")),
        ]
    )


def _collectors(found: Mapping[str, object]) -> object:
    """Return {collector: whether it runs and how often}."""
    active, interval_us = found.get("enabled_data_collectors"), found.get("data_collector_interval")
    if not isinstance(active, Mapping) or not isinstance(interval_us, Mapping):
        return None
    return {
        name: f"every {interval_us.get(name, 0) / 1_000_000:g} s" if runs else "disabled"
        for name, runs in active.items()
    }


def _uid_pool(value: object) -> str:
    """Return the pool as ``gnt-cluster modify --uid-pool`` takes it."""
    ranges = value if isinstance(value, list) else []
    return format_uid_pool([(low, high) for low, high in ranges])


def _joined(value: object) -> object:
    if isinstance(value, list):
        return ", ".join(
            "-".join(str(part) for part in item) if isinstance(item, list) else str(item)
            for item in value
        )
    return value


def _nested(found: Mapping[str, object], key: str) -> object:
    """Return the one parameter set of a mapping with the key ``default``."""
    value = found.get(key)
    return value.get("default") if isinstance(value, Mapping) else value


COMMANDS: Final = (
    command(
        getmaster,
        examples="""
gnt-cluster getmaster  # the name of the master node""",
    ),
    command(master_ping),
    command(
        info,
        opt.flag("--roman", "show some numbers the Roman way"),
        aliases=("show",),
        examples="""
gnt-cluster info  # all settings and defaults, in YAML""",
    ),
    command(version),
)
