"""Files are replaced whole, and stay whole when the replacement fails."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from ganeti.base.errors import GenericError
from ganeti.system import files


@pytest.mark.parametrize("write", [files.write_atomic, files.write_durable])
def test_a_new_file_has_its_mode_and_a_replaced_one_keeps_its_own(
    write: object, tmp_path: Path
) -> None:
    assert callable(write)
    target = tmp_path / "f"
    write(str(target), b"old", 0o440)
    assert target.stat().st_mode & 0o777 == 0o440
    target.chmod(0o604)
    write(str(target), b"new", 0o440)
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o604
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.shows("2.0/queue-storage/atomic")
@pytest.mark.parametrize("write", [files.write_atomic, files.write_durable])
def test_a_full_disk_leaves_the_old_file(
    write: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(write)
    target = tmp_path / "f"
    target.write_text("old")

    def full(_fd: int, _data: object) -> int:
        raise OSError(28, "No space left on device")

    for call in ("write", "writev"):
        monkeypatch.setattr(files.os, call, full)
    with pytest.raises(OSError, match="No space"):
        write(str(target), b"new")
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.shows("2.0/queue-storage/atomic", "2.0/queue-structure/temporary")
def test_durable_means_synced_before_and_after_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    for name in ("fsync", "rename"):
        real = getattr(os, name)

        def record(*args: object, _name: str = name, _real: object = real) -> object:
            kind = (
                "dir" if _name == "fsync" and os.path.isdir(f"/proc/self/fd/{args[0]}") else "file"
            )
            steps.append(f"{_name} {kind}")
            assert callable(_real)
            return _real(*args)

        monkeypatch.setattr(files.os, name, record)
    files.write_durable(str(tmp_path / "f"), b"x")
    assert steps == ["fsync file", "rename file", "fsync dir"]


def test_a_file_larger_than_expected_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    assert files.read_bytes(str(tmp_path / "f"), 5) == b"12345"
    with pytest.raises(GenericError, match="larger than 4"):
        files.read_bytes(str(tmp_path / "f"), 4)


def test_missing_files(tmp_path: Path) -> None:
    assert files.read_bytes_or_none(str(tmp_path / "no")) is None
    assert files.remove_if_exists(str(tmp_path / "no")) is False


def test_directories_are_made_with_their_parents(tmp_path: Path) -> None:
    files.ensure_directory(str(tmp_path / "a" / "b"), 0o700)
    files.ensure_directory(str(tmp_path / "a" / "b"), 0o755)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_reading_a_small_file_takes_little_memory_whatever_the_limit(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 10_000)
    tracemalloc.start()
    try:
        assert len(files.read_bytes(str(tmp_path / "f"))) == 10_000
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_files_without_a_size_are_read_whole() -> None:
    assert files.read_bytes("/proc/self/maps").endswith(b"\n")


def test_owners_have_the_names_that_this_machine_knows() -> None:
    import pwd

    status = os.stat("/")
    assert files.owner_names(status)[0] == pwd.getpwuid(status.st_uid).pw_name
    nobody = os.stat_result((0, 0, 0, 0, 4_000_000_001, 4_000_000_002, 0, 0, 0, 0))
    assert files.owner_names(nobody) == ("4000000001", "4000000002")


def test_a_file_that_was_replaced_on_a_failing_disk_is_told_from_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_directory: str) -> None:
        raise OSError(5, "Input/output error")

    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(files, "fsync_directory", fail)
    with pytest.raises(files.NotSyncedError, match="Input/output error"):
        files.write_durable(str(path), b"new")
    with pytest.raises(files.NotSyncedError):
        files.write_durable(str(path), [b"n", b"ew"])
    assert path.read_bytes() == b"new"


@pytest.mark.skipif(os.geteuid() != 0, reason="makes links of others")
def test_a_link_that_another_user_made_is_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to("target")
    os.close(files.open_not_led(str(link), os.O_WRONLY | os.O_CREAT, 0o600))
    target.unlink()  # an administrator's may lead anywhere
    os.chown(link, 64_000, 64_000, follow_symlinks=False)
    with pytest.raises(OSError, match="symbolic link"):
        files.open_not_led(str(link), os.O_WRONLY | os.O_CREAT, 0o600)
    assert not target.exists()
