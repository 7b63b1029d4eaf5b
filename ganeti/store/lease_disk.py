"""The lease disk of high availability, as bytes: read and written past all caches.

Each use opens the disk anew, so that one that was exchanged is noticed by its header.  A file may
stand for the disk where nodes are virtual.  The blocks are those of `ganeti.availability.disk`.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ganeti.availability.disk import (
    BLOCK_BYTES,
    MAGIC,
    VERSION,
    Header,
    area_bytes,
    encode,
    read_header,
)
from ganeti.base.errors import CommandError, OpPrereqError, ProtocolError
from ganeti.base.paths import Paths
from ganeti.system import files, process

_SECTOR_BYTES: Final = 0x1268  # BLKSSZGET
_FOUND_NOTHING: Final = 2  # exit status of blkid
_BLKID_S: Final = 10.0


class LeaseDisk:
    """A disk that is open, and a buffer in memory that direct reading and writing accept."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, start: int, size: int) -> bytes:
        """Return bytes of the disk.

        Raises:
            OSError: it cannot be read, or is too short.
        """
        with mmap.mmap(-1, size) as buffer:
            if os.preadv(self._descriptor, [buffer], start) != size:
                raise OSError(errno.EIO, "it is too short")
            return buffer[:]

    def write(self, start: int, block: bytes) -> None:
        """Write blocks; they are on the disk then.

        Raises:
            OSError: they are not, or nobody knows.
        """
        with mmap.mmap(-1, len(block)) as buffer:
            buffer[:] = block
            if os.pwritev(self._descriptor, [buffer], start) != len(block):
                raise OSError(errno.EIO, "it took a part only")


@contextmanager
def opened(path: str, *, is_virtual: bool, flags: int = 0) -> Iterator[LeaseDisk]:
    """Open a lease disk.

    Args:
        is_virtual: a file will do.

    Raises:
        OSError: it is not there, is in use, or is no disk.
    """
    flags |= os.O_RDWR | os.O_DSYNC | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | os.O_DIRECT)
    except OSError as err:
        if err.errno != errno.EINVAL or not is_virtual:
            raise
        descriptor = os.open(path, flags)  # files in memory, of older kernels
    with files.closing(descriptor):
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISBLK(mode):
            sector = bytearray(4)
            fcntl.ioctl(descriptor, _SECTOR_BYTES, sector)
            if struct.unpack("=i", sector)[0] > BLOCK_BYTES:
                raise OSError(errno.EINVAL, f"its sectors are longer than {BLOCK_BYTES} bytes")
        elif not (is_virtual and stat.S_ISREG(mode)):
            raise OSError(errno.ENOTBLK, "it is no block device")
        yield LeaseDisk(descriptor)


def prepare(paths: Paths, path: str, cluster: str, lease: str, slots: int) -> None:
    """Make a disk a lease disk; what an earlier preparation by this cluster left is replaced.

    Raises:
        OpPrereqError: it holds something else, or cannot be used.
    """
    place, is_virtual = paths.localize(path), bool(paths.root)
    size = area_bytes(slots)
    flags = os.O_CREAT if is_virtual else os.O_EXCL  # refuses a device that is mounted
    try:
        with opened(place, is_virtual=is_virtual, flags=flags) as disk:
            if is_virtual and os.path.getsize(place) < size:
                os.truncate(place, size)
            _check_unused(disk.read(0, size), path, place, cluster)
            disk.write(0, bytes(size))
            header = Header(version=VERSION, cluster=cluster, lease=lease, slots=slots)
            disk.write(0, encode(header))
    except OSError as err:
        raise OpPrereqError(f"lease disk {path}: {_explain(err)}") from err


def clear(paths: Paths, path: str, cluster: str) -> None:
    """Let a disk be empty again, if it is the lease disk of that cluster.

    Raises:
        OSError: it cannot be used.
        ProtocolError: it is none.
    """
    with opened(paths.localize(path), is_virtual=bool(paths.root)) as disk:
        header = read_header(disk.read(0, BLOCK_BYTES), cluster)
        disk.write(0, bytes(area_bytes(header.slots)))


def problem(paths: Paths, path: str, cluster: str, lease: str) -> str:
    """Return what keeps this node from using a lease disk that was prepared; "" if nothing does."""
    try:
        with opened(paths.localize(path), is_virtual=bool(paths.root)) as disk:
            header = read_header(disk.read(0, BLOCK_BYTES), cluster, lease)
            disk.read(0, area_bytes(header.slots))
    except OSError as err:
        return f"lease disk {path}: {_explain(err)}"
    except ProtocolError as err:
        return f"lease disk {path}: {err.message}"
    return ""


def _check_unused(area: bytes, path: str, place: str, cluster: str) -> None:
    """Refuse a disk on which anybody has something.

    Raises:
        OpPrereqError: it has.
    """
    if area.startswith(MAGIC):
        try:
            read_header(area[:BLOCK_BYTES], cluster)
        except ProtocolError as err:
            text = f"lease disk {path}: {err.message}; if nobody uses it any more, {_wipe(path)}"
            raise OpPrereqError(text) from err
        return
    if any(area):
        text = f"lease disk {path}: it is not empty; if nobody needs what it holds, {_wipe(path)}"
        raise OpPrereqError(text)
    # Some put their signatures at the end.
    try:
        found = process.run(["blkid", "-p", place], timeout_s=_BLKID_S)
    except CommandError:  # every Debian has it
        return
    if found.status != _FOUND_NOTHING:
        said = found.stdout.decode("utf-8", "replace").strip()
        what = said or process.describe_end(found)
        text = f"lease disk {path} holds something: {what}; if nobody needs it, {_wipe(path)}"
        raise OpPrereqError(text)


def _wipe(path: str) -> str:
    return f"type: wipefs -a {path}; dd if=/dev/zero of={path} bs=1M count=4"


def _explain(error: OSError) -> str:
    if error.errno == errno.EBUSY:
        return "it is in use: mounted, or part of something"
    return error.strerror or str(error)
