"""The LUXI methods that change jobs in the queue: cancel, hurry, archive; and drain the queue."""

from __future__ import annotations

import asyncio
import logging
import signal
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.jobs import changes
from ganeti.jobs.merging import PRIORITY_NOTE
from ganeti.jobs.record import PRIORITY_LEAST_URGENT, PRIORITY_MOST_URGENT, QueuedJob
from ganeti.jobs.scheduler import PriorityChanged
from ganeti.jobs.status import Status
from ganeti.logical_units.context import LOG_MESSAGE
from ganeti.luxid.queue.archive import archive
from ganeti.luxid.queue.follower import Follower, priority_message
from ganeti.luxid.queue.job_store import JobStore
from ganeti.luxid.queue.known_jobs import KnownJob, KnownJobs, Phase
from ganeti.luxid.queue.starter import JobStarter
from ganeti.luxid.queue.submission import Submissions
from ganeti.protocol.luxi import DrainedBy, as_job_id, is_kill
from ganeti.system import clock, files
from ganeti.system.clock import timestamp

logger = logging.getLogger(__name__)

CANCELED_TEXT: Final = "Job canceled by request"
_PRIORITY_TEXT: Final = "Priorities of pending opcodes for job {} have been changed"
CANCEL_TIMEOUT_S: Final = 10.0
TURN_S_MAX: Final = 10.0  # for a job that is being started or ended; a full disk lasts longer

Outcome = tuple[bool, str]


