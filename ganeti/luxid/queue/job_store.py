"""Saves job records: encoded, durable here, on enough candidates.

LuxiD is the only writer of a job's file until the job process has it, and again once that process
is found dead.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ganeti.base.errors import JobFileCorrupted, JobQueueError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.jobs import changes
from ganeti.jobs.record import QueuedJob, decode_job, encode_job
from ganeti.luxid.queue.replication import CopiesMade, Replication
from ganeti.protocol.luxi import DrainedBy
from ganeti.store.job_files import JobFiles
from ganeti.system.spares import Spares

logger = logging.getLogger(__name__)

_SPARES: Final = 32  # as many records as are replaced at a time, and some more
_REMOVE_AGAIN_S: Final = 5.0


class JobStore:
    """The job files of this cluster, seen from the master."""

    def __init__(self, paths: Paths, replication: Replication) -> None:
        self._spares = Spares(_SPARES)
        self.files = JobFiles(paths, self._spares)
        self._paths = paths
        self._replication = replication
        self._serial_task: asyncio.Handle | None = None
        self._aside: dict[JobId, str] = {}
        self._serial_lock = threading.Lock()
        self._serial_here = 0

    def close(self) -> None:
        """Leave nothing in the directory of the queue that is of use here only."""
        self._spares.clear()

    async def save_new(self, job: QueuedJob, last_id: int) -> None:
        """Make a job durable that was just given its id, and the last id with it; as `save`."""
        await self.save(job, prepare=lambda: self._write_serial(last_id))

    async def save_start(self, job: QueuedJob, last_id: int | None) -> tuple[str, ...]:
        """Make a start record durable, of a new job the last id as well; as `save`."""
        prepare = (lambda: None) if last_id is None else (lambda: self._write_serial(last_id))
        return await self.save(job, wait_for_all=True, prepare=prepare)

    async def save(
        self,
        job: QueuedJob,
        *,
        wait_for_all: bool = False,
        alone_is_enough: bool = False,
        prepare: Callable[[], None] = lambda: None,
    ) -> tuple[str, ...]:
        """Make a record durable; returns the candidates that have not acknowledged it.

        Args:
            wait_for_all: give every candidate a while, not just enough of them; needed before
                somebody else writes the file.
            alone_is_enough: the copy here counts as enough; so it does for a job that only mends
                a lack of candidates.
            prepare: is done before the file is written, in the same thread.

        Raises:
            JobQueueError: not written, or not on enough candidates.
        """
        data = encode_job(job)

        def write() -> None:
            prepare()
            self.files.write_durable(job.id, data)

        return await self._replication.write(
            self._paths.job_file(job.id),
            data,
            write,
            wait_for_all=wait_for_all,
            alone_is_enough=alone_is_enough or job.mends,
        )

    async def bring(self, job_id: JobId, data: bytes, wait_s: float) -> CopiesMade:
        """Send the candidates a version of a job file for its process: `Replication.bring`."""
        return await self._replication.bring(self._paths.job_file(job_id), data, wait_s)

    def spread(self, job_id: JobId, data: bytes) -> None:
        """Send the candidates a version of a job file for its process, without waiting."""
        self._replication.spread(self._paths.job_file(job_id), data)

    def on_ended(self, job_id: JobId, lagging: Iterable[str]) -> None:
        """Take note that LuxiD is the writer of a job's file again.

        Args:
            lagging: candidates that may have got an old version after the last one.
        """
        self._replication.renew(lagging, self._paths.job_file(job_id))

    def on_process_ended(self, job_id: JobId, lagging: Iterable[str], brought: str) -> None:
        """As `on_ended`, for a job whose last record its process has written.

        Args:
            brought: digest of the last version that was brought for the process; "" for none.
        """
        if lagging or brought:
            self._replication.settle(self._paths.job_file(job_id), lagging, brought)

    def withdraw(self, job: QueuedJob) -> None:
        """Take back a job that was not accepted: nobody may ever run it.

        The candidates come first: what kept the job from being written here may be in the way of
        its removal as well.

        Args:
            job: the record to leave on candidates that got the job already, canceled.
        """
        self._replication.spread(self._paths.job_file(job.id), encode_job(job))
        self._remove(job.id)

    def _remove(self, job_id: JobId) -> None:
        """Remove a file that may be there, as soon as the disk allows that."""
        try:
            self.files.remove(job_id)
        except OSError as err:
            path = self._paths.job_file(job_id)
            if os.path.lexists(path):  # a disk that is read-only refuses the same of no file
                logger.warning("Cannot remove refused job %s: %s; trying again", path, err.strerror)
                asyncio.get_running_loop().call_later(_REMOVE_AGAIN_S, self._remove, job_id)

    def put_back(self, job: QueuedJob) -> None:
        """Let a job be in the queue again, after a start that did not come about."""
        data = encode_job(job)
        try:
            self.files.write_atomic(job.id, data)
        except OSError as err:
            logger.warning("Cannot put job %s back: %s", job.id, err)
        self._replication.spread(self._paths.job_file(job.id), data)

    def read(self, job_id: JobId) -> QueuedJob | None:
        """Return a job of the queue as its file has it; None if it is gone.

        Raises:
            JobFileCorrupted: it cannot be understood.
        """
        data = self.files.read(job_id)
        return None if data is None else decode_job(data, job_id)

    def read_archived(self, job_id: JobId) -> QueuedJob | None:
        """Return an archived job, or a lost one, or None; one that makes no sense is logged."""
        try:
            data = self.files.read_archived(job_id)
            return self.lost().get(job_id) if data is None else decode_job(data, job_id)
        except JobFileCorrupted as err:
            logger.warning("Archived job %s: %s; ignoring", job_id, err)
            return None

    def load(self) -> dict[JobId, QueuedJob]:
        """Read the whole queue; files that make no sense are set aside."""
        jobs: dict[JobId, QueuedJob] = {}
        for job_id in self.files.ids():
            try:
                job = self.read(job_id)
            except JobFileCorrupted as err:
                self._set_aside(job_id, err)
                continue
            if job is not None:
                jobs[job_id] = job
        self._aside = self.files.set_aside_files()
        return jobs

    def _set_aside(self, job_id: JobId, reason: JobFileCorrupted) -> None:
        try:
            place = f"the file is now {self.files.set_aside(job_id)}"
        except OSError as err:
            place = f"it cannot be renamed: {err.strerror}"
        logger.error("Job %s is lost: %s; %s", job_id, reason, place)

    def lost(self) -> dict[JobId, QueuedJob]:
        """Return records in place of the jobs whose files were set aside and still are there."""
        return {
            job_id: changes.lost(job_id, path)
            for job_id, path in self._aside.items()
            if os.path.lexists(path)
        }

    def _write_serial(self, serial: int) -> None:
        """Note the last id here, once for all jobs that came with it; called in threads."""
        with self._serial_lock:
            if serial <= self._serial_here:
                return
            try:
                self.files.write_serial(serial)
            except OSError as err:  # the next start derives it from the job files
                logger.warning("Cannot write the last job id: %s; ignoring", err)
            self._serial_here = serial

    def spread_serial_soon(self) -> None:
        """Have the candidates note the last id."""
        if self._serial_task is None:
            loop = asyncio.get_running_loop()
            self._serial_task = loop.call_later(1.0, self._spread_serial)

    def _spread_serial(self) -> None:
        self._serial_task = None
        serial = self.files.read_serial()
        self._replication.spread(self._paths.queue_serial, b"%d\n" % serial)

    def archive_here(self, job_id: JobId) -> None:
        """Move a job to the archive.

        Raises:
            JobQueueError: the disk does not allow that.
        """
        try:
            self.files.archive(job_id)
        except OSError as err:
            raise JobQueueError(f"cannot archive job {job_id}: {err.strerror}") from err

    async def archive_there(self, job_ids: Sequence[JobId]) -> None:
        """Let the candidates move jobs that are archived here."""
        await self._replication.archive(job_ids)

    async def set_drained(self, *, drained: bool, by: DrainedBy | None = None) -> None:
        """Set or remove the drained flag, here and on the candidates.

        Raises:
            JobQueueError: it cannot be written.
        """
        try:
            await asyncio.to_thread(self.files.set_drained, drained, by)
        except OSError as err:
            raise JobQueueError(f"cannot change the drained flag: {err.strerror}") from err
        await self._replication.tell_state(self._paths.queue_drain)
