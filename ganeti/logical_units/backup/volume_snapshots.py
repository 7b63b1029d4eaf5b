"""Snapshots of an instance's volumes for an export: it is down only while they are taken.

The snapshots lie beside the volumes, each with the name of its disk.  A job that is killed leaves
them: the next export removes them, and nodes do with the disk.
"""

from __future__ import annotations

from functools import partial

from msgspec import structs

from ganeti.base.errors import OpExecError
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import export_snapshot
from ganeti.objects.model import Disk
from ganeti.protocol.node_calls import NodeCalls


def can_be_taken(view: InstanceView) -> bool:
    """Tell whether all disks are volumes or images of which there can be snapshots beside them."""
    return bool(view.disks) and all(disk.traits.keeps_snapshots for disk in view.disks)


def take(context: JobContext, view: InstanceView, undo: Undo) -> InstanceView | None:
    """Take a snapshot of each disk; returns the instance with these in the place of its disks.

    Returns:
        None where they cannot be taken, such as for lack of room: that is told, and none is left.
    """
    taken = view
    try:
        for index, disk in enumerate(view.disks):
            name = export_snapshot(disk.uuid)
            nodes = context.nodes.on(
                view.primary, f"take a snapshot of disk {index} of instance {view.name!r}"
            )
            wire = view.disk_wire(disk, view.primary)
            copy = structs.replace(disk, logical_id=nodes.blockdev_snapshot(wire, name, disk.size))
            disks = [copy if each is disk else each for each in taken.disks]
            taken = taken.with_instance(view.instance, disks)
            what = f"remove the snapshot {name} of disk {index} of instance {view.name!r}"
            undo.push(what, partial(_remove, context, taken, index, what))
    except OpExecError as err:
        context.warn(f"{err}; instance {view.name} stays down while it is exported")
        drop(context, view, taken)
        return None
    return taken


def remove_left(context: JobContext, view: InstanceView) -> None:
    """Remove the snapshots that a killed job has left; a failure is told."""
    if not can_be_taken(view):
        return
    for index, disk in enumerate(view.disks):
        copy = structs.replace(disk, logical_id=_id_of_snapshot(disk))
        wire = view.disk_wire(copy, view.primary)
        found = context.nodes.call_one(NodeCalls.blockdev_find, view.primary, wire)
        if found.error is None and found.payload is not None:
            doing = f"remove the snapshot that an export has left of disk {index}"
            context.attempt(doing, NodeCalls.blockdev_remove, view.primary, wire)


def _id_of_snapshot(disk: Disk) -> list[object]:
    """Return what `blockdev_snapshot` answers."""
    (first, last), name = disk.logical_id, export_snapshot(disk.uuid)
    return [first, name if disk.traits.is_lvm else f"{last}@{name}"]


def _remove(context: JobContext, taken: InstanceView, index: int, what: str) -> None:
    nodes = context.nodes.on(taken.primary, what)
    nodes.blockdev_remove(taken.disk_wire(taken.disks[index], taken.primary))


def drop(context: JobContext, view: InstanceView, taken: InstanceView) -> None:
    """Remove the snapshots of an instance's disks; a failure is told, with the volume's name."""
    for index, (disk, copy) in enumerate(zip(view.disks, taken.disks, strict=True)):
        if copy is disk:
            continue
        volume = "/".join(map(str, copy.logical_id))
        doing = (
            f"remove the snapshot of disk {index} of instance {view.name!r} (if it is left, remove"
            f" {volume} by hand on node {view.primary.name})"
        )
        wire = taken.disk_wire(copy, view.primary)
        context.attempt(doing, NodeCalls.blockdev_remove, view.primary, wire)
