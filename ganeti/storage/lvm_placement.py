"""Where a logical volume is to lie: on which physical volumes, and in how many stripes.  Pure.

The disks of an instance are kept together, so that the loss of one physical volume harms few
instances: a new disk goes where the others are, else where most room is; it is spread over several
physical volumes only if it fits on none.  With exclusive storage it gets whole ones.

Source: design of 2.0, "Better LVM allocation".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ganeti.base.errors import StorageError
from ganeti.storage.lvm_reports import MIB, PhysicalVolume, VolumeGroup


@dataclass(frozen=True, slots=True)
class Place:
    """The physical volumes of a logical volume, and the number of its stripes."""

    physical: tuple[str, ...]
    stripes: int = 1


def extents(group: VolumeGroup, size_bytes: int, parts: int = 1) -> int:
    """Return the extents that each of equal parts of a volume takes."""
    return -(-size_bytes // (group.extent_bytes * parts))


def _no_room(group: VolumeGroup, size_bytes: int, usable: Sequence[PhysicalVolume]) -> str:
    free = sum(each.free_bytes for each in usable) // MIB
    text = f"volume group {group.name!r} has {free} MiB of {group.size_mib} MiB left"
    if free < group.free_mib:
        text += f" ({group.free_mib - free} MiB more where nothing may be put)"
    return f"{text}, and {-(-size_bytes // MIB)} MiB are needed"


def place(
    group: VolumeGroup,
    physical: Sequence[PhysicalVolume],
    size_bytes: int,
    *,
    stripes: int = 1,
    near: Collection[str] = (),
) -> Place:
    """Choose the physical volumes of a new logical volume.

    Args:
        physical: those of the group.
        stripes: how many are wanted; there are fewer where not so many physical volumes have room.
        near: names of those that the instance's other disks are on.

    Raises:
        StorageError: there is not enough room.
    """
    usable = [each for each in physical if each.is_allocatable and each.free_bytes > 0]
    usable.sort(key=lambda each: (each.name not in near, -each.free_bytes, each.name))
    for count in range(min(max(stripes, 1), len(usable)), 0, -1):
        part_bytes = extents(group, size_bytes, count) * group.extent_bytes
        roomy = [each.name for each in usable if each.free_bytes >= part_bytes]
        if len(roomy) >= count:
            return Place(tuple(roomy[:count]), count)
    needed_bytes = extents(group, size_bytes) * group.extent_bytes
    chosen: list[str] = []
    for each in usable:
        chosen.append(each.name)
        needed_bytes -= each.free_bytes
        if needed_bytes <= 0:
            return Place(tuple(chosen))
    raise StorageError(_no_room(group, size_bytes, usable))


def place_exclusively(
    group: VolumeGroup,
    physical: Sequence[PhysicalVolume],
    size_bytes: int,
    *,
    stripes: int = 1,
    spindles: int | None = None,
) -> Place:
    """Choose empty physical volumes for a new logical volume, which has them for itself.

    Args:
        spindles: how many; None for as few as have room for it.

    Raises:
        StorageError: there are not so many, or they have not enough room.
    """
    empty = [each for each in physical if each.is_allocatable and each.is_empty]
    empty.sort(key=lambda each: (-each.free_bytes, each.name))
    for count in range(1, len(empty) + 1) if spindles is None else [spindles]:
        chosen = empty[:count]
        if len(chosen) == count and sum(each.free_bytes for each in chosen) >= size_bytes:
            names = tuple(each.name for each in chosen)
            return Place(names, max(1, min(stripes, count)))
    wanted = "enough" if spindles is None else str(spindles)
    raise StorageError(
        f"volume group {group.name!r} has {len(empty)} empty physical volume(s), with"
        f" {sum(each.free_bytes for each in empty) // MIB} MiB: exclusive storage needs {wanted}"
        f" of them for {-(-size_bytes // MIB)} MiB"
    )


def place_growth(
    group: VolumeGroup,
    physical: Sequence[PhysicalVolume],
    amount_bytes: int,
    own: Collection[str],
    *,
    exclusively: bool,
) -> tuple[str, ...]:
    """Choose the physical volumes that a volume grows on: its own, or any where these are full.

    Args:
        own: the names of those that it has.
        exclusively: on no others.

    Raises:
        StorageError: there is not enough room.
    """
    usable = [each for each in physical if each.is_allocatable and each.free_bytes > 0]
    kept = [each for each in usable if each.name in own]
    needed_bytes = extents(group, amount_bytes) * group.extent_bytes
    for allowed in (kept,) if exclusively else (kept, usable):
        if sum(each.free_bytes for each in allowed) >= needed_bytes:
            return tuple(each.name for each in allowed)
    text = _no_room(group, amount_bytes, kept if exclusively else usable)
    raise StorageError(
        f"{text} on the physical volumes of this disk (exclusive storage)" if exclusively else text
    )
