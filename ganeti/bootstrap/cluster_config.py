"""The first configuration of a cluster, made from the request.  Checks and builds; no I/O.

Source: config.json, "example_minimal_config"; constants.json for every default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ganeti.base.errors import NotSupportedError, OpPrereqError, refuse
from ganeti.base.versions import CONFIG_VERSION
from ganeti.logical_units.cluster import block_storage, settings
from ganeti.logical_units.instance.parameters import (
    check_beparams,
    check_filled_beparams,
    check_hvparams,
    without_defaults,
)
from ganeti.logical_units.parameters import (
    check_disk_state,
    check_hv_state,
    check_ndparams,
    enforced,
)
from ganeti.objects import parameters as tables
from ganeti.objects.disk_templates import (
    IMAGES,
    DiskTemplate,
    file_templates,
    image_problem,
    supported_templates,
)
from ganeti.objects.hypervisors import HVPARAMS, Hypervisor
from ganeti.objects.instance_policy import policy_problems
from ganeti.objects.model import (
    COLLECTOR_INTERVAL_US,
    COLLECTORS_OF_3_0,
    INITIAL_GROUP_NAME,
    SSH_KEY_BITS,
    IpFamily,
    SshKeyType,
    ssh_key_problem,
)
from ganeti.objects.nic import DEFAULT_MAC_PREFIX, mac_prefix_problem

USUAL_DISK_TEMPLATES: Final = (DiskTemplate.FILE, DiskTemplate.SHAREDFILE, DiskTemplate.DISKLESS)
DEFAULT_NETMASK: Final = {4: 32, 6: 128}
MAX_RUNNING_JOBS: Final = 20
MAX_TRACKED_JOBS: Final = 25
CANDIDATE_POOL_SIZE: Final = 10
HIGHEST_USED_PORT: Final = 10999  # below constants.json, FIRST_DRBD_PORT
USUAL_GROUP: Final = "xenvg"  # constants.json, DEFAULT_VG
USUAL_HELPER: Final = "/bin/true"  # constants.json, DEFAULT_DRBD_HELPER
COMPRESSION_TOOLS: Final = ("gzip", "gzip-fast", "gzip-slow")
_IP_FAMILY: Final = {4: 2, 6: 10}

Parameters = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRequest:
    """The request of ``gnt-cluster init``; paths stand without a root.

    ``default_iallocator`` is None to take the one that comes with the programs, if it is there;
    volume group and helper of DRBD are None for the usual ones, if disk templates need them;
    ``ssh_key_bits`` is None for the usual length of keys of that type.
    """

    cluster_name: str
    enabled_hypervisors: Sequence[str] = ()
    enabled_disk_templates: Sequence[str] = ()
    hvparams: Mapping[str, Parameters] = field(default_factory=dict)
    beparams: Parameters = field(default_factory=dict)
    nicparams: Parameters = field(default_factory=dict)
    ndparams: Parameters = field(default_factory=dict)
    diskparams: Mapping[str, Parameters] = field(default_factory=dict)
    ipolicy: Parameters = field(default_factory=dict)
    hv_state: Mapping[str, Parameters] = field(default_factory=dict)
    disk_state: Mapping[str, Mapping[str, Parameters]] = field(default_factory=dict)
    mac_prefix: str = DEFAULT_MAC_PREFIX
    master_netdev: str = "lo"
    master_netmask: int | None = None
    secondary_ip: str | None = None
    primary_ip_version: int = 4
    candidate_pool_size: int = CANDIDATE_POOL_SIZE
    file_storage_dir: str = "/srv/ganeti/file-storage"
    shared_file_storage_dir: str = "/srv/ganeti/shared-file-storage"
    gluster_storage_dir: str = "/var/run/ganeti/gluster"
    default_iallocator: str | None = None
    default_iallocator_params: Parameters = field(default_factory=dict)
    compression_tools: Sequence[str] = COMPRESSION_TOOLS
    maintain_node_health: bool = False
    prealloc_wipe_disks: bool = False
    use_external_mip_script: bool = False
    enabled_user_shutdown: bool = False
    modify_etc_hosts: bool = True
    modify_ssh_setup: bool = True
    ssh_key_type: str = "rsa"
    ssh_key_bits: int | None = None
    uid_pool: Sequence[tuple[int, int]] = ()
    vg_name: str | None = None
    drbd_helper: str | None = None
    install_image: str = ""
    zeroing_image: str = ""


@dataclass(frozen=True, slots=True)
class FirstNode:
    """The machine that becomes master: names, addresses and certificate."""

    name: str
    uuid: str
    primary_ip: str
    secondary_ip: str
    certificate_digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Birth:
    """The values that only this cluster has: time, identifiers, address, host key."""

    now: float
    cluster_uuid: str
    group_uuid: str
    master_ip: str
    host_key: str


def check_request(request: ClusterRequest) -> None:
    """Refuse a request that cannot be met.

    Raises:
        OpPrereqError: names the wrong value and a right one.
    """
    hypervisors, templates = request.enabled_hypervisors, request.enabled_disk_templates
    _check_names("hypervisor", hypervisors, tuple(Hypervisor), tuple(Hypervisor))
    _check_names("disk template", templates, tuple(DiskTemplate), supported_templates())
    refuse(mac_prefix_problem(request.mac_prefix))
    if request.primary_ip_version not in _IP_FAMILY:
        raise OpPrereqError(f"IP version {request.primary_ip_version} is neither 4 nor 6")
    if request.master_netmask is not None:
        settings.netmask(request.master_netmask, IpFamily(_IP_FAMILY[request.primary_ip_version]))
    if request.ssh_key_bits is not None:
        refuse(ssh_key_problem(SshKeyType(request.ssh_key_type), request.ssh_key_bits))
    _check_directories(request)
    settings.compression_tools(request.compression_tools)
    for name in IMAGES:
        if image := getattr(request, name):
            refuse(image_problem(name, image))
    if request.candidate_pool_size < 1:
        raise OpPrereqError("the candidate pool needs room for one node at least")
    _check_block_storage(request)
    for hypervisor in request.hvparams:
        if hypervisor not in request.enabled_hypervisors:
            raise OpPrereqError(
                f"parameters given for hypervisor {hypervisor!r}, which is not enabled"
            )
    for template in request.diskparams:
        if template not in tables.DISKPARAMS:
            raise OpPrereqError(f"parameters given for disk template {template!r}, which is none")
    _parameter_groups(request)
    check_filled_beparams(_beparams(request))  # type: ignore[arg-type]  # types were enforced
    allowed = build_ipolicy(request.ipolicy, templates)["disk-templates"]
    assert isinstance(allowed, Sequence)
    if found := [each for each in allowed if each not in templates]:
        raise OpPrereqError(
            f"the instance policy allows the disk template(s) {', '.join(found)}, which would not"
            " be enabled; give other --ipolicy-disk-templates"
        )


def _check_directories(request: ClusterRequest) -> None:
    for template in file_templates():
        field = template.traits.directory_setting
        path = settings.directory(field, getattr(request, field))
        if template in request.enabled_disk_templates and not path:
            raise OpPrereqError(
                f"the disk template {template!s} is enabled and needs a directory:"
                f" --{field.replace('_', '-')}"
            )


def _check_block_storage(request: ClusterRequest) -> None:
    group = block_storage.volume_group(volume_group_of(request))
    helper = block_storage.helper(helper_of(request))
    names = request.enabled_disk_templates
    for needing, option, value in (
        (block_storage.of_volumes(names), "--vg-name", group),
        (block_storage.of_drbd(names), "--drbd-usermode-helper", helper),
    ):
        if needing and not value:
            raise OpPrereqError(f"the disk template {needing[0]} is enabled and needs {option}")


def key_bits_of(request: ClusterRequest) -> int:
    """Return the length that SSH keys get."""
    return request.ssh_key_bits or SSH_KEY_BITS[SshKeyType(request.ssh_key_type)]


def volume_group_of(request: ClusterRequest) -> str:
    """Return the volume group that a cluster gets, "" for none."""
    usual = USUAL_GROUP if block_storage.of_volumes(request.enabled_disk_templates) else ""
    return usual if request.vg_name is None else request.vg_name


def helper_of(request: ClusterRequest) -> str:
    """Return the program that DRBD is to call, "" for none."""
    usual = USUAL_HELPER if block_storage.of_drbd(request.enabled_disk_templates) else ""
    return usual if request.drbd_helper is None else request.drbd_helper


def _check_names(
    what: str, names: Sequence[str], known: Sequence[str], supported: Sequence[str]
) -> None:
    if not names:
        raise OpPrereqError(f"at least one {what} must be enabled")
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise OpPrereqError(f"{what} {duplicates[0]!r} is given twice")
    for name in names:
        if name not in known:
            raise OpPrereqError(f"unknown {what} {name!r}; known are: {', '.join(sorted(known))}")
        if name not in supported:
            raise NotSupportedError(
                f"{what} {name!r} is not supported yet; supported are: {', '.join(supported)}"
            )


def build_config(request: ClusterRequest, node: FirstNode, birth: Birth) -> dict[str, object]:
    """Return the content of the first ``config.data``, serial number 1.

    Raises:
        OpPrereqError: a parameter is unknown or of the wrong type.
    """
    return {
        "version": CONFIG_VERSION,
        "cluster": _cluster(request, node, birth),
        "nodes": {node.uuid: _node(node, birth)},
        "nodegroups": {birth.group_uuid: _group(birth)},
        **{name: {} for name in ("instances", "networks", "disks", "filters")},
        "ctime": birth.now,
        "mtime": birth.now,
        "serial_no": 1,
    }


# Fields of the cluster that are as requested.
_AS_REQUESTED: Final = (
    *("cluster_name", "master_netdev", "use_external_mip_script", "candidate_pool_size"),
    *("modify_etc_hosts", "modify_ssh_setup", "ssh_key_type", "maintain_node_health"),
    *("prealloc_wipe_disks", "enabled_user_shutdown", *IMAGES),
)
_DIRECTORIES: Final = ("file_storage_dir", "shared_file_storage_dir", "gluster_storage_dir")
_EMPTY_LISTS: Final = ("tcpudp_port_pool", "reserved_lvs", "hidden_os", "blacklisted_os")
_EMPTY_OBJECTS: Final = ("os_hvp", "osparams", "osparams_private_cluster")


def _cluster(request: ClusterRequest, node: FirstNode, birth: Birth) -> dict[str, object]:
    version = request.primary_ip_version
    netmask = request.master_netmask
    collector = {"active": True, "interval": COLLECTOR_INTERVAL_US}
    return {
        **{name: getattr(request, name) for name in _AS_REQUESTED},
        **{name: settings.directory(name, getattr(request, name)) for name in _DIRECTORIES},
        **{name: [] for name in _EMPTY_LISTS},
        **{name: {} for name in _EMPTY_OBJECTS},
        "instance_communication_network": "",
        "ssh_key_bits": key_bits_of(request),
        **_block_storage(request),
        **_parameter_groups(request),
        "rsahostkeypub": birth.host_key,
        "highest_used_port": HIGHEST_USED_PORT,
        "mac_prefix": request.mac_prefix.lower(),
        "master_node": node.uuid,
        "master_ip": birth.master_ip,
        "master_netmask": DEFAULT_NETMASK[version] if netmask is None else netmask,
        "enabled_hypervisors": list(request.enabled_hypervisors),
        "uid_pool": [list(bounds) for bounds in request.uid_pool],
        **_allocators(request),
        "default_iallocator_params": dict(request.default_iallocator_params),
        "primary_ip_family": _IP_FAMILY[version],
        "ipolicy": build_ipolicy(request.ipolicy, request.enabled_disk_templates),
        "enabled_disk_templates": list(request.enabled_disk_templates),
        "candidate_certs": {node.uuid: node.certificate_digest},
        "max_running_jobs": MAX_RUNNING_JOBS,
        "max_tracked_jobs": MAX_TRACKED_JOBS,
        "compression_tools": list(request.compression_tools),
        "data_collectors": {name: dict(collector) for name in COLLECTORS_OF_3_0},
        **_stamps(birth.cluster_uuid, birth),
    }


def _allocators(request: ClusterRequest) -> dict[str, object]:
    first, several = settings.default_allocators(request.default_iallocator or "")
    more = {"default_iallocators": several} if several else {}
    return {"default_iallocator": first, **more}


def _block_storage(request: ClusterRequest) -> dict[str, str]:
    fields = {
        "volume_group_name": volume_group_of(request),
        "drbd_usermode_helper": helper_of(request),
    }
    return {name: value for name, value in fields.items() if value}


def _stamps(uuid: str, birth: Birth) -> dict[str, object]:
    """Return the fields that every object has."""
    return {"uuid": uuid, "ctime": birth.now, "mtime": birth.now, "serial_no": 1, "tags": []}


def _parameter_groups(request: ClusterRequest) -> dict[str, object]:
    hvparams, diskparams = request.hvparams, request.diskparams
    metadata = {"metavg": group} if (group := volume_group_of(request)) else {}
    diskparams = {**diskparams, "drbd": {**metadata, **diskparams.get("drbd", {})}}
    return {
        "hvparams": {
            name: _filled(
                check_hvparams(name, hvparams.get(name, {}), of_cluster=True), HVPARAMS[name]
            )
            for name in request.enabled_hypervisors
        },
        "beparams": {"default": _beparams(request)},
        "nicparams": {"default": settings.nic_defaults({}, request.nicparams)},
        "ndparams": _filled(check_ndparams(request.ndparams, of_node=False), tables.NDPARAMS),
        "diskparams": {
            name: _filled(
                enforced(diskparams.get(name, {}), table, f"{name} disk parameter"), table
            )
            for name, table in tables.DISKPARAMS.items()
        },
        **_states(request),
    }


def _states(request: ClusterRequest) -> dict[str, object]:
    """Return the static figures that are given; objects without any have no such fields."""
    fields = {
        "hv_state_static": check_hv_state(request.hv_state),
        "disk_state_static": check_disk_state(request.disk_state),
    }
    return {name: value for name, value in fields.items() if value}


def _beparams(request: ClusterRequest) -> dict[str, object]:
    return _filled(check_beparams(request.beparams), tables.BEPARAMS)


def _filled(own: Parameters, table: tables.ParamTable) -> dict[str, object]:
    return tables.stored_defaults(table) | without_defaults(own)


def build_ipolicy(own: Parameters, enabled_disk_templates: Sequence[str]) -> dict[str, object]:
    """Return the full instance policy of the cluster.

    Raises:
        OpPrereqError: a value is missing or wrong, or the bounds contradict each other.
    """
    policy = {**tables.IPOLICY_DEFAULTS, "disk-templates": list(enabled_disk_templates), **own}
    std, pairs, usual = own.get("std", {}), policy["minmax"], tables.IPOLICY_DEFAULTS["std"]
    assert isinstance(std, Mapping)
    assert isinstance(usual, Mapping)
    assert isinstance(pairs, Sequence)
    policy["std"] = {**usual, **_numbers(std)}
    policy["minmax"] = [{which: _numbers(spec) for which, spec in pair.items()} for pair in pairs]
    for problem in policy_problems(policy, of_cluster=True, partial=False):
        raise OpPrereqError(f"instance policy: {problem}")
    return policy


def _numbers(spec: Mapping[str, object]) -> dict[str, object]:
    return enforced(spec, tables.ISPEC_TABLE, "instance specification")


def _node(node: FirstNode, birth: Birth) -> dict[str, object]:
    return {
        "name": node.name,
        "primary_ip": node.primary_ip,
        "secondary_ip": node.secondary_ip,
        **dict.fromkeys(("master_candidate", "master_capable", "vm_capable", "powered"), True),
        **dict.fromkeys(("offline", "drained"), False),
        "group": birth.group_uuid,
        "ndparams": {},
        **_stamps(node.uuid, birth),
    }


def _group(birth: Birth) -> dict[str, object]:
    return {
        "name": INITIAL_GROUP_NAME,
        "members": [],
        "alloc_policy": "preferred",
        **{name: {} for name in ("ndparams", "ipolicy", "diskparams", "networks")},
        **_stamps(birth.group_uuid, birth),
    }
