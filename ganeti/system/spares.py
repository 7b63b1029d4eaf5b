"""Files that were replaced, written anew in place of new ones.

Whoever replaces a file by a new one frees the old one's inode, and ext4 passes over the inodes that
were freed during the last minutes, one by one, each time a file is made: of a queue that runs
seventy jobs a second that took an eighth of the processor.  So what is replaced often stays as a
*spare*, under a name of its own, and holds a later content of a file that is replaced.  The steps
are those of `ganeti.system.files`: written, synced, renamed.

A spare is written only when it is nobody's any more:

- the directory was synced after the replacement: else a power cut could bring the old name back,
  and under it what was written meanwhile (`Turn`);
- nobody has it open, and no other name leads to it: whoever still reads what was replaced reads it
  to its end, and a backup of hard links keeps what it has.  The kernel tells by a lease (fcntl(2),
  F_SETLEASE), which also keeps out, until the content is complete, who found the file by its old
  name and opens it only now.

Source: ARCHITECTURE, invariant 4; doc/design.md, "Job files that are replaced are written anew".
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import signal
import stat
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

# The kernel sends it when somebody opens a leased file; a process that has not asked for it is
# not disturbed.
_LEASE_SIGNAL: Final = signal.SIGURG
# What is said where there are no leases or no hard links, or none for us.
_UNSUPPORTED: Final = frozenset(
    {errno.EACCES, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP, errno.EPERM}
)
# Never through a link, and never waiting: somebody who may write there may have put another thing.
_FLAGS: Final = os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_numbers: Final = itertools.count(1)


class Spare(NamedTuple):
    """A file that is to get another content: open for writing, leased."""

    descriptor: int
    name: str
    was: os.stat_result


class Spares:
    """The spares of one process.  May be used in several threads.

    Args:
        room: how many to keep; without room files are replaced as usual.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.names: deque[str] = deque()

    @contextlib.contextmanager
    def turn(self) -> Iterator[Turn]:
        """Replace files in a block; what they were is spare after it, so it ends by a sync."""
        turn = Turn(self)
        try:
            yield turn
        except BaseException:
            turn.drop()  # perhaps not synced
            raise
        self.names.extend(turn.kept)

    def clear(self) -> None:
        """Remove the spares, and keep no more."""
        self.room = 0
        while self.names:
            _remove(self.names.popleft())


class Turn:
    """Replacements that are made durable together."""

    def __init__(self, spares: Spares) -> None:
        self._spares = spares
        self.kept: list[str] = []

    def take(self) -> Spare | None:
        """Return a spare that nobody uses, or None; whoever gets it closes it."""
        names = self._spares.names
        while names:
            try:
                name = names.popleft()
                descriptor = os.open(name, _FLAGS)
            except (IndexError, OSError):  # another thread took the last; somebody tidied up
                continue
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and self._lease(descriptor):
                return Spare(descriptor, name, status)
            os.close(descriptor)
            _remove(name)
        return None

    def _lease(self, descriptor: int) -> bool:
        """Take a lease; returns false if somebody else has the file open."""
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETSIG, _LEASE_SIGNAL)
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as err:
            self._note(err)
            return False
        return True

    @staticmethod
    def release(descriptor: int) -> None:
        """Let everybody open a spare again, now that its content is complete."""
        with contextlib.suppress(OSError):  # the kernel has ended a lease that lasted too long
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    def replace(self, name: str, path: str) -> None:
        """Give a file its place, as rename(2) does, and keep what was there.

        Raises:
            OSError: nothing was changed.
        """
        kept = self._keep(path)
        try:
            os.rename(name, path)
        except OSError:
            if kept is not None:
                _remove(kept)
            raise
        if kept is not None:
            self.kept.append(kept)

    def _keep(self, path: str) -> str | None:
        """Give a file another name; returns that, or None if it is not to be kept."""
        if len(self._spares.names) + len(self.kept) >= self._spares.room:
            return None
        kept = f"{os.path.dirname(path)}/.spare.{os.getpid()}.{next(_numbers)}.tmp"
        try:
            os.link(path, kept, follow_symlinks=False)
        except FileNotFoundError:
            return None  # it is new
        except OSError as err:
            self._note(err)
            return None
        return kept

    def _note(self, err: OSError) -> None:
        """Keep no more where the file system cannot."""
        if err.errno in _UNSUPPORTED:
            self._spares.room = 0

    def drop(self) -> None:
        """Remove what was kept."""
        while self.kept:
            _remove(self.kept.pop())


def _remove(name: str) -> None:
    with contextlib.suppress(OSError):  # `ganeti-cleaner` finds it
        os.unlink(name)
