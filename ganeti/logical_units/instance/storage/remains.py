"""What an interrupted job has left of a disk on a node that is to get it.

A disk that gets another node keeps the names of its volumes, or the path of its file.  So a job
that ended in the middle leaves them in the way of the next one; the configuration says that the
disk is not there, so nobody needs them.  Only names that this program makes are trusted: what was
adopted has the name that its owner gave it, and a thing of that name on another node may be
somebody else's.
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
    """Remove all parts of a disk from a node that does not have it yet.

    Raises:
        OpExecError: one is there that may not be ours, or cannot be removed.
    """
    wire = view.disk_wire(disk, node)
    if _are_left(context, view, node, index, wire.children or [wire]):
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
    """Return whether any of the parts is there; all of them have to be ours then."""
    calls = context.nodes.on(node, f"look for remains of disk {index} of instance {view.name!r}")
    left = [part for part in parts if calls.blockdev_find(part) is not None]
    for part in left:
        if not _is_ours(view, part):
            thing, hint = _words(part)
            raise OpExecError(
                f"node {node.name!r} has a {thing} already, which may be somebody else's, and"
                f" disk {index} of instance {view.name!r} needs that name there; make room with"
                f" {hint} on {node.name}"
            )
    if left:
        context.info(f"node {node.name} has remains of disk {index} of an earlier try")
    return bool(left)


def _words(part: RpcDisk) -> tuple[str, str]:
    """Return what a part is called, and the commands that make room for another."""
    first, last = map(str, part.logical_id)
    if part.traits.is_lvm:
        return f"logical volume {first}/{last}", "'lvremove' or 'lvrename'"
    return f"file {last}", "'rm' or 'mv'"


def _is_ours(view: InstanceView, part: RpcDisk) -> bool:
    """Tell whether nobody else has a disk there: by its name, or by the instance's directory."""
    directory, _, name = str(part.logical_id[-1]).rpartition("/")
    return is_made_name(name) or directory.rpartition("/")[2] == view.name
