"""Making disks on a node, each with its undo; wiping them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ganeti.logical_units.node_calls import order
from ganeti.objects.disk_templates import MUST_ADOPT

if TYPE_CHECKING:
    from ganeti.logical_units.context import JobContext
    from ganeti.logical_units.instance.subject import Subject
    from ganeti.logical_units.undo import Undo
    from ganeti.objects.disk import Disk
    from ganeti.objects.node import Node

DISK_INFO: Final = "originstname+"  # what is written beside a disk, before the instance's name
WIPE_CHUNK_MIB_MAX: Final = 1024  # MAX_WIPE_CHUNK
WIPE_CHUNK_PERCENT: Final = 10.0  # MIN_WIPE_CHUNK_PERCENT


def make_directory(context: JobContext, node: Node, directory: str, undo: Undo) -> None:
    """Make a directory for files of an instance; the undo step removes it again."""
    order(context, node, f"create directory {directory}", "file_storage_dir_create", directory)
    what = f"remove directory {directory}"
    undo.push(what, lambda: order(context, node, what, "file_storage_dir_remove", directory))


def make_disk(
    context: JobContext, subject: Subject, node: Node, index: int, disk: Disk, undo: Undo
) -> Disk:
    """Make a disk on a node, wiped if the cluster wants that; returns it as it is now.

    The undo step removes it again.

    Raises:
        OpExecError: it was not made.
    """
    name = subject.instance.name
    made = [disk]
    what = f"remove disk {index} of instance {name!r}"
    # Pushed first: an answer that is lost on its way must not leave the disk behind.
    undo.push(
        what,
        lambda: order(context, node, what, "blockdev_remove", subject.disk_wire(made[0])),
    )
    answer = order(
        context,
        node,
        f"create disk {index} ({disk.dev_type}, {disk.size} MiB) of instance {name!r}",
        "blockdev_create",
        subject.disk_wire(disk),
        disk.size,
        name,
        True,
        DISK_INFO + name,
        False,
    )
    if isinstance(answer, list) and answer:
        made[0] = replace(disk, logical_id=answer)
    if subject.cluster.prealloc_wipe_disks and disk.dev_type not in MUST_ADOPT:
        wipe(context, subject, node, index, made[0])
    return made[0]


def wipe(
    context: JobContext,
    subject: Subject,
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
    doing = f"wipe disk {index} of instance {subject.instance.name!r}"
    chunk_mib = max(1, min(WIPE_CHUNK_MIB_MAX, int(disk.size * WIPE_CHUNK_PERCENT / 100)))
    wire = subject.disk_wire(disk)
    for offset_mib in range(start_mib, disk.size, chunk_mib):
        if can_stop:
            context.check_canceled()
        length_mib = min(chunk_mib, disk.size - offset_mib)
        order(context, node, doing, "blockdev_wipe", wire, offset_mib, length_mib)
        done = 100 * (offset_mib + length_mib) / disk.size
        context.feedback(f" - INFO: * wiping disk {index}: done {done:.1f}%")
