"""Disks that are devices of a node already: their names, and their sizes as the node tells them."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import replace as changed

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.planner import DiskSettings, FilePlace, NewDisk, Planner
from ganeti.objects.disk_templates import ADOPTABLE_BLOCKDEV_ROOT, BLOCKDEV_DRIVER
from ganeti.objects.model import Disk, Node
from ganeti.protocol.node_calls import NodeCalls


class AdoptedDisks(Planner):
    """Devices that were there before the instance."""

    def plan(self, what: str, settings: DiskSettings, new: NewDisk) -> NewDisk:
        path = settings.get("adopt")
        if not isinstance(path, str):
            raise OpPrereqError(
                f"{what}: disk template {str(self.template)!r} adopts devices (adopt=/dev/...)"
            )
        if "size" in settings:
            raise OpPrereqError(
                f"{what}: the size is that of the adopted device, so it cannot be given"
            )
        if posixpath.normpath(path) != path or not path.startswith(ADOPTABLE_BLOCKDEV_ROOT):
            raise OpPrereqError(
                f"{what}: device {path!r} cannot be adopted; give one below"
                f" {ADOPTABLE_BLOCKDEV_ROOT}"
            )
        return changed(new, adopt=path)

    def size_mib(self, what: str, settings: DiskSettings) -> int:
        return 0  # the node tells it

    def make(self, disk: Disk, new: NewDisk, name: str, place: FilePlace | None) -> Disk:
        return replace(disk, logical_id=[BLOCKDEV_DRIVER, new.adopt])

    def settings_of(self, disk: Disk) -> dict[str, str | int]:
        return {"adopt": disk.part("path"), "mode": disk.mode.value}

    def check_on_node(self, context: JobContext, node: Node, disks: Sequence[Disk]) -> list[Disk]:
        """Refuse devices that are taken or are not there; returns the disks with their sizes."""
        own = [disk for disk in disks if disk.dev_type == self.template]
        paths = [disk.part("path") for disk in own]
        _check_free(context, own, paths)
        sizes = _sizes(context, node, paths)
        return [
            replace(disk, size=sizes[disk.part("path")]) if disk in own else disk for disk in disks
        ]


def _check_free(context: JobContext, own: Sequence[Disk], paths: Sequence[str]) -> None:
    for path in paths:
        if paths.count(path) > 1:
            raise OpPrereqError(f"device {path} is named twice", ErrorCode.NOTUNIQUE)
    uuids = {disk.uuid for disk in own}
    for disk in lookup.present(context.config.get_disks(None)):
        if disk.uuid in uuids or not disk.traits.must_adopt:
            continue
        if disk.part("path") in paths:
            raise OpPrereqError(
                f"device {disk.part('path')} is used by disk {disk.uuid} already",
                ErrorCode.NOTUNIQUE,
            )


def _sizes(context: JobContext, node: Node, paths: Sequence[str]) -> dict[str, int]:
    """Return {path: size in MiB}, none of which is missing."""
    # The call is one of many nodes: its answer is that of each.
    result = context.nodes.call_all(NodeCalls.bdev_sizes, [node], list(paths))[node.name]
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
