"""Copies of the job queue on this node: written when the master says so, never by ourselves.

On the master itself LuxiD holds the queue lock and owns the files; a caller that asks this node to
write into a queue that LuxiD has open takes another node for the master, and is refused.  So is a
node that was master before: its late writes must not count.

Source: config.json, "queue"; node_rpc.json, "queue_calls".
"""

import contextlib
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ganeti.base.errors import GenericError, JobFileCorrupted, LockError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeHandler
from ganeti.node_ops.machine.master_writes import from_master
from ganeti.protocol.node_rpc_values import CompressedText, PackedText, QueueListing
from ganeti.store.job_files import JobFiles, list_queue
from ganeti.system import clock
from ganeti.system import files as atomic_files
from ganeti.system.filelock import FileLock
from ganeti.system.spares import Spares, Turn

logger = logging.getLogger(__name__)

# One answer stays well below the limit of a message; the caller comes back for the rest.
ANSWER_BYTES_MAX: Final = 16 << 20
LOCK_TIMEOUT_S: Final = 10.0
_RETRY_DELAY_S: Final = 0.02
_FILE_MODE: Final = 0o640
_DIRECTORY_MODE: Final = 0o750
_DRAIN_MODE: Final = 0o644

_JOB_FILE: Final = re.compile(r"(?:archive/\d+/)?job-\d+")
_SERIAL: Final = "serial"
_DRAIN: Final = "drain"
_OTHER_FILES: Final = frozenset({_SERIAL, "version", _DRAIN})


