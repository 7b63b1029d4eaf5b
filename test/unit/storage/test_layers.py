"""Chains of a whole disk and what changed later: any point of any chain comes back as it was."""

from __future__ import annotations

import io
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import chance

from ganeti.base.errors import StorageError
from ganeti.protocol.export_description import BLOCK_BYTES
from ganeti.storage.chains.layers import Layer, LayerFile, RootCounter, merged
from ganeti.storage.chains.sums import BlockSums, changes
from ganeti.storage.stream import DiskWriter, StreamReader, encoded

SIZE = 6 * BLOCK_BYTES
Areas = list[tuple[int, int]]


class MemoryImage:
    """A disk in memory, which knows its holes, and what was written since the last look."""

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self.written: Areas = []
        self.reads = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def areas(self) -> Iterator[tuple[int, int]]:
        """Yield the pages that are not holes, not always in the blocks of a chain."""
        for at in range(0, self.size, 4096):
            if any(self.data[at : at + 4096]):
                yield at, min(at + 4096, self.size)

    def read(self, position: int, count: int) -> bytes:
        self.reads += count
        return bytes(self.data[position : position + count])

    def close(self) -> None:
        """Do nothing."""

    def write(self, offset: int, data: bytes) -> None:
        self.data[offset : offset + len(data)] = data
        self.written.append((offset, offset + len(data)))

    def dirty(self) -> Areas:
        found, self.written = sorted(self.written), []
        return found


class Chain:
    """A chain of streams, and the checksums of its newest point."""

    def __init__(self) -> None:
        self.streams: list[bytes] = []
        self.roots: list[str] = []
        self.sums = BlockSums.create(os.memfd_create("sums"), 0)

    def add(self, image: MemoryImage, dirty: Areas | None = None) -> bytes:
        """Add a point; returns its stream."""
        is_first = not self.streams
        runs = changes(image, self.sums, None if is_first else dirty)
        stream = b"".join(encoded(runs, image.size, is_difference=not is_first))
        reader = StreamReader(io.BytesIO(stream))
        self.sums.resize(reader.size)
        for run in reader.runs():
            self.sums.note(run)
        self.streams.append(stream)
        self.roots.append(self.sums.root())
        return stream

    def restored(self, point: int) -> bytes:
        """Return the disk at a point, after its checksums were compared."""
        readers = [StreamReader(io.BytesIO(stream)) for stream in self.streams[: point + 1]]
        counter = RootCounter(readers[-1].size)
        runs = merged([Layer(reader.size, reader.runs()) for reader in readers])
        found = bytearray(readers[-1].size)
        for offset, length, data in counter.passing(runs):
            found[offset : offset + length] = data or bytes(length)
        assert counter.root() == self.roots[point], f"point {point}"
        return bytes(found)


