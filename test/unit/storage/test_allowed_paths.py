"""Files serve as disks only where the node allows it."""

from pathlib import Path

import pytest

from ganeti.base.allowed_directories import refused_directories
from ganeti.base.errors import FileStoragePathError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.base.text import listed_paths
from ganeti.storage.allowed_paths import (
    check_path,
    load_allowed_paths,
    local_path,
    storage_directory_problem,
)

ALLOWED = ["/srv/ganeti/file-storage", "/data/disks"]


def test_list_has_comments_and_blank_lines() -> None:
    text = "# ours\n\n/srv/disks/  # fast\nrelative/path\n/data\n"
    assert listed_paths(text) == ["/srv/disks", "/data"]


@pytest.mark.parametrize("path", ["/data/disks/a", "/srv/ganeti/file-storage/inst/disk0"])
def test_paths_below_an_allowed_directory_pass(path: str) -> None:
    check_path(path, ALLOWED)


@pytest.mark.parametrize(
    "path",
    [
        "/data/disks",  # the directory itself is no file
        "/data/disks2/a",
        "/data/disks/../../etc/passwd",
        "relative",
        "/data//disks/a",
        "/data/disks/a\0b",
        "/etc/passwd",
    ],
)
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(FileStoragePathError):
        check_path(path, ALLOWED)


def test_system_directories_cannot_be_allowed() -> None:
    allowed = ["/usr/lib", "/", "/etc/ganeti", "/srv/x", "/var/lib/ganeti/queue"]
    assert refused_directories(allowed) == ["/", "/etc/ganeti", "/usr/lib", "/var/lib/ganeti/queue"]
    with pytest.raises(FileStoragePathError, match="is not below an allowed"):
        check_path("/etc/ganeti/disk", allowed)


def test_without_a_list_the_default_directories_are_allowed(tmp_path: Path) -> None:
    allowed = load_allowed_paths(Paths(str(tmp_path)))
    assert allowed[:2] == ["/srv/ganeti/file-storage", "/srv/ganeti/shared-file-storage"]


def test_paths_are_checked_without_and_returned_with_the_root(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    (tmp_path / "etc/ganeti").mkdir(parents=True)
    (tmp_path / "etc/ganeti/file-storage-paths").write_text("/data\n")
    assert local_path("/data/x", paths) == f"{tmp_path}/data/x"
    with pytest.raises(FileStoragePathError):
        local_path("/srv/ganeti/file-storage/x", paths)
    with pytest.raises(OpPrereqError):
        local_path("/data/../etc/x", paths)


def test_storage_directory_must_be_allowed_and_there(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    directory = "/srv/ganeti/file-storage"
    assert "not an existing" in str(storage_directory_problem(directory, paths))
    Path(paths.file_storage_dir).mkdir(parents=True)
    assert storage_directory_problem(directory, paths) is None
    assert "not an allowed" in str(storage_directory_problem("/elsewhere", paths))
