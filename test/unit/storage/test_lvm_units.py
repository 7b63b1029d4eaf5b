"""Volume groups and physical volumes as storage units."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes import lvm_programs
from fakes.storage_records import Node

from ganeti.base.errors import NotSupportedError, StorageError
from ganeti.base.paths import Paths
from ganeti.storage import registry
from ganeti.storage.interface import Storage

SDA, SDB = "/dev/none/sda1", "/dev/none/sdb1"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    lvm_programs.install(tmp_path / "programs")
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_LVM", str(tmp_path))
    lvm_programs.make_group(tmp_path, "xenvg", {SDA: 1000, SDB: 500})
    lvm_programs.make_group(tmp_path, "other", {"/dev/none/sdc1": 50})
    lvm_programs.main("lvcreate", "--name=disk0", "--size=100m", "xenvg", SDA)
    return tmp_path


def units(root: Path, kind: str, *, exclusive: bool = False) -> Storage:
    found = registry.storage_of_kind(kind, Node(Paths(str(root))))
    found.exclusive = exclusive
    return found


@pytest.mark.shows("2.1/storage/lvm-vg", "2.1/storage/lvm-pv", "2.1/pv/list")
def test_units_are_listed_with_their_space(root: Path) -> None:
    rows = [
        (each.name, each.size_mib, each.used_mib, each.free_mib)
        for kind in ("lvm-vg", "lvm-pv")
        for each in units(root, kind).units([])
    ]
    assert rows == [
        ("other", 50, 0, 50),
        ("xenvg", 1500, 100, 1400),
        (SDA, 1000, 100, 900),
        (SDB, 500, 0, 500),
        ("/dev/none/sdc1", 50, 0, 50),
    ]
    assert [each.name for each in units(root, "lvm-pv").units([SDB])] == [SDB]
    [missing] = units(root, "lvm-vg").units(["nope"])
    assert (missing.size_mib, missing.status) == (None, "there is none")


def test_a_thin_pool_is_a_unit_with_its_space_and_state(root: Path) -> None:
    lvm_programs.main("lvcreate", "--type=thin-pool", "--name=pool", "--size=400m", "xenvg")
    lvm_programs.change_volume(root, "xenvg/pool", data_percent="25.00")
    volumes = units(root, "lvm-vg")
    assert [each.name for each in volumes.units([])] == ["other", "xenvg", "xenvg/pool"]
    [pool] = volumes.units(["xenvg/pool"])
    assert (pool.size_mib, pool.used_mib, pool.free_mib, pool.status) == (400, 100, 300, "ok")
    assert (volumes.space("xenvg/pool").free_mib, volumes.space("xenvg").free_mib) == (300, 1000)
    lvm_programs.change_volume(root, "xenvg/pool", metadata_percent="100.00")
    [pool] = volumes.units(["xenvg/pool"])
    assert pool.free_mib == 0
    assert pool.status.startswith("has no room for more metadata")
    with pytest.raises(StorageError, match="'xenvg' has no thin pool 'nix'; make it there with"):
        volumes.space("xenvg/nix")


def test_space_where_physical_volumes_are_exclusive(root: Path) -> None:
    def space(kind: str, *, exclusive: bool) -> tuple[int | None, int | None]:
        found = units(root, kind, exclusive=exclusive).space("xenvg")
        return found.free_mib, found.size_mib

    assert space("lvm-vg", exclusive=False) == (1400, 1500)
    assert space("lvm-vg", exclusive=True) == (500, 1500)
    assert space("lvm-pv", exclusive=True) == (1, 2)
    assert space("lvm-pv", exclusive=False) == (0, 0)
    with pytest.raises(StorageError, match="no volume group 'nope'"):
        units(root, "lvm-vg").space("nope")


@pytest.mark.shows("2.1/storage/pv-allocation", "2.1/pv/set")
def test_allocation_is_switched_off_and_on(root: Path) -> None:
    storage = units(root, "lvm-pv")
    for value in (False, False, True):
        storage.modify_unit(SDA, {"allocatable": value})
        assert storage.units([SDA])[0].is_allocatable is value
    assert [call[0] for call in lvm_programs.calls(str(root))].count("pvchange") == 2
    with pytest.raises(StorageError, match=r"no physical volume '/dev/x'; there is: /dev/none/sda"):
        storage.modify_unit("/dev/x", {"allocatable": False})
    with pytest.raises(NotSupportedError, match="size of lvm-pv"):
        storage.modify_unit(SDA, {"size": 5})


@pytest.mark.shows("2.1/storage/vg-repair")
def test_a_missing_physical_volume_is_taken_out_where_no_volume_lies_on_it(root: Path) -> None:
    storage = units(root, "lvm-vg")
    storage.repair_unit("xenvg")  # nothing to do
    assert not any(call[0] == "vgreduce" for call in lvm_programs.calls(str(root)))
    lvm_programs.change_physical(root, SDB, attr="a-m")
    [unit] = storage.units(["xenvg"])
    assert "repair-storage NODE lvm-vg xenvg" in unit.status
    assert units(root, "lvm-pv").units([SDB])[0].status == "missing from volume group xenvg"
    storage.repair_unit("xenvg")
    [unit] = storage.units(["xenvg"])
    assert (unit.size_mib, unit.status) == (1000, "ok")
    lvm_programs.change_physical(root, SDA, attr="a-m")
    with pytest.raises(StorageError, match=r"xenvg/disk0 is lost in part.*recreate-disks"):
        storage.repair_unit("xenvg")
    assert storage.units(["xenvg"])[0].size_mib == 1000
