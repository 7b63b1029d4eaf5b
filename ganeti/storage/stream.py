"""The contents of a disk as a stream of bytes, without its holes, with a checksum at the end.

    magic  b"GNTDISK1"
    size of the disk, bytes of data in it                two numbers of 8 bytes; 0: nobody knows
    offset, length, then so many bytes of data           8 and 4 bytes; again and again, in order
    offset 2^64 - 1, length 32, then a SHA-256           of everything before; the end

Between the pieces of data are zeroes.  A difference has the magic b"GNTDIFF1": between its pieces
the disk is as it was before, and a piece that became zeroes has 2^63 added to its offset and no
data.  Such a stream, as any other, travels in frames that tell its end, so that a broken
connection is not taken for it.

    length, then so many bytes                           4 bytes; again and again
    0                                                    the end

Numbers are big-endian.

Between nodes of 3.0 the contents of a disk are plain bytes: without holes or a checksum, and with
no end but that of the connection.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from ganeti.base.errors import StorageError
from ganeti.protocol.node_rpc_values import STREAM_ENDED_EARLY
from ganeti.storage.data import CHUNK_BYTES, data_areas, size_of, wipe_open, write_at

MAGIC: Final = b"GNTDISK1"
DIFFERENCE_MAGIC: Final = b"GNTDIFF1"
ZEROES_BYTES_MAX: Final = 1 << 31  # of one piece
_ZEROES: Final = 1 << 63
Run = tuple[int, int, bytes | None]  # offset and length in bytes, and the data unless it is zeroes
_HEAD: Final = struct.Struct(">QQ")
_PIECE: Final = struct.Struct(">QI")
_END_OFFSET: Final = (1 << 64) - 1
_MIB: Final = 1 << 20
FRAME_BYTES_MAX: Final = 1 << 22
_LENGTH: Final = struct.Struct(">I")
_NOTHING: Final = bytes(CHUNK_BYTES)


class Incoming(Protocol):
    """Bytes that come from elsewhere, such as another node."""

    def read(self, count: int) -> bytes:
        """Return up to so many bytes; none at the end."""


def _exactly(source: Incoming, count: int) -> bytes:
    """Read so many bytes.

    Raises:
        StorageError: the stream broke off before.
    """
    found = bytearray()
    while len(found) < count:
        part = source.read(count - len(found))
        if not part:
            raise StorageError(STREAM_ENDED_EARLY)
        found += part
    return bytes(found)


class Image(Protocol):
    """The contents of a disk, wherever they lie; ``size`` in bytes."""

    @property
    def size(self) -> int:
        """How many bytes it has."""

    def areas(self) -> Iterator[tuple[int, int]]:
        """Yield the parts that may hold anything but zeroes, as (start, end), in order."""

    def read(self, position: int, count: int) -> bytes:
        """Return up to so many bytes at a position; none beyond the end."""

    def close(self) -> None:
        """Let go of it."""


class LocalImage:
    """A file or device of this node."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.lseek(self._descriptor, 0, os.SEEK_END)

    def areas(self) -> Iterator[tuple[int, int]]:
        """Yield the parts that are not holes."""
        return data_areas(self._descriptor, 0, self.size)

    def read(self, position: int, count: int) -> bytes:
        """Return up to so many bytes at a position; none beyond the end."""
        return os.pread(self._descriptor, count, position)

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)


def encoded(
    runs: Iterable[Run], size: int, data_bytes: int = 0, *, is_difference: bool = False
) -> Iterator[bytes]:
    """Yield the stream of a disk, or of a difference, in pieces of about a megabyte."""
    digest = hashlib.sha256()
    for piece in _body(runs, size, data_bytes, is_difference=is_difference):
        digest.update(piece)
        yield piece
    yield _PIECE.pack(_END_OFFSET, digest.digest_size) + digest.digest()


def _body(
    runs: Iterable[Run], size: int, data_bytes: int, *, is_difference: bool
) -> Iterator[bytes]:
    yield (DIFFERENCE_MAGIC if is_difference else MAGIC) + _HEAD.pack(size, data_bytes)
    for offset, length, data in runs:
        if data is not None:
            yield _PIECE.pack(offset, length) + data
        elif is_difference:
            for begin in range(offset, offset + length, ZEROES_BYTES_MAX):
                count = min(ZEROES_BYTES_MAX, offset + length - begin)
                yield _PIECE.pack(begin | _ZEROES, count)


