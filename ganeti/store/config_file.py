"""The configuration file, with its journal if there is one, as bytes.

One process writes the journal: WConfD on the master, the node daemon on a candidate.

`ganeti.objects` and `ganeti.config` know their meaning.

Source: config.json, "file"; ARCHITECTURE, invariant 4.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from ganeti.base.errors import ConfigurationError, LockError
from ganeti.base.paths import Paths
from ganeti.config.config_data import split_config
from ganeti.config.deltas import journal
from ganeti.config.deltas.journal import JournalDamaged, Record
from ganeti.protocol.node_rpc_values import ConfigVersion
from ganeti.system import files
from ganeti.system.failpoints import reached
from ganeti.system.filelock import DirectoryLock
from ganeti.system.files import NotSyncedError, Piece

logger = logging.getLogger(__name__)

FILE_MODE: Final = 0o640
NAMES_PER_SECOND_MAX: Final = 100  # a second name is needed only if somebody tries in a loop
_DIGEST_BYTES: Final = 32
_LOCK_TIMEOUT_S: Final = 5.0  # to write the file takes well under a second
SIZE_BYTES_MAX: Final = 1 << 30  # 200 times the 5,000 instances that 3.0 can bear


def read_config(paths: Paths) -> bytes:
    """Return the configuration: the content of its file, with the changes of its journal made.

    Raises:
        JournalDamaged: an acknowledged change cannot be read.
        ConfigurationError: there is none, or it cannot be read.
    """
    data, lines = _read_both(paths)
    return _folded(paths, data, journal.intact_records(lines, paths.config_journal))


def readable_config(paths: Paths) -> bytes:
    """Return the configuration as far as it can be read, for who only looks.

    Raises:
        ConfigurationError: there is none, or its file cannot be read.
    """
    data, lines = _read_both(paths)
    try:
        records = journal.intact_records(lines, paths.config_journal)
    except JournalDamaged as err:
        logger.warning("%s", err.message)
        records = journal.records_in(lines)
    return _folded(paths, data, records)


def _folded(paths: Paths, data: bytes, records: list[Record]) -> bytes:
    if not records:
        return data
    folded = journal.replay(data, records)
    if folded is None:
        logger.warning("%s does not belong to the configuration here", paths.config_journal)
        return data
    return folded


def digest_of(pieces: Iterable[Piece]) -> str:
    """Return the digest by which master and candidates compare whole files."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def read_state(paths: Paths) -> tuple[bytes, list[Record]]:
    """Return the content of the configuration file, and the records of its journal.

    Raises:
        ConfigurationError: there is no file, or it cannot be read.
    """
    data, lines = _read_both(paths)
    return data, journal.records_in(lines)


def _read_both(paths: Paths) -> tuple[bytes, bytes]:
    """Return what file and journal contain."""
    while True:
        before = identity(paths) if has_config(paths) else None
        data = _read_file(paths)
        lines = _journal_bytes(paths)
        # The file is replaced before its journal is trimmed, or removed: without a record this may
        # be the file of before.
        if before is None or before == identity(paths):
            return data, lines


def read_journal(paths: Paths) -> list[Record]:
    """Return the records of the journal.

    Raises:
        ConfigurationError: it cannot be read.
    """
    return journal.records_in(_journal_bytes(paths))


def read_intact_journal(paths: Paths) -> list[Record]:
    """Return the records of a journal that is about to be changed or removed.

    Raises:
        JournalDamaged: one that was acknowledged cannot be read.
        ConfigurationError: none can.
    """
    return journal.intact_records(_journal_bytes(paths), paths.config_journal)


def _journal_bytes(paths: Paths) -> bytes:
    try:
        return files.read_bytes_or_none(paths.config_journal) or b""
    except OSError as err:
        raise ConfigurationError(f"cannot read {paths.config_journal}: {err.strerror}") from err


def _read_file(paths: Paths) -> bytes:
    path = paths.config_data
    try:
        return files.read_bytes(path, SIZE_BYTES_MAX)
    except FileNotFoundError as err:
        raise ConfigurationError(
            f"{path} does not exist; is this node the master or a candidate of a cluster?"
        ) from err
    except OSError as err:
        raise ConfigurationError(f"cannot read {path}: {err.strerror}") from err


def file_version(paths: Paths) -> ConfigVersion:
    """Return the version of the configuration file, which its journal may be ahead of.

    Raises:
        ConfigurationError: there is none, or it cannot be read.
    """
    return journal.version_of(split_config(_read_file(paths)))


