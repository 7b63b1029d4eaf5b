"""Follows the jobs that run: reads their files, and finds the dead.

Whether a job process lives is decided by its lock file alone: first the lock is found free, then
the file is read; if that names no end, the job died.  The end of a process, a lock file that
disappears and a slow sweep are only prompts to look.

Source: ARCHITECTURE, invariant 2.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ganeti.base.errors import GenericError, JobFileCorrupted, JobQueueError, OpExecError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.jobs import changes
from ganeti.jobs.record import QueuedJob, decode_log_lines
from ganeti.luxid.queue.job_store import JobStore
from ganeti.luxid.queue.known_jobs import KnownJob, KnownJobs, Phase, phase_of
from ganeti.luxid.tasks import Tasks
from ganeti.store.job_files import running_log
from ganeti.system import files
from ganeti.system.clock import timestamp
from ganeti.system.filelock import is_alive
from ganeti.system.inotify import Kind
from ganeti.system.process_facts import ExitWatcher

logger = logging.getLogger(__name__)

SWEEP_S: Final = 1.0  # a dead job is to be found within 2 s even if no prompt comes
DIED_TEXT: Final = "Job process died"
_RETRY_S: Final = 2.0  # until what could not be read or written is tried again
_READS_MAX: Final = 3  # of a file that is damaged, or on a disk that returns errors
_LOGS_EVERY_S: Final = 0.05  # a job that talks without end is listened to now and then
_LOG_BYTES_MAX: Final = 16 << 20  # more than a job may write


def priority_message(paths: Paths, job_id: JobId) -> str:
    """Return the file in which a job process finds a new priority."""
    return f"{paths.luxid_message_dir}/{job_id}.prio"


@dataclass(eq=False, slots=True)
class Follower:
    """Watches over the running jobs."""

    _paths: Paths
    _known_jobs: KnownJobs
    _store: JobStore
    _exits: ExitWatcher
    _tasks: Tasks
    _on_ended: Callable[[KnownJob], None]
    _on_moved: Callable[[KnownJob], None]
    _checking: set[JobId] = field(default_factory=set)
    _dirty: set[JobId] = field(default_factory=set)
    _log_offsets: dict[JobId, int] = field(default_factory=dict)
    _talking: set[JobId] = field(default_factory=set)
    _logs_not_before: float = 0.0
    _unwatched: set[JobId] = field(default_factory=set)
    _has_jobs: asyncio.Event = field(default_factory=asyncio.Event)

    def follow(self, known: KnownJob) -> None:
        """Begin to watch the process of a job."""
        self._has_jobs.set()
        self._read_log(known)  # of an earlier LuxiD's time
        self._watch(known)

    def _watch(self, known: KnownJob) -> None:
        """Have the end of a job's process prompt a look; what fails now the sweep tries again."""
        job_id, pid = known.job.id, known.job.process_id
        try:
            if pid is None or not self._exits.watch(pid, lambda: self.check_soon(job_id)):
                self.check_soon(job_id)
        except OSError as err:
            logger.warning("Cannot watch process %s of job %s: %s; trying again", pid, job_id, err)
            self._unwatched.add(job_id)
        else:
            self._unwatched.discard(job_id)

    def send_signal(self, known: KnownJob, number: signal.Signals) -> bool:
        """Send a signal to the process of a job; returns whether it was there to get it.

        Raises:
            OSError: nobody can tell at the moment.
        """
        pid = known.job.process_id
        return pid is not None and self.is_alive(known.job) and self._exits.signal(pid, number)

    def is_alive(self, job: QueuedJob) -> bool:
        """Tell whether the process of a job lives, here and not on another node.

        Raises:
            OSError: nobody can tell at the moment.
        """
        if job.livelock is None or os.path.dirname(job.livelock) != self._paths.livelock_dir:
            return False
        return is_alive(job.livelock)

    async def sweep(self) -> None:
        """Look after all running jobs, for ever; sleep while there are none."""
        while True:
            await self._has_jobs.wait()
            await asyncio.sleep(SWEEP_S)
            running = self._known_jobs.in_phase(Phase.RUNNING)
            if not running:
                self._has_jobs.clear()
            self._look_after(running)

    def _look_after(self, running: Sequence[KnownJob]) -> None:
        failure: OSError | None = None
        for known in running:
            try:
                if not self.is_alive(known.job):
                    self.check_soon(known.job.id)
                elif known.job.id in self._unwatched:
                    self._watch(known)
            except OSError as err:
                failure = err
        if failure is not None:
            logger.warning("Cannot tell whether all jobs live: %s; trying again", failure)

    def on_livelock_event(self, name: str, _kind: str) -> None:
        """Take note of a lock file that disappeared."""
        for known in self._known_jobs.in_phase(Phase.RUNNING):
            if not name or os.path.basename(known.job.livelock or "") == name:
                self.check_soon(known.job.id)

    # The job's file.

    def on_file_changed(self, job_id: JobId) -> None:
        """Take note of a new version of a job file; it is read soon, with others."""
        if not self._dirty:
            asyncio.get_running_loop().call_soon(self._read_dirty)
        self._dirty.add(job_id)

    def on_overflow(self) -> None:
        """Read the files of all running jobs: events were lost."""
        for known in self._known_jobs.in_phase(Phase.RUNNING):
            self.on_file_changed(known.job.id)
            self._on_log_line(known.job.id)

    def _read_dirty(self) -> None:
        dirty, self._dirty = self._dirty, set()
        for job_id in dirty:
            known = self._known_jobs.get(job_id)
            if known is not None and known.phase is Phase.RUNNING:
                try:
                    self._read(known)
                except (JobFileCorrupted, OSError) as err:
                    logger.warning("Cannot read the file of job %s: %s", job_id, err)

    def _read(self, known: KnownJob) -> None:
        """Take over the record that the job process wrote.

        Raises:
            JobFileCorrupted: it cannot be understood.
            OSError: it cannot be read at the moment.
        """
        job = self._store.read(known.job.id)
        if job is not None:
            job = changes.with_log_lines(job, changes.log_lines(known.job))
            if job != known.job:
                known.set_job(job)
        if known.job.is_final:
            self._end(known)
            return
        if phase_of(known.job) is Phase.QUEUED:
            known.set_phase(Phase.QUEUED)
        self._on_moved(known)

    # The lines of its log that are not in the file yet.

    def on_log_event(self, name: str, kind: Kind) -> None:
        """Take note of another log line of a job."""
        number, _, suffix = name.rpartition(".")
        if kind != "overflow" and suffix == "log" and number.isdecimal():
            self._on_log_line(JobId(int(number)))

    def _on_log_line(self, job_id: JobId) -> None:
        if not self._talking:
            loop = asyncio.get_running_loop()
            loop.call_at(max(loop.time(), self._logs_not_before), self._read_logs)
        self._talking.add(job_id)

    def _read_logs(self) -> None:
        talking, self._talking = self._talking, set()
        for job_id in talking:
            known = self._known_jobs.get(job_id)
            if known is not None and known.phase is Phase.RUNNING:
                self._read_log(known)
        self._logs_not_before = asyncio.get_running_loop().time() + _LOGS_EVERY_S

    def _read_log(self, known: KnownJob) -> None:
        """Take over log lines that the job process appended."""
        job_id = known.job.id
        offset = self._log_offsets.get(job_id, 0)
        try:
            data = files.read_regular(running_log(self._paths, job_id), _LOG_BYTES_MAX, offset)
        except (GenericError, OSError) as err:
            logger.warning("Cannot read the log of job %s: %s", job_id, err)
            return
        end = (data or b"").rfind(b"\n") + 1
        if data and end:
            self._log_offsets[job_id] = offset + end
            job = changes.with_log_lines(known.job, decode_log_lines(data[:end]))
            if job is not known.job:
                known.set_job(job)

    def remove_old_logs(self) -> None:
        """Remove what processes left that were killed after the end of their jobs."""
        for name in os.listdir(self._paths.luxid_message_dir):
            number, _, suffix = name.rpartition(".")
            known = self._known_jobs.get(JobId(int(number))) if number.isdecimal() else None
            if suffix == "log" and (known is None or known.phase is not Phase.RUNNING):
                files.remove_if_exists(f"{self._paths.luxid_message_dir}/{name}")

    def forget_log(self, job_id: JobId) -> None:
        """Remove the log lines beside the file of a job that ended.

        Its process does so itself, unless only an earlier process of the job had something to log.
        """
        self._log_offsets.pop(job_id, None)
        files.remove_if_exists(running_log(self._paths, job_id))

    def _end(self, known: KnownJob) -> None:
        known.set_phase(Phase.ENDED)
        self._unwatched.discard(known.job.id)
        logger.info("Job %s ended: %s", known.job.id, known.job.status)
        self._on_ended(known)
        self.forget_log(known.job.id)

    # Death.

    def check_soon(self, job_id: JobId) -> None:
        """Look whether a job died, unless that is being done."""
        if job_id not in self._checking:
            self._checking.add(job_id)
            self._tasks.create_task(self._check(job_id), name=f"look after job {job_id}")

    async def _check(self, job_id: JobId) -> None:
        try:
            known = self._known_jobs.get(job_id)
            if known is None:
                return
            async with known.turn:
                if not await self._is_found_dead(known):
                    return
                if known.phase is Phase.RUNNING:
                    self._read_log(known)
                    await self._record_death(known)
                self._remove_lock_of(known.job)
        finally:
            self._checking.discard(job_id)

    async def _is_found_dead(self, known: KnownJob) -> bool:
        """Tell whether the process of a job died, and take over the last record that it wrote.

        What cannot be found out at the moment is tried again, a file that is damaged only a few
        times: to record a death would overwrite the end that the job may have had.
        """
        reads = 0
        while True:
            try:
                return self._look(known)
            except JobFileCorrupted as err:
                reads += 1
                if reads == _READS_MAX:
                    return True
                trouble = err.message
            except OSError as err:
                trouble = str(err)
            logger.warning("Cannot tell how job %s ended: %s; trying again", known.job.id, trouble)
            known.trouble = f"nobody can tell how it ended: {trouble}"
            await asyncio.sleep(_RETRY_S)
            known.trouble = ""

    def _look(self, known: KnownJob) -> bool:
        if self.is_alive(known.job):
            return False
        if known.phase is Phase.RUNNING:
            self._read(known)  # the lock was found free first
        return True

    def _remove_lock_of(self, job: QueuedJob) -> None:
        """Remove the lock file that a dead process left; WConfD does if it knew the job."""
        if job.livelock and os.path.dirname(job.livelock) == self._paths.livelock_dir:
            files.remove_if_exists(job.livelock)

    async def _record_death(self, known: KnownJob) -> None:
        """Mark a job whose process died as failed."""
        logger.warning("The process of job %s died", known.job.id)
        failed = changes.failed(known.job, OpExecError(DIED_TEXT), timestamp())
        while True:
            try:
                # A new master that does not get this copy will find the job dead by itself.
                await self._store.save(failed, alone_is_enough=True)
                break
            except JobQueueError as err:
                logger.warning("Cannot record that job %s died: %s", known.job.id, err)
                known.trouble = f"its process died, which cannot be recorded: {err.message}"
                await asyncio.sleep(_RETRY_S)
        files.remove_if_exists(priority_message(self._paths, failed.id))
        if known.phase is Phase.RUNNING:  # else the event of that very write was faster
            known.set_job(failed)
            self._end(known)
