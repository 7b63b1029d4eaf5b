"""File locks: who is alive, and who is alone.

A process proves that it lives by the lock that it holds on its lock file, on one close-on-exec
descriptor, in two ways at once: ``flock``, which our checkers ask for, and an open-file-description
lock (``F_OFD_SETLK``), which conflicts with the record locks that Ganeti 3.0 asks for.  Never a
plain POSIX lock: a second open and close of the file anywhere in the process would drop it.  The
kernel drops both when the process ends, however it ends.

Source: ARCHITECTURE, invariant 2; design of the 2.12 daemons, "Job death detection".
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
from typing import Final, Self

from ganeti.base.errors import LockError, PidFileLockError

# fcntl(2): not in the fcntl module before Python 3.13
_F_OFD_GETLK: Final = 36
_F_OFD_SETLK: Final = 37
_FLOCK_STRUCT: Final = struct.Struct("hhqqi4x")  # type, whence, start, length, pid
_RETRY_DELAY_S: Final = 0.02
_CHECKER_S_MAX: Final = 0.3  # how long a look at a lock may take on a busy machine


def _record_lock(kind: int) -> bytes:
    return _FLOCK_STRUCT.pack(kind, os.SEEK_SET, 0, 0, 0)


def _lock_both_ways(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.fcntl(descriptor, _F_OFD_SETLK, _record_lock(fcntl.F_WRLCK))


def is_alive(path: str) -> bool:
    """Tell whether somebody holds the lock file: no file, or a free one, means dead.

    Other errors (no permission, too many open files) are raised, never taken for a death.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        answer = fcntl.fcntl(descriptor, _F_OFD_GETLK, _record_lock(fcntl.F_RDLCK))
        kind = _FLOCK_STRUCT.unpack(answer)[0]
        return bool(kind != fcntl.F_UNLCK)
    finally:
        os.close(descriptor)  # drops the shared lock as well


class LiveLock:
    """The lock file by which this process can be seen to live."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def create(cls, path: str) -> Self:
        """Create and lock the file; it is never seen unlocked under its name.

        Raises:
            LockError: the file exists already.
        """
        directory, name = os.path.split(path)
        temporary = os.path.join(directory, f".{name}.{os.getpid()}.tmp")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _lock_both_ways(descriptor)
            cls._move_into_place(temporary, path)
        except BaseException:
            os.close(descriptor)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        return cls(path, descriptor)

    @staticmethod
    def _move_into_place(old_path: str, new_path: str) -> None:
        try:
            os.link(old_path, new_path)  # unlike rename, it fails if the name is taken
        except FileExistsError as err:
            raise LockError(f"lock file {new_path} exists already") from err
        os.unlink(old_path)

    def rename(self, path: str) -> None:
        """Give the file another name; the lock is held all the while.

        Raises:
            LockError: a file of that name exists already.
        """
        self._move_into_place(self.path, path)
        self.path = path

    def release(self) -> None:
        """Remove the file, then let the lock go.  May be called again."""
        if self._descriptor < 0:
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.release()


class FileLock:
    """An advisory lock (``flock``) on a file that stays."""

    def __init__(self, path: str, mode: int = 0o640) -> None:
        self.path = path
        self._mode = mode
        self._descriptor = -1

    def acquire(self, *, exclusive: bool = True, timeout_s: float = 0.0) -> None:
        """Take the lock.

        Raises:
            LockError: somebody else holds it still when the time is over.
        """
        if self._descriptor >= 0:
            raise LockError(f"{self.path} is locked by this very object")
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self._mode)
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        try:
            taken = self._try_until(descriptor, kind, time.monotonic() + timeout_s)
        except BaseException:
            os.close(descriptor)
            raise
        if not taken:
            os.close(descriptor)
            raise LockError(f"{self.path} is locked by another process")
        self._descriptor = descriptor

    @classmethod
    def _try_until(cls, descriptor: int, kind: int, deadline: float) -> bool:
        while not cls._try(descriptor, kind):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_RETRY_DELAY_S)
        return True

    @staticmethod
    def _try(descriptor: int, kind: int) -> bool:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Let the lock go.  May be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        if self._descriptor < 0:
            self.acquire()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.release()


def open_locked(path: str) -> int | None:
    """Open and lock a file, made if it is missing; returns its descriptor, which holds the lock.

    None when another process holds it, or removed it while we were opening it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock_both_ways(descriptor)
        if _is_current(path, descriptor):
            locked, descriptor = descriptor, -1
            return locked
    except OSError as err:
        if err.errno not in (errno.EAGAIN, errno.EACCES):
            raise
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    return None


def _is_current(path: str, descriptor: int) -> bool:
    """Tell whether a file has not been removed, by its last owner, since it was opened."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


class PidFile:
    """The pid file of a daemon: holds its number, locked while the daemon runs.

    Source: config.json, ``/var/run/ganeti/<daemon>.pid``.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = -1

    def acquire(self) -> None:
        """Lock the file and write our process number into it.

        Raises:
            PidFileLockError: another process holds it; its number is in the text.
        """
        deadline = time.monotonic() + _CHECKER_S_MAX
        while not self._try_acquire():
            # Whoever asks whether we run holds the lock for an instant; a daemon keeps it.
            if time.monotonic() >= deadline:
                raise PidFileLockError(
                    f"already running with process id {read_pid(self.path)} (pid file {self.path})"
                )
            time.sleep(_RETRY_DELAY_S)
        self.update()

    def _try_acquire(self) -> bool:
        descriptor = open_locked(self.path)
        if descriptor is None:
            return False
        self._descriptor = descriptor
        return True

    def update(self) -> None:
        """Write our process number (again, after a fork)."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Remove the file, then let it go.  May be called again."""
        if self._descriptor < 0:
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        os.close(self._descriptor)
        self._descriptor = -1


def read_pid(path: str) -> int | None:
    """Return the number in a pid file, or None; says nothing about who lives."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read(32))
    except (FileNotFoundError, ValueError):
        return None


def running_pid(path: str) -> int | None:
    """Return the process number of the daemon that holds this pid file, or None."""
    return read_pid(path) if is_alive(path) else None
