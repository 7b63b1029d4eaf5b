"""Disks of an instance on its nodes: make ready, close, remove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ganeti.base.errors import GenericError
from ganeti.logical_units.node_calls import call_node, failure_text, order
from ganeti.objects.disk_templates import DiskTemplate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ganeti.logical_units.context import JobContext
    from ganeti.logical_units.instance.subject import Subject
    from ganeti.objects.disk import Disk
    from ganeti.objects.node import Node

# Templates whose disks are files in a directory of the instance's own.
OWN_DIRECTORY: Final = frozenset({DiskTemplate.FILE, DiskTemplate.SHAREDFILE})


Ready = tuple[str, str, str | None]  # node name, name in the instance, device if there is one


def activate(context: JobContext, subject: Subject, node: Node) -> list[Ready]:
    """Make the disks ready on a node.

    Raises:
        OpExecError: one of them cannot be; those already made ready are closed again.
    """
    ready: list[Ready] = []
    wire = subject.wire()
    try:
        for index, disk in enumerate(subject.disks):
            answer = order(
                context,
                node,
                f"activate disk {index} of instance {subject.instance.name!r}",
                "blockdev_assemble",
                subject.disk_wire(disk),
                wire,
                True,
                index,
            )
            ready.append((node.name, disk.iv_name, _device(answer)))
    except GenericError:
        deactivate(context, subject, node)
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


def deactivate(context: JobContext, subject: Subject, node: Node) -> bool:
    """Close the disks on a node; failures are told and passed over.

    Returns:
        Whether all of them were closed.
    """
    done = True
    for index, disk in enumerate(subject.disks):
        result = call_node(context, node, "blockdev_shutdown", subject.disk_wire(disk))
        if result.error is not None:
            doing = f"deactivate disk {index} of instance {subject.instance.name!r}"
            context.warn(failure_text(doing, node, "blockdev_shutdown", result))
            done = False
    return done


def remove(context: JobContext, subject: Subject) -> list[str]:
    """Remove the disks from all nodes that hold them; failures are told and passed over.

    Returns:
        What failed, in words; nothing if all of them are gone.
    """
    failed = []
    holders = _holders(subject)
    for index, disk in enumerate(subject.disks):
        if disk.forthcoming:
            continue  # never made
        for node in holders:
            result = call_node(context, node, "blockdev_remove", subject.disk_wire(disk))
            if result.error is not None:
                doing = f"remove disk {index} of instance {subject.instance.name!r}"
                failed.append(failure_text(doing, node, "blockdev_remove", result))
                context.warn(failed[-1])
    if not failed:
        remove_directory(context, subject)
    return failed


def _holders(subject: Subject) -> list[Node]:
    """Return the nodes to remove disks from: one is enough where storage is shared."""
    return subject.nodes if subject.template == DiskTemplate.DRBD else subject.nodes[:1]


def directories(disks: Sequence[Disk]) -> list[str]:
    """Return the directories that the files of disks are in, each once."""
    paths = [str(disk.logical_id[1]) for disk in disks if disk.dev_type in OWN_DIRECTORY]
    return list(dict.fromkeys(path.rpartition("/")[0] for path in paths))


def own_directories(subject: Subject) -> list[str]:
    """Return the directories that are the instance's own: named after it.

    A disk that was attached lies where it was made, perhaps in the directory of another instance.
    """
    name = subject.instance.name
    return [path for path in directories(subject.disks) if path.rpartition("/")[2] == name]


def remove_directory(context: JobContext, subject: Subject) -> None:
    """Remove the directories that held the files of an instance; a failure is told."""
    remove_directories(context, subject.primary, own_directories(subject))


def remove_directories(context: JobContext, node: Node, paths: Sequence[str]) -> None:
    """Remove empty directories; failures are told."""
    for path in paths:
        result = call_node(context, node, "file_storage_dir_remove", path)
        if result.error is not None:
            doing = f"remove directory {path}"
            context.warn(failure_text(doing, node, "file_storage_dir_remove", result))
