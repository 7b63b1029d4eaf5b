"""Files written whole or not at all.

*Durable* means: temporary file in the same directory, fsync, rename, fsync of the directory, and
only then does the call return.  *Atomic* leaves out both fsyncs: no reader ever sees half a file
and ``kill -9`` loses nothing, but a power cut may bring back the old content, or leave nothing at
all.  So what replaces a durable file leaves out the sync of the directory only.

Source: ARCHITECTURE, invariants 4 and 5.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ganeti.base.errors import GenericError
from ganeti.base.text import listed_paths
from ganeti.system.failpoints import reached

if TYPE_CHECKING:
    from ganeti.system.spares import Turn

Piece: TypeAlias = bytes | memoryview  # of single bytes

_PIECES_MAX: Final = 1024  # IOV_MAX of Linux

_LIST_BYTES_MAX: Final = 1 << 20
_READ_BYTES_MIN: Final = 4096
_sequence = 0


class closing:  # noqa: N801 - it reads as `contextlib.closing` does
    """Closes a file descriptor at the end of the block."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_exc_info: object) -> None:
        os.close(self._descriptor)


def _temporary_name(path: str) -> str:
    """Return a name beside ``path`` that no other process uses, and that starts with a dot."""
    global _sequence  # noqa: PLW0603 - names must differ between two writes of one process
    _sequence += 1
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}.{os.getpid()}.{_sequence}.tmp")


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def give_to(target: int | str, uid: int, gid: int) -> None:
    """Give a file that we have made, or an open one, to a user and a group, as far as we may."""
    if (uid, gid) != (os.geteuid(), os.getegid()):
        _give(target, uid, gid)


def _give(target: int | str, uid: int, gid: int) -> None:
    try:
        os.chown(target, uid, gid)
    except PermissionError:
        with contextlib.suppress(PermissionError):  # users but root may give to their own groups
            os.chown(target, -1, gid)


class _Temporary(NamedTuple):
    """A file that is being written, beside the one that it is to replace.

    Attributes:
        turn: keeps the one that it replaces.
        was: what it was while it had another content.
    """

    descriptor: int
    name: str
    turn: Turn | None
    was: os.stat_result | None = None

    def belong(self, uid: int, gid: int, mode: int) -> None:
        """Give it to a user and a group, as far as we may, with a mode."""
        was = self.was
        if was is None:
            give_to(self.descriptor, uid, gid)
        elif (uid, gid, mode) == (was.st_uid, was.st_gid, stat.S_IMODE(was.st_mode)):
            return
        else:
            _give(self.descriptor, uid, gid)
        os.fchmod(self.descriptor, mode)  # chown takes some bits away

    def end(self) -> None:
        """Let it end here; to be done before it is synced."""
        if self.was is not None:
            size_bytes = os.lseek(self.descriptor, 0, os.SEEK_CUR)
            if size_bytes < self.was.st_size:
                os.ftruncate(self.descriptor, size_bytes)

    def put(self, path: str) -> None:
        """Give it its place."""
        if self.turn is None:
            os.rename(self.name, path)
            return
        if self.was is not None:
            self.turn.release(self.descriptor)
        self.turn.replace(self.name, path)


def _open_temporary(path: str, turn: Turn | None) -> _Temporary:
    # A new file has to have room of its own: a full disk is to refuse it, not what it becomes.
    spare = turn.take() if turn is not None and os.path.lexists(path) else None
    if spare is not None:
        return _Temporary(spare.descriptor, spare.name, turn, spare.was)
    name = _temporary_name(path)
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return _Temporary(descriptor, name, turn)


@contextlib.contextmanager
def _temporary(
    path: str, mode: int, owner: tuple[int, int] | None = None, turn: Turn | None = None
) -> Iterator[_Temporary]:
    """Open a file that is to replace ``path``; it is removed again if the block fails.

    It gets the owner, the group and the mode of the one that it replaces.  A new one belongs to
    the owner of its directory, and has the mode given here.

    Args:
        owner: user and group that it is to have in any case; then the mode counts as well.
        turn: has what it may be written into, and keeps the one that it replaces.
    """
    made = _open_temporary(path, turn)
    try:
        with closing(made.descriptor):
            if owner is None:
                made.belong(*_inherited(path, mode))
            else:
                os.fchown(made.descriptor, *owner)
                os.fchmod(made.descriptor, mode)  # chown takes some bits away
            yield made
    except BaseException:
        remove_if_exists(made.name)
        raise


