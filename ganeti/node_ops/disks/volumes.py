"""Logical volumes, volume groups and physical volumes of this node, as the master asks for them.

Each call and check runs one program of LVM.

Source: node_rpc.json, calls lv_list, vg_list and node_volumes, and "node_verify_checks".
"""

from collections.abc import Mapping, Sequence

from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.storage.lvm_reports import (
    MIB,
    LogicalVolume,
    logical_volumes,
    physical_volumes,
    volume_groups,
)


class Volumes(NodeHandler):
    """Logical volumes and their groups."""

    def lv_list(self, vg_name: Sequence[str]) -> dict[str, tuple[str, bool, bool]]:
        return {each.path: _state(each) for each in _own() if not vg_name or each.group in vg_name}

    def vg_list(self) -> dict[str, int]:
        return {name: group.size_mib for name, group in volume_groups().items()}

    def node_volumes(self) -> list[dict[str, str]]:
        return [
            {"name": each.name, "vg": each.group, "size": _size(each), "dev": device}
            for each in _own()
            for device in each.physical or ("",)
        ]


def _own() -> list[LogicalVolume]:
    """Return the volumes that can be disks: neither pools nor remains of lost ones."""
    return [each for each in logical_volumes() if not (each.is_virtual or each.is_thin_pool)]


def _size(volume: LogicalVolume) -> str:
    return f"{volume.size_bytes / MIB:.2f}"


def _state(volume: LogicalVolume) -> tuple[str, bool, bool]:
    return _size(volume), not volume.is_active, volume.is_open


# Checks of cluster verification.


def volumes_of_group(node: NodeContext, group: str) -> Mapping[str, tuple[str, bool, bool]]:
    """Return what lv_list tells of one group, or of all for an empty name."""
    return Volumes(node).lv_list([group] if group else [])


def group_sizes(node: NodeContext, _wanted: object) -> Mapping[str, int]:
    """Return {volume group: MiB}."""
    return Volumes(node).vg_list()


def physical_of_groups(_node: NodeContext, groups: Sequence[str]) -> list[dict[str, object]]:
    """Return the physical volumes of some groups; sizes in MiB."""
    return [
        {
            "name": each.name,
            "vg_name": each.group,
            "size": each.size_bytes / MIB,
            "free": each.free_bytes / MIB,
            "attributes": each.attributes,
            "lv_list": [name for name in each.volumes if name],
        }
        for each in physical_volumes()
        if each.group in groups
    ]


def shared_physical(_node: NodeContext, _wanted: object) -> list[tuple[str, list[str]]]:
    """Return the physical volumes that several logical volumes share, with the names of these."""
    return [(each.name, list(each.volumes)) for each in physical_volumes() if len(each.volumes) > 1]
