"""Disks of an instance on its nodes: make, wipe, make ready, close, remove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import GenericError
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.files import own_directories
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.objects.model import Disk, Node
from ganeti.protocol.node_calls import NodeCalls

DISK_INFO: Final = "originstname+"  # what is written beside a disk, before the instance's name
WIPE_CHUNK_MIB_MAX: Final = 1024  # MAX_WIPE_CHUNK
WIPE_CHUNK_PERCENT: Final = 10.0  # MIN_WIPE_CHUNK_PERCENT

Ready = tuple[str, str, str | None]  # node name, name in the instance, device if there is one


def activate(context: JobContext, view: InstanceView, node: Node) -> list[Ready]:
    """Make the disks ready on a node.

    Raises:
        OpExecError: one of them cannot be; those already made ready are closed again.
    """
    ready: list[Ready] = []
    wire = view.wire()
    try:
        for index, disk in enumerate(view.disks):
            answer = context.nodes.on(
                node, f"activate disk {index} of instance {view.instance.name!r}"
            ).blockdev_assemble(view.disk_wire(disk), wire, on_primary=True, idx=index)
            ready.append((node.name, disk.iv_name, _device(answer)))
    except GenericError:
        deactivate(context, view, node)
        raise
    return ready


def _device(answer: object) -> str | None:
    """Return the device or file; the address where there is no device on the node itself."""
    match answer:
        case [str(path), *_] if path:
            return path
        case [_, _, str(uri)] if uri:
            return uri
        case _:
            return None


def deactivate(context: JobContext, view: InstanceView, node: Node) -> bool:
    """Close the disks on a node; failures are told and passed over.

    Returns:
        Whether all of them were closed.
    """
    done = True
    for index, disk in enumerate(view.disks):
        result = context.nodes.call_one(NodeCalls.blockdev_shutdown, node, view.disk_wire(disk))
        if result.error is not None:
            doing = f"deactivate disk {index} of instance {view.instance.name!r}"
            context.warn(result.explain(doing))
            done = False
    return done


def remove(context: JobContext, view: InstanceView) -> list[str]:
    """Remove the disks from all nodes that hold them; failures are told and passed over.

    Returns:
        What failed, in words; nothing if all of them are gone.
    """
    failed = []
    holders = _holders(view)
    for index, disk in enumerate(view.disks):
        if disk.forthcoming:
            continue  # never made
        for node in holders:
            result = context.nodes.call_one(NodeCalls.blockdev_remove, node, view.disk_wire(disk))
            if result.error is not None:
                doing = f"remove disk {index} of instance {view.instance.name!r}"
                failed.append(result.explain(doing))
                context.warn(failed[-1])
    if not failed:
        remove_directory(context, view)
    return failed


def _holders(view: InstanceView) -> list[Node]:
    """Return the nodes to remove disks from: one is enough where storage is shared."""
    return view.nodes if view.traits.mirrored else view.nodes[:1]


def remove_directory(context: JobContext, view: InstanceView) -> None:
    """Remove the directories that held the files of an instance; a failure is told."""
    remove_directories(context, view.primary, own_directories(view))


def remove_directories(context: JobContext, node: Node, paths: Sequence[str]) -> None:
    """Remove empty directories; failures are told."""
    for path in paths:
        result = context.nodes.call_one(NodeCalls.file_storage_dir_remove, node, path)
        if result.error is not None:
            doing = f"remove directory {path}"
            context.warn(result.explain(doing))


def make_directory(context: JobContext, node: Node, directory: str, undo: Undo) -> None:
    """Make a directory for files of an instance; the undo step removes it again."""
    context.nodes.on(node, f"create directory {directory}").file_storage_dir_create(directory)
    what = f"remove directory {directory}"
    undo.push(what, lambda: context.nodes.on(node, what).file_storage_dir_remove(directory))


def make_disk(
    context: JobContext, view: InstanceView, node: Node, index: int, disk: Disk, undo: Undo
) -> Disk:
    """Make a disk on a node, wiped if the cluster wants that; returns it as it is now.

    The undo step removes it again.

    Raises:
        OpExecError: it was not made.
    """
    name = view.instance.name
    made = [disk]
    what = f"remove disk {index} of instance {name!r}"
    # Pushed first: an answer that is lost on its way must not leave the disk behind.
    undo.push(what, lambda: context.nodes.on(node, what).blockdev_remove(view.disk_wire(made[0])))
    answer = context.nodes.on(
        node, f"create disk {index} ({disk.dev_type}, {disk.size} MiB) of instance {name!r}"
    ).blockdev_create(
        view.disk_wire(disk),
        disk.size,
        name,
        on_primary=True,
        info=DISK_INFO + name,
        exclusive_storage=False,
    )
    if isinstance(answer, list) and answer:
        made[0] = replace(disk, logical_id=answer)
    if view.cluster.prealloc_wipe_disks and not disk.traits.must_adopt:
        wipe(context, view, node, index, made[0])
    return made[0]


def wipe(
    context: JobContext,
    view: InstanceView,
    node: Node,
    index: int,
    disk: Disk,
    start_mib: int = 0,
    *,
    can_stop: bool = True,
) -> None:
    """Overwrite a disk from a place on, piece by piece.

    Args:
        can_stop: the job can be canceled between pieces.
    """
    doing = f"wipe disk {index} of instance {view.instance.name!r}"
    chunk_mib = max(1, min(WIPE_CHUNK_MIB_MAX, int(disk.size * WIPE_CHUNK_PERCENT / 100)))
    wire = view.disk_wire(disk)
    for offset_mib in range(start_mib, disk.size, chunk_mib):
        if can_stop:
            context.check_canceled()
        length_mib = min(chunk_mib, disk.size - offset_mib)
        context.nodes.on(node, doing).blockdev_wipe(wire, offset_mib, length_mib)
        done = 100 * (offset_mib + length_mib) / disk.size
        context.feedback(f" - INFO: * wiping disk {index}: done {done:.1f}%")
