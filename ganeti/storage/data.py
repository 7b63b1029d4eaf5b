"""The bytes of disks: their number, their holes, writing zeroes and images.

Works on files and block devices alike.  Raises OSError; the caller adds the purpose to it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from typing import Final

from ganeti.protocol.export_description import BLOCK_BYTES

CHUNK_BYTES: Final = 1 << 20
_ZEROES: Final = bytes(CHUNK_BYTES)


def size_of(path: str) -> int:
    """Return the size of a file or device in bytes."""
    with open(path, "rb") as file:
        return file.seek(0, os.SEEK_END)


def data_areas(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts between ``start`` and ``end`` that are not holes, as (start, end)."""
    position = start
    while position < end:
        try:
            begin = os.lseek(descriptor, position, os.SEEK_DATA)
            stop = os.lseek(descriptor, begin, os.SEEK_HOLE)
        except OSError as err:
            if err.errno == errno.ENXIO:  # no data from here on
                return
            if err.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # holes are unknown here
                yield position, end
                return
            raise
        if begin >= end:
            return
        yield begin, min(stop, end)
        position = stop


def aligned(areas: Iterable[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """Yield areas of a disk, in order, widened to whole blocks; those that touch become one."""
    begin = end = 0
    for start, stop in areas:
        first = start // BLOCK_BYTES * BLOCK_BYTES
        last = min(-(-stop // BLOCK_BYTES) * BLOCK_BYTES, size)
        if first >= last:
            continue
        if first > end:
            if end > begin:
                yield begin, end
            begin = first
        end = max(end, last)
    if end > begin:
        yield begin, end


def wipe(path: str, offset: int, count: int) -> None:
    """Make ``count`` bytes from ``offset`` read as zeroes."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        wipe_open(descriptor, offset, count)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def wipe_open(descriptor: int, offset: int, count: int) -> None:
    """Do the same to an open file or device, without waiting for the disk."""
    for begin, stop in data_areas(descriptor, offset, offset + count):
        for position in range(begin, stop, CHUNK_BYTES):
            write_at(descriptor, _ZEROES[: min(CHUNK_BYTES, stop - position)], position)


def write_at(descriptor: int, data: bytes, position: int) -> None:
    """Write all bytes at a position."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        view, position = view[written:], position + written
