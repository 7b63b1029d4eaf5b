"""Checksums of the blocks of a disk: what tells later which of them have changed.

    magic  b"GNTSUMS1", size of the disk in bytes        8 and 8 bytes
    BLAKE2b of each block of 64 KiB, in order            32 bytes each; zeroes for a block of zeroes

The *root*, a checksum of all this, names the contents of the whole disk in 64 letters: whoever
restores them can compare every block without having kept the checksums.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from typing import Final

from ganeti.base.errors import StorageError
from ganeti.protocol.export_description import BLOCK_BYTES
from ganeti.storage.data import CHUNK_BYTES, aligned, data_areas
from ganeti.storage.stream import Image, Run

SUM_BYTES: Final = 32
_MAGIC: Final = b"GNTSUMS1"
_HEAD: Final = struct.Struct(">8sQ")
_ZEROES: Final = bytes(CHUNK_BYTES)
_NO_SUM: Final = bytes(SUM_BYTES)
_SIGN_OF_LIFE_BYTES: Final = 1 << 26


def sum_of(block: bytes) -> bytes:
    """Return the checksum of a block."""
    if block == _ZEROES[: len(block)]:
        return _NO_SUM
    return hashlib.blake2b(block, digest_size=SUM_BYTES).digest()


def new_root(size: int) -> hashlib.blake2b:
    """Return what the root of a disk begins with; the checksums of its blocks are added to it."""
    return hashlib.blake2b(_HEAD.pack(_MAGIC, size), digest_size=SUM_BYTES)


def blocks_of(size: int) -> int:
    """Return how many blocks a disk of so many bytes has."""
    return -(-size // BLOCK_BYTES)


class BlockSums:
    """The checksums of a disk, in an open file of their own, which may have holes."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self.size = size

    @classmethod
    def create(cls, descriptor: int, size: int) -> BlockSums:
        """Begin with those of an empty disk, in an empty file."""
        found = cls(descriptor, size)
        found.resize(size)
        return found

    @classmethod
    def load(cls, descriptor: int) -> BlockSums:
        """Read those in a file.

        Raises:
            StorageError: the file is no such one.
        """
        head = os.pread(descriptor, _HEAD.size, 0)
        if len(head) != _HEAD.size or not head.startswith(_MAGIC):
            raise StorageError("the checksums of the blocks are damaged")
        size = int(_HEAD.unpack(head)[1])
        if os.fstat(descriptor).st_size != _place(blocks_of(size)):
            raise StorageError("the checksums of the blocks are not complete")
        return cls(descriptor, size)

    def resize(self, size: int) -> None:
        """Change the size of the disk; it grows by zeroes."""
        self.size = size
        os.ftruncate(self._descriptor, _place(blocks_of(size)))
        os.pwrite(self._descriptor, _HEAD.pack(_MAGIC, size), 0)

    def get(self, first: int, count: int) -> bytes:
        """Return the checksums of some blocks; those beyond the end are of zeroes."""
        known = max(0, min(count, blocks_of(self.size) - first))
        found = os.pread(self._descriptor, known * SUM_BYTES, _place(first))
        return found.ljust(count * SUM_BYTES, b"\0")

    def put(self, first: int, sums: bytes) -> None:
        """Change the checksums of some blocks."""
        os.pwrite(self._descriptor, sums, _place(first))

    def clear(self, first: int, count: int) -> None:
        """Note that some blocks are zeroes; holes stay holes."""
        begin, end = _place(first), _place(first + count)
        for start, stop in data_areas(self._descriptor, begin, end):
            for position in range(start, stop, CHUNK_BYTES):
                rest = _ZEROES[: min(CHUNK_BYTES, stop - position)]
                os.pwrite(self._descriptor, rest, position)

    def root(self) -> str:
        """Return the checksum of all checksums."""
        digest = new_root(self.size)
        position, end = _HEAD.size, _place(blocks_of(self.size))
        while position < end:
            part = os.pread(self._descriptor, min(CHUNK_BYTES, end - position), position)
            if not part:
                raise StorageError("the checksums of the blocks are not complete")
            digest.update(part)
            position += len(part)
        return digest.hexdigest()

    def note(self, run: Run) -> None:
        """Take in a change; it covers whole blocks, or ends with the disk.

        Raises:
            StorageError: it does not.
        """
        offset, length, data = run
        if offset % BLOCK_BYTES or (length % BLOCK_BYTES and offset + length != self.size):
            raise StorageError("the stream is damaged: a piece is not made of whole blocks")
        first = offset // BLOCK_BYTES
        if data is None:
            self.clear(first, blocks_of(length))
        else:
            self.put(first, _sums_of(data))


