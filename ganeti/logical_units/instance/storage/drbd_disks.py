"""Disks of template drbd, as the master plans them: two volumes on each of two nodes, connected.

The names of the volumes are the same on both nodes.  Minors, the port and the secret are given out
by WConfD, which keeps them for this job until the configuration has them.

Source: constants.json, "DRBD_META_SIZE"; config.json, "disk_logical_id".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from ganeti.base.errors import ErrorCode, OpPrereqError, wrong_state
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.planner import DiskSettings, FilePlace, NewDisk, Planner
from ganeti.objects.disk_templates import DRBD_META_SIZE_MIB, DiskTemplate, StorageType
from ganeti.objects.fill import fill_diskparams
from ganeti.objects.model import Cluster, Disk, Node, NodeGroup

CHILDREN: Final = ("data", "meta")
_VG: Final = "vg"
_METAVG: Final = "metavg"


class DrbdDisks(Planner):
    """Two volumes on each of two nodes."""

    def with_defaults(
        self, cluster: Cluster, group: NodeGroup | None, settings: DiskSettings
    ) -> DiskSettings:
        vg = str(settings.get(_VG) or cluster.volume_group_name or "")
        params = {} if group is None else fill_diskparams(cluster, group, self.template)
        metavg = str(settings.get(_METAVG) or params.get(_METAVG) or vg)
        return {**settings, _VG: vg, _METAVG: metavg}

    def plan(self, what: str, settings: DiskSettings, new: NewDisk) -> NewDisk:
        if not settings[_VG]:
            raise wrong_state(
                f"{what}: the cluster has no volume group; give one with vg=..., or set one with"
                " 'gnt-cluster modify --vg-name=...'"
            )
        return replace(new, volume_groups=(str(settings[_VG]), str(settings[_METAVG])))

    def make(self, disk: Disk, new: NewDisk, name: str, place: FilePlace | None) -> Disk:
        sizes_mib = (disk.size, DRBD_META_SIZE_MIB)
        children = [
            structs.replace(
                child,
                dev_type=DiskTemplate.PLAIN.value,
                logical_id=[vg, f"{name}_{kind}"],
                size=size_mib,
            )
            for child, kind, vg, size_mib in zip(
                disk.children, CHILDREN, new.volume_groups, sizes_mib, strict=True
            )
        ]
        return structs.replace(disk, children=children, logical_id=[*disk.nodes, None, 0, 0, ""])

    def settings_of(self, disk: Disk) -> dict[str, str | int]:
        data, meta = disk.children
        places = {_VG: data.part(_VG), _METAVG: meta.part(_VG)}
        return {**super().settings_of(disk), **places}

    def check_on_node(self, context: JobContext, node: Node, disks: Sequence[Disk]) -> list[Disk]:
        """Refuse a node without room for the volumes."""
        own = (disk for disk in disks if disk.dev_type == self.template)
        check_room(context, node, [child for disk in own for child in disk.children])
        return list(disks)

    def settle(self, context: JobContext, disk: Disk) -> Disk:
        """Return the disk with minors, port and secret, which are reserved for this job.

        One that has them for its nodes already, as a planned disk has, keeps them.
        """
        if disk.logical_id[:2] == disk.nodes and disk.logical_id[-1]:
            return disk
        config = context.config
        minors = config.reserve_drbd_minors(disk.uuid, disk.nodes)
        port, secret = config.allocate_instance_port(), config.generate_drbd_secret()
        return structs.replace(disk, logical_id=[*disk.nodes, port, *minors, secret])


def check_room(context: JobContext, node: Node, volumes: Iterable[Disk]) -> None:
    """Refuse volumes for which a node has no room in their volume groups.

    Raises:
        OpPrereqError: a group is missing there, or too full (insufficient_resources).
    """
    needed_mib: Counter[str] = Counter()
    for volume in volumes:
        needed_mib[volume.part(_VG)] += volume.size
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


def with_new_node(disk: Disk, old_uuid: str, new_uuid: str, minor: int) -> Disk:
    """Return a disk with its copy on another node; the volumes keep their names."""
    node_a, node_b, port, minor_a, minor_b, secret = disk.logical_id
    sides: Mapping[object, object] = {node_a: minor_a, node_b: minor_b}
    ends = [(new_uuid, minor) if node == old_uuid else (node, side) for node, side in sides.items()]
    nodes = [new_uuid if node == old_uuid else node for node in disk.nodes]
    return structs.replace(
        disk,
        nodes=nodes,
        logical_id=[*(node for node, _ in ends), port, *(side for _, side in ends), secret],
        children=[structs.replace(child, nodes=nodes) for child in disk.children],
    )
