"""Steps about the cluster object: settings that came with later versions."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Final, NamedTuple

from ganeti.config.config_data import TABLES
from ganeti.config.upgrade.draft import Draft, own_disks
from ganeti.config.upgrade.versions import OLDEST, Version
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.model import COLLECTOR_INTERVAL_US, COLLECTORS_OF_3_0, IpFamily, SshKeyType

_NETMASK: Final = {IpFamily.IPV4: 32, IpFamily.IPV6: 128}
_DISKLESS: Final = str(DiskTemplate.DISKLESS)
_COLLECTOR: Final = {"active": True, "interval": COLLECTOR_INTERVAL_US}


class Setting(NamedTuple):
    """A key of the cluster, the version that brought it, and the meaning of its absence."""

    since: Version
    name: str
    default: object
    advice: str = ""


SETTINGS: Final = (
    Setting(OLDEST, "tcpudp_port_pool", []),
    Setting(OLDEST, "file_storage_dir", "/srv/ganeti/file-storage"),
    Setting(OLDEST, "candidate_pool_size", 10),
    Setting(OLDEST, "modify_etc_hosts", True),
    Setting(OLDEST, "serial_no", 1),
    Setting(OLDEST, "modify_ssh_setup", True),
    Setting(OLDEST, "os_hvp", {}),
    Setting(OLDEST, "uid_pool", []),
    Setting(OLDEST, "osparams", {}),
    Setting(OLDEST, "default_iallocator", ""),
    Setting(OLDEST, "reserved_lvs", []),
    Setting(OLDEST, "hidden_os", []),
    Setting(OLDEST, "blacklisted_os", []),
    Setting(OLDEST, "maintain_node_health", False),
    Setting(OLDEST, "primary_ip_family", int(IpFamily.IPV4)),
    Setting(OLDEST, "prealloc_wipe_disks", False),
    Setting(OLDEST, "shared_file_storage_dir", "/srv/ganeti/shared-file-storage"),
    Setting(OLDEST, "use_external_mip_script", False),
    Setting(Version(2, 10), "default_iallocator_params", {}),
    Setting(Version(2, 11), "gluster_storage_dir", "/var/run/ganeti/gluster"),
    Setting(
        Version(2, 11),
        "candidate_certs",
        {},
        "'gnt-cluster renew-crypto --new-node-certificates' makes certificates for the nodes",
    ),
    Setting(Version(2, 12), "osparams_private_cluster", {}),
    Setting(Version(2, 12), "max_running_jobs", 20),
    Setting(Version(2, 12), "install_image", ""),
    Setting(Version(2, 12), "instance_communication_network", ""),
    Setting(Version(2, 12), "zeroing_image", ""),
    Setting(Version(2, 12), "compression_tools", ["gzip", "gzip-fast", "gzip-slow"]),
    Setting(Version(2, 12), "enabled_user_shutdown", False),
    Setting(Version(2, 13), "max_tracked_jobs", 25),
    Setting(
        Version(2, 14), "data_collectors", {name: dict(_COLLECTOR) for name in COLLECTORS_OF_3_0}
    ),
    Setting(
        Version(2, 16),
        "ssh_key_type",
        str(SshKeyType.DSA),
        "all keys were DSA keys before; 'gnt-cluster renew-crypto --new-ssh-keys"
        " --ssh-key-type=rsa' replaces them",
    ),
    Setting(Version(2, 16), "ssh_key_bits", 1024),
)


def settings_are_there(draft: Draft) -> Iterator[str]:
    """Fill settings that the configuration was written without."""
    cluster = draft.cluster
    for setting in SETTINGS:
        if setting.name not in cluster:
            cluster[setting.name] = deepcopy(setting.default)
            since = f" (new in {setting.since})" if setting.since > OLDEST else ""
            advice = f"; {setting.advice}" if setting.advice else ""
            yield f"cluster: {setting.name} is {setting.default!r}{since}{advice}"
    if "master_netmask" not in cluster:
        family = cluster["primary_ip_family"]
        cluster["master_netmask"] = _NETMASK[
            IpFamily.IPV6 if family == IpFamily.IPV6 else IpFamily.IPV4
        ]
        yield f"cluster: master_netmask is {cluster['master_netmask']}, the address alone"


def default_hypervisor_is_first(draft: Draft) -> Iterator[str]:
    """Put the default hypervisor, which had a key of its own in 2.0, in front of the others."""
    default = draft.cluster.get("default_hypervisor")
    enabled = draft.cluster.get("enabled_hypervisors") or []
    if not isinstance(default, str) or enabled[:1] == [default]:
        return
    draft.cluster["enabled_hypervisors"] = [default, *(each for each in enabled if each != default)]
    yield f"cluster: the default hypervisor {default} is the first of those enabled"


def collectors_are_there(draft: Draft) -> Iterator[str]:
    """Add the monitoring daemon's collectors that came later, switched on."""
    collectors = draft.cluster.get("data_collectors")
    if collectors is None:
        return  # a setting like others
    missing = [name for name in COLLECTORS_OF_3_0 if name not in collectors]
    for name in missing:
        collectors[name] = dict(_COLLECTOR)
    if missing:
        yield f"cluster: data collectors switched on: {', '.join(missing)}"


def tables_are_there(draft: Draft) -> Iterator[str]:
    """Add tables that came with later versions, empty."""
    for name in TABLES:
        if name not in draft.config:
            draft.config[name] = {}
            yield f"an empty table of {name} was added"


def templates_are_enabled(draft: Draft) -> Iterator[str]:
    """Enable the disk templates in use, and the ones that can be used.

    The first one is the default for new instances: the one of most instances, if it has disks.
    """
    cluster = draft.cluster
    if cluster.get("enabled_disk_templates"):
        return
    used = [template for one in draft.objects("instances") for template in _templates(draft, one)]
    by_use = sorted(set(used), key=lambda one: (one == _DISKLESS, -used.count(one), one))
    possible = []
    if cluster.get("volume_group_name"):
        possible.append(str(DiskTemplate.PLAIN))
        if cluster.get("drbd_usermode_helper"):
            possible.append(str(DiskTemplate.DRBD))
    enabled = list(dict.fromkeys([*by_use, *possible])) or [_DISKLESS]
    cluster["enabled_disk_templates"] = enabled
    yield f"cluster: enabled disk templates are now listed: {', '.join(enabled)}"


def _templates(draft: Draft, instance: dict[str, object]) -> set[str]:
    """Return the templates of an instance: its own word, or the types of its disks."""
    template = instance.get("disk_template")
    if isinstance(template, str):
        return {template}
    disks = own_disks(instance)
    table = draft.table("disks")
    uuids = instance.get("disks", ())
    assert isinstance(uuids, list | tuple)
    disks += [table[uuid] for uuid in uuids if isinstance(uuid, str) and uuid in table]
    types = {str(disk["dev_type"]) for disk in disks if "dev_type" in disk}
    return types or {_DISKLESS}
