"""Disks in files, and the directories that hold them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from fakes.storage_records import Disk, Node

from ganeti.base.errors import BlockDeviceError, FileStoragePathError, StorageError
from ganeti.base.paths import Paths
from ganeti.objects.disk_templates import StorageType
from ganeti.storage.file import (
    FileStorage,
    FileVolume,
    Qcow2Volume,
    create_directory,
    remove_directory,
    rename_directory,
)

MIB = 1 << 20
BASE = "/srv/ganeti/file-storage"
WIRE_PATH = "/srv/ganeti/file-storage/inst1/disk0"


new_disk = partial(Disk, "file")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(Paths(str(tmp_path)))


@pytest.fixture
def disk(node: Node) -> FileVolume:
    return FileVolume(new_disk(["loop", WIRE_PATH]), node)


@pytest.fixture
def local(node: Node) -> Path:
    return Path(node.paths.localize(WIRE_PATH))


def test_what_could_never_be_filled_is_not_made(disk: FileVolume, local: Path) -> None:
    with pytest.raises(BlockDeviceError, match=r"no room for .* MiB left, \d+ MiB are needed"):
        disk.create(1 << 40)
    assert not os.path.lexists(local)
    disk.create(4)
    with pytest.raises(BlockDeviceError, match="no room for"):
        disk.grow(1 << 40, dryrun=True)
    assert local.stat().st_size == 4 * MIB


def test_created_disk_is_sparse_and_of_full_size(disk: FileVolume, local: Path) -> None:
    assert disk.create(4) is None
    found = local.stat()
    assert found.st_size == 4 * MIB
    assert found.st_blocks == 0
    assert os.listdir(local.parent) == [local.name]


def test_creation_never_overwrites(disk: FileVolume, local: Path) -> None:
    local.parent.mkdir(parents=True)
    local.write_bytes(b"precious")
    with pytest.raises(BlockDeviceError, match="File exists"):
        disk.create(4)
    assert local.read_bytes() == b"precious"
    assert os.listdir(local.parent) == [local.name]


@pytest.mark.parametrize("size_mib", [0, -1, 1 << 63, (1 << 63) // MIB])
def test_impossible_sizes_leave_nothing(disk: FileVolume, local: Path, size_mib: int) -> None:
    with pytest.raises(BlockDeviceError):
        disk.create(size_mib)
    assert not local.exists()


def test_size_beyond_the_file_system_leaves_nothing(disk: FileVolume, local: Path) -> None:
    with pytest.raises(BlockDeviceError, match="no room for"):
        disk.create(1 << 42)
    assert os.listdir(local.parent) == []


@pytest.mark.shows(
    "backend/overview/files", "backend/templates/file", "2.0/disks/no-lvm", "2.0/file-storage/files"
)
def test_life_of_a_disk(disk: FileVolume, local: Path) -> None:
    assert disk.find() is None
    assert disk.dimensions() is None
    with pytest.raises(BlockDeviceError, match="does not exist"):
        disk.assemble()
    disk.create(4)
    status = disk.find()
    assert status is not None
    assert status.to_wire() == {
        "dev_path": str(local),
        "major": None,
        "minor": None,
        "sync_percent": None,
        "estimated_time": None,
        "is_degraded": False,
        "ldisk_status": 1,
    }
    assert disk.assemble().dev_path == str(local)
    disk.open()
    disk.close()
    disk.shutdown()
    dimensions = disk.dimensions()
    assert dimensions is not None
    assert (dimensions.size_bytes, dimensions.spindles) == (4 * MIB, None)
    disk.remove()
    disk.remove()
    assert disk.find() is None


def test_grow(disk: FileVolume, local: Path) -> None:
    disk.create(1)
    disk.grow(2, dryrun=True)
    assert local.stat().st_size == MIB
    disk.grow(2)
    assert local.stat().st_size == 3 * MIB
    for amount in (0, -1, 1 << 63):
        with pytest.raises(BlockDeviceError):
            disk.grow(amount)


def test_wipe_zeroes_only_the_part(disk: FileVolume, local: Path) -> None:
    disk.create(3)
    local.write_bytes(b"x" * 3 * MIB)
    disk.wipe(1, 1)
    assert local.read_bytes() == b"x" * MIB + bytes(MIB) + b"x" * MIB
    with pytest.raises(BlockDeviceError, match="cannot wipe"):
        disk.wipe(2, 2)


def test_wiping_holes_takes_no_space(disk: FileVolume, local: Path) -> None:
    disk.create(64)
    disk.wipe(0, 64)
    assert local.stat().st_blocks == 0


def test_rename_moves_and_never_overwrites(node: Node, disk: FileVolume, local: Path) -> None:
    disk.create(1)
    other = local.parent.parent / "inst2" / "disk0"
    disk.rename(["loop", WIRE_PATH.replace("inst1", "inst2")])
    assert other.stat().st_size == MIB
    assert not local.exists()
    FileVolume(new_disk(["loop", WIRE_PATH]), node).create(2)
    with pytest.raises(BlockDeviceError, match="File exists"):
        disk.rename(["loop", WIRE_PATH])


@pytest.mark.parametrize("logical_id", [[], ["loop"], ["zip", WIRE_PATH], ["loop", 5]])
def test_wrong_logical_id_is_named(node: Node, logical_id: list[object]) -> None:
    with pytest.raises(BlockDeviceError, match="d1"):
        FileVolume(new_disk(logical_id), node)


def test_path_outside_is_refused(node: Node) -> None:
    with pytest.raises(FileStoragePathError):
        FileVolume(new_disk(["loop", "/etc/passwd"]), node)


def test_directory_in_the_way_is_named(disk: FileVolume, local: Path) -> None:
    local.mkdir(parents=True)
    with pytest.raises(BlockDeviceError, match="not a regular file"):
        disk.find()


@pytest.mark.shows("2.1/storage/make-directories")
def test_directories_come_and_go(node: Node, tmp_path: Path) -> None:
    create_directory(f"{BASE}/inst1", node.paths)
    create_directory(f"{BASE}/inst1", node.paths)
    rename_directory(f"{BASE}/inst1", f"{BASE}/inst2", node.paths)
    rename_directory(f"{BASE}/inst1", f"{BASE}/inst2", node.paths)
    assert os.listdir(tmp_path / BASE[1:]) == ["inst2"]
    (tmp_path / BASE[1:] / "inst2" / "disk").touch()
    with pytest.raises(StorageError, match="not empty"):
        remove_directory(f"{BASE}/inst2", node.paths)
    (tmp_path / BASE[1:] / "inst2" / "disk").unlink()
    remove_directory(f"{BASE}/inst2", node.paths)
    remove_directory(f"{BASE}/inst2", node.paths)


def test_rename_does_not_merge(node: Node) -> None:
    create_directory(f"{BASE}/a", node.paths)
    create_directory(f"{BASE}/b", node.paths)
    with pytest.raises(StorageError, match="both exist"):
        rename_directory(f"{BASE}/a", f"{BASE}/b", node.paths)


def test_directories_elsewhere_are_refused(node: Node) -> None:
    with pytest.raises(FileStoragePathError):
        create_directory("/etc/inst", node.paths)


def test_space_of_a_directory_is_that_of_its_file_system(node: Node) -> None:
    create_directory(f"{BASE}/x", node.paths)
    space = FileStorage(StorageType.FILE, node).space(BASE).to_wire()
    assert space["name"] == BASE
    assert 0 < int(str(space["storage_free"])) <= int(str(space["storage_size"]))


@pytest.mark.shows("2.1/storage/directories")
def test_units_tell_what_their_files_take(node: Node) -> None:
    create_directory(f"{BASE}/x", node.paths)
    (Path(node.paths.file_storage_dir) / "x" / "disk").write_bytes(b"x" * (2 << 20))
    [unit] = FileStorage(StorageType.FILE, node).units([BASE])
    assert (unit.name, unit.used_mib, unit.status) == (BASE, 2, "ok")


@pytest.mark.shows("2.1/storage/status")
def test_a_directory_that_is_missing_is_a_unit_with_its_status(node: Node) -> None:
    (Path(node.paths.file_storage_dir)).mkdir(parents=True)
    storage = FileStorage(StorageType.FILE, node)
    gone, here = storage.units([f"{BASE}/gone", BASE])
    assert (gone.name, gone.size_mib, gone.is_allocatable) == (f"{BASE}/gone", None, False)
    assert f"cannot look at storage directory {BASE}/gone" in gone.status
    assert here.status == "ok"
    (Path(node.paths.file_storage_dir) / "file").touch()
    [unit] = storage.units([f"{BASE}/file"])
    assert unit.status == f"storage directory {BASE}/file is not a directory"


def test_the_bytes_of_each_image_of_a_disk_are_shown_at_a_place_of_their_own(node: Node) -> None:
    """A disk that is converted keeps its identity, and its bytes go from one view to the other."""
    old, again, new = (
        Qcow2Volume(new_disk(["loop", f"{BASE}/inst1/{name}"]), node).raw_view
        for name in ("disk0", "disk0", "b.disk0")
    )
    assert old.path == again.path != new.path
    assert old.path.startswith(f"{node.paths.run_dir}/raw-disks/d1-")
