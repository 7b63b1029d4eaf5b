"""What an interrupted job has left of a disk on a node that is to get it.

A disk that gets a second node keeps the names of its volumes.  So a job that ended in the middle
leaves volumes in the way of the next one; the configuration says that the disk is not there, so
nobody needs them.  Only names that this program makes are trusted: an adopted volume has the name
that its owner gave it, and a volume of that name on another node may be somebody else's.
"""

from __future__ import annotations

from collections.abc import Sequence

from ganeti.base.errors import OpExecError
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.planning import is_made_name
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.model import Disk, Node
from ganeti.objects.rpc_instance import RpcDisk


def remove_remains(
    context: JobContext, view: InstanceView, node: Node, index: int, disk: Disk
) -> None:
    """Remove all volumes of a disk from a node that does not have it yet.

    Raises:
        OpExecError: one is there that may not be ours, or cannot be removed.
    """
    wire = view.disk_wire(disk, node)
    if _are_left(context, view, node, index, wire.children):
        context.nodes.on(node, _doing(view, index)).blockdev_remove(wire)


def remove_metadata(
    context: JobContext, view: InstanceView, node: Node, index: int, disk: Disk
) -> None:
    """Remove the metadata that was made for a disk whose data volume stays as it is.

    Raises:
        OpExecError: a volume is there that may not be ours, or cannot be removed.
    """
    wire = view.disk_wire(disk, node)
    _data, meta = wire.children
    if _are_left(context, view, node, index, [meta]):
        calls = context.nodes.on(node, _doing(view, index))
        calls.blockdev_shutdown(wire)
        calls.blockdev_remove(meta)


def _doing(view: InstanceView, index: int) -> str:
    return f"remove remains of disk {index} of instance {view.name!r}"


def _are_left(
    context: JobContext, view: InstanceView, node: Node, index: int, parts: Sequence[RpcDisk]
) -> bool:
    """Return whether any of the volumes is there; all of them have to be ours then."""
    calls = context.nodes.on(node, f"look for remains of disk {index} of instance {view.name!r}")
    left = ["/".join(map(str, part.logical_id)) for part in parts if calls.blockdev_find(part)]
    for path in left:
        if not is_made_name(path.rpartition("/")[2]):
            raise OpExecError(
                f"node {node.name!r} has a logical volume {path} already, which may be somebody"
                f" else's, and disk {index} of instance {view.name!r} needs that name there; if"
                f" nobody needs the volume: 'lvremove {path}' on {node.name}, else 'lvrename'"
            )
    if left:
        context.info(f"node {node.name} has remains of disk {index} of an earlier try")
    return bool(left)
