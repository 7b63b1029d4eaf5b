"""The job queue's directory: one file per job, the serial, the flags, the archive.  Bytes only.

Source: config.json, "queue"; ARCHITECTURE, invariant 4.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable
from typing import Final

from ganeti.base.errors import GenericError, JobFileCorrupted, JobQueueError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.base.versions import JOB_QUEUE_VERSION
from ganeti.jobs.merging import digest
from ganeti.protocol.luxi import DrainedBy
from ganeti.protocol.node_rpc_values import QueueListing
from ganeti.system import files
from ganeti.system.filelock import FileLock
from ganeti.system.spares import Spares

logger = logging.getLogger(__name__)

FILE_MODE: Final = 0o640
DRAIN_FILE_MODE: Final = 0o644
DIRECTORY_MODE: Final = 0o750
JOB_BYTES_MAX: Final = 64 << 20  # as large as the request that submitted it may be
_DRAIN_BYTES_MAX: Final = 4096
_DRAINERS: Final = {each.encode(): each for each in DrainedBy}
_NAME: Final = re.compile(r"job-([0-9]{1,18})")
_ASIDE: Final = re.compile(r"job-([0-9]{1,18})\.corrupt(?:-[0-9]+)?")
_OF_THE_MOMENT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR})


def job_id_of(name: str) -> JobId | None:
    """Return the id in the name of a job file, or None if it is the name of something else."""
    found = _NAME.fullmatch(name)
    return JobId(int(found.group(1))) if found else None


def _read(path: str) -> bytes | None:
    """Read a job file, or None if there is none.

    Raises:
        JobFileCorrupted: what lies there is no file that can be read, or too large.
        OSError: it cannot be read at the moment.
    """
    try:
        return files.read_regular(path, JOB_BYTES_MAX)
    except GenericError as err:
        raise JobFileCorrupted(err.message) from err
    except OSError as err:
        if err.errno in _OF_THE_MOMENT:
            raise
        raise JobFileCorrupted(f"{path} cannot be read: {err.strerror}") from err


def _read_small(path: str, size_bytes_max: int) -> bytes | None:
    """Read another file of the queue; None for anything else of that name."""
    try:
        return files.read_regular(path, size_bytes_max)
    except (GenericError, OSError) as err:
        logger.warning("Cannot read %s: %s; ignoring", path, err)
        return None


class JobFiles:
    """The queue directory of this node.

    Args:
        spares: of a writer that replaces many files: where these go.
    """

    def __init__(self, paths: Paths, spares: Spares | None = None) -> None:
        self._paths = paths
        self._spares = Spares(0) if spares is None else spares

    def prepare(self) -> None:
        """Make the directories and the version file where they are missing.

        Raises:
            JobQueueError: the queue is of another version.
        """
        files.ensure_directory(self._paths.queue_dir, DIRECTORY_MODE)
        files.ensure_directory(self._paths.queue_archive_dir, DIRECTORY_MODE)
        found = _read_small(self._paths.queue_version, 64)
        if found is None:
            content = b"%d\n" % JOB_QUEUE_VERSION
            files.write_durable(self._paths.queue_version, content, FILE_MODE)
        elif found.strip() != b"%d" % JOB_QUEUE_VERSION:
            raise JobQueueError(
                f"{self._paths.queue_version} says {found!r}, expected version {JOB_QUEUE_VERSION}"
            )

    def lock(self) -> FileLock:
        """Return the queue's lock, not yet taken."""
        return FileLock(self._paths.queue_lock, FILE_MODE)

    # Job files.

    def ids(self) -> list[JobId]:
        """Return the ids of all jobs in the queue, in ascending order."""
        return self._ids_in(self._paths.queue_dir)

    def read(self, job_id: JobId) -> bytes | None:
        """Return the content of a job file in the queue, or None if there is none.

        Raises:
            JobFileCorrupted: what lies there is no job file.
        """
        return _read(self._paths.job_file(job_id))

    def archived_ids(self) -> list[JobId]:
        """Return the ids of all archived jobs, in ascending order."""
        archives = self._paths.queue_archive_dir
        numbers = [name for name in self._names_in(archives) if name.isdigit()]
        found = (self._ids_in(os.path.join(archives, number)) for number in numbers)
        return sorted(job_id for ids in found for job_id in ids)

    def read_archived(self, job_id: JobId) -> bytes | None:
        """Return the content of a job file in the archive, or None if there is none.

        Raises:
            JobFileCorrupted: what lies there is no job file.
        """
        return _read(self._paths.archived_job_file(job_id))

    def write_durable(
        self, job_id: JobId, data: bytes, *, ready: Callable[[int], None] | None = None
    ) -> None:
        """Replace a job file; returns once that survives a power cut.

        Args:
            ready: as of `files.write_durable`.
        """
        with self._spares.turn() as turn:
            path = self._paths.job_file(job_id)
            files.write_durable(path, data, FILE_MODE, ready=ready, turn=turn)

    def write_atomic(self, job_id: JobId, data: bytes) -> None:
        """Replace a job file in one step; a power cut may bring the old one back, whole."""
        files.write_durable(self._paths.job_file(job_id), data, FILE_MODE, syncs_directory=False)

    def archive(self, job_id: JobId) -> bool:
        """Move a job to the archive; returns False if it is not in the queue."""
        target = self._paths.archived_job_file(job_id)
        files.ensure_directory(
            os.path.dirname(target), DIRECTORY_MODE, inherits_owner=True, syncs_parent=True
        )
        try:
            os.rename(self._paths.job_file(job_id), target)
        except FileNotFoundError:
            return False
        return True

    def remove(self, job_id: JobId) -> bool:
        """Remove a job file from the queue for good; returns whether there was one."""
        was_there = files.remove_if_exists(self._paths.job_file(job_id))
        if was_there:
            files.fsync_directory(self._paths.queue_dir)
        return was_there

    def set_aside(self, job_id: JobId) -> str:
        """Rename an unreadable job file, so that it is never fatal; returns its path.

        Raises:
            OSError: it cannot be renamed.
        """
        path = self._paths.job_file(job_id)
        aside = f"{path}.corrupt"
        number = 1
        while os.path.lexists(aside):
            number += 1
            aside = f"{path}.corrupt-{number}"
        os.rename(path, aside)
        return aside

    def set_aside_files(self) -> dict[JobId, str]:
        """Return the paths of the files set aside, by job."""
        names = sorted(self._names_in(self._paths.queue_dir))
        matches = [found for name in names if (found := _ASIDE.fullmatch(name))]
        return {
            JobId(int(found.group(1))): f"{self._paths.queue_dir}/{found.group()}"
            for found in matches
        }

    def present(self) -> set[JobId]:
        """Return the jobs that have a file in the queue, readable or not, or one set aside."""
        return {*self.ids(), *self.set_aside_files()}

    # The serial: the last id that was given out.

    def read_serial(self) -> int:
        """Return the number in the serial file; 0 if it is missing or not a number."""
        data = _read_small(self._paths.queue_serial, 64)
        text = (data or b"").strip()
        return int(text) if text.isdigit() else 0

    def write_serial(self, serial: int) -> None:
        """Replace the serial file in one step; whatever syncs the directory makes it durable."""
        data = b"%d\n" % serial
        files.write_durable(self._paths.queue_serial, data, FILE_MODE, syncs_directory=False)

    def last_id(self) -> int:
        """Return the highest id ever given out: by the serial, the queue or the archive.

        Files that were set aside count, too.
        """
        archives = self._paths.queue_archive_dir
        numbers = sorted(int(name) for name in self._names_in(archives) if name.isdigit())
        found = (self._ids_in(os.path.join(archives, str(number))) for number in numbers[::-1])
        newest = next(filter(None, found), [])
        return max([self.read_serial(), *self.ids()[-1:], *newest[-1:], *self.set_aside_files()])

    # The drained flag.

    def is_drained(self) -> bool:
        """Tell whether the queue takes no new jobs."""
        return os.path.exists(self._paths.queue_drain)

    def drained_by(self) -> DrainedBy | None:
        """Return the program that set the flag; None for an operator, or without a flag."""
        found = _read_small(self._paths.queue_drain, _DRAIN_BYTES_MAX)
        return _DRAINERS.get((found or b"").strip())

    def drain_mark(self) -> tuple[int, int] | None:
        """Return what tells one setting of the flag from another; None without a flag."""
        try:
            status = os.stat(self._paths.queue_drain)
        except FileNotFoundError:
            return None
        return status.st_ino, status.st_mtime_ns

    def set_drained(self, drained: bool, by: DrainedBy | None = None) -> None:
        """Set or remove the flag; without ``by`` it is an operator's."""
        if drained:
            content = b"" if by is None else by.encode()
            files.write_durable(self._paths.queue_drain, content, DRAIN_FILE_MODE)
        elif files.remove_if_exists(self._paths.queue_drain):
            files.fsync_directory(self._paths.queue_dir)

    @classmethod
    def _ids_in(cls, directory: str) -> list[JobId]:
        ids = (job_id_of(name) for name in cls._names_in(directory))
        return sorted(job_id for job_id in ids if job_id is not None)

    @staticmethod
    def _names_in(directory: str) -> list[str]:
        try:
            return os.listdir(directory)
        except (FileNotFoundError, NotADirectoryError):
            return []


def running_log(paths: Paths, job_id: JobId) -> str:
    """Return the file of a running job with the log lines that came after its last status."""
    return f"{paths.luxid_message_dir}/{job_id}.log"


def list_queue(paths: Paths) -> QueueListing:
    """Return the jobs in the queue and its archive on this node; unreadable ones are left out."""
    queue = JobFiles(paths)
    jobs = {}
    for job_id in queue.ids():
        try:
            data = queue.read(job_id)
        except JobFileCorrupted as err:
            logger.warning("Job %s is left out: %s", job_id, err.message)
            continue
        if data:
            jobs[int(job_id)] = digest(data)
    return QueueListing(
        jobs=jobs, archived=tuple(queue.archived_ids()), is_drained=queue.is_drained()
    )
