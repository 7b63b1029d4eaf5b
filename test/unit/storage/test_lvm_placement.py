"""On which physical volumes a logical volume lies: plain decisions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import StorageError
from ganeti.storage.lvm_placement import extents, place, place_exclusively, place_growth
from ganeti.storage.lvm_reports import MIB, PhysicalVolume, VolumeGroup

EXTENT = 4 * MIB


def group_of(physical: list[PhysicalVolume]) -> VolumeGroup:
    free = sum(each.free_bytes for each in physical)
    return VolumeGroup("vg", sum(each.size_bytes for each in physical), free, EXTENT)


def pv(name: str, free: int, size: int = 100, attributes: str = "a--") -> PhysicalVolume:
    return PhysicalVolume(name, "vg", size * EXTENT, free * EXTENT, attributes)


SOME = st.lists(st.integers(0, 30), min_size=1, max_size=5).map(
    lambda free: [pv(f"/dev/{index}", count) for index, count in enumerate(free)]
)


@given(SOME, st.integers(1, 160), st.integers(-1, 4), st.sets(st.integers(0, 4)))
def test_there_is_room_where_a_volume_is_put(
    physical: list[PhysicalVolume], wanted: int, stripes: int, near: set[int]
) -> None:
    names = {f"/dev/{index}" for index in near}
    total = sum(each.free_bytes for each in physical)
    try:
        found = place(group_of(physical), physical, wanted * EXTENT, stripes=stripes, near=names)
    except StorageError:
        assert wanted * EXTENT > total
        return
    rooms = {each.name: each.free_bytes for each in physical}
    assert sum(rooms[name] for name in found.physical) >= wanted * EXTENT
    assert 1 <= found.stripes <= max(1, stripes)
    if found.stripes > 1:
        part = extents(group_of(physical), wanted * EXTENT, found.stripes) * EXTENT
        assert all(rooms[name] >= part for name in found.physical)
        assert len(found.physical) == found.stripes
    near_with_room = [name for name in names if rooms.get(name, 0) >= wanted * EXTENT]
    if near_with_room and found.stripes == 1:
        assert set(found.physical) <= names  # it is not put elsewhere without need
    if max(rooms.values()) >= wanted * EXTENT and found.stripes == 1:
        assert len(found.physical) == 1  # nor spread


def test_missing_and_closed_physical_volumes_get_nothing() -> None:
    physical = [pv("a", 50, attributes="a-m"), pv("b", 40, attributes="---"), pv("c", 10)]
    assert place(group_of(physical), physical, EXTENT).physical == ("c",)
    with pytest.raises(StorageError, match="has 40 MiB of 1200 MiB left"):
        place(group_of(physical), physical, 11 * EXTENT)
    assert place_growth(group_of(physical), physical, EXTENT, ["b", "c"], exclusively=False) == (
        "c",
    )


def test_exclusive_storage_takes_as_few_empty_ones_as_it_can() -> None:
    physical = [pv("a", 100), pv("b", 50, 50), pv("c", 70), pv("d", 100), pv("e", 100)]
    group = group_of(physical)
    assert place_exclusively(group, physical, 150 * EXTENT).physical == ("a", "d")
    assert place_exclusively(group, physical, EXTENT, spindles=4).physical == ("a", "d", "e", "b")
    assert place_exclusively(group, physical, EXTENT, stripes=8, spindles=3).stripes == 3
    with pytest.raises(StorageError, match=r"4 empty physical volume\(s\).*needs 5 of them"):
        place_exclusively(group, physical, EXTENT, spindles=5)