@dataclass(eq=False, slots=True)
class JobCommands:
    """Handlers of calls, declared in `ganeti.protocol.luxi`; each changes a job in its turn."""

    _paths: Paths
    _known_jobs: KnownJobs
    _store: JobStore
    _submissions: Submissions
    _starter: JobStarter
    _follower: Follower

    # Cancel.

    async def cancel_job(self, job_id: int | str, kill: bool | list[bool] | None) -> Outcome:
        """Cancel a job; returns whether it will end by that, and a text for the user.

        Raises:
            JobLost: no such job.
            JobQueueError: it cannot be changed now; nothing was.
        """
        known = self._known_jobs.require(as_job_id(job_id))
        async with known.turn_within(TURN_S_MAX):
            if known.phase is Phase.QUEUED:
                ended = changes.canceled(known.job, CANCELED_TEXT, timestamp())
                await self._starter.end_queued(known, ended)
                logger.info("Job %s canceled", known.job.id)
                return True, f"Job {known.job.id} canceled"
        # From here on the job is its process's: no turn is needed to ask that.
        if known.phase is Phase.ENDED:
            return False, f"Job {known.job.id} has ended already, in {known.job.status}"
        return await (self._kill(known) if is_kill(kill) else self._ask_to_let_go(known))

    async def _ask_to_let_go(self, known: KnownJob) -> Outcome:
        """Ask the process to end; one that works does so at its next wait, and undoes its work."""
        job_id = known.job.id
        works_already = known.job.status is Status.RUNNING

        def send() -> None:
            self._follower.send_signal(known, signal.SIGTERM)

        def is_decided() -> bool:
            has_begun = known.job.status is Status.RUNNING and not works_already
            return known.phase is not Phase.RUNNING or has_begun

        send()
        await known.wait_for(is_decided, CANCEL_TIMEOUT_S, again=send)
        if known.phase is Phase.QUEUED:  # it made room for another job just then
            return await self.cancel_job(job_id, None)
        if known.job.status is Status.CANCELED:
            logger.info("Job %s canceled while it %s", job_id, "ran" if works_already else "waited")
            return True, f"Job {job_id} canceled"
        if known.phase is Phase.ENDED:
            return False, f"Job {job_id} ended meanwhile, in {known.job.status}"
        if known.job.status is Status.RUNNING:
            return True, (
                f"Job {job_id} is running and was asked to end: it does when it waits next, and"
                " undoes what it has begun; --kill ends it at once, by force"
            )
        return True, f"Job {job_id} will be canceled"

    async def _kill(self, known: KnownJob) -> Outcome:
        job_id = known.job.id
        if not self._follower.send_signal(known, signal.SIGKILL):
            self._follower.check_soon(job_id)
        await known.wait_for(lambda: known.phase is not Phase.RUNNING, CANCEL_TIMEOUT_S)
        if known.phase is Phase.QUEUED:
            return await self.cancel_job(job_id, None)
        logger.warning("Job %s killed on request", job_id)
        if known.phase is not Phase.ENDED:
            return False, f"Job {job_id} cannot be killed: its process does not end"
        return True, f"Job {job_id} killed; it ended in {known.job.status}"

    # Priority.

    async def change_job_priority(self, job_id: int | str, priority: int) -> Outcome:
        """Change the priority of the opcodes of a job that have not begun.

        Raises:
            JobLost: no such job.
            JobQueueError: it cannot be changed now; nothing was.
            OpPrereqError: no such priority.
        """
        if not PRIORITY_MOST_URGENT <= priority <= PRIORITY_LEAST_URGENT:
            raise OpPrereqError(
                f"priority {priority} is not between {PRIORITY_MOST_URGENT} (most urgent) and"
                f" {PRIORITY_LEAST_URGENT}"
            )
        known = self._known_jobs.require(as_job_id(job_id))
        async with known.turn_within(TURN_S_MAX):
            if known.phase is Phase.QUEUED:
                changed = _with_priority(known.job, priority)
                await self._store.save(changed)
                known.set_job(changed)
                self._starter.tell(PriorityChanged(known.job.id, priority))
                return True, _PRIORITY_TEXT.format(known.job.id)
        if known.phase is Phase.ENDED:
            return False, f"Job {known.job.id} is finished"
        return await self._tell_priority(known, priority)

    async def _tell_priority(self, known: KnownJob, priority: int) -> Outcome:
        """Pass the priority on to the process of the job."""
        job_id = known.job.id
        path = priority_message(self._paths, job_id)
        files.ensure_directory(self._paths.luxid_message_dir)
        await asyncio.to_thread(files.write_atomic, path, b"%d\n" % priority)

        def send() -> None:
            self._follower.send_signal(known, signal.SIGUSR1)

        def is_taken() -> bool:
            return known.phase is not Phase.RUNNING or known.job.priority == priority

        if known.phase is Phase.RUNNING and not self._follower.is_alive(known.job):
            return False, f"The process of job {job_id} does not live any more"
        send()
        if known.job.status is Status.WAITING:
            await known.wait_for(is_taken, CANCEL_TIMEOUT_S, again=send)
        if known.phase is Phase.QUEUED:
            return await self.change_job_priority(job_id, priority)
        return True, _PRIORITY_TEXT.format(job_id)

    # Archive.

    async def archive_job(self, job_id: int | str) -> bool:
        """Move an ended job to the archive; returns whether that was done.

        Raises:
            JobQueueError: the disk does not allow that.
        """
        known = self._known_jobs.get(as_job_id(job_id))
        if known is None or known.phase is not Phase.ENDED:
            return False
        await archive(self._known_jobs, self._store, [known])
        return True

    async def auto_archive_jobs(self, age_s: int, timeout_s: int) -> tuple[int, int]:
        """Archive the jobs that ended so long ago (-1: all ended); oldest first.

        Returns:
            How many were archived, and how many there was no time to look at.
        """
        now = clock.now()
        deadline = clock.monotonic() + timeout_s
        ended = self._known_jobs.in_phase(Phase.ENDED)
        old = [known for known in ended if age_s < 0 or _age_s(known.job, now) >= age_s]
        done = await archive(self._known_jobs, self._store, old, deadline)
        return done, len(old) - done

    # The queue.

    async def pickup_job(self, job_id: int | str) -> object:
        """Refuse: no other daemon ever gives a job to this one."""
        raise GenericError(f"job {job_id} cannot be picked up: LuxiD has the queue itself")

    async def set_drain_flag(self, flag: bool, by: DrainedBy | None = None) -> bool:
        """Let the queue take new jobs, or none; that lasts over a restart."""
        await self._store.set_drained(drained=flag, by=by)
        self._submissions.is_drained = flag
        return True


def _with_priority(job: QueuedJob, priority: int) -> QueuedJob:
    """Return a job of the queue with another priority.

    By the log entry it is known as the newer record, wherever a master that takes over finds both.
    """
    assert job.current_index is not None, "it is in the queue"
    text = f"{PRIORITY_NOTE}{priority} now"
    told = changes.with_log_entry(job, job.current_index, LOG_MESSAGE, text, timestamp())
    return changes.with_priority(told, priority)


def _age_s(job: QueuedJob, now: float) -> float:
    stamp = job.end_timestamp or job.start_timestamp or job.received_timestamp or (0, 0)
    return now - stamp[0]
