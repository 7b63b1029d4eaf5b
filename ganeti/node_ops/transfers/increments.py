"""The two ends of a transfer that brings a chain of exports one point further.

    receiver:  the checksums of the blocks as they were, as a stream in frames; nothing: none
    sender:    the whole disk if there are none, otherwise the blocks that have other checksums

The receiver writes what comes beside the new checksums, which follow from the old ones and what
came.  A sender that knows what the guest has written since then reads nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, Final, Protocol

from ganeti.base.errors import StorageError
from ganeti.node_ops.disks.chains import CHECKSUM_SUFFIX, ROOT_SUFFIX
from ganeti.protocol.export_description import disk_of_dump, sums_name
from ganeti.storage.chains.sums import BlockSums, changes
from ganeti.storage.data import data_areas, write_at
from ganeti.storage.nbd import NbdImage
from ganeti.storage.stream import DiskReader, Image, Incoming, LocalImage, StreamReader, encoded
from ganeti.system.files import fsync_directory

_FILE_MODE: Final = 0o600
_COPY_BYTES: Final = 1 << 20


class ChangingDisk(Protocol):
    """The disk that is sent: an `End`."""

    @property
    def path(self) -> str:
        """The device, or the socket of the snapshot."""

    @property
    def export(self) -> str:
        """The name of the snapshot there; empty for a device."""

    @property
    def written(self) -> str:
        """The name of the record of what was written since then; empty if there is none."""

    @property
    def scratch(self) -> str:
        """A directory for the checksums of the other side."""


class ChangesSource:
    """Reads what changed on a disk; `done_bytes` of `data_bytes` have been looked at so far."""

    def __init__(self, end: ChangingDisk) -> None:
        self._end = end
        self._image = _Counted(_open(end))
        self._file: BinaryIO = tempfile.TemporaryFile(dir=end.scratch)  # noqa: SIM115 - close()
        self.data_bytes = 0

    @property
    def done_bytes(self) -> int:
        """How much was looked at."""
        return self._image.read_bytes

    def learn(self, incoming: Incoming) -> None:
        """Take the checksums of the blocks as they were; no stream at all: there are none.

        Raises:
            StorageError: they arrived damaged.
        """
        ahead = incoming.read(1)
        if not ahead:
            return
        stream = StreamReader(_Beginning(ahead, incoming))
        self._file.truncate(stream.size)
        for offset, _, data in stream.runs():
            write_at(self._file.fileno(), data or b"", offset)
        incoming.read(1)  # the end of the frames

    def pieces(self) -> Iterator[bytes]:
        """Yield the whole stream.

        Raises:
            OSError, StorageError: the disk cannot be read.
        """
        image, descriptor = self._image, self._file.fileno()
        if not os.fstat(descriptor).st_size:
            self.data_bytes = sum(stop - begin for begin, stop in image.areas())
            everything = changes(image, BlockSums.create(descriptor, 0))
            return encoded(everything, image.size)
        dirty = self._written()
        self.data_bytes = sum(
            stop - begin for begin, stop in (image.areas() if dirty is None else dirty)
        )
        changed = changes(image, BlockSums.load(descriptor), dirty)
        return encoded(changed, image.size, is_difference=True)

    def _written(self) -> list[tuple[int, int]] | None:
        if not self._end.written:
            return None
        record = NbdImage(self._end.path, self._end.export, dirty_bitmap=self._end.written)
        with contextlib.closing(record):
            return list(record.areas())

    def close(self) -> None:
        """Close the disk."""
        self._image.close()
        self._file.close()


def _open(end: ChangingDisk) -> Image:
    return NbdImage(end.path, end.export) if end.export else LocalImage(end.path)


class _Counted:
    """An image that knows how much of it was read."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self.size = image.size
        self.areas = image.areas
        self.close = image.close
        self.read_bytes = 0

    def read(self, position: int, count: int) -> bytes:
        """Read it."""
        self.read_bytes += count
        return self._image.read(position, count)


class _Beginning:
    """Bytes of which the first ones were read already."""

    def __init__(self, first: bytes, rest: Incoming) -> None:
        self._first = first
        self._rest = rest

    def read(self, count: int) -> bytes:
        """Return up to so many bytes; none at the end."""
        if self._first:
            data, self._first = self._first[:count], self._first[count:]
            return data
        return self._rest.read(count)


class _Kept:
    """Bytes that are written to a file while they are read."""

    def __init__(self, incoming: Incoming, file: BinaryIO) -> None:
        self._incoming = incoming
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, count: int) -> bytes:
        """Return up to so many bytes; none at the end."""
        data = self._incoming.read(count)
        self._file.write(data)
        self.digest.update(data)
        return data


class IncrementSink:
    """Writes what changed, or a whole disk, and the checksums of the disk's blocks."""

    def __init__(self, path: str, sums: str, root: str, incoming: Incoming) -> None:
        """Prepare.

        Args:
            sums: the file with the checksums of the point before; empty if there are none.
            root: what they must add up to.
        """
        self._path = path
        self._old = sums
        self._root = root
        self._incoming = incoming
        self.data_bytes = self.done_bytes = 0

    def known(self) -> Iterator[bytes]:
        """Yield the checksums that the sender is to be told.

        Raises:
            StorageError: they are damaged.
        """
        if not self._old:
            return
        with open(self._old, "rb") as file:
            if BlockSums.load(file.fileno()).root() != self._root:
                raise StorageError(
                    f"the checksums in {os.path.basename(self._old)} are not those of the last"
                    " export, so it cannot be continued"
                )
        with contextlib.closing(DiskReader(LocalImage(self._old))) as reader:
            yield from reader.pieces()

    def run(self) -> Iterator[None]:
        """Write everything.

        Raises:
            OSError: there is no room, or the file cannot be written.
            StorageError: the stream is damaged.
        """
        part, directory = f"{self._path}.part", os.path.dirname(self._path)
        new_sums = os.path.join(directory, sums_name(disk_of_dump(os.path.basename(self._path))))
        with (
            open(part, "wb", opener=_private) as file,
            open(new_sums, "w+b", opener=_private) as to,
        ):
            kept = _Kept(self._incoming, file)
            stream = StreamReader(kept)
            if stream.is_difference != bool(self._old):
                raise StorageError("the sender did not send what it was asked for")
            self.data_bytes = stream.data_bytes
            sums = self._begin(to, stream.size)
            for run in stream.runs():
                sums.note(run)
                self.done_bytes += run[1]
                yield
            root = sums.root()
            for each in (file, to):
                each.flush()
                os.fsync(each.fileno())
        for suffix, text in ((CHECKSUM_SUFFIX, kept.digest.hexdigest()), (ROOT_SUFFIX, root)):
            with open(self._path + suffix, "w", encoding="ascii", opener=_private) as note:
                note.write(text)
        os.rename(part, self._path)
        fsync_directory(directory)

    def _begin(self, to: BinaryIO, size: int) -> BlockSums:
        """Return the checksums as they were, to be changed."""
        if not self._old:
            return BlockSums.create(to.fileno(), size)
        with open(self._old, "rb") as old:
            length = os.fstat(old.fileno()).st_size
            os.ftruncate(to.fileno(), length)
            for begin, end in data_areas(old.fileno(), 0, length):
                for position in range(begin, end, _COPY_BYTES):
                    count = min(_COPY_BYTES, end - position)
                    write_at(to.fileno(), os.pread(old.fileno(), count, position), position)
        sums = BlockSums.load(to.fileno())
        sums.resize(size)
        return sums


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, _FILE_MODE)
