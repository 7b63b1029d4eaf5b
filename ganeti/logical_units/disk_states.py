"""States of disks and of their parts, as the nodes that hold them tell: one call of each node.

Source: node_rpc.json, blockdev_getmirrorstatus_multi, "BlockDevStatus".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ganeti.base.ids import NodeUuid
from ganeti.clients.node_rpc import target_of
from ganeti.logical_units.context import JobContext
from ganeti.objects.model import Cluster, Disk, Instance, Node, NodeGroup
from ganeti.objects.rpc_instance import RpcDisk, build_rpc_disk
from ganeti.protocol.node_calls import NodeCalls

STATUS_FIELDS: Final = (
    "dev_path",
    "major",
    "minor",
    "sync_percent",
    "estimated_time",
    "is_degraded",
    "ldisk_status",
)


@dataclass(frozen=True, slots=True)
class DiskState:
    """The state of a disk on a node.

    Attributes:
        status: the values of `STATUS_FIELDS`; None if the node has no such disk, or cannot tell.
        error: why there is no status.
    """

    status: list[object] | None = None
    error: str = ""


DiskStates = Mapping[tuple[NodeUuid, str], DiskState]  # by node and UUID of the disk or part
NOT_ASKED: Final = DiskState()


def holders(instance: Instance, disk: Disk) -> list[NodeUuid]:
    """Return the nodes that are asked about a disk: of those that all nodes reach the primary."""
    return list(map(NodeUuid, disk.nodes)) or [instance.primary_node]


def ask_disks(
    context: JobContext,
    cluster: Cluster,
    nodes: Mapping[NodeUuid, Node],
    groups: Mapping[str, NodeGroup],
    disks: Iterable[tuple[Instance, Disk]],
) -> dict[tuple[NodeUuid, str], DiskState]:
    """Ask all nodes at once; nothing is known of the disks of one that does not answer.

    Args:
        nodes: all nodes of the disks.
        groups: the groups of these nodes.
    """
    ips = {uuid: node.secondary_ip for uuid, node in nodes.items()}
    asked: dict[NodeUuid, list[RpcDisk]] = {}
    for instance, disk in disks:
        group = groups[nodes[instance.primary_node].group]
        for uuid in () if disk.forthcoming else holders(instance, disk):
            built = build_rpc_disk(cluster, group, disk, node_uuid=uuid, secondary_ips=ips)
            asked.setdefault(uuid, []).extend(_with_parts(built))
    if not asked:
        return {}
    targets = {target_of(nodes[uuid]): (parts,) for uuid, parts in asked.items()}
    results = context.nodes.call_each(NodeCalls.blockdev_getmirrorstatus_multi, targets)
    return {
        (uuid, part.uuid): _state(answer)
        for uuid, parts in asked.items()
        if results[nodes[uuid].name].error is None
        for part, answer in zip(parts, results[nodes[uuid].name].payload, strict=False)
    }


def _with_parts(disk: RpcDisk) -> Iterator[RpcDisk]:
    yield disk
    for child in disk.children:
        yield from _with_parts(child)


def _state(answer: object) -> DiskState:
    match answer:
        case [True, Mapping() as status]:
            return DiskState([status.get(name) for name in STATUS_FIELDS])
        case [True, [*values]]:
            return DiskState(values)
        case [False, str(error)]:
            return DiskState(error=error)
        case _:
            return DiskState(error=f"unexpected answer {answer!r}")
