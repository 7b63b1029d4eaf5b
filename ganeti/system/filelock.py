"""File locks: they prove that a process lives, or that it is the only one.

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
from collections.abc import Callable
from typing import Final, Self

from ganeti.base.errors import GenericError, LockError, PidFileLockError
from ganeti.system import files

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
        opened = files.closing(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except (FileNotFoundError, NotADirectoryError):
        return False
    with opened as descriptor:  # to close it drops the shared lock as well
        if not _try_flock(descriptor, fcntl.LOCK_SH):
            return True
        answer = fcntl.fcntl(descriptor, _F_OFD_GETLK, _record_lock(fcntl.F_RDLCK))
        kind = _FLOCK_STRUCT.unpack(answer)[0]
        return bool(kind != fcntl.F_UNLCK)


def _try_flock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _succeeds_within(attempt: Callable[[], bool], timeout_s: float) -> bool:
    """Try until it works or the time is over, once at least; returns whether it worked."""
    deadline = time.monotonic() + timeout_s
    while not attempt():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_RETRY_DELAY_S)
    return True


class _Held:
    """A file and the descriptor that holds its lock; -1 while it is not held."""

    removes_file = True

    def __init__(self, path: str, descriptor: int = -1) -> None:
        self.path = path
        self._descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.release()

    def release(self) -> None:
        """Let the lock go, after removing a file of ours.  May be called again."""
        if self._descriptor < 0:
            return
        if self.removes_file:
            files.remove_if_exists(self.path)
        os.close(self._descriptor)
        self._descriptor = -1


class LiveLock(_Held):
    """The lock file by which this process can be seen to live."""

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
            files.remove_if_exists(temporary)
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


class FileLock(_Held):
    """An advisory lock (``flock``) on a file that stays."""

    removes_file = False
    _FLAGS = os.O_RDWR | os.O_CREAT

    def __init__(self, path: str, mode: int = 0o640) -> None:
        super().__init__(path)
        self._mode = mode

    def acquire(self, *, exclusive: bool = True, timeout_s: float = 0.0) -> None:
        """Take the lock.

        Raises:
            LockError: somebody else holds it still when the time is over.
        """
        if self._descriptor >= 0:
            raise LockError(f"{self.path} is locked by this very object")
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        with contextlib.ExitStack() as undo:
            descriptor = os.open(self.path, self._FLAGS | os.O_CLOEXEC, self._mode)
            undo.callback(os.close, descriptor)
            if not _succeeds_within(lambda: _try_flock(descriptor, kind), timeout_s):
                raise LockError(f"{self.path} is locked by another process")
            undo.pop_all()
        self._descriptor = descriptor

    def taken(self, timeout_s: float, otherwise: str) -> Self:
        """Take the lock and return it.

        Raises:
            GenericError: somebody else holds it still when the time is over; with that text.
        """
        try:
            self.acquire(timeout_s=timeout_s)
        except LockError as err:
            raise GenericError(otherwise) from err
        return self

    def __enter__(self) -> Self:
        if self._descriptor < 0:
            self.acquire()
        return self


class DirectoryLock(FileLock):
    """The same on a directory that is there, for all who may list it."""

    _FLAGS = os.O_RDONLY | os.O_DIRECTORY


def open_locked(path: str) -> int | None:
    """Open and lock a file, made if it is missing; returns its descriptor, which holds the lock.

    None when another process holds it, or removed it while we were opening it.

    Raises:
        OSError: it cannot be made, or is a symbolic link, which may lead to any file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
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


class PidFile(_Held):
    """The pid file of a daemon: holds its number, locked while the daemon runs.

    Source: config.json, ``/var/run/ganeti/<daemon>.pid``.
    """

    def acquire(self) -> None:
        """Lock the file and write our process number into it.

        Raises:
            PidFileLockError: another process holds it; its number is in the text.
        """
        # A process that asks whether we run holds the lock for an instant; a daemon keeps it.
        if not _succeeds_within(self._try_acquire, _CHECKER_S_MAX):
            raise PidFileLockError(
                f"already running with process id {read_pid(self.path)} (pid file {self.path})"
            )
        self.update()

    def _try_acquire(self) -> bool:
        descriptor = open_locked(self.path)
        self._descriptor = -1 if descriptor is None else descriptor
        return descriptor is not None

    def update(self) -> None:
        """Write our process number (again, after a fork)."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)


def read_pid(path: str) -> int | None:
    """Return the number in a pid file, or None; the process may be gone."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read(32))
    except (FileNotFoundError, ValueError):
        return None


def running_pid(path: str) -> int | None:
    """Return the process number of the daemon that holds this pid file, or None."""
    return read_pid(path) if is_alive(path) else None