def _place(block: int) -> int:
    return _HEAD.size + block * SUM_BYTES


def _sums_of(data: bytes) -> bytes:
    view = memoryview(data)
    return b"".join(
        sum_of(bytes(view[at : at + BLOCK_BYTES])) for at in range(0, len(data), BLOCK_BYTES)
    )


def changes(
    image: Image, before: BlockSums, dirty: Iterable[tuple[int, int]] | None = None
) -> Iterator[Run]:
    """Yield the blocks of a disk that are not as they were, in order, in pieces up to a megabyte.

    Where much was looked at in vain, an empty piece says how far it is.

    Args:
        before: the checksums of the blocks as they were.
        dirty: the parts outside which nothing was written since then, in order; None if nobody
            knows.  What the disk has grown by is looked at in any case.

    Raises:
        OSError, StorageError: the disk cannot be read.
    """
    size = image.size
    looked_at = [(0, size)] if dirty is None else sorted([*dirty, *_resized(before.size, size)])
    data = list(aligned(image.areas(), size))
    position = quiet_since = 0
    for begin, end in aligned(looked_at, size):
        while position < len(data) and data[position][1] <= begin:
            position += 1
        at, index = begin, position
        while at < end:
            start, stop = data[index] if index < len(data) else (size, size)
            if at < start:
                hole_end = min(start, end)
                yield from _changed_to_zeroes(before, at, hole_end, size)
                at = hole_end
            elif at < min(stop, end):
                until = min(at + CHUNK_BYTES, stop, end)
                yield from _changed(before, at, _read(image, at, until - at))
                at = until
                if at - quiet_since >= _SIGN_OF_LIFE_BYTES:
                    yield at // BLOCK_BYTES * BLOCK_BYTES, 0, b""
                    quiet_since = at
            else:
                index += 1


def _resized(before: int, now: int) -> list[tuple[int, int]]:
    """Return what a disk has grown by, with the block where its end was, or is."""
    return [] if now == before else [(min(before, now) // BLOCK_BYTES * BLOCK_BYTES, now)]


def _read(image: Image, position: int, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = image.read(position + len(parts), count - len(parts))
        if not part:
            raise StorageError(f"the disk ends at {position}, before its size {image.size}")
        parts += part
    return parts


def _changed_to_zeroes(before: BlockSums, begin: int, end: int, size: int) -> Iterator[Run]:
    """Yield the blocks of a hole that were something else."""
    step = CHUNK_BYTES // SUM_BYTES
    last = blocks_of(end)
    for first in range(begin // BLOCK_BYTES, last, step):
        sums = before.get(first, min(step, last - first))
        if sums == _ZEROES[: len(sums)]:
            continue
        for index, old in enumerate(_each(sums)):
            if old != _NO_SUM:
                at = (first + index) * BLOCK_BYTES
                yield at, min(BLOCK_BYTES, size - at), None


def _changed(before: BlockSums, offset: int, data: bytes) -> Iterator[Run]:
    """Yield what differs in a piece of the disk; neighbours together."""
    first = offset // BLOCK_BYTES
    now = _sums_of(data)
    old = before.get(first, len(now) // SUM_BYTES)
    if now == old:
        return
    begin: int | None = None
    for index, (new, was) in enumerate(zip(_each(now), _each(old), strict=True)):
        start = index * BLOCK_BYTES
        if begin is not None and (new in (was, _NO_SUM)):
            yield offset + begin, start - begin, data[begin:start]
            begin = None
        if new != was:
            if new == _NO_SUM:
                yield offset + start, len(data[start : start + BLOCK_BYTES]), None
            elif begin is None:
                begin = start
    if begin is not None:
        yield offset + begin, len(data) - begin, data[begin:]


def _each(sums: bytes) -> list[bytes]:
    return [sums[at : at + SUM_BYTES] for at in range(0, len(sums), SUM_BYTES)]