def _inherited(path: str, mode: int) -> tuple[int, int, int]:
    """Return owner, group and mode of the file there, or those of a new one."""
    with contextlib.suppress(FileNotFoundError):
        present = os.lstat(path)
        if stat.S_ISREG(present.st_mode):
            return present.st_uid, present.st_gid, stat.S_IMODE(present.st_mode)
    directory = os.stat(os.path.dirname(path) or ".")
    return directory.st_uid, directory.st_gid, mode


def write_atomic(path: str, data: bytes, mode: int = 0o640) -> None:
    """Replace the file in one step; one that is there keeps its owner, group and mode.

    Raises:
        OSError: nothing was changed (disk full, no such directory, ...).
    """
    with _temporary(path, mode) as made:
        reached("before_write", path)
        _write_all(made.descriptor, data)
        reached("before_rename", path)
        made.put(path)
    reached("after_rename", path)


class NotSyncedError(OSError):
    """A file was replaced, and the disk failed before that was safe."""


def write_durable(
    path: str,
    data: bytes | Sequence[Piece],
    mode: int = 0o640,
    *,
    owner: tuple[int, int] | None = None,
    times: tuple[float, float] | None = None,
    syncs_directory: bool = True,
    ready: Callable[[int], None] | None = None,
    turn: Turn | None = None,
) -> None:
    """Replace the file in one step and return once that survives a power cut.

    One that is there keeps its owner, group and mode, unless an owner is given.

    Args:
        data: the content, or pieces of it that need not be joined first.
        owner: user and group id to give the file to.
        times: access and modification time, seconds since the epoch.
        syncs_directory: without it a power cut may bring the old content back; for many files in
            one directory, which is synced once, by `fsync_directory`.
        ready: is given the descriptor of the new file right before it takes the place of the old
            one, which stays if this raises an error.
        turn: of files that are replaced often: what they were is written anew.  It ends once the
            directory is synced.

    Raises:
        OSError: the old content stays (disk full, no such directory, ...).
        NotSyncedError: the new content is there, but a power cut may bring the old one back.
    """
    pieces = [data] if isinstance(data, bytes) else data
    with _temporary(path, mode, owner, turn) as made:
        reached("before_write", path)
        for start in range(0, len(pieces), _PIECES_MAX):
            _write_pieces(made.descriptor, pieces[start : start + _PIECES_MAX])
        made.end()
        if times is not None:
            os.utime(made.descriptor, times)
        reached("before_fsync", path)
        os.fsync(made.descriptor)
        reached("before_rename", path)
        if ready is not None:
            ready(made.descriptor)
        made.put(path)
    if syncs_directory:
        try:
            reached("after_rename", path)
            fsync_directory(os.path.dirname(path))
            reached("after_fsync", path)
        except OSError as err:
            raise NotSyncedError(err.errno, err.strerror, path) from err


def _write_pieces(descriptor: int, pieces: Sequence[Piece]) -> None:
    written = os.writev(descriptor, pieces)
    if written < sum(map(len, pieces)):  # as little as is likely to happen: join, write the rest
        _write_all(descriptor, b"".join(pieces)[written:])