class SharedHold:
    """The queue lock, held by this process while at least one of its calls needs it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._locks: dict[str, tuple[FileLock, int]] = {}

    @contextlib.contextmanager
    def held(self, path: str, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
        """Hold the lock file for a block; calls of this process share it.

        Raises:
            LockError: another process has it still when the time is over.
        """
        deadline_s = clock.monotonic() + timeout_s
        while not self._try_take(path):
            if clock.monotonic() >= deadline_s:
                raise LockError(
                    f"the job queue of this node is in use ({path} is locked):"
                    " the daemon that owns it runs here"
                )
            threading.Event().wait(_RETRY_DELAY_S)
        try:
            yield
        finally:
            self._give_back(path)

    def _try_take(self, path: str) -> bool:
        with self._mutex:
            lock, holders = self._locks.get(path) or (FileLock(path, _FILE_MODE), 0)
            if holders == 0:
                try:
                    lock.acquire()
                except LockError:
                    return False
            self._locks[path] = (lock, holders + 1)
            return True

    def _give_back(self, path: str) -> None:
        with self._mutex:
            lock, holders = self._locks[path]
            if holders > 1:
                self._locks[path] = (lock, holders - 1)
            else:
                del self._locks[path]
                lock.release()


_hold = SharedHold()

SPARES: Final = Spares(32)
"""Versions of job files that were replaced, as many as come at a time."""


class JobQueue(NodeHandler):
    """Copies of job files."""

    def jobqueue_update(self, file_name: str, content: CompressedText) -> None:
        (error,) = self._write([(file_name, lambda: content.content)])
        if error is not None:
            raise GenericError(error)

    def jobqueue_write(self, files: Sequence[tuple[str, PackedText]]) -> list[str | None]:
        return self._write([(file_name, content.unpack) for file_name, content in files])

    def _write(self, files: Sequence[tuple[str, Callable[[], bytes]]]) -> list[str | None]:
        """Write files with the contents that functions return; returns why some cannot be."""
        errors: list[str | None] = []
        touched: set[str] = set()
        with from_master(self.node), _hold_queue(self.paths), SPARES.turn() as turn:
            for file_name, content in files:
                try:
                    _replace(self.paths, file_name, content(), touched, turn)
                except OSError as err:
                    errors.append(f"{err.filename or file_name}: {err.strerror or err}")
                except GenericError as err:
                    errors.append(err.message)
                else:
                    errors.append(None)
            for directory in touched:
                atomic_files.fsync_directory(directory)
        return errors

    def jobqueue_rename(self, rename: Sequence[tuple[str, str]]) -> list[None]:
        pairs = [(queue_path(self.paths, old), queue_path(self.paths, new)) for old, new in rename]
        touched: set[str] = set()
        with from_master(self.node), _hold_queue(self.paths):
            for old, new in pairs:
                atomic_files.ensure_directory(
                    os.path.dirname(new), _DIRECTORY_MODE, inherits_owner=True, syncs_parent=True
                )
                try:
                    os.rename(old, new)
                except FileNotFoundError:
                    logger.debug("%s is not here to be renamed, ignoring", old)
                    continue
                touched |= {os.path.dirname(old), os.path.dirname(new)}
            for directory in sorted(touched):
                atomic_files.fsync_directory(directory)
        return [None] * len(pairs)

    def jobqueue_set_drain_flag(self, flag: bool) -> None:
        paths = self.paths
        with _hold_queue(paths):
            if flag:
                atomic_files.write_durable(paths.queue_drain, b"", _DRAIN_MODE)
            elif atomic_files.remove_if_exists(paths.queue_drain):
                atomic_files.fsync_directory(paths.queue_dir)

    def jobqueue_purge(self) -> None:
        paths = self.paths
        with from_master(self.node), _hold_queue(paths):
            for name in os.listdir(paths.queue_dir):
                if name == os.path.basename(paths.queue_lock):
                    continue
                path = os.path.join(paths.queue_dir, name)
                if os.path.isdir(path):
                    shutil.rmtree(path)
                else:
                    atomic_files.remove_if_exists(path)
            atomic_files.fsync_directory(paths.queue_dir)

    def jobqueue_list(self) -> QueueListing:
        return list_queue(self.paths)

    def jobqueue_read(self, job_ids: Sequence[int]) -> dict[str, CompressedText]:
        queue = JobFiles(self.paths)
        found: dict[str, CompressedText] = {}
        size_bytes = 0
        for job_id in map(JobId, job_ids):
            try:
                data = queue.read(job_id) or queue.read_archived(job_id)
            except JobFileCorrupted as err:
                logger.warning("Job %s is left out: %s", job_id, err.message)
                continue
            if data is None:
                continue
            size_bytes += len(data)
            if found and size_bytes > ANSWER_BYTES_MAX:
                break
            found[str(job_id)] = CompressedText(data)
        return found


def _replace(paths: Paths, file_name: str, data: bytes, touched: set[str], turn: Turn) -> None:
    """Write a file; adds its directory, if that is to be synced."""
    path = queue_path(paths, file_name)
    name = os.path.basename(path)
    mode = _DRAIN_MODE if name == _DRAIN else _FILE_MODE
    if name == _SERIAL:
        atomic_files.write_durable(path, data, mode, syncs_directory=False)
    else:
        atomic_files.write_durable(path, data, mode, syncs_directory=False, turn=turn)
        touched.add(os.path.dirname(path))


def queue_path(paths: Paths, wire_path: str) -> str:
    """Return the local path of a queue file that was named on the wire.

    Raises:
        GenericError: not the path of a job file, the serial, the version or the drain file.
    """
    path = paths.localize(wire_path)
    name = path.removeprefix(paths.queue_dir + "/")
    is_known = name in _OTHER_FILES or _JOB_FILE.fullmatch(name)
    if is_known and path.startswith(paths.queue_dir + "/"):
        return path
    raise GenericError(f"{wire_path!r} is not a file of the job queue")


@contextlib.contextmanager
def _hold_queue(paths: Paths) -> Iterator[None]:
    """Hold this node's queue lock; the directory is made if it is not there."""
    atomic_files.ensure_directory(paths.queue_dir, _DIRECTORY_MODE, inherits_owner=True)
    with _hold.held(paths.queue_lock):
        yield