class StreamReader:
    """Reads such a stream.

    Attributes:
        size: of the disk, in bytes.
        data_bytes: how much data is to come; 0 if nobody knows.
        is_difference: it tells what changed, not what is there.
    """

    def __init__(self, source: Incoming) -> None:
        """Read the head.

        Raises:
            StorageError: it is no such stream.
        """
        self._source = source
        self._digest = hashlib.sha256()
        magic = self._digested(len(MAGIC))
        if magic not in (MAGIC, DIFFERENCE_MAGIC):
            raise StorageError("the stream is not the contents of a disk")
        self.is_difference = magic == DIFFERENCE_MAGIC
        size, data_bytes = _HEAD.unpack(self._digested(_HEAD.size))
        self.size, self.data_bytes = int(size), int(data_bytes)

    def runs(self) -> Iterator[Run]:
        """Yield the pieces, in order.

        Raises:
            StorageError: the stream is damaged, or broke off; perhaps only after the last piece.
        """
        end = 0
        while True:
            head = _exactly(self._source, _PIECE.size)
            offset, length = _PIECE.unpack(head)
            if offset == _END_OFFSET:
                self._finish(length)
                return
            is_zeroes = bool(self.is_difference and offset & _ZEROES)
            offset &= ~_ZEROES if is_zeroes else _END_OFFSET
            limit = ZEROES_BYTES_MAX if is_zeroes else CHUNK_BYTES
            if not end <= offset <= offset + length <= self.size or length > limit:
                raise StorageError("the stream is damaged: a piece lies where none can be")
            self._digest.update(head)
            yield offset, length, None if is_zeroes else self._digested(length)
            end = offset + length

    def _finish(self, length: int) -> None:
        if _exactly(self._source, length) != self._digest.digest():
            raise StorageError("the checksum is wrong: the disk differs from the one that was sent")

    def _digested(self, count: int) -> bytes:
        data = _exactly(self._source, count)
        self._digest.update(data)
        return data


def streamed_bytes(path: str) -> int:
    """Return the size of the disk whose stream is in a file; 0 if there is no stream in it."""
    with open(path, "rb") as file:
        try:
            return StreamReader(file).size
        except StorageError:
            return 0


class DiskReader:
    """Reads a disk as a stream; `done_bytes` of `data_bytes` have been read so far."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self.size = image.size
        try:
            self._areas = list(image.areas())
        except BaseException:
            image.close()
            raise
        self.data_bytes = sum(stop - begin for begin, stop in self._areas)
        self.done_bytes = 0

    def close(self) -> None:
        """Close the disk."""
        self._image.close()

    def pieces(self) -> Iterator[bytes]:
        """Yield the whole stream, in pieces of about a megabyte.

        Raises:
            OSError, StorageError: the disk cannot be read.
        """
        return encoded(self._runs(), self.size, self.data_bytes)

    def _runs(self) -> Iterator[Run]:
        for begin, stop in self._areas:
            position = begin
            while position < stop:
                data = self._image.read(position, min(CHUNK_BYTES, stop - position))
                if not data:
                    raise StorageError(f"the disk ends at {position}, before its size {self.size}")
                yield position, len(data), data
                position += len(data)
                self.done_bytes += len(data)


def _fitting(data: bytes, room: int, wanted: str) -> bytes:
    """Return what of the data has room on a disk: of what lies beyond its end only zeroes may go.

    Volumes have whole extents, and their guests use all of these.

    Args:
        room: from where the data is to lie to the end of the disk.

    Raises:
        StorageError: something else would be lost.
    """
    kept = data[: max(0, room)]
    if not _is_zero(data[len(kept) :]):
        raise StorageError(wanted)
    return kept


def _too_large(room: int, wanted: str) -> str:
    return (
        f"the disk has {room // _MIB} MiB here, {wanted} are to be written; if the one that is read"
        " is a volume larger than it is recorded, 'gnt-cluster repair-disk-sizes' records its size"
    )


class DiskWriter:
    """Writes a stream over a file or device, which must have room for all but zeroes at its end."""

    def __init__(self, path: str, source: Incoming) -> None:
        self._path = path
        self._source = source
        self.data_bytes = self.done_bytes = 0

    def run(self) -> Iterator[None]:
        """Write everything; stops after each piece of data, so that progress can be told.

        Raises:
            StorageError: the stream is damaged or too long for the disk, or there is no room.
            OSError: the disk cannot be written.
        """
        room = size_of(self._path)
        stream = StreamReader(self._source)
        if stream.is_difference:
            raise StorageError("the stream is only what changed on a disk, not its contents")
        self.data_bytes = stream.data_bytes
        self._check_room()
        too_large = _too_large(room, f"{-(-stream.size // _MIB)} MiB")
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            end = 0
            for offset, length, data in stream.runs():
                fitting = _fitting(data or b"", room - offset, too_large)
                wipe_open(descriptor, end, min(offset, room) - end)
                write_at(descriptor, fitting, offset)
                end = min(offset + length, room)
                self.done_bytes += length
                yield
            wipe_open(descriptor, end, min(stream.size, room) - end)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _check_room(self) -> None:
        # A file with a mount of its own is a disk that QEMU shows; nobody knows its room.
        if os.path.isfile(self._path) and not os.path.ismount(self._path):
            found = os.statvfs(self._path)
            free = found.f_bavail * found.f_frsize
            if found.f_blocks and self.data_bytes > free:  # FUSE does not tell
                wanted, free = self.data_bytes // _MIB, free // _MIB
                raise StorageError(f"no space: the data has {wanted} MiB, and {free} MiB are free")


class PlainReader:
    """Reads a disk as plain bytes; `done_bytes` of `data_bytes` have been read so far."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self.data_bytes = image.size
        self.done_bytes = 0

    def close(self) -> None:
        """Close the disk."""
        self._image.close()

    def pieces(self) -> Iterator[bytes]:
        """Yield all bytes, in pieces of about a megabyte.

        Raises:
            OSError, StorageError: the disk cannot be read.
        """
        for begin, stop in self._image.areas():
            yield from self._zeroes_until(begin)
            while self.done_bytes < stop:
                count = min(CHUNK_BYTES, stop - self.done_bytes)
                data = self._image.read(self.done_bytes, count)
                if not data:
                    raise StorageError(
                        f"the disk ends at {self.done_bytes}, before its size {self.data_bytes}"
                    )
                self.done_bytes += len(data)
                yield data
        yield from self._zeroes_until(self.data_bytes)

    def _zeroes_until(self, end: int) -> Iterator[bytes]:
        while self.done_bytes < end:
            data = _NOTHING[: end - self.done_bytes]
            self.done_bytes += len(data)
            yield data