def change(rng: random.Random, image: MemoryImage) -> None:
    """Do to a disk what guests and administrators do."""
    for _ in range(rng.randrange(4)):
        offset = rng.randrange(max(image.size, 1))
        count = min(rng.choice([1, 512, 5000, 70_000, 200_000]), image.size - offset)
        data = bytes(count) if rng.random() < 0.4 else rng.randbytes(count)
        image.write(offset, data)
    match rng.randrange(8):
        case 0:
            image.data.extend(bytes(rng.choice([512, BLOCK_BYTES, 3 * BLOCK_BYTES + 512])))
        case 1:
            del image.data[rng.randrange(image.size // 2, image.size) + 1 :]
            image.written = [(begin, min(end, image.size)) for begin, end in image.written]


@pytest.mark.parametrize("number", range(60))
def test_any_point_of_any_chain_comes_back(number: int) -> None:
    rng = random.Random(f"{chance.seed()}-{number}")
    image, chain = MemoryImage(bytearray(SIZE)), Chain()
    kept: list[bytes] = []
    for _ in range(rng.randrange(1, 12)):
        change(rng, image)
        known = image.dirty() if rng.random() < 0.6 else None
        image.written.clear()
        chain.add(image, known)
        kept.append(bytes(image.data))
    for point, expected in enumerate(kept):
        assert chain.restored(point) == expected, f"point {point} of {len(kept)}"


def test_an_increment_has_only_what_changed() -> None:
    image, chain = MemoryImage(bytearray(os.urandom(SIZE))), Chain()
    assert len(chain.add(image)) > SIZE
    assert len(chain.add(image)) < 100
    image.write(BLOCK_BYTES + 7, bytes([image.data[BLOCK_BYTES + 7] ^ 1]))
    image.write(4 * BLOCK_BYTES, bytes(BLOCK_BYTES))
    assert BLOCK_BYTES < len(chain.add(image)) < BLOCK_BYTES + 200
    assert chain.restored(2) == bytes(image.data)


def test_only_what_was_noted_as_written_is_read() -> None:
    image, chain = MemoryImage(bytearray(os.urandom(SIZE))), Chain()
    chain.add(image)
    image.reads = 0
    image.write(3 * BLOCK_BYTES + 9, b"new")
    chain.add(image, image.dirty())
    assert image.reads == BLOCK_BYTES
    assert chain.restored(1) == bytes(image.data)


def test_what_was_cut_off_does_not_come_back() -> None:
    image, chain = MemoryImage(bytearray(os.urandom(SIZE))), Chain()
    chain.add(image)
    del image.data[SIZE // 2 + 100 :]
    chain.add(image)
    image.data.extend(bytes(SIZE))
    chain.add(image)
    assert chain.restored(2) == bytes(image.data)


def test_a_chain_of_more_than_a_thousand_is_restored(tmp_path: Path) -> None:
    """Neither open files nor the depth of calls limit it."""
    image, chain = MemoryImage(bytearray(SIZE)), Chain()
    for number in range(1200):
        image.write(number % 6 * BLOCK_BYTES, number.to_bytes(4, "big"))
        (tmp_path / str(number)).write_bytes(chain.add(image, image.dirty()))
    layers = [LayerFile(str(tmp_path / str(number))).layer() for number in range(1200)]
    stream = b"".join(encoded(merged(layers), SIZE))
    target = tmp_path / "disk"
    target.write_bytes(os.urandom(SIZE))
    for _ in DiskWriter(str(target), io.BytesIO(stream)).run():
        pass
    assert target.read_bytes() == bytes(image.data)


@pytest.mark.parametrize("place", [0, 9, 30, 3000, -20])
def test_damage_of_any_layer_is_found_and_named(tmp_path: Path, place: int) -> None:
    image, chain = MemoryImage(bytearray(os.urandom(SIZE))), Chain()
    chain.add(image)
    image.write(0, os.urandom(SIZE))
    chain.add(image)
    for number, stream in enumerate(chain.streams):
        data = bytearray(stream)
        data[place] ^= 0x40 if number == 0 else 0
        (tmp_path / f"{number}.dump").write_bytes(data)
    with pytest.raises(StorageError, match=r"file 0\.dump of the export is damaged"):
        list(merged([LayerFile(str(tmp_path / f"{number}.dump")).layer() for number in (0, 1)]))


def test_a_difference_is_not_taken_for_a_disk(tmp_path: Path) -> None:
    stream = b"".join(encoded([(0, 4, b"data")], 8, is_difference=True))
    (tmp_path / "disk").write_bytes(bytes(8))
    with pytest.raises(StorageError, match="only what changed"):
        list(DiskWriter(str(tmp_path / "disk"), io.BytesIO(stream)).run())


def test_checksums_that_are_damaged_are_refused() -> None:
    descriptor = os.memfd_create("sums")
    BlockSums.create(descriptor, SIZE)
    BlockSums.load(descriptor)
    os.ftruncate(descriptor, 100)
    with pytest.raises(StorageError, match="not complete"):
        BlockSums.load(descriptor)
    os.pwrite(descriptor, b"x", 0)
    with pytest.raises(StorageError, match="damaged"):
        BlockSums.load(descriptor)
