"""Disks that come from outside: adopted devices, and volumes of external storage providers.

Only their node knows what there is, so it is asked before anything is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.node_calls import ask, call_nodes
from ganeti.objects.disk_templates import MUST_ADOPT, DiskTemplate

if TYPE_CHECKING:
    from ganeti.logical_units.context import JobContext
    from ganeti.objects.disk import Disk
    from ganeti.objects.node import Node


def check_outside(context: JobContext, node: Node, disks: Sequence[Disk]) -> list[Disk]:
    """Check that devices and providers are there; returns the disks with their sizes known.

    Raises:
        OpPrereqError: one is not, or is taken, or a parameter is not the provider's.
    """
    adopted = [disk for disk in disks if disk.dev_type in MUST_ADOPT]
    sizes = _device_sizes(context, node, adopted) if adopted else {}
    if any(disk.dev_type == DiskTemplate.EXT for disk in disks):
        _check_providers(context, node, disks)
    return [
        replace(disk, size=sizes[str(disk.logical_id[1])]) if disk.dev_type in MUST_ADOPT else disk
        for disk in disks
    ]


def _device_sizes(context: JobContext, node: Node, adopted: Sequence[Disk]) -> dict[str, int]:
    paths = [str(disk.logical_id[1]) for disk in adopted]
    own = {disk.uuid for disk in adopted}
    for path in paths:
        if paths.count(path) > 1:
            raise OpPrereqError(f"device {path} is named twice", ErrorCode.NOTUNIQUE)
    for disk in lookup.present(context.config.get_disks(None)):
        if disk.uuid in own or disk.dev_type not in MUST_ADOPT:
            continue
        if disk.logical_id[1] in paths:
            raise OpPrereqError(
                f"device {disk.logical_id[1]} is used by disk {disk.uuid} already",
                ErrorCode.NOTUNIQUE,
            )
    # The call is one of many nodes: its answer is that of each.
    result = call_nodes(context, [node], "bdev_sizes", list(paths))[node.name]
    if result.error is not None:
        raise OpPrereqError(
            f"cannot look at devices on node {node.name!r}: {result.error}", ErrorCode.ENVIRON
        )
    found = result.payload if isinstance(result.payload, Mapping) else {}
    for path in paths:
        if not isinstance(found.get(path), int) or found[path] <= 0:
            raise OpPrereqError(
                f"{path} is not a block device of node {node.name!r}", ErrorCode.NOENT
            )
    return {path: int(found[path]) for path in paths}


def _check_providers(context: JobContext, node: Node, disks: Sequence[Disk]) -> None:
    what = "list the external storage providers"
    answer = ask(context, node, what, "extstorage_diagnose")
    known: dict[str, tuple[bool, str, list[str]]] = {}
    for row in answer if isinstance(answer, list) else []:
        match row:
            case [str(name), _path, bool(is_well), str(problem), [*parameters]]:
                known.setdefault(name, (is_well, problem, [str(pair[0]) for pair in parameters]))
    for index, disk in enumerate(disks):
        if disk.dev_type == DiskTemplate.EXT:
            _check_volume(f"disk/{index}", node, disk, known)


def _check_volume(
    what: str, node: Node, disk: Disk, known: Mapping[str, tuple[bool, str, list[str]]]
) -> None:
    provider = str(disk.logical_id[0])
    if provider not in known:
        names = ", ".join(sorted(known)) or "none"
        raise OpPrereqError(
            f"{what}: external storage provider {provider!r} is not on node {node.name!r}; it has:"
            f" {names}",
            ErrorCode.NOENT,
        )
    is_well, problem, parameters = known[provider]
    if not is_well:
        raise OpPrereqError(
            f"{what}: external storage provider {provider!r} on node {node.name!r} is broken:"
            f" {problem}",
            ErrorCode.ENVIRON,
        )
    unknown = sorted(set(disk.params or {}) - {"access", *parameters})
    if unknown:
        raise OpPrereqError(
            f"{what}: {', '.join(unknown)}: not known to external storage provider {provider!r};"
            f" it has: {', '.join(sorted(parameters)) or 'no parameters'}"
        )
