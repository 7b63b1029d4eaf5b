"""Disks of an instance on its nodes: make, wipe, make ready, close, remove."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import GenericError
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.files import own_directories
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.objects.model import Disk, Node
from ganeti.protocol.node_calls import NodeCalls

DISK_INFO: Final = "originstname+"  # the note beside a disk, before the instance's name
WIPE_CHUNK_MIB_MAX: Final = 1024  # MAX_WIPE_CHUNK
WIPE_CHUNK_PERCENT: Final = 10.0  # MIN_WIPE_CHUNK_PERCENT

Ready = tuple[str, str, str | None]  # node name, name in the instance, device if there is one


def activate(context: JobContext, view: InstanceView, node: Node) -> list[Ready]:
    """Make the disks ready on a node.

    Raises:
        OpExecError: one of them cannot be; those already made ready are closed again.
    """
    ready: list[Ready] = []
    wire = view.wire(node)
    try:
        for index, disk in enumerate(view.disks):
            doing = f"activate disk {index} of instance {view.name!r}"
            nodes, disk_wire = context.nodes.on(node, doing), view.disk_wire(disk, node)
            answer = nodes.blockdev_assemble(disk_wire, wire, on_primary=True, idx=index)
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


def indexes_on(
    context: JobContext, view: InstanceView, node: Node, disks: Iterable[Disk], *, there: bool
) -> list[int]:
    """Return the indexes of the instance's disks that a node has, or of the disks that it lacks.

    Raises:
        OpPrereqError: it does not answer.
    """
    found = []
    for disk in disks:
        index = view.instance.disks.index(disk.uuid)
        nodes = context.nodes.check(node, f"look for disk {index} of instance {view.name!r}")
        if (nodes.blockdev_find(view.disk_wire(disk, node)) is not None) == there:
            found.append(index)
    return found


def deactivate(context: JobContext, view: InstanceView, node: Node) -> bool:
    """Close the disks on a node; failures are told and passed over.

    Returns:
        Whether all of them were closed.
    """
    name, call = view.name, NodeCalls.blockdev_shutdown
    done = [
        context.attempt(
            f"deactivate disk {index} of instance {name!r}", call, node, view.disk_wire(disk, node)
        )
        for index, disk in enumerate(view.disks)
    ]
    return all(done)


def remove(context: JobContext, view: InstanceView) -> list[str]:
    """Remove the disks from all nodes that hold them; failures are told and passed over.

    Returns:
        The texts of the failures; none if all of the disks are gone.
    """
    failed: list[str] = []
    holders = view.nodes if view.traits.mirrored else view.nodes[:1]  # one, of shared storage
    for index, disk in enumerate(view.disks):
        doing = f"remove disk {index} of instance {view.name!r}"
        for node in () if disk.forthcoming else holders:  # a forthcoming one was never made
            call = NodeCalls.blockdev_remove
            failure = context.failure(doing, call, node, view.disk_wire(disk, node))
            if failure is not None:
                failed.append(failure)
                context.warn(failure)
    if not failed:
        remove_directories(context, view.primary, own_directories(view))
    return failed


def remove_directories(context: JobContext, node: Node, paths: Sequence[str]) -> None:
    """Remove empty directories; failures are told."""
    for path in paths:
        doing = f"remove directory {path}"
        context.attempt(doing, NodeCalls.file_storage_dir_remove, node, path)


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
    name = view.name
    made = [disk]
    what = f"remove disk {index} of instance {name!r}"
    # Pushed first: an answer that is lost on its way must not leave the disk behind.
    undo.push(
        what, lambda: context.nodes.on(node, what).blockdev_remove(view.disk_wire(made[0], node))
    )
    answer = context.nodes.on(
        node, f"create disk {index} ({disk.dev_type}, {disk.size} MiB) of instance {name!r}"
    ).blockdev_create(
        view.disk_wire(disk, node),
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
    doing = f"wipe disk {index} of instance {view.name!r}"
    chunk_mib = max(1, min(WIPE_CHUNK_MIB_MAX, int(disk.size * WIPE_CHUNK_PERCENT / 100)))
    wire = view.disk_wire(disk, node)
    for offset_mib in range(start_mib, disk.size, chunk_mib):
        if can_stop:
            context.check_canceled()
        length_mib = min(chunk_mib, disk.size - offset_mib)
        context.nodes.on(node, doing).blockdev_wipe(wire, offset_mib, length_mib)
        done = 100 * (offset_mib + length_mib) / disk.size
        context.feedback(f" - INFO: * wiping disk {index}: done {done:.1f}%")
