"""Chains of exports: a whole one, and what changed on the disks from point to point.

A point is made as any export is, in a directory of its own, and joins the chain by one step, so
that whatever breaks off leaves the chain as it was.  What a guest writes is recorded under the name
of the point from which on that is wanted; the record is given up only when the next point is there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units.backup.exports import EXPORT_DIR, nodes_with_export, read_description
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.copying import Place
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.model import Disk, Node
from ganeti.protocol.export_description import (
    PARTIAL_SUFFIX,
    ExportDescription,
    difference_name,
    disk_of_dump,
    dump_name,
    point_directory,
    sums_name,
)
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import ChainPoint


@dataclass(frozen=True, slots=True)
class NewPoint:
    """The point of a chain that an export makes.

    Attributes:
        uuid: its own name.
        number: 0 for the first one.
        since: the point before; empty for the first one.
        known: for the disks of that point, the file with the checksums of its blocks, and their
            root.
    """

    uuid: str
    number: int = 0
    since: str = ""
    known: Mapping[str, tuple[str, str]] | None = None

    def target(self, node: Node, name: str, disk: Disk) -> Place:
        """Return the file that takes the changes of a disk, or all of it."""
        known = (self.known or {}).get(disk.uuid)
        dump = dump_name(disk.uuid) if known is None else difference_name(disk.uuid)
        path = f"{EXPORT_DIR}/{name}{PARTIAL_SUFFIX}/{dump}"
        return Place(node, ("increment", [path, *(known or ("", ""))]))

    def tell_what_is_read(
        self, context: JobContext, view: InstanceView, recorded: Collection[str]
    ) -> None:
        """Say which disks are read wholly, and why."""
        for index, disk in enumerate(view.disks):
            if not self.number:
                continue
            if disk.uuid not in (self.known or {}):
                context.info(f"disk {index} is not in point {self.number - 1}: all of it is dumped")
            elif disk.uuid not in recorded:
                context.info(
                    f"nobody recorded where disk {index} was written since point"
                    f" {self.number - 1}: all of it is read and compared"
                )


NO_POINT: Final = NewPoint("")  # of an export that belongs to no chain


def disk_changes(view: InstanceView, disk: Disk, *, is_live: bool, is_recorded: bool) -> Place:
    """Return what changed on a disk, or in its snapshot while the instance goes on."""
    wire = view.disk_wire(disk, view.primary).to_wire()
    return Place(view.primary, ("changes", [wire, is_live, is_recorded]))


def disk_in_chain(node: Node, export: str, number: int, dump: str) -> Place:
    """Return a disk as it was at a point of a chain."""
    return Place(node, ("chain", [export, number, dump]))


def points_of(context: JobContext, node: Node, export: str) -> Sequence[ChainPoint]:
    """Return the points of an export; none if it is broken, or the node is of another version.

    Raises:
        OpPrereqError: the node did not tell, so that it is not known which there are.
    """
    result = context.nodes.call_one(NodeCalls.export_chains, node, [export])
    if result.lacks_call:
        return []
    if result.error is not None:
        doing = f"find the points of the export {export!r}"
        raise OpPrereqError(result.explain(doing), ErrorCode.ENVIRON)
    return result.payload[0][1] if result.payload else []


def require_point(points: Sequence[ChainPoint], number: int, what: str) -> ChainPoint:
    """Return the point of that number.

    Raises:
        OpPrereqError: there is none; names those that there are.
    """
    for point in points:
        if point.number == number:
            return point
    known = ", ".join(str(point.number) for point in points) or "none"
    raise OpPrereqError(f"{what} has no point {number}; it has {known}", ErrorCode.NOENT)


def plan_point(
    context: JobContext, view: InstanceView, target: Node, others: Sequence[Node]
) -> NewPoint:
    """Decide what an export builds on; says so when it is a full one, and why.

    Raises:
        OpPrereqError: the target does not tell what it has, which a full one would replace.
    """
    name = view.name
    names = context.nodes.check(target, f"look for an export of {name!r}").export_list()
    points = points_of(context, target, name) if name in names else []
    if not points:
        elsewhere = ", ".join(node.name for node in nodes_with_export(context, others, name))
        rest = f"; it takes the place of the one on {elsewhere}" if elsewhere else ""
        return _full(context, f"node {target.name} has no export of {name}{rest}")
    last = points[-1]
    path = point_directory(f"{EXPORT_DIR}/{name}", last.number, points[0].number)
    description = read_description(context, target, path)
    if not description.point:
        return _full(context, f"the export on {target.name} was made without --incremental")
    if description.instance_uuid != view.instance.uuid:
        return _full(context, f"the export on {target.name} is that of another instance {name}")
    known = _known_disks(description, path, last.with_sums)
    if not known.keys() & {disk.uuid for disk in view.disks}:
        return _full(context, f"point {last.number} on {target.name} has none of its disks")
    return NewPoint(context.new_uuid(), last.number + 1, description.point, known)


def _full(context: JobContext, why: str) -> NewPoint:
    context.info(f"this is a full export, with which a chain begins: {why}")
    return NewPoint(context.new_uuid())


def _known_disks(
    description: ExportDescription, path: str, with_sums: Collection[str]
) -> dict[str, tuple[str, str]]:
    uuids = {disk_of_dump(disk.dump): disk for disk in description.disks if disk.root}
    return {
        uuid: (f"{path}/{sums_name(uuid)}", disk.root)
        for uuid, disk in uuids.items()
        if uuid in with_sums
    }
