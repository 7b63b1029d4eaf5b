"""Instances and disks as the node daemon gets them: defaults filled in, everything in one value.

Source: node_rpc.json, "encoders"; constants.json, "diskparams_on_device_level".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from msgspec import field
from msgspec.structs import asdict

from ganeti.base.ids import NodeUuid
from ganeti.base.json import JsonValue
from ganeti.objects import fill
from ganeti.objects.disk_templates import FORMAT, MIXED, DiskTemplate
from ganeti.objects.model import Cluster, Disk, Instance, Network, NodeGroup
from ganeti.objects.nic import NIC
from ganeti.objects.parameters import DISKPARAMS
from ganeti.objects.record import PrivateParams

_NO_PARAMS: Final[Mapping[str, object]] = {}
_DRBD_CHILD_STRIPES: Final = ("data-stripes", "meta-stripes")  # of the children in their order
DRBD_DEVICE_NAMES: Final = {
    "disk-barriers": "disabled-barriers",
    "meta-barriers": "disable-meta-flush",
    "metavg": "default-metavg",
}
"""Parameters of template drbd that have another name on the level of the device."""


class RpcNIC(NIC, frozen=True, kw_only=True):
    """A NIC with filled parameters and its network; ``pci`` and ``hvinfo`` belong to hotplug."""

    LEFT_OUT: ClassVar[Mapping[str, object]] = {
        **NIC.LEFT_OUT,
        "netinfo": None,
        "pci": None,
        "hvinfo": None,
    }

    nicparams: fill.NicParams  # narrower: filled
    netinfo: Network | None = None
    pci: int | str | None = None
    hvinfo: JsonValue = None


class RpcDisk(Disk, frozen=True, kw_only=True):
    """A disk with parameters of the device level filled in, for one node.

    ``dynamic_params`` are the parameters that depend on that node: for drbd ``local-ip``,
    ``remote-ip``, ``port``, ``local-minor``, ``remote-minor``; {} for the others.
    """

    LEFT_OUT: ClassVar[Mapping[str, object]] = {**Disk.LEFT_OUT, "pci": None, "hvinfo": None}

    serial_no: int = 0  # a disk that is about to be made has none when 3.0 sends it
    children: list[RpcDisk] = []  # type: ignore[assignment]  # narrower
    dynamic_params: Mapping[str, JsonValue] = {}
    pci: int | str | None = None
    hvinfo: JsonValue = None


class RpcInstance(Instance, frozen=True, kw_only=True):
    """An instance with everything that a node needs to make, start or move it.

    ``osparams`` may hold private and secret values too, so it hides all values.
    """

    LEFT_OUT: ClassVar[Mapping[str, object]] = {**Instance.LEFT_OUT, "disk_template": None}

    serial_no: int = 0  # as that of a disk
    hvparams: Mapping[str, JsonValue]
    beparams: fill.BeParams  # narrower: filled
    osparams: PrivateParams = field(default_factory=PrivateParams)  # type: ignore[assignment]
    nics: list[RpcNIC] = []  # type: ignore[assignment]  # narrower
    secondary_nodes: list[NodeUuid] = []
    disks_info: list[RpcDisk] = []
    disk_template: str | None = None


def secondary_nodes(instance: Instance, disks: Sequence[Disk]) -> list[NodeUuid]:
    """Return the UUIDs of the nodes that hold disks of the instance, without its primary node."""
    found: list[NodeUuid] = []
    for disk in disks:
        for uuid in disk.nodes:
            if uuid != instance.primary_node and uuid not in found:
                found.append(NodeUuid(uuid))
    return found


def _device_params(template: str, params: Mapping[str, object]) -> dict[str, object]:
    """Turn the parameters of a template into those of its device."""
    if template != DiskTemplate.DRBD:
        return dict(params)
    return {
        DRBD_DEVICE_NAMES.get(name, name): value
        for name, value in params.items()
        if name not in _DRBD_CHILD_STRIPES
    }


def drbd_dynamic_params(
    disk: Disk, node_uuid: NodeUuid, secondary_ips: Mapping[NodeUuid, str]
) -> dict[str, object]:
    """Return the parameters of a drbd device on one of its two nodes ({} on any other)."""
    node_a, node_b, port, minor_a, minor_b, _secret = disk.logical_id
    ends = [(str(node_a), minor_a), (str(node_b), minor_b)]
    if node_uuid == node_b:
        ends.reverse()
    elif node_uuid != node_a:
        return {}
    (local, local_minor), (remote, remote_minor) = ends
    return {
        "port": port,
        "local-ip": secondary_ips[NodeUuid(local)],
        "remote-ip": secondary_ips[NodeUuid(remote)],
        "local-minor": local_minor,
        "remote-minor": remote_minor,
    }


def build_rpc_disk(
    cluster: Cluster,
    group: NodeGroup,
    disk: Disk,
    *,
    node_uuid: NodeUuid | None = None,
    secondary_ips: Mapping[NodeUuid, str] | None = None,
) -> RpcDisk:
    """Build a disk as the node daemon gets it.

    ``node_uuid`` is the node that it is sent to and ``secondary_ips`` the secondary address of
    each node of the disk; both are needed for drbd only.
    """
    params = fill.fill_diskparams(cluster, group, disk.dev_type, disk.params or {})
    if FORMAT not in (disk.params or {}):  # only new disks get that of the cluster
        params.pop(FORMAT, None)
    params = _without_unset(disk.dev_type, params)
    is_drbd = disk.dev_type == DiskTemplate.DRBD
    dynamic: Mapping[str, object] = _NO_PARAMS
    if is_drbd and node_uuid is not None and secondary_ips is not None:
        dynamic = drbd_dynamic_params(disk, node_uuid, secondary_ips)
    of_children = [{"stripes": params[name]} for name in _DRBD_CHILD_STRIPES] if is_drbd else ()
    children = [
        _rpc_disk(child, {**child_params, **(child.params or {})}, [], _NO_PARAMS)
        for child, child_params in zip(disk.children, of_children, strict=False)
    ]
    return _rpc_disk(disk, _device_params(disk.dev_type, params), children, dynamic)


def _without_unset(template: str, params: Mapping[str, object]) -> dict[str, object]:
    """Leave parameters of ours out that nobody has set: 3.0's nodes do not know them."""
    table = DISKPARAMS.get(template, {})
    return {
        name: value
        for name, value in params.items()
        if name not in table or not table[name].is_ours or value != table[name].default
    }


