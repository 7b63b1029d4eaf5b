"""Contents of disks as streams: what arrives is what was sent, or it is refused."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base.errors import StorageError
from ganeti.storage.stream import DiskReader, DiskWriter, LocalImage, PlainWriter

SIZE = 1 << 20


def make(path: Path, size: int, areas: list[tuple[int, bytes]]) -> Path:
    path.write_bytes(b"")
    os.truncate(path, size)
    with path.open("r+b") as file:
        for offset, data in areas:
            file.seek(offset)
            file.write(data)
    return path


def stream_of(path: Path) -> bytes:
    reader = DiskReader(LocalImage(str(path)))
    try:
        return b"".join(reader.pieces())
    finally:
        reader.close()


def write(path: Path, stream: bytes) -> DiskWriter:
    writer = DiskWriter(str(path), io.BytesIO(stream))
    for _ in writer.run():
        pass
    return writer


areas = st.lists(
    st.tuples(st.integers(0, SIZE - 9000), st.binary(min_size=1, max_size=9000)), max_size=5
)


@settings(max_examples=25, deadline=None)
@given(source=areas, target=areas)
def test_what_arrives_is_what_was_sent(
    tmp_path_factory: pytest.TempPathFactory,
    source: list[tuple[int, bytes]],
    target: list[tuple[int, bytes]],
) -> None:
    directory = tmp_path_factory.mktemp("stream")
    first = make(directory / "a", SIZE, source)
    second = make(directory / "b", SIZE, target)
    writer = write(second, stream_of(first))
    assert second.read_bytes() == first.read_bytes()
    assert writer.done_bytes == writer.data_bytes


def test_holes_are_not_sent(tmp_path: Path) -> None:
    path = make(tmp_path / "a", 64 << 20, [(32 << 20, b"x")])
    assert len(stream_of(path)) < 1 << 20


def test_a_larger_disk_keeps_its_end(tmp_path: Path) -> None:
    source = make(tmp_path / "a", SIZE, [(0, b"x" * 5000)])
    target = make(tmp_path / "b", 2 * SIZE, [(SIZE + 7, b"end")])
    write(target, stream_of(source))
    assert target.read_bytes()[SIZE + 7 : SIZE + 10] == b"end"


def test_a_smaller_disk_is_refused(tmp_path: Path) -> None:
    for place in (SIZE - 1, SIZE, 2 * SIZE - 2):
        stream = stream_of(make(tmp_path / "a", 2 * SIZE, [(place, b"xy")]))
        with pytest.raises(StorageError, match="has 1 MiB here, 2 MiB are to be written; if"):
            write(make(tmp_path / "b", SIZE, []), stream)


@settings(max_examples=25, deadline=None)
@given(source=areas, target=areas, zeroes=st.integers(1, 9000))
def test_zeroes_beyond_the_end_are_not_missed(
    tmp_path_factory: pytest.TempPathFactory,
    source: list[tuple[int, bytes]],
    target: list[tuple[int, bytes]],
    zeroes: int,
) -> None:
    directory = tmp_path_factory.mktemp("stream")
    first = make(directory / "a", 2 * SIZE, [*source, (SIZE, bytes(zeroes))])
    second = make(directory / "b", SIZE, target)
    write(second, stream_of(first))
    assert second.read_bytes() == first.read_bytes()[:SIZE]


def test_more_than_a_disk_has_to_have_is_written_where_there_is_room(tmp_path: Path) -> None:
    target = make(tmp_path / "b", 2 * SIZE, [])
    data = bytes(range(256)) * (SIZE >> 8)
    for count in (len(data), len(data) + 5):
        for _ in PlainWriter(str(target), io.BytesIO(data + data[: count - SIZE]), SIZE).run():
            pass
        assert target.read_bytes()[:count] == data + data[: count - SIZE]
    with pytest.raises(StorageError, match="ended early"):
        list(PlainWriter(str(target), io.BytesIO(data[1:]), SIZE).run())


@pytest.mark.parametrize("place", [0, 9, 30, 3000, -20])
def test_any_damage_is_found(tmp_path: Path, place: int) -> None:
    stream = bytearray(stream_of(make(tmp_path / "a", SIZE, [(0, b"x" * 9000)])))
    stream[place] ^= 0x40
    with pytest.raises(StorageError):
        write(make(tmp_path / "b", SIZE, []), bytes(stream))


def test_a_stream_cut_anywhere_is_refused(tmp_path: Path) -> None:
    stream = stream_of(make(tmp_path / "a", SIZE, [(0, b"x" * 9000)]))
    target = make(tmp_path / "b", SIZE, [])
    for cut in (0, 7, 20, 40, 5000, len(stream) - 33, len(stream) - 1):
        with pytest.raises(StorageError, match="ended early"):
            write(target, stream[:cut])


def test_a_lack_of_room_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = stream_of(make(tmp_path / "a", SIZE, [(0, b"x" * 9000)]))
    target = make(tmp_path / "b", SIZE, [])
    full = list(os.statvfs(tmp_path))
    full[4] = 0  # f_bavail
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(full))
    with pytest.raises(StorageError, match="no space"):
        write(target, stream)
    assert not any(target.read_bytes())


def test_a_disk_that_takes_the_place_of_another_is_left_alone(tmp_path: Path) -> None:
    stream = stream_of(make(tmp_path / "a", SIZE, [(0, b"x" * 10), (SIZE - 9, b"y" * 9)]))
    target = make(tmp_path / "b", SIZE, [])
    running = DiskWriter(str(target), io.BytesIO(stream)).run()
    next(running)
    target.unlink()
    make(target, SIZE, [(SIZE // 2, b"new")])
    for _ in running:
        pass
    assert target.read_bytes().count(b"\0") == SIZE - 3