def fsync_directory(path: str) -> None:
    """Make the names in a directory survive a power cut."""
    with closing(os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
        os.fsync(descriptor)


def read_bytes(path: str, size_bytes_max: int = 1 << 30) -> bytes:
    """Read a whole file.

    Raises:
        OSError: it cannot be read.
        GenericError: it is larger than ``size_bytes_max``.
    """
    with open(path, "rb", buffering=0) as file:
        return _read_whole(file, path, size_bytes_max)


def read_regular(path: str, size_bytes_max: int = 1 << 30, offset: int = 0) -> bytes | None:
    """Read a file where anything may lie, from an offset to its end; None if there is nothing.

    Raises:
        OSError: it cannot be read.
        GenericError: it is larger than ``size_bytes_max``, or no file.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return None
    except OSError as err:
        if err.errno in (errno.ELOOP, errno.ENXIO):  # a link; a socket
            raise GenericError(f"{path} is not a regular file") from err
        raise
    with closing(descriptor):
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise GenericError(f"{path} is not a regular file")
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            file.seek(offset)
            return _read_whole(file, path, size_bytes_max)


def open_not_led(path: str, flags: int, mode: int) -> int:
    """Open a file in a directory where others write, and return its descriptor.

    A symbolic link is followed only if root or this user made it: whoever else did may lead us to
    any file.

    Raises:
        OSError: it is somebody else's link, or cannot be opened.
    """
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except OSError as err:
        if err.errno != errno.ELOOP:
            raise
        with closing(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)) as link:
            if os.fstat(link).st_uid not in (0, os.geteuid()):
                raise
            target = os.path.join(os.path.dirname(path), os.readlink("", dir_fd=link))
    return os.open(target, flags | os.O_CLOEXEC, mode)


def _read_whole(file: io.FileIO, path: str, size_bytes_max: int) -> bytes:
    # Never read(size_bytes_max): that allocates the limit, which a process that locks its memory
    # has then to fill, page by page.
    pieces: list[bytes] = []
    left_bytes = size_bytes_max + 1
    piece_bytes = max(os.fstat(file.fileno()).st_size + 1, _READ_BYTES_MIN)
    while left_bytes > 0 and (piece := file.read(min(left_bytes, piece_bytes))):
        pieces.append(piece)
        left_bytes -= len(piece)
    if left_bytes <= 0:
        raise GenericError(f"file {path} is larger than {size_bytes_max} bytes")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def read_bytes_or_none(path: str, size_bytes_max: int = 1 << 30) -> bytes | None:
    """Read a whole file; None if there is none."""
    try:
        return read_bytes(path, size_bytes_max)
    except FileNotFoundError:
        return None


def read_listed_paths(path: str) -> list[str] | None:
    """Read a file that lists paths, one on each line; None if there is none."""
    data = read_bytes_or_none(path, _LIST_BYTES_MAX)
    return None if data is None else listed_paths(data.decode("utf-8", "replace"))


def remove_if_exists(path: str) -> bool:
    """Remove a file; returns whether there was one."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def owner_names(status: os.stat_result) -> tuple[str, str]:
    """Return the names of a file's user and group; the number of one that has no name."""
    return _owner_names(status.st_uid, status.st_gid)


# A name service may take long, and daemons ask at each change: each name is looked up once.
@lru_cache(maxsize=64)
def _owner_names(uid: int, gid: int) -> tuple[str, str]:
    import grp
    import pwd

    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    try:
        return user, grp.getgrgid(gid).gr_name
    except KeyError:
        return user, str(gid)


def remove_tree(path: str) -> None:
    """Remove a directory with the files and directories in it, as far as that is possible."""
    for directory, _directories, names in os.walk(path, topdown=False):
        with contextlib.suppress(OSError):
            for name in names:
                os.unlink(os.path.join(directory, name))
            os.rmdir(directory)


def ensure_directory(
    path: str, mode: int = 0o750, *, inherits_owner: bool = False, syncs_parent: bool = False
) -> None:
    """Create a directory with its parents, if it is not there.

    A directory that exists keeps its mode: it may be an administrator's.

    Args:
        inherits_owner: a new one belongs to the owner of its parent directory.
        syncs_parent: a new one is there after a power cut, for files that are moved into it.
    """
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent and not os.path.isdir(parent):
        ensure_directory(parent, 0o755)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode)
        if inherits_owner:
            above = os.stat(parent or ".")
            give_to(path, above.st_uid, above.st_gid)
        os.chmod(path, mode)  # mkdir obeys the umask, and chown takes some bits away
        if syncs_parent:
            fsync_directory(parent)