def _rpc_disk(
    disk: Disk, params: Mapping[str, object], children: list[RpcDisk], dynamic: Mapping[str, object]
) -> RpcDisk:
    fields = asdict(disk)
    fields.update(params=params, children=children, dynamic_params=dynamic)
    return RpcDisk(**fields)


def build_rpc_nic(cluster: Cluster, nic: NIC, networks: Mapping[str, Network]) -> RpcNIC:
    """Build a NIC as the node daemon gets it; ``networks`` are those it may be in, by UUID."""
    fields = asdict(nic)
    netinfo = networks.get(nic.network) if nic.network is not None else None
    fields.update(nicparams=fill.fill_nicparams(cluster, nic), netinfo=netinfo)
    return RpcNIC(**fields)


def build_rpc_instance(
    cluster: Cluster,
    group: NodeGroup,
    instance: Instance,
    disks: Sequence[Disk],
    *,
    networks: Mapping[str, Network] | None = None,
    secondary_ips: Mapping[NodeUuid, str] | None = None,
    node_uuid: NodeUuid | None = None,
    hvp: Mapping[str, object] | None = None,
    bep: Mapping[str, object] | None = None,
    osp: PrivateParams | Mapping[str, object] | None = None,
) -> RpcInstance:
    """Build an instance as the node daemon gets it.

    ``group`` is that of the primary node, ``disks`` are in the order of ``instance.disks``, and
    ``node_uuid`` is the node it is sent to (the primary one if None).  ``hvp``, ``bep`` and
    ``osp`` are laid over the filled parameters: ``osp`` is where private and secret parameters
    come in, for the calls that run OS scripts.
    """
    node_uuid = node_uuid or instance.primary_node
    fields = asdict(instance)
    fields.update(
        hvparams={**fill.fill_hvparams(cluster, instance), **(hvp or {})},
        beparams={**fill.fill_beparams(cluster, instance), **(bep or {})},
        osparams=PrivateParams(fill.fill_osparams(cluster, instance.os, instance.osparams)).merged(
            osp or {}
        ),
        nics=[build_rpc_nic(cluster, nic, networks or {}) for nic in instance.nics],
        secondary_nodes=secondary_nodes(instance, disks),
        disks_info=[
            build_rpc_disk(cluster, group, disk, node_uuid=node_uuid, secondary_ips=secondary_ips)
            for disk in disks
        ],
        disk_template=disk_template(disks),
        rehearsal=None,  # no node needs it
    )
    return RpcInstance(**fields)


def disk_template(disks: Sequence[Disk]) -> str:
    """Tell the disk template of an instance from its disks: diskless without, mixed if unlike."""
    if not disks:
        return str(DiskTemplate.DISKLESS)
    kind = disks[0].dev_type
    return kind if len(disks) == 1 or all(disk.dev_type == kind for disk in disks) else MIXED
