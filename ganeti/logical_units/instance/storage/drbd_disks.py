"""Disks of template drbd, as the master plans them: two volumes on each of two nodes, connected.

The names of the volumes are the same on both nodes.  Minors, the port and the secret are given out
by WConfD, which keeps them for this job until the configuration has them.

Source: constants.json, "DRBD_META_SIZE"; config.json, "disk_logical_id".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.lvm_disks import (
    VG,
    check_group,
    check_room,
    group_setting,
)
from ganeti.logical_units.instance.storage.planner import DiskSettings, FilePlace, NewDisk, Planner
from ganeti.objects.disk_templates import DRBD_META_SIZE_MIB, DiskTemplate
from ganeti.objects.fill import fill_diskparams
from ganeti.objects.model import Cluster, Disk, Node, NodeGroup

CHILDREN: Final = ("data", "meta")
_METAVG: Final = "metavg"


class DrbdDisks(Planner):
    """Two volumes on each of two nodes."""

    def with_defaults(
        self, cluster: Cluster, group: NodeGroup | None, settings: DiskSettings
    ) -> DiskSettings:
        vg = group_setting(cluster, settings)
        params = {} if group is None else fill_diskparams(cluster, group, self.template)
        metavg = str(settings.get(_METAVG) or params.get(_METAVG) or vg)
        return {**settings, VG: vg, _METAVG: metavg}

    def plan(self, what: str, settings: DiskSettings, new: NewDisk) -> NewDisk:
        check_group(what, settings)
        return replace(new, volume_groups=(str(settings[VG]), str(settings[_METAVG])))

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
        places = {VG: data.part(VG), _METAVG: meta.part(VG)}
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