class PlainWriter:
    """Writes plain bytes over a disk.

    Args:
        size_bytes: of the disk, where its device may be larger: at least so much has to come, and
            the rest of the device is for more; 0 for the whole device.
    """

    def __init__(self, path: str, source: Incoming, size_bytes: int = 0) -> None:
        self._path = path
        self._source = source
        self._room = size_of(path)
        self.data_bytes = min(size_bytes or self._room, self._room)
        self.done_bytes = 0

    def run(self) -> Iterator[None]:
        """Write everything; stops after each piece, so that progress can be told.

        The device of the sender may be a little larger, too: zeroes are not missed.

        Raises:
            StorageError: there are fewer bytes than the disk has, or more.
            OSError: the disk cannot be written.
        """
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            while data := self._source.read(CHUNK_BYTES):
                left = self._room - self.done_bytes
                self._write(descriptor, _fitting(data, left, _too_large(self._room, "more")))
                yield
            if self.done_bytes < self.data_bytes:
                raise StorageError(STREAM_ENDED_EARLY)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _write(self, descriptor: int, data: bytes) -> None:
        if _is_zero(data):
            wipe_open(descriptor, self.done_bytes, len(data))
        else:
            write_at(descriptor, data, self.done_bytes)
        self.done_bytes += len(data)
        self.data_bytes = max(self.data_bytes, self.done_bytes)


def _is_zero(data: bytes) -> bool:
    return data == _NOTHING[: len(data)]


def framed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pieces with their lengths in front, and the end after them.

    Nothing follows when `pieces` raises: the receiver sees that the end is missing.
    """
    for piece in pieces:
        for start in range(0, len(piece), FRAME_BYTES_MAX):
            part = piece[start : start + FRAME_BYTES_MAX]
            yield _LENGTH.pack(len(part)) + part
    yield _LENGTH.pack(0)


class FrameReader:
    """Reads a stream written by `framed`."""

    def __init__(self, source: Incoming) -> None:
        self._source = source
        self._left = 0
        self._ended = False

    def read(self, count: int) -> bytes:
        """Return up to so many bytes; none at the end.

        Raises:
            StorageError: the stream broke off before its end.
        """
        if self._left == 0 and not self._ended:
            self._left = _LENGTH.unpack(_exactly(self._source, _LENGTH.size))[0]
            self._ended = self._left == 0
        if self._ended:
            return b""
        data = self._source.read(min(count, self._left))
        if not data:
            raise StorageError(STREAM_ENDED_EARLY)
        self._left -= len(data)
        return data
