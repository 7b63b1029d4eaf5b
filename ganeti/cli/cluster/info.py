"""``gnt-cluster`` info, version, getmaster and master-ping."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ganeti.base.errors import ConfigurationError, NotMasterError
from ganeti.base.paths import Paths
from ganeti.cli.command import Context, Options, command, opt
from ganeti.cli.run.report import Facts, format_report, policy, with_roman_numbers
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


Values = Mapping[str, object]


def _joined(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else ""


def _or_none(value: object) -> str:
    return _joined(value) or "(none)"


def _uid_pool(value: object) -> str:
    """Return the pool as ``gnt-cluster modify --uid-pool`` takes it."""
    ranges = value if isinstance(value, list) else []
    return format_uid_pool([(low, high) for low, high in ranges])


def _architecture(value: object) -> str:
    words = [str(word) for word in value] if isinstance(value, list) else [str(value)]
    return " ".join([words[0], *(f"({word})" for word in words[1:])])


def _path_list(paths: Sequence[str]) -> Callable[[object], object]:
    return lambda _value: ", ".join(paths)


def _collectors(found: Values) -> Facts:
    """Return whether each collector runs, and how often."""
    active, interval_us = found.get("enabled_data_collectors"), found.get("data_collector_interval")
    if not isinstance(active, Mapping) or not isinstance(interval_us, Mapping):
        return Facts()
    return Facts(
        (
            name,
            Facts(
                [
                    ("active", active[name]),
                    ("interval", f"{interval_us.get(name, 0) / _MICROSECONDS:.3f}s"),
                ]
            ),
        )
        for name in sorted(active)
    )


_MICROSECONDS: Final = 1_000_000

Row = tuple[str, str] | tuple[str, str, Callable[[object], object]]


def _rows(found: Values, rows: Sequence[Row]) -> Facts:
    """Return facts from titles and keys; a function of a row makes its value."""
    return Facts(
        (title, made_by[0](found.get(key)) if made_by else found.get(key))
        for title, key, *made_by in rows
    )


_IDENTITY: Final[Sequence[Row]] = (
    ("Cluster name", "name"),
    ("Cluster UUID", "uuid"),
    ("Creation time", "ctime", format_time),
    ("Modification time", "mtime", format_time),
    ("Master node", "master"),
    ("Architecture (this node)", "architecture", _architecture),
    ("Tags", "tags", _or_none),
    ("Default hypervisor", "default_hypervisor"),
    ("Enabled hypervisors", "enabled_hypervisors", _joined),
    ("Hypervisor parameters", "hvparams"),
    ("OS-specific hypervisor parameters", "os_hvp"),
    ("OS parameters", "osparams"),
    ("Hidden OSes", "hidden_os", _joined),
    ("Blacklisted OSes", "blacklisted_os", _joined),
)


def _parameters(paths: Paths) -> Sequence[Row]:
    """Return the rows of the cluster's parameters, in the order of 3.0."""
    return (
        ("candidate pool size", "candidate_pool_size"),
        ("maximal number of jobs running simultaneously", "max_running_jobs"),
        ("maximal number of jobs simultaneously tracked by the scheduler", "max_tracked_jobs"),
        ("mac prefix", "mac_prefix"),
        ("master netdev", "master_netdev"),
        ("master netmask", "master_netmask"),
        ("use external master IP address setup script", "use_external_mip_script"),
        ("lvm volume group", "volume_group_name"),
        ("lvm reserved volumes", "reserved_lvs", _or_none),
        ("drbd usermode helper", "drbd_usermode_helper"),
        ("file storage path", "file_storage_dir"),
        ("shared file storage path", "shared_file_storage_dir"),
        ("gluster storage path", "gluster_storage_dir"),
        ("maintenance of node health", "maintain_node_health"),
        ("uid pool", "uid_pool", _uid_pool),
        ("default instance allocator", "default_iallocator"),
        ("default instance allocator parameters", "default_iallocator_params"),
        ("primary ip version", "primary_ip_version"),
        ("preallocation wipe disks", "prealloc_wipe_disks"),
        ("OS search path", "", _path_list(paths.os_search_path)),
        ("ExtStorage Providers search path", "", _path_list(paths.es_search_path)),
        ("enabled disk templates", "enabled_disk_templates", _joined),
        ("install image", "install_image"),
        ("instance communication network", "instance_communication_network"),
        ("zeroing image", "zeroing_image"),
        ("compression tools", "compression_tools"),
        ("enabled user shutdown", "enabled_user_shutdown"),
        ("modify ssh setup", "modify_ssh_setup"),
        ("ssh_key_type", "ssh_key_type"),
        ("ssh_key_bits", "ssh_key_bits"),
    )


_DEFAULTS: Final[Sequence[Row]] = (
    ("Default node parameters", "ndparams"),
    ("Default instance parameters", "beparams"),
    ("Default nic parameters", "nicparams"),
    ("Default disk parameters", "diskparams"),
    ("Instance policy - limits for instances", "ipolicy", lambda value: policy(value, value)),
)


def _lists(value: object) -> dict[str, str] | None:
    lists = value if isinstance(value, Mapping) else {}
    return {str(kind): _joined(names) for kind, names in lists.items()} or None


_MORE: Final[Sequence[Row]] = (
    ("Modify /etc/hosts", "modify_etc_hosts"),
    ("Private OS parameters", "osparams_private_cluster"),
    ("Hypervisor state", "hv_state_static"),
    ("Disk state", "disk_state_static"),
    ("Disk transfers of a node at a time", "max_disk_transfers", lambda value: value or None),
    ("Diagnose command of nodes", "diagnose_data_collector_filename", lambda value: value or None),
    ("Maintenance interval (seconds)", "maint_round_delay"),
    ("Maintenance balances the cluster", "maint_balance"),
    ("Least gain to balance for", "maint_balance_threshold"),
    ("Balancing looks at the measured load", "maint_use_load"),
    ("Balancing moves disks", "maint_move_disks"),
    ("Maintenance repairs instances", "maint_auto_repair"),
    ("Default instance allocators, by request", "default_iallocators", _lists),
    ("Tries before a silent node is offline", "silent_node_tries", lambda value: value or None),
)
"""The facts that 3.0 does not show."""


def describe(found: Values, paths: Paths, *, is_roman: bool = False) -> Facts:
    """Return the facts about a cluster.

    Args:
        paths: where definitions are looked for, as the nodes know it.
        is_roman: write the numbers of parameters the Roman way.
    """
    numbers = [("Cluster parameters", _rows(found, _parameters(paths))), *_rows(found, _DEFAULTS)]
    if is_roman:
        numbers = [(title, with_roman_numbers(value)) for title, value in numbers]
    more = [(title, value) for title, value in _rows(found, _MORE) if value not in (None, {})]
    return Facts(
        [*_rows(found, _IDENTITY), *numbers, ("Data collectors", _collectors(found)), *more]
    )


def info(context: Context, options: Options, _args: list[str]) -> None:
    """Show the parameters of the cluster."""
    facts = describe(context.client.query_cluster_info(), Paths(), is_roman=options.roman)
    context.terminal.write_lines(format_report(facts))


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
