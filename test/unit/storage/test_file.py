"""Disks in files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from ganeti.base.errors import (
    BlockDeviceError,
    FileStoragePathError,
    NotSupportedError,
    OpPrereqError,
)
from ganeti.base.paths import Paths
from ganeti.storage.file import FileDisk, SharedFileDisk
from ganeti.storage.interface import BlockDevice
from ganeti.storage.registry import get_driver, supported_templates

MIB = 1 << 20
WIRE_PATH = "/srv/ganeti/file-storage/inst1/disk0"


@dataclass
class Node:
    paths: Paths


@dataclass
class Disk:
    logical_id: Sequence[object]
    dev_type: str = "file"
    uuid: str = "d1"
    size: int = 4
    name: str | None = None
    params: Mapping[str, object] | None = None


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(Paths(str(tmp_path)))


@pytest.fixture
def disk(node: Node) -> FileDisk:
    return FileDisk(Disk(["loop", WIRE_PATH]), node)


@pytest.fixture
def local(node: Node) -> Path:
    return Path(node.paths.localize(WIRE_PATH))


def test_what_could_never_be_filled_is_not_made(disk: FileDisk, local: Path) -> None:
    with pytest.raises(BlockDeviceError, match=r"no room for .* MiB left, \d+ MiB are needed"):
        disk.create(1 << 40)
    assert not os.path.lexists(local)
    disk.create(4)
    with pytest.raises(BlockDeviceError, match="no room for"):
        disk.grow(1 << 40, dryrun=True)
    assert local.stat().st_size == 4 * MIB


def test_created_disk_is_sparse_and_of_full_size(disk: FileDisk, local: Path) -> None:
    assert disk.create(4) is None
    found = local.stat()
    assert found.st_size == 4 * MIB
    assert found.st_blocks == 0
    assert os.listdir(local.parent) == [local.name]


def test_creation_never_overwrites(disk: FileDisk, local: Path) -> None:
    local.parent.mkdir(parents=True)
    local.write_bytes(b"precious")
    with pytest.raises(BlockDeviceError, match="File exists"):
        disk.create(4)
    assert local.read_bytes() == b"precious"
    assert os.listdir(local.parent) == [local.name]


@pytest.mark.parametrize("size_mib", [0, -1, 1 << 63, (1 << 63) // MIB])
def test_impossible_sizes_leave_nothing(disk: FileDisk, local: Path, size_mib: int) -> None:
    with pytest.raises(BlockDeviceError):
        disk.create(size_mib)
    assert not local.exists()


def test_size_beyond_the_file_system_leaves_nothing(disk: FileDisk, local: Path) -> None:
    with pytest.raises(BlockDeviceError, match="no room for"):
        disk.create(1 << 42)
    assert os.listdir(local.parent) == []


def test_life_of_a_disk(disk: FileDisk, local: Path) -> None:
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
    assert dimensions.to_wire() == [4 * MIB, None]
    disk.remove()
    disk.remove()
    assert disk.find() is None


def test_grow(disk: FileDisk, local: Path) -> None:
    disk.create(1)
    disk.grow(2, dryrun=True)
    assert local.stat().st_size == MIB
    disk.grow(2)
    assert local.stat().st_size == 3 * MIB
    for amount in (0, -1, 1 << 63):
        with pytest.raises(BlockDeviceError):
            disk.grow(amount)


def test_wipe_zeroes_only_the_part(disk: FileDisk, local: Path) -> None:
    disk.create(3)
    local.write_bytes(b"x" * 3 * MIB)
    disk.wipe(1, 1)
    assert local.read_bytes() == b"x" * MIB + bytes(MIB) + b"x" * MIB
    with pytest.raises(BlockDeviceError, match="cannot wipe"):
        disk.wipe(2, 2)


def test_wiping_holes_takes_no_space(disk: FileDisk, local: Path) -> None:
    disk.create(64)
    disk.wipe(0, 64)
    assert local.stat().st_blocks == 0


def test_rename_moves_and_never_overwrites(node: Node, disk: FileDisk, local: Path) -> None:
    disk.create(1)
    other = local.parent.parent / "inst2" / "disk0"
    disk.rename(["loop", WIRE_PATH.replace("inst1", "inst2")])
    assert other.stat().st_size == MIB
    assert not local.exists()
    FileDisk(Disk(["loop", WIRE_PATH]), node).create(2)
    with pytest.raises(BlockDeviceError, match="File exists"):
        disk.rename(["loop", WIRE_PATH])


def test_snapshots_are_not_supported(disk: FileDisk) -> None:
    disk.create(1)
    with pytest.raises(NotSupportedError, match="do not have snapshots"):
        disk.snapshot("s", 1)


@pytest.mark.parametrize("logical_id", [[], ["loop"], ["zip", WIRE_PATH], ["loop", 5]])
def test_wrong_logical_id_is_named(node: Node, logical_id: list[object]) -> None:
    with pytest.raises(BlockDeviceError, match="d1"):
        FileDisk(Disk(logical_id), node)


def test_path_outside_is_refused(node: Node) -> None:
    with pytest.raises(FileStoragePathError):
        FileDisk(Disk(["loop", "/etc/passwd"]), node)


def test_directory_in_the_way_is_named(disk: FileDisk, local: Path) -> None:
    local.mkdir(parents=True)
    with pytest.raises(BlockDeviceError, match="not a regular file"):
        disk.find()


def test_registry_knows_every_template(node: Node) -> None:
    shared: BlockDevice = get_driver(Disk(["loop", WIRE_PATH], "sharedfile"), node)
    assert isinstance(shared, SharedFileDisk)
    assert shared.info.externally_mirrored
    assert supported_templates() == ["blockdev", "diskless", "ext", "file", "sharedfile"]
    for template in ("plain", "drbd", "rbd", "gluster"):
        with pytest.raises(NotSupportedError, match=f"{template}.*not supported"):
            get_driver(Disk([], template), node)
    for template in ("diskless", "floppy"):
        with pytest.raises(OpPrereqError):
            get_driver(Disk([], template), node)
