"""Volume groups and physical volumes as storage units: their space, their state, their repair.

A thin pool is a unit of the same kind as its volume group, named ``GROUP/POOL``: its free space is
what no volume has written to.

Where instances have physical volumes for themselves (exclusive storage), the free space of a group
is that of its empty physical volumes, and these are counted as spindles.

Source: node_rpc.json, "storage_calls" and call node_info; design of 2.1, "Storage units modelling".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ganeti.base.errors import NotSupportedError, StorageError
from ganeti.storage.interface import UNIT_OK, Storage, StorageUnit
from ganeti.storage.lvm import flush_group
from ganeti.storage.lvm_reports import (
    MIB,
    LogicalVolume,
    PhysicalVolume,
    VolumeGroup,
    existing_pool,
    group_of,
    logical_volumes,
    physical_volumes,
    run,
    said,
    volume_groups,
)

ALLOCATABLE = "allocatable"


def _mib(sizes_bytes: Iterable[int]) -> int:
    return sum(sizes_bytes) // MIB


class VolumeGroups(Storage):
    """The volume groups of this node."""

    def space(self, name: str) -> StorageUnit:
        """Return the space of a group, or of a thin pool."""
        if "/" in name:
            return self._pool(existing_pool(name))
        unit = self._unit(group_of(name))
        if not self.exclusive:
            return unit
        empty = [each for each in physical_volumes(name) if each.is_allocatable and each.is_empty]
        free_mib = _mib(each.free_bytes for each in empty)
        return StorageUnit(self.kind, name, free_mib, unit.size_mib, unit.used_mib)

    def _unit(self, group: VolumeGroup) -> StorageUnit:
        status = UNIT_OK
        if group.missing:
            status = (
                f"{group.missing} physical volume(s) missing, see 'pvs'; if they are lost:"
                f" 'gnt-node repair-storage NODE {self.kind} {group.name}'"
            )
        used_mib = group.size_mib - group.free_mib
        return StorageUnit(
            self.kind, group.name, group.free_mib, group.size_mib, used_mib, status=status
        )

    def _pool(self, pool: LogicalVolume) -> StorageUnit:
        free_mib = 0 if pool.pool_problem else pool.left_bytes // MIB
        size_mib = pool.size_bytes // MIB
        used_mib = size_mib - pool.left_bytes // MIB
        status = pool.pool_problem or UNIT_OK
        return StorageUnit(self.kind, pool.path, free_mib, size_mib, used_mib, status=status)

    def units(self, names: Sequence[str]) -> list[StorageUnit]:
        """Return the groups and pools of those names, all if none is named.

        One run of vgs, and one of lvs, tells of all.
        """
        found = {name: self._unit(group) for name, group in volume_groups().items()}
        pools = [each for each in logical_volumes() if each.is_thin_pool]
        found |= {each.path: self._pool(each) for each in pools}
        return [
            found.get(name)
            or StorageUnit(self.kind, name, is_allocatable=False, status="there is none")
            for name in names or sorted(found)
        ]

    def repair_unit(self, name: str) -> None:
        """Take missing physical volumes out of a group, if no volume had space there.

        Raises:
            StorageError: a volume had; names it.
        """
        if not group_of(name).missing:
            return
        result = run(["vgreduce", "--removemissing", name])
        if result.status != 0:
            raise StorageError(f"volume group {name!r} cannot be repaired: {said(result)}{_hurt()}")
        flush_group(name)


def _hurt() -> str:
    """Name the volumes on missing physical volumes, with what to do about them."""
    lost = [each for each in physical_volumes() if each.is_missing]
    names = ", ".join(sorted({f"{each.group}/{name}" for each in lost for name in each.volumes}))
    if not names:
        return ""
    return (
        f"; the data of {names} is lost in part: replace or remove these disks first ('gnt-instance"
        " replace-disks', 'recreate-disks'), then try again"
    )


class PhysicalVolumes(Storage):
    """The physical volumes of this node; those of a group are counted as its spindles."""

    def space(self, name: str) -> StorageUnit:
        """Return the number of physical volumes of a group, and how many of them are empty."""
        group_of(name)
        if not self.exclusive:
            return StorageUnit(self.kind, name, 0, 0)
        own = [each for each in physical_volumes(name) if not each.is_missing]
        empty = [each for each in own if each.is_allocatable and each.is_empty]
        return StorageUnit(self.kind, name, len(empty), len(own))

    def _unit(self, found: PhysicalVolume) -> StorageUnit:
        free_mib, size_mib = _mib([found.free_bytes]), _mib([found.size_bytes])
        return StorageUnit(
            self.kind,
            found.name,
            free_mib,
            size_mib,
            size_mib - free_mib,
            is_allocatable=found.is_allocatable,
            status=f"missing from volume group {found.group}" if found.is_missing else UNIT_OK,
        )

    def units(self, names: Sequence[str]) -> list[StorageUnit]:
        """Return the physical volumes of those names, all if none is named, by one run of pvs."""
        found = physical_volumes()
        known = {each.name for each in found}
        return [
            *(self._unit(each) for each in found if not names or each.name in names),
            *(
                StorageUnit(self.kind, name, is_allocatable=False, status="there is none")
                for name in names
                if name not in known
            ),
        ]

    def modify_unit(self, name: str, changes: Mapping[str, object]) -> None:
        """Say whether new volumes may have space on a physical volume."""
        if set(changes) != {ALLOCATABLE} or not isinstance(changes[ALLOCATABLE], bool):
            wanted = ", ".join(changes) or "nothing"
            raise NotSupportedError(f"{wanted} of {self.kind} {name!r} cannot be changed")
        found = {each.name: each for each in physical_volumes()}
        if name not in found:
            there = ", ".join(sorted(found)) or "none"
            raise StorageError(f"there is no physical volume {name!r}; there is: {there}")
        if found[name].is_allocatable == changes[ALLOCATABLE]:
            return
        letter = "y" if changes[ALLOCATABLE] else "n"
        result = run(["pvchange", f"--allocatable={letter}", name])
        if result.status != 0:
            raise StorageError(f"cannot change physical volume {name}: {said(result)}")
        flush_group(found[name].group)
