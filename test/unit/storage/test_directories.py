"""Directories of an instance's file disks, and links to its disks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from ganeti.base.errors import FileStoragePathError, StorageError
from ganeti.base.paths import Paths
from ganeti.storage.directories import create_directory, remove_directory, rename_directory
from ganeti.storage.links import make_link, remove_link
from ganeti.storage.units import list_units, storage_space

BASE = "/srv/ganeti/file-storage"


@dataclass
class Node:
    paths: Paths


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(Paths(str(tmp_path)))


def test_directories_come_and_go(node: Node, tmp_path: Path) -> None:
    create_directory(f"{BASE}/inst1", node)
    create_directory(f"{BASE}/inst1", node)
    rename_directory(f"{BASE}/inst1", f"{BASE}/inst2", node)
    rename_directory(f"{BASE}/inst1", f"{BASE}/inst2", node)
    assert os.listdir(tmp_path / BASE[1:]) == ["inst2"]
    (tmp_path / BASE[1:] / "inst2" / "disk").touch()
    with pytest.raises(StorageError, match="not empty"):
        remove_directory(f"{BASE}/inst2", node)
    (tmp_path / BASE[1:] / "inst2" / "disk").unlink()
    remove_directory(f"{BASE}/inst2", node)
    remove_directory(f"{BASE}/inst2", node)


def test_rename_does_not_merge(node: Node) -> None:
    create_directory(f"{BASE}/a", node)
    create_directory(f"{BASE}/b", node)
    with pytest.raises(StorageError, match="both exist"):
        rename_directory(f"{BASE}/a", f"{BASE}/b", node)


def test_directories_elsewhere_are_refused(node: Node) -> None:
    with pytest.raises(FileStoragePathError):
        create_directory("/etc/inst", node)


def test_links_are_replaced_in_one_step(node: Node) -> None:
    first = make_link("inst1", 0, "/dev/a", node)
    assert make_link("inst1", 0, "/dev/b", node) == first
    assert os.readlink(first) == "/dev/b"
    remove_link("inst1", 0, node)
    remove_link("inst1", 0, node)
    assert os.listdir(node.paths.disk_links_dir) == []


def test_space_of_a_directory_is_that_of_its_file_system(node: Node) -> None:
    create_directory(f"{BASE}/x", node)
    space = storage_space("file", BASE, node).to_wire()
    assert space["name"] == BASE
    assert 0 < int(str(space["storage_free"])) <= int(str(space["storage_size"]))
    assert storage_space("ext", "", node).to_wire()["storage_free"] is None
    with pytest.raises(StorageError, match="/nowhere"):
        storage_space("file", "/nowhere", node)


def test_units_are_listed_by_field(node: Node) -> None:
    create_directory(f"{BASE}/x", node)
    (Path(node.paths.file_storage_dir) / "x" / "disk").write_bytes(b"x" * (2 << 20))
    assert list_units("file", [BASE], None, ["name", "used"], node) == [[BASE, 2]]
    assert list_units("file", [BASE], "/other", ["name"], node) == []
