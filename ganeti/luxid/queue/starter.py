"""Drives the scheduler: collects events, gives them to it, and carries out its decisions.

Events of one turn of the loop are handed in together.  A job is started by being given to a warm
process; one that could not be started goes back and is tried again after a while.  A job that is to
make room is asked by a signal, which its process honours while it waits for locks: then it leaves
the job in the queue, and the job is ours again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from ganeti.base.errors import GenericError, JobQueueError, OpExecError
from ganeti.base.ids import JobId
from ganeti.jobs import changes
from ganeti.jobs.merging import digest
from ganeti.jobs.record import QueuedJob
from ganeti.jobs.scheduler import (
    Added,
    Ended,
    Event,
    Moved,
    QueueState,
    Returned,
    SteppedBack,
    Stranded,
    Tired,
    schedule,
)
from ganeti.jobs.status import Status
from ganeti.jobs.submission import has_lost_secrets
from ganeti.logical_units.locks import slice_s
from ganeti.luxid.queue.follower import Follower
from ganeti.luxid.queue.job_process import ANSWER_TIMEOUT_S, JobProcess, ProcessGoneError
from ganeti.luxid.queue.job_store import JobStore
from ganeti.luxid.queue.known_jobs import KnownJob, KnownJobs, Phase
from ganeti.luxid.queue.metrics import QueueMetrics
from ganeti.luxid.queue.processes import ASSIGN_S_MAX, WARM_DEFAULT, Pool
from ganeti.luxid.queue.replication import CopiesMade
from ganeti.luxid.tasks import Tasks
from ganeti.protocol.job_start import Confirm
from ganeti.system.clock import timestamp
from ganeti.system.process_facts import catches

logger = logging.getLogger(__name__)

START_ATTEMPTS_MAX: Final = WARM_DEFAULT + 1  # all that wait ahead of need may hang
RETURN_DELAY_S: Final = 5.0
FIRST_TURN_S: Final = 0.2  # soon all who wait have tried, and a new job comes before them
# The scheduler is asked twice more for a job that comes alone, unless so many wait that this costs
# more than it saves.
_WAITING_MAX: Final = 1000
STEP_BACK_AGAIN_S: Final = 1.0  # a signal just before a system call begins may go unnoticed


@dataclass(eq=False, slots=True)
class JobStarter:
    """Starts jobs when their time has come, and while this node is the master for sure."""

    _known_jobs: KnownJobs
    _store: JobStore
    _pool: Pool
    _follower: Follower
    _tasks: Tasks
    _may_start: Callable[[], Awaitable[bool]]
    _may_start_at_once: Callable[[], bool]
    _metrics: QueueMetrics
    _events: list[Event] = field(default_factory=list)
    _turns: dict[JobId, asyncio.TimerHandle] = field(default_factory=dict)
    _is_stopping: bool = False
    state: QueueState = field(default_factory=QueueState)

    def tell(self, event: Event) -> None:
        """Take note of an event; it is acted upon in this turn of the loop."""
        if not self._events:
            asyncio.get_running_loop().call_soon(self._act)
        self._events.append(event)

    def stop(self) -> None:
        """Start no more jobs."""
        self._is_stopping = True

    def on_ended(self, known: KnownJob) -> None:
        """Take note that a job has a final status on disk."""
        self._end_turn(known.job.id)
        self._metrics.ended(known.job)
        self.tell(Ended(known.job.id, known.job.status))

    def on_moved(self, known: KnownJob) -> None:
        """Take note of what a job's process does now, and that it has put the job back."""
        job = known.job
        if known.phase is Phase.QUEUED:
            self._end_turn(job.id)
            known.turns += 1
            self._store.put_back(job)
            self._store.on_ended(job.id, known.lagging)
            self.tell(SteppedBack(job.id, job.priority))
            return
        # A process has the only copy of its job's secrets.
        may_leave = job.status is Status.WAITING and not has_lost_secrets(job)
        if not may_leave:
            self._end_turn(job.id)
        elif job.id not in self._turns:
            loop = asyncio.get_running_loop()
            turn_s = slice_s(known.turns - 1) if known.turns else FIRST_TURN_S
            self._turns[job.id] = loop.call_later(turn_s, self.tell, Tired(job.id))
        self.tell(Moved(job.id, job.priority, may_leave))

    def _end_turn(self, job_id: JobId) -> None:
        timer = self._turns.pop(job_id, None)
        if timer is not None:
            timer.cancel()

    async def _ask_to_step_back(self, job_id: JobId) -> None:
        """Ask until the job has left its process, ended or got its locks."""
        while job_id in self.state.leaving and not self._is_stopping:
            known = self._known_jobs.get(job_id)
            if known is None:
                return
            pid = known.job.process_id
            try:
                if pid is not None and not catches(pid, signal.SIGUSR2):
                    # A process of another release, which the signal would end.
                    self.tell(Moved(job_id, known.job.priority, may_leave=False))
                    return
                self._follower.send_signal(known, signal.SIGUSR2)
            except OSError as err:
                logger.warning("Cannot ask job %s to step back: %s; trying again", job_id, err)
            await known.changes_within(STEP_BACK_AGAIN_S)
            await asyncio.sleep(0)  # the scheduler hears of it first

    async def end_queued(self, known: KnownJob, ended: QueuedJob) -> None:
        """End a job that waits in the queue; the caller holds its turn.

        Raises:
            JobQueueError: that could not be made durable.
        """
        await self._store.save(ended)
        known.set_phase(Phase.ENDED)
        known.set_job(ended)
        self._follower.forget_log(ended.id)
        self.on_ended(known)

    def _act(self, own: JobId | None = None) -> None:
        """Act upon the events; the caller starts its ``own`` job itself."""
        events, self._events = self._events, []
        if self._is_stopping:
            return
        before = self.state.blocked
        self.state, decisions = schedule(self.state, events)
        for job_id in before.keys() ^ self.state.blocked.keys():
            if (found := self._known_jobs.get(job_id)) is not None:
                found.set_blocked(job_id in self.state.blocked)
        for job_id in decisions.start:
            if job_id != own:
                self._tasks.create_task(self._start(job_id), name=f"start job {job_id}")
        for job_id in decisions.step_back:
            self._tasks.create_task(self._ask_to_step_back(job_id), name=f"step back, {job_id}")
        for stranded in decisions.stranded:
            known = self._known_jobs.get(stranded.job_id)
            if known is not None:
                self.end_soon(known, functools.partial(_ended_with, stranded))

    def end_soon(self, known: KnownJob, end: Callable[[QueuedJob], QueuedJob]) -> None:
        """Have a job end that waits in the queue, as soon as that can be made durable.

        Args:
            end: makes the last record from the one before.
        """
        self._tasks.create_task(self._end(known, end), name=f"end job {known.job.id}")

    async def _end(self, known: KnownJob, end: Callable[[QueuedJob], QueuedJob]) -> None:
        async with known.turn:
            while known.phase is Phase.QUEUED and not self._is_stopping:
                try:
                    await self.end_queued(known, end(known.job))
                except JobQueueError as err:
                    logger.warning("Cannot end job %s: %s; trying again", known.job.id, err)
                    known.trouble = f"it ends, which cannot be recorded: {err.message}"
                    await asyncio.sleep(RETURN_DELAY_S)

    # Start.

    async def start_new(
        self, known: KnownJob, find_added: Callable[[QueuedJob], Added], last_id: int
    ) -> bool:
        """Start a job that is not in the queue yet, if it can start now.

        The start record is its first one: it makes the job durable, too, and saves the round that
        the record of a job that waits would take.

        Args:
            find_added: returns the event of its arrival, as things stand then.
            last_id: the last id of the queue, which becomes durable with it.

        Returns:
            Whether it is in the queue now, and runs; else nothing has happened.

        Raises:
            JobQueueError: it is not durable.
        """
        if not (self._pool.has_warm() and self._starts_at_once(find_added(known.job))):
            return False
        try:
            process = await self._engage(known.job.id, attempts=1)
        except ProcessGoneError:
            return False
        try:
            added = find_added(known.job)  # the filters may be others meanwhile
        except BaseException:
            process.drop()
            raise
        if not self._starts_at_once(added):  # others came meanwhile
            process.drop()
            return False
        self._events.append(added)
        self._act(own=known.job.id)
        async with known.turn:
            known.set_phase(Phase.STARTING)
            try:
                await self._start_in(process, known, last_id)
            except BaseException:
                if known.phase is Phase.STARTING:  # or its place would be taken for ever
                    self.tell(Ended(known.job.id, Status.ERROR))
                raise
        return True

    def _starts_at_once(self, added: Added) -> bool:
        is_long = len(self.state.waiting) > _WAITING_MAX
        if self._is_stopping or is_long or not self._may_start_at_once():
            return False
        _state, decisions = schedule(self.state, [*self._events, added])
        return added.job.id in decisions.start

    async def _start(self, job_id: JobId) -> None:
        known = self._known_jobs.get(job_id)
        if known is None:
            self.tell(Ended(job_id, Status.CANCELED))
            return
        async with known.turn:
            if known.phase is not Phase.QUEUED or self._is_stopping:
                return  # it was canceled meanwhile, and the scheduler told so
            known.set_phase(Phase.STARTING)
            try:
                if not await self._may_start():
                    raise OpExecError("nothing says that this node is still the master")
                await self._hand_over(known)
            except GenericError as err:
                logger.warning("Job %s cannot be started now: %s", job_id, err)
                known.set_phase(Phase.QUEUED)
                asyncio.get_running_loop().call_later(RETURN_DELAY_S, self.tell, Returned(job_id))

    async def _hand_over(self, known: KnownJob) -> None:
        """Give the job to a process: the steps of invariant 1.

        Raises:
            ProcessGoneError: no process can be had.
            JobQueueError: the start record is not durable; the job is in the queue as before.
        """
        queued = known.job
        process = await self._engage(queued.id, START_ATTEMPTS_MAX)
        try:
            await self._start_in(process, known)
        except BaseException:
            if known.phase is Phase.STARTING:
                self._store.put_back(queued)
            raise

    async def _engage(self, job_id: JobId, attempts: int) -> JobProcess:
        """Return a process that holds the lock file of the job; it has not started.

        Raises:
            ProcessGoneError: no process can be had.
        """
        for left in reversed(range(attempts)):
            process = await self._pool.take()
            try:
                is_last = not left and attempts > 1
                await process.assign(job_id, ANSWER_TIMEOUT_S if is_last else ASSIGN_S_MAX)
            except ProcessGoneError as err:
                self._pool.end(process)
                logger.warning("Job %s, %d attempts left: %s", job_id, left, err)
            else:
                return process
        raise ProcessGoneError(f"{attempts} job processes ended at once")

    async def _start_in(
        self, process: JobProcess, known: KnownJob, last_id: int | None = None
    ) -> None:
        """Record the start, and then let the process run the job.

        Args:
            last_id: given for a job that is not in the queue yet.

        Raises:
            JobQueueError: the start record is not durable; the process ends without having started.
        """
        queued = known.job
        started = changes.handed_over(
            queued, livelock=process.livelock, process_id=process.pid, now=timestamp()
        )
        try:
            known.lagging = await self._store.save_start(started, last_id)
        except BaseException:
            process.drop()
            raise
        known.brought = ""
        secrets, known.secrets = known.secrets, ()
        known.set_phase(Phase.RUNNING)
        known.set_job(started)
        if last_id is not None:
            self._known_jobs.take_in(known)
        if queued.start_timestamp is None:  # it has not stepped back
            self._metrics.started(started)
        self._follower.follow(known)
        self.on_moved(known)
        logger.info("Job %s starts in process %s", queued.id, process.pid)
        try:
            await process.confirm(Confirm(secrets, known.lagging, known.turns))
        except ProcessGoneError as err:
            logger.warning("Job %s: %s", queued.id, err)
            process.drop()
            self._follower.check_soon(queued.id)
            return
        self._tasks.create_task(
            process.serve_copies(
                functools.partial(self._bring, known, process.livelock),
                functools.partial(self._spread, known, process.livelock),
            ),
            name=f"copies of job {queued.id}",
        )

    async def _bring(
        self, known: KnownJob, livelock: str, data: bytes, wait_s: float
    ) -> CopiesMade:
        """Copy what a process wrote, and tell which candidates have it.

        Raises:
            ProcessGoneError: the job has left it: that copy would overtake ours.
        """
        if not _is_in(known, livelock):
            raise ProcessGoneError(f"job {known.job.id} has left its process")
        known.brought = digest(data)
        return await self._store.bring(known.job.id, data, wait_s)

    def _spread(self, known: KnownJob, livelock: str, data: bytes) -> None:
        """Copy what a process wrote, unless the job has left it, as in `_bring`."""
        if _is_in(known, livelock):
            known.brought = digest(data)
            self._store.spread(known.job.id, data)


def _is_in(known: KnownJob, livelock: str) -> bool:
    """Tell whether a job is still in the process with this lock file."""
    return known.phase is Phase.RUNNING and known.job.livelock == livelock


def _ended_with(stranded: Stranded, job: QueuedJob) -> QueuedJob:
    """Return a job that ended because of the end of one that it depends on."""
    if stranded.status is Status.CANCELED:
        return changes.canceled(job, stranded.reason, timestamp())
    return changes.failed(job, OpExecError(stranded.reason), timestamp())