Identity = tuple[int, int, int]
"""Tells versions of the file apart without reading it."""


def identity(paths: Paths) -> Identity:
    """Return a value that changes whenever the file does.

    Raises:
        ConfigurationError: there is none, or it cannot be looked at.
    """
    try:
        found = os.stat(paths.config_data)
    except OSError as err:
        raise ConfigurationError(f"cannot read {paths.config_data}: {err.strerror}") from err
    return _identity_of(found)


def _identity_of(found: os.stat_result) -> Identity:
    return found.st_ino, found.st_mtime_ns, found.st_size


def has_config(paths: Paths) -> bool:
    """Tell whether this node has a configuration file."""
    return os.path.exists(paths.config_data)


@contextlib.contextmanager
def only_writer(paths: Paths) -> Iterator[None]:
    """Keep the other processes of this node from writing the file or its journal meanwhile.

    Two meet where a master lost its place without knowing: it writes what it has, while the node
    daemon writes what the new master sends.

    Raises:
        OSError: another one was at it for too long.
    """
    lock = DirectoryLock(paths.data_dir)
    try:
        lock.acquire(timeout_s=_LOCK_TIMEOUT_S)
    except LockError as err:
        raise OSError(errno.EBUSY, "another process is writing it", paths.config_data) from err
    with lock:
        yield


def write_config(paths: Paths, data: bytes) -> None:
    """Replace the configuration; returns once that survives a power cut.  Its journal goes.

    Call it as the `only_writer`, or where no daemon is.

    Raises:
        OSError: the old configuration stays.
    """
    files.write_durable(paths.config_data, data, FILE_MODE)
    files.remove_if_exists(paths.config_journal)


class MastersFile:
    """The configuration file of a running master, without its journal.

    It replaces what it read or wrote itself, and nothing else: a master that stood still while
    another one took over may find that its node was given a newer configuration meanwhile.
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._mutex = threading.Lock()  # the other lock is tried in steps
        self._own = identity(paths) if has_config(paths) else None

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the file from being replaced by others.

        Raises:
            OSError: somebody else replaced it already, or is at it for too long.
        """
        with self._mutex, only_writer(self._paths):
            if has_config(self._paths) and identity(self._paths) != self._own:
                text = "another process replaced it; is another node the master?"
                raise OSError(errno.ESTALE, text, self._paths.config_data)
            yield

    def write(self, pieces: Sequence[Piece]) -> None:
        """Replace it, from pieces that need not be joined first.

        Raises:
            OSError: the old configuration stays.
            NotSyncedError: see `files.write_durable`.
        """
        path = self._paths.config_data
        with contextlib.ExitStack() as kept:
            made = self._own

            def ready(descriptor: int) -> None:
                nonlocal made
                kept.enter_context(self.kept())
                made = _identity_of(os.fstat(descriptor))

            try:
                files.write_durable(path, pieces, FILE_MODE, ready=ready)
            except NotSyncedError:
                self._own = made
                raise
            self._own = made


def fold_journal(paths: Paths, now: float) -> int:
    """Bring the changes of the journal into the file, and remove it; returns how many there were.

    A journal of another configuration is set aside.  Call it as the `only_writer`.

    Raises:
        JournalDamaged: an acknowledged change cannot be read.
        ConfigurationError: the file cannot be read.
        OSError: the new file could not be written; both stay as they are.
    """
    if not os.path.exists(paths.config_journal):
        return 0
    data, records = _read_file(paths), read_intact_journal(paths)
    folded = journal.replay(data, records)
    if folded is None:
        path = set_journal_aside(paths, now)
        logger.warning("The journal did not belong to the configuration here; it is now %s", path)
        return 0
    if folded is data:
        files.fsync_directory(paths.data_dir)  # whoever wrote the file may have died before that
        files.remove_if_exists(paths.config_journal)
        return 0
    write_config(paths, folded)
    return len(records)


def set_journal_aside(paths: Paths, now: float) -> str | None:
    """Rename the journal, durably; returns the new path, if there was one.

    Raises:
        ConfigurationError: no name is free.
        OSError: it stays.
    """
    if not os.path.exists(paths.config_journal):
        return None
    path = free_name(paths.config_journal, "aside", now)
    os.rename(paths.config_journal, path)
    files.fsync_directory(paths.data_dir)
    return path


