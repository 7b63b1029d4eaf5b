"""Disks that are logical volumes, as the master plans them: volume groups, room, adoption.

A volume that is adopted keeps its name; its size is asked for on its node.

Source: config.json, "disk_logical_id"; constants.json, "IDISK_PARAMS"; node_rpc.json, call lv_list.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from ganeti.base.errors import ErrorCode, OpPrereqError, refuse, wrong_state
from ganeti.logical_units import lookup
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.planner import (
    SIZE_UNKNOWN,
    DiskSettings,
    FilePlace,
    NewDisk,
    Planner,
)
from ganeti.objects.disk_templates import DiskTemplate, StorageType, thin_pool_of
from ganeti.objects.fill import fill_diskparams, fill_ndparams
from ganeti.objects.model import Cluster, Disk, Node, NodeGroup
from ganeti.objects.parameters import LVM_NAME
from ganeti.protocol.node_calls import NodeCalls

VG: Final = "vg"
_ADOPT: Final = "adopt"
_SPINDLES: Final = "spindles"


def group_setting(cluster: Cluster, settings: DiskSettings) -> str:
    """Return the volume group of a new disk: its own, or the cluster's; "" without any."""
    return str(settings.get(VG) or cluster.volume_group_name or "")


def check_group(what: str, settings: DiskSettings) -> None:
    """Refuse a disk without a volume group.

    Raises:
        OpPrereqError: neither it nor the cluster names one.
    """
    if not settings[VG]:
        raise wrong_state(
            f"{what}: the cluster has no volume group; give one with vg=..., or set one with"
            " 'gnt-cluster modify --vg-name=...'"
        )
    refuse(LVM_NAME.problem(f"{what}: vg", str(settings[VG])))


class PlainDisks(Planner):
    """A volume on one node."""

    def with_defaults(
        self, cluster: Cluster, group: NodeGroup | None, settings: DiskSettings
    ) -> DiskSettings:
        return {**settings, VG: group_setting(cluster, settings)}

    def plan(self, what: str, settings: DiskSettings, new: NewDisk) -> NewDisk:
        check_group(what, settings)
        adopt, spindles = settings.get(_ADOPT), settings.get(_SPINDLES)
        if adopt is not None:
            refuse(LVM_NAME.problem(f"{what}: adopt", str(adopt)))
        return replace(
            new,
            volume_groups=(str(settings[VG]),),
            adopt=None if adopt is None else str(adopt),
            spindles=None if spindles is None else _spindles(what, spindles),
        )

    def make(self, disk: Disk, new: NewDisk, name: str, place: FilePlace | None) -> Disk:
        return structs.replace(disk, logical_id=[*new.volume_groups, new.adopt or name])

    def settings_of(self, disk: Disk) -> dict[str, str | int]:
        spindles = {} if disk.spindles is None else {_SPINDLES: disk.spindles}
        return {**super().settings_of(disk), VG: disk.part(VG), **spindles}

    def check_on_node(self, context: JobContext, node: Node, disks: Sequence[Disk]) -> list[Disk]:
        """Refuse a node without room, and volumes to be adopted that are taken or not there."""
        own = [disk for disk in disks if disk.dev_type == self.template]
        adopted = [disk for disk in own if disk.size == SIZE_UNKNOWN]
        sizes = _sizes_of_adopted(context, node, adopted) if adopted else {}
        new = [disk for disk in own if disk.size != SIZE_UNKNOWN]
        pools = {disk.uuid: self._pool(context, node, disk) for disk in new}
        is_exclusive = has_exclusive_storage(context, node)
        if any(disk.spindles for disk in new) and not is_exclusive:
            raise OpPrereqError(
                f"node {node.name!r} has no exclusive storage, so spindles cannot be given for its"
                " disks; see 'gnt-group modify --node-parameters exclusive_storage=...'"
            )
        if thick := [disk for disk in new if not pools[disk.uuid]]:
            check_room(context, node, thick)
        for path in sorted({path for path in pools.values() if path}):
            if is_exclusive:
                raise OpPrereqError(
                    f"node {node.name!r} has exclusive storage, and disks in thin pool {path} would"
                    " share physical volumes; give no thin-pool"
                )
            _check_pool(context, node, path)
        return [structs.replace(disk, size=sizes.get(disk.uuid, disk.size)) for disk in disks]

    def _pool(self, context: JobContext, node: Node, disk: Disk) -> str:
        """Return the thin pool that a new disk takes its space from, "" for none."""
        group = lookup.require_group(context.config, node.group)
        cluster = context.config.get_cluster()
        filled = fill_diskparams(cluster, group, self.template, disk.params or {})
        pool = thin_pool_of(filled)
        return f"{disk.part(VG)}/{pool}" if pool else ""


def _spindles(what: str, value: str | int) -> int:
    """Return a number of spindles.

    Raises:
        OpPrereqError: it is none.
    """
    try:
        spindles = int(value)
    except ValueError:
        spindles = 0
    if spindles < 1:
        raise OpPrereqError(f"{what}: spindles must be a number above 0, got {value!r}")
    return spindles


