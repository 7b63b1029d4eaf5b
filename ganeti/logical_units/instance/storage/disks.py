"""Disks of an instance on its nodes: make, wipe, make ready, close, remove.

A disk with a copy is made ready on all its nodes at once, first as secondary everywhere, so that
the two sides have met before one of them may write; then on the node that is to write.  It is
closed and removed everywhere, too.  A node that is marked offline is passed over, unless it is to
write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import GenericError, NodeNotReachedError, OpExecError
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.files import own_directories
from ganeti.logical_units.instance.storage.lvm_disks import has_exclusive_storage
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import MACHINE_DISKS
from ganeti.objects.model import Disk, Node
from ganeti.objects.rpc_instance import RpcDisk
from ganeti.protocol.node_calls import NodeCalls

DISK_INFO: Final = "originstname+"  # the note beside a disk, before the instance's name
WIPE_CHUNK_MIB_MAX: Final = 1024  # MAX_WIPE_CHUNK
WIPE_CHUNK_PERCENT: Final = 10.0  # MIN_WIPE_CHUNK_PERCENT

Ready = tuple[str, str, str | None]  # node name, name in the instance, device if there is one


def mirrored(view: InstanceView) -> list[Disk]:
    """Return the disks that have a copy on another node."""
    return [disk for disk in view.disks if disk.traits.mirrored]


def holders(view: InstanceView, disk: Disk, node: Node) -> list[Node]:
    """Return the nodes where a disk is made ready and closed: both of one with a copy.

    Args:
        node: the one that the instance is on, or is to be on; it comes first.
    """
    if not disk.traits.mirrored:
        return [node]
    others = [each for each in view.nodes if each.uuid in disk.nodes and each.uuid != node.uuid]
    return [node, *others]


def activate(
    context: JobContext, view: InstanceView, node: Node, *, ignore_size: bool = False
) -> list[Ready]:
    """Make the disks ready on a node, and their copies on others.

    Args:
        ignore_size: the devices may have other sizes than the configuration says.

    Raises:
        OpExecError: one of them cannot be; if they were closed before, they are closed again.
    """
    if ignore_size:
        view = view.with_instance(view.instance, [_without_size(disk) for disk in view.disks])
    ready: list[Ready] = []
    wire = view.wire(node)
    try:
        assemble_copies(context, view, node)
        for index, disk in enumerate(view.disks):
            doing = f"activate disk {index} of instance {view.name!r}"
            nodes, disk_wire = context.nodes.on(node, doing), view.disk_wire(disk, node)
            answer = nodes.blockdev_assemble(disk_wire, wire, on_primary=True, idx=index)
            ready.append((node.name, disk.iv_name or f"disk/{index}", _device(answer)))
    except GenericError:
        close_unless_active(context, view, node)
        raise
    return ready


def open_for_script(context: JobContext, view: InstanceView) -> None:
    """Let the primary node use disks with copies; others are opened by the node itself."""
    if mirrored(view):
        activate(context, view, view.primary)


def close_unless_active(context: JobContext, view: InstanceView, node: Node) -> None:
    """Close disks that could not be made ready; copies that were in use before stay connected."""
    if not (view.instance.disks_active and mirrored(view)):
        deactivate(context, view, node)


def _without_size(disk: Disk) -> Disk:
    return replace(disk, size=0, children=[_without_size(child) for child in disk.children])


def assemble_copies(
    context: JobContext, view: InstanceView, node: Node, *, ignore_secondaries: bool = False
) -> None:
    """Make both sides of the disks with copies ready as secondary, and let them connect.

    Args:
        node: the one that is to write; it must succeed.
        ignore_secondaries: go on without a copy that cannot be made ready.

    Raises:
        OpExecError: a side failed.
    """
    for index, disk in enumerate(view.disks):
        if not disk.traits.mirrored:
            continue
        doing, call = (
            f"activate disk {index} of instance {view.name!r}",
            NodeCalls.blockdev_assemble,
        )
        for each in holders(view, disk, node):
            wire = view.disk_wire(disk, each)
            result = context.nodes.call_one(
                call, each, wire, view.wire(each), on_primary=False, idx=index
            )
            if result.error is None:
                continue
            text = result.explain(doing)
            if each.uuid == node.uuid:
                raise OpExecError(text)
            if not (ignore_secondaries or result.offline):
                raise OpExecError(
                    f"{text}; to go on without this copy mark the node offline, or use"
                    f" 'gnt-instance startup --force {view.name}'"
                )
            context.warn(f"{text}; going on without this copy")


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

    A disk with children is there if any of its volumes is.

    Raises:
        OpPrereqError: it does not answer.
    """
    found = []
    for disk in disks:
        index = view.instance.disks.index(disk.uuid)
        nodes = context.nodes.check(node, f"look for disk {index} of instance {view.name!r}")
        wire = view.disk_wire(disk, node)
        if any(nodes.blockdev_find(part) is not None for part in wire.children or [wire]) == there:
            found.append(index)
    return found