def free_name(path: str, label: str, now: float) -> str:
    """Return a name beside the file that tells the reason and the time of a copy.

    Raises:
        ConfigurationError: no name is free.
    """
    moment = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    name = f"{path}.{label}-{moment}"
    for number in range(NAMES_PER_SECOND_MAX):
        candidate = f"{name}.{number}" if number else name
        if not os.path.exists(candidate):
            return candidate
    raise ConfigurationError(f"{name} and {NAMES_PER_SECOND_MAX} names like it exist already")


class JournalFile:
    """The journal of this node, to be written by this process."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._path = paths.config_journal
        self._mutex = threading.Lock()
        self._end: tuple[int, int] | None = None  # inode and size after the last record

    def append(self, lines: Sequence[bytes]) -> None:
        """Add records; returns once they survive a power cut, and readers may see them.

        So do the records that are there already, whoever wrote them.

        Raises:
            OSError: they are not there.
            NotSyncedError: it is not known whether they are.
            JournalDamaged: they are not there, as they would not be read.
        """
        with self._mutex, files.closing(self._open()) as descriptor:
            self._append(descriptor, lines)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            return os.open(self._path, flags)
        except FileNotFoundError:
            self._end = None  # the new file may have the inode of one that was removed
            descriptor = os.open(self._path, flags | os.O_CREAT | os.O_EXCL, FILE_MODE)
            beside = os.stat(self._paths.config_data)
            files.give_to(descriptor, beside.st_uid, beside.st_gid)
            os.fchmod(descriptor, FILE_MODE)
            return descriptor

    def _append(self, descriptor: int, lines: Sequence[bytes]) -> None:
        inode = os.fstat(descriptor).st_ino
        is_known = self._end is not None and self._end[0] == inode
        end, unsynced = self._end_of(descriptor)
        data = memoryview(b"".join(lines))
        try:
            reached("before_write", self._path)
            written = 0
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], end + written)
            reached("before_fsync", self._path)
            os.fdatasync(descriptor)
            if not is_known:  # whoever made it may have died before that
                files.fsync_directory(os.path.dirname(self._path))
        except OSError as err:
            self._end = None
            _take_back(descriptor, end, err)
            raise
        try:
            reached("after_fsync", self._path)
            for at in (*unsynced, *_starts(lines, end)):
                os.pwrite(descriptor, journal.SYNCED, at)
        except OSError as err:
            raise NotSyncedError(err.errno, err.strerror) from err  # it is there, and not known
        self._end = (inode, end + len(data))

    def _end_of(self, descriptor: int) -> tuple[int, list[int]]:
        """Return where the next record goes, and where records are that may not be durable.

        Half a record at the end is taken away.

        Raises:
            JournalDamaged: it is more than that.
        """
        status = os.fstat(descriptor)
        if (status.st_ino, status.st_size) == self._end:
            return status.st_size, []
        records = journal.intact_records(os.pread(descriptor, status.st_size, 0), self._path)
        lines = [record.line for record in records]
        end = sum(map(len, lines))
        if end < status.st_size:
            logger.warning("%s ends in half a record, which is dropped", self._path)
            os.ftruncate(descriptor, end)
        starts = zip(records, _starts(lines, 0), strict=True)
        return end, [start for record, start in starts if not record.is_synced]

    def trim(self, version: ConfigVersion) -> None:
        """Drop the records that the configuration file has, as it is of this version and durable.

        Raises:
            OSError: they stay.
        """
        with self._mutex:
            data = files.read_bytes_or_none(self._path) or b""
            try:
                left = journal.after(version, journal.intact_records(data, self._path))
            except JournalDamaged as err:
                logger.warning("%s; it stays", err.message)
                return
            if left is None:
                logger.warning("%s does not belong to version %s; it stays", self._path, version)
            elif left:
                files.write_durable(self._path, [record.line for record in left], FILE_MODE)
            else:
                files.remove_if_exists(self._path)


def _starts(lines: Sequence[bytes], start: int) -> list[int]:
    """Return where each line begins, the first at ``start``."""
    return list(itertools.accumulate(map(len, lines[:-1]), initial=start)) if lines else []


def _take_back(descriptor: int, end: int, error: OSError) -> None:
    """Take back what was written; raises NotSyncedError if that is not possible."""
    try:
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)
    except OSError:
        raise NotSyncedError(error.errno, error.strerror) from error
