"""Files that are written into what they replaced: content, owner and readers as with new files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.system import files
from ganeti.system.spares import Spares


def inode(path: Path) -> int:
    return path.stat().st_ino


def write(spares: Spares, path: Path | str, content: bytes, mode: int = 0o640) -> None:
    with spares.turn() as turn:
        files.write_durable(str(path), content, mode, turn=turn)


def spares_in(directory: Path) -> list[Path]:
    return sorted(directory.glob(".spare.*"))


def test_what_was_replaced_gets_the_content_after_the_next(tmp_path: Path) -> None:
    path, spares = tmp_path / "job-1", Spares(4)
    write(spares, path, b"the first, a long one")
    first = inode(path)
    write(spares, path, b"the second")
    assert inode(path) != first
    write(spares, path, b"third")
    assert (inode(path), path.read_bytes()) == (first, b"third")
    write(spares, path, b"and so on")
    assert path.read_bytes() == b"and so on"
    assert len(spares_in(tmp_path)) == 1
    spares.clear()
    write(spares, path, b"the last")
    assert [each.name for each in tmp_path.iterdir()] == ["job-1"]


def test_a_new_file_has_room_of_its_own(tmp_path: Path) -> None:
    path, spares = tmp_path / "job-1", Spares(4)
    for content in (b"one", b"two"):
        write(spares, path, content)
    before = spares_in(tmp_path)
    write(spares, tmp_path / "job-2", b"new")
    assert spares_in(tmp_path) == before != []


def test_there_is_room_for_so_many(tmp_path: Path) -> None:
    spares = Spares(2)
    paths = [tmp_path / f"job-{number}" for number in range(5)]
    for path in paths:
        write(spares, path, b"new")
    descriptors = [os.open(path, os.O_RDONLY) for path in paths]  # none is written anew
    for path in paths:
        write(spares, path, b"replaced")
    assert len(spares_in(tmp_path)) <= 2
    assert [os.read(descriptor, 99) for descriptor in descriptors] == [b"new"] * 5
    for descriptor in descriptors:
        os.close(descriptor)


def test_a_reader_reads_on_what_was_replaced(tmp_path: Path) -> None:
    path, spares = tmp_path / "job-1", Spares(1)
    write(spares, path, b"what is read")
    with path.open("rb") as reader:
        for number in range(5):
            write(spares, path, b"version %d" % number)
        assert reader.read() == b"what is read"


def test_a_hard_link_keeps_what_it_has(tmp_path: Path) -> None:
    path, spares = tmp_path / "job-1", Spares(1)
    write(spares, path, b"backed up")
    (tmp_path / "backup").hardlink_to(path)
    for number in range(3):
        write(spares, path, b"version %d" % number)
    assert (tmp_path / "backup").read_bytes() == b"backed up"


def test_who_opens_it_meanwhile_reads_all_of_the_new_content(tmp_path: Path) -> None:
    path, spares = tmp_path / "job-1", Spares(1)
    write(spares, path, b"old")
    write(spares, path, b"older")
    (spare,) = spares_in(tmp_path)
    read: list[bytes] = []

    def read_on() -> None:
        with contextlib.suppress(FileNotFoundError):  # it came after the renaming
            read.append(spare.read_bytes())

    reader = threading.Thread(target=read_on)

    def ready(_descriptor: int) -> None:
        with pytest.raises(BlockingIOError):  # so whoever may wait, waits
            os.open(spare, os.O_RDONLY | os.O_NONBLOCK)
        reader.start()

    with spares.turn() as turn:
        files.write_durable(str(path), b"the new content", turn=turn, ready=ready)
    reader.join(10)
    assert read in ([b"the new content"], [])
    assert path.read_bytes() == b"the new content"


def test_a_lease_that_the_kernel_has_ended_fails_no_write(tmp_path: Path) -> None:
    path, spares = tmp_path / "job-1", Spares(1)
    for content in (b"one", b"two"):
        write(spares, path, content)

    def ready(descriptor: int) -> None:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    with spares.turn() as turn:
        files.write_durable(str(path), b"three", turn=turn, ready=ready)
    assert path.read_bytes() == b"three"


def test_a_write_that_fails_leaves_the_old_content_and_no_spare(tmp_path: Path) -> None:
    path, spares = tmp_path / "job-1", Spares(1)
    for content in (b"one", b"two"):
        write(spares, path, content)

    def ready(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"), spares.turn() as turn:
        files.write_durable(str(path), b"three", turn=turn, ready=ready)
    assert (path.read_bytes(), spares_in(tmp_path)) == (b"two", [])
    write(spares, path, b"four")
    assert path.read_bytes() == b"four"


def test_a_place_that_cannot_be_taken_keeps_its_file(tmp_path: Path) -> None:
    place, spares = tmp_path / "job-1", Spares(1)
    place.mkdir()
    with pytest.raises(IsADirectoryError):
        write(spares, place, b"content")
    assert [each.name for each in tmp_path.iterdir()] == ["job-1"]


def test_what_may_come_back_after_a_power_cut_is_not_written(tmp_path: Path) -> None:
    path, spares = tmp_path / "job-1", Spares(4)
    write(spares, path, b"synced")
    first = inode(path)
    with spares.turn() as turn:
        for number in range(3):  # none of the names is safe yet
            content = b"version %d" % number
            files.write_durable(str(path), content, turn=turn, syncs_directory=False)
            assert inode(path) != first
    assert len(spares_in(tmp_path)) == 3

    def fail_to_sync() -> None:
        with spares.turn() as turn:
            files.write_durable(str(path), b"more", turn=turn, syncs_directory=False)
            raise OSError(errno.EIO, "cannot sync")

    with pytest.raises(OSError, match="cannot sync"):
        fail_to_sync()
    assert len(spares_in(tmp_path)) == 2


def test_a_pipe_in_place_of_a_spare_is_not_waited_for(tmp_path: Path) -> None:
    path, spares = tmp_path / "job-1", Spares(3)
    for content in (b"one", b"two"):
        write(spares, path, content)
    (spare,) = spares_in(tmp_path)
    spare.unlink()
    os.mkfifo(spare)
    write(spares, path, b"three")
    assert path.read_bytes() == b"three"


def test_spares_that_were_tidied_up_are_not_missed(tmp_path: Path) -> None:
    path, spares = tmp_path / "job-1", Spares(3)
    for content in (b"one", b"two"):
        write(spares, path, content)
    for spare in spares_in(tmp_path):
        spare.unlink()
        spare.symlink_to(path)  # never written through
    write(spares, path, b"three")
    assert path.read_bytes() == b"three"
    assert not path.is_symlink()


@pytest.mark.parametrize("missing", ["link", "fcntl"])
def test_a_file_system_without_links_or_leases_gets_new_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    def refuse(*_args: object, **_named: object) -> None:
        raise OSError(errno.EINVAL if missing == "fcntl" else errno.EPERM, "not here")

    monkeypatch.setattr(
        f"ganeti.system.spares.{'os' if missing == 'link' else 'fcntl'}.{missing}", refuse
    )
    path, spares = tmp_path / "job-1", Spares(3)
    for content in (b"one", b"two", b"three", b"four"):
        write(spares, path, content)
        assert path.read_bytes() == content
    assert (spares.room, spares_in(tmp_path)) == (0, [])


def test_owner_and_mode_are_those_of_what_is_replaced(tmp_path: Path) -> None:
    open_, closed, spares = tmp_path / "open", tmp_path / "closed", Spares(4)
    for path, mode in ((open_, 0o644), (closed, 0o600)):
        write(spares, path, b"one", mode)
    if os.geteuid() == 0:
        os.chown(closed, 12, 34)
    for path in (open_, closed, open_, closed):
        write(spares, path, b"more", 0o666)
        write(spares, path, b"even more", 0o666)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (open_, closed)]
    assert modes == [0o644, 0o600]
    if os.geteuid() == 0:
        owners = [(path.stat().st_uid, path.stat().st_gid) for path in (open_, closed)]
        assert owners == [(0, os.getegid()), (12, 34)]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.binary(max_size=40), st.booleans(), st.booleans()),
        max_size=25,
    ),
    st.integers(0, 3),
)
def test_every_file_and_every_reader_has_its_content(
    writes: list[tuple[int, bytes, bool, bool]], room: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        spares, wanted, readers = Spares(room), dict[str, bytes](), list[tuple[int, bytes]]()
        for number, content, is_read, is_left in writes:
            path = f"{directory}/job-{number}"
            write(spares, path, content)
            wanted[path] = content
            if is_read:
                readers.append((os.open(path, os.O_RDONLY), content))
            if is_left and readers:
                os.close(readers.pop(0)[0])
        assert {path: Path(path).read_bytes() for path in wanted} == wanted
        for descriptor, content in readers:
            assert os.read(descriptor, 100) == content
            os.close(descriptor)
        spares.clear()
        assert len(os.listdir(directory)) == len(wanted)