def deactivate(context: JobContext, view: InstanceView, node: Node) -> bool:
    """Close the disks on a node, and their copies on others; failures are told and passed over.

    Returns:
        Whether all of them were closed.
    """
    done = [
        close(context, view, disk, each)
        for disk in view.disks
        for each in holders(view, disk, node)
        if each.uuid == node.uuid or not each.offline
    ]
    return all(done)


def close(context: JobContext, view: InstanceView, disk: Disk, node: Node) -> bool:
    """Close one disk on one node; a failure is told.  Returns whether it was closed."""
    index, call = view.disks.index(disk), NodeCalls.blockdev_shutdown
    doing = f"deactivate disk {index} of instance {view.name!r}"
    return context.attempt(doing, call, node, view.disk_wire(disk, node))


def remove(context: JobContext, view: InstanceView) -> list[str]:
    """Remove the disks from all nodes that hold them; failures are told and passed over.

    Returns:
        The texts of the failures; none if all of the disks are gone, or left only on nodes that are
        marked offline and are not the primary one.
    """
    failed: list[str] = []
    for index, disk in enumerate(view.disks):
        doing = f"remove disk {index} of instance {view.name!r}"
        nodes = () if disk.forthcoming else holders(view, disk, view.primary)
        for node in nodes:  # a forthcoming disk was never made
            failure = why_left(context, view, disk, node, doing)
            if failure is not None and (node is view.primary or not node.offline):
                failed.append(failure)
    if not failed:
        remove_directories(context, view.primary, own_directories(view))
    return failed


def why_left(
    context: JobContext, view: InstanceView, disk: Disk, node: Node, doing: str
) -> str | None:
    """Remove a disk from one node; tell and return the failure, if there is one."""
    try:
        failure = context.failure(
            doing, NodeCalls.blockdev_remove, node, view.disk_wire(disk, node)
        )
    except GenericError as err:
        failure = f"cannot {doing}: {err}"
    if failure is not None:
        context.warn(failure + left_behind(disk, node))
    return failure


def left_behind(disk: Disk, node: Node) -> str:
    """Return the hint for volumes that are left on a node; "" for a disk without children."""
    volumes = [f"{child.part('vg')}/{child.part('volume')}" for child in disk.children]
    if not volumes:
        return ""
    names = " ".join(volumes)
    return f"; if it is left, remove it by hand on node {node.name}: 'lvremove {names}'"


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
    context: JobContext,
    view: InstanceView,
    node: Node,
    index: int,
    disk: Disk,
    undo: Undo,
    *,
    adopt: bool = False,
) -> Disk:
    """Make a disk on a node, wiped if the cluster wants that; returns it as it is now.

    A disk with a copy is made on its other nodes before.  The undo steps remove it again.

    Args:
        adopt: it is there already, and stays as it is.

    Raises:
        OpExecError: it was not made.
    """
    if adopt:
        doing = f"note the instance {view.name!r} on adopted disk {index}"
        info = DISK_INFO + view.name
        context.nodes.on(node, doing).blockdev_setinfo(view.disk_wire(disk, node), info)
        return disk
    for other in holders(view, disk, node)[1:]:
        make_on(context, view, other, index, disk, undo, on_primary=False)
    made = make_on(context, view, node, index, disk, undo, on_primary=True)
    # What another machine has left on a volume must not be taken for the state of this one.
    wipes = view.cluster.prealloc_wipe_disks or disk.name in MACHINE_DISKS
    if wipes and not disk.traits.must_adopt:
        wipe(context, view, node, index, made)
    return made