def has_exclusive_storage(context: JobContext, node: Node) -> bool:
    """Tell whether a node gives whole physical volumes to its instances."""
    group = lookup.require_group(context.config, node.group)
    return bool(fill_ndparams(context.config.get_cluster(), group, node)["exclusive_storage"])


def _sizes_of_adopted(context: JobContext, node: Node, adopted: Sequence[Disk]) -> dict[str, int]:
    """Return {UUID of the disk: MiB} of volumes that are to be adopted.

    Raises:
        OpPrereqError: one is not there, in use, reserved, or another disk already.
    """
    paths = {str(disk.uuid): "/".join(map(str, disk.logical_id)) for disk in adopted}
    _check_not_taken(context, node.uuid, paths)
    reserved = context.config.get_cluster().reserved_lvs
    groups = sorted({disk.part(VG) for disk in adopted})
    result = context.nodes.call_all(NodeCalls.lv_list, [node], groups)[node.name]
    if result.error is not None:
        raise OpPrereqError(
            f"cannot look at logical volumes on node {node.name!r}: {result.error}",
            ErrorCode.ENVIRON,
        )
    found: dict[str, int] = {}
    for uuid, path in paths.items():
        what = f"logical volume {path} of node {node.name!r}"
        state = result.payload.get(path)
        if state is None:
            raise OpPrereqError(
                f"there is no {what}; see 'gnt-node volumes {node.name}'", ErrorCode.NOENT
            )
        if any(re.fullmatch(pattern, path) for pattern in reserved):
            raise wrong_state(
                f"{what} is reserved for others; see 'gnt-cluster modify --reserved-lvs'"
            )
        size, _is_inactive, is_open = state
        if is_open:
            raise wrong_state(f"{what} is in use; end that before it is adopted")
        found[uuid] = int(float(size))
    return found


def _check_not_taken(context: JobContext, node_uuid: str, paths: Mapping[str, str]) -> None:
    for path, count in Counter(paths.values()).items():
        if count > 1:
            raise OpPrereqError(f"logical volume {path} is named twice", ErrorCode.NOTUNIQUE)
    for node, path, disk in volumes_of(lookup.present(context.config.get_disks(None))):
        if node == node_uuid and path in paths.values():
            raise OpPrereqError(
                f"logical volume {path} is disk {disk} already", ErrorCode.NOTUNIQUE
            )


def check_room(context: JobContext, node: Node, volumes: Iterable[Disk]) -> None:
    """Refuse volumes for which a node has no room in their volume groups.

    Raises:
        OpPrereqError: a group is missing there, or too full (insufficient_resources).
    """
    needed_mib: Counter[str] = Counter()
    for volume in volumes:
        needed_mib[volume.part(VG)] += volume.size
    kind = StorageType.LVM_VG.value
    units: list[tuple[str, str, list[object]]] = [(kind, vg, [False]) for vg in needed_mib]
    answer = context.nodes.check(node, "find the free disk space").node_info(units, [])
    free = _free(answer)
    for vg, mib in needed_mib.items():
        free_mib = free.get(vg)
        if free_mib is None:
            raise OpPrereqError(
                f"node {node.name!r} has no volume group {vg!r}; make it there, or name another"
                " with vg=...",
                ErrorCode.ENVIRON,
            )
        if free_mib < mib:
            raise OpPrereqError(
                f"not enough space in volume group {vg!r} of node {node.name!r}: {mib} MiB are"
                f" needed, {free_mib} MiB are free",
                ErrorCode.NORES,
            )


def _check_pool(context: JobContext, node: Node, path: str) -> None:
    """Refuse a thin pool that a node does not have, or that is full.

    New disks need no space in it yet, so they may promise more than there is.

    Raises:
        OpPrereqError: says what is wrong, and what helps.
    """
    kind = StorageType.LVM_VG.value
    nodes = context.nodes.check(node, "look at the thin pool")
    [[free_mib, status]] = nodes.storage_list(kind, [], path, ["free", "status"])
    group, _, name = path.partition("/")
    if free_mib is None:
        raise OpPrereqError(
            f"node {node.name!r} has no thin pool {path}; make it there with 'lvcreate"
            f" --type=thin-pool --size=... --name={name} {group}', or give no thin-pool",
            ErrorCode.ENVIRON,
        )
    if not free_mib:
        raise OpPrereqError(f"thin pool {path} of node {node.name!r} {status}", ErrorCode.NORES)


def _free(answer: Sequence[object]) -> dict[str, int]:
    """Return {volume group: free MiB} from an answer of ``node_info``."""
    found: dict[str, int] = {}
    match answer:
        case [_, [*units], *_]:
            for unit in units:
                match unit:
                    case {"name": str(name), "storage_free": int(free_mib)}:
                        found[name] = free_mib
    return found


def volumes_of(disks: Iterable[Disk]) -> Iterator[tuple[str, str, str]]:
    """Yield (node UUID, group/volume, UUID of the disk) of all logical volumes of disks."""
    for disk in disks:
        for part in (disk, *disk.children):
            if part.dev_type == DiskTemplate.PLAIN and len(part.logical_id) == 2:
                path = "/".join(map(str, part.logical_id))
                for node in part.nodes or disk.nodes:
                    yield node, path, disk.uuid
