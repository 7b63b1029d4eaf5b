"""A file replaced atomically thousands of times a second.

Replacing a file by a new one makes the file system allocate and free blocks each time, half a
millisecond where a write to the page cache takes a hundredth of that.  So a few *spares* take
turns: the next content is written into the spare that has been out of use the longest, as its
blocks are there already, and then swapped with the file in one step (``renameat2``,
``RENAME_EXCHANGE``).

Under its name the file is always whole, even when its writer is killed.  Nothing is synced to the
disk.  A reader that keeps the file open sees it change after `SPARES` further writes: it is for
files that only their writer reads, when it starts.

Source: ARCHITECTURE, invariant 4 ("atomic only"); renameat2(2).
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

from ganeti.system.failpoints import reached
from ganeti.system.files import remove_if_exists, write_atomic

SPARES: Final = 3
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})

_libc = ctypes.CDLL(None, use_errno=True)


class SwapFile:
    """The writer of one such file; there must be only one."""

    def __init__(self, path: str, mode: int) -> None:
        self.path = path
        self._mode = mode
        directory, name = os.path.split(path)
        self._spares = [f"{directory}/.{name}.spare-{number}" for number in range(SPARES)]
        # Descriptors of the files that have the names now; -1 while not opened.
        self._spare_descriptors = [-1] * SPARES
        self._descriptor = -1
        self._next = 0
        self._can_swap = True

    def write(self, data: bytes) -> None:
        """Replace the content in one step.

        Raises:
            OSError: nothing was changed (disk full, no such directory, ...).
        """
        if not self._can_swap:
            write_atomic(self.path, data, self._mode)
            return
        number = self._next
        if self._spare_descriptors[number] < 0:
            self._spare_descriptors[number] = self._open(self._spares[number])
        if self._descriptor < 0:
            if not os.path.exists(self.path):
                write_atomic(self.path, b"", self._mode)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        spare = self._spare_descriptors[number]
        reached("before_write", self.path)
        _overwrite(spare, data)
        reached("before_rename", self.path)
        if not exchange(self._spares[number], self.path):
            self._can_swap = False
            self.close()
            write_atomic(self.path, data, self._mode)
            return
        self._spare_descriptors[number], self._descriptor = self._descriptor, spare
        self._next = (number + 1) % SPARES
        reached("after_rename", self.path)

    def _open(self, path: str) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.fchmod(descriptor, self._mode)
        return descriptor

    def close(self) -> None:
        """Close the files and remove the spares; the file stays."""
        for descriptor in (*self._spare_descriptors, self._descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self._spare_descriptors = [-1] * SPARES
        self._descriptor = -1
        for spare in self._spares:
            remove_if_exists(spare)


def _overwrite(descriptor: int, data: bytes) -> None:
    written = os.pwrite(descriptor, data, 0)
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], written)
    os.ftruncate(descriptor, len(data))


def exchange(one: str, other: str) -> bool:
    """Swap two names in one step; False where the file system cannot."""
    if not hasattr(_libc, "renameat2"):
        return False
    result = _libc.renameat2(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE
    )
    if result == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), one, None, other)