def make_on(
    context: JobContext,
    view: InstanceView,
    node: Node,
    index: int,
    disk: Disk,
    undo: Undo,
    *,
    on_primary: bool,
) -> Disk:
    """Make a disk on one node, its children first; returns it as it is now.

    A part that the node refuses to make stays as it is: another disk may have its place.

    Args:
        on_primary: the node is to write to it at once.

    Raises:
        OpExecError: it was not made.
    """
    name, wire = view.name, view.disk_wire(disk, node)
    left: list[RpcDisk] = []
    what = f"remove disk {index} of instance {name!r}"
    if disk.children:
        what += f" from node {node.name!r}{left_behind(disk, node)}"
    undo.push(what, lambda: _remove_parts(context, node, what, left))
    for part in (*wire.children, wire):
        # Named first: an answer that is lost on its way must not leave the disk behind.
        left[:] = [wire] if part is wire else [*left, part]  # it takes its children along
        doing = f"create disk {index} ({part.dev_type}, {part.size} MiB) of instance {name!r}"
        try:
            answer = context.nodes.on(node, doing).blockdev_create(
                part,
                part.size,
                name,
                on_primary=on_primary and part is wire,
                info=DISK_INFO + name,
                exclusive_storage=has_exclusive_storage(context, node),
            )
        except NodeNotReachedError:
            raise
        except GenericError:
            if not part.children:  # else all that it consists of is new
                left.pop()
            raise
    if isinstance(answer, list) and answer:
        disk = replace(disk, logical_id=answer)
        left[:] = [view.disk_wire(disk, node)]
    return disk


def _remove_parts(context: JobContext, node: Node, what: str, parts: Sequence[RpcDisk]) -> None:
    """Remove what was made of a disk, the last part first."""
    for part in reversed(parts):
        context.nodes.on(node, what).blockdev_remove(part)


def note_owner(context: JobContext, view: InstanceView) -> None:
    """Note the name of the instance on its disks, where their kind has room; failures are told."""
    for index, disk in enumerate(view.disks):
        doing = f"note the name of instance {view.name!r} on its disk {index}"
        for node in holders(view, disk, view.primary) if disk.traits.notes_owner else ():
            call, wire = NodeCalls.blockdev_setinfo, view.disk_wire(disk, node)
            context.attempt(doing, call, node, wire, DISK_INFO + view.name)


def device_bytes(calls: NodeCalls, wire: RpcDisk) -> int:
    """Return the size of a disk's device: a volume has whole extents, whatever is recorded.

    One that does not tell has the recorded size.
    """
    [found] = calls.blockdev_getdimensions([wire])
    return wire.size << 20 if found is None else found[0]


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
    """Overwrite a disk from a place on to the end of its device, piece by piece.

    Args:
        can_stop: the job can be canceled between pieces.
    """
    doing = f"wipe disk {index} of instance {view.name!r} from MiB"
    wire = view.disk_wire(disk, node)
    end_mib = device_bytes(context.nodes.on(node, f"{doing} {start_mib} on"), wire) >> 20
    chunk_mib = max(1, min(WIPE_CHUNK_MIB_MAX, int(end_mib * WIPE_CHUNK_PERCENT / 100)))
    with sync_paused(context, view, node, [disk], "wiping it"):
        for offset_mib in range(start_mib, end_mib, chunk_mib):
            if can_stop:
                context.check_canceled()
            length_mib = min(chunk_mib, end_mib - offset_mib)
            calls = context.nodes.on(node, f"{doing} {offset_mib} to {end_mib}")
            calls.blockdev_wipe(wire, offset_mib, length_mib)
            done = 100 * (offset_mib + length_mib) / end_mib
            context.feedback(f" - INFO: * wiping disk {index}: done {done:.1f}%")


@contextmanager
def sync_paused(
    context: JobContext, view: InstanceView, node: Node, disks: Sequence[Disk], work: str
) -> Iterator[None]:
    """Let no copying slow other work on disks down; a failure to do so is told and passed over.

    A job that dies meanwhile leaves it held back until the disks are made ready the next time.

    Args:
        work: it reads after "while".
    """
    copied = [disk for disk in disks if disk.traits.mirrored]
    if not copied:
        yield
        return
    context.feedback(f"* pausing the copying of disks of instance {view.name} while {work}")
    _hold_sync(context, view, node, copied, hold=True)
    try:
        yield
    finally:
        context.feedback(f"* resuming the copying of disks of instance {view.name}")
        _hold_sync(context, view, node, copied, hold=False)


def _hold_sync(
    context: JobContext, view: InstanceView, node: Node, disks: Sequence[Disk], *, hold: bool
) -> None:
    doing = f"{'pause' if hold else 'resume'} the copying of disks of instance {view.name!r}"
    wires = [view.disk_wire(disk, node) for disk in disks]
    result = context.nodes.call_one(NodeCalls.blockdev_pause_resume_sync, node, wires, hold)
    if result.error is not None:
        context.warn(result.explain(doing))
        return
    for disk, (is_done, text) in zip(disks, result.payload, strict=True):
        if not is_done:
            context.warn(f"cannot {doing}: {disk.iv_name}: {text}")
