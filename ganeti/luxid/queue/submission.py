"""Takes jobs in: checked, numbered, durable, and only then known to anybody."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from ganeti.base.errors import (
    QUEUE_DRAINED,
    GenericError,
    JobQueueError,
    JobQueueFull,
    OpExecError,
    OpPrereqError,
)
from ganeti.base.ids import JobId
from ganeti.jobs import changes
from ganeti.jobs.record import QueuedJob
from ganeti.jobs.scheduler import Added, Ended, HoldsChanged, Running, WaitingJob, held_by
from ganeti.jobs.status import FINAL, Status
from ganeti.jobs.submission import (
    QUEUE_LENGTH_MAX,
    Submission,
    check_known,
    check_submission,
    dependencies_of,
    has_lost_secrets,
    make_job,
    resolve_relative,
)
from ganeti.luxid.queue.archive import archive
from ganeti.luxid.queue.filters import FREE, JobFilters, Verdict, limits_of, rejection_text
from ganeti.luxid.queue.follower import Follower
from ganeti.luxid.queue.job_store import JobStore
from ganeti.luxid.queue.known_jobs import KnownJob, KnownJobs, Phase, phase_of
from ganeti.luxid.queue.starter import JobStarter
from ganeti.luxid.slices import SLICE_S
from ganeti.luxid.tasks import Tasks
from ganeti.system import clock
from ganeti.system.clock import timestamp

logger = logging.getLogger(__name__)

OpCodes = Sequence[Mapping[str, object]]
T = TypeVar("T")

SECRETS_LOST_TEXT: Final = (
    "the job has secret parameters, which are kept in memory only, and LuxiD was restarted before"
    " the job began; submit it again"
)
_TURN_S_MAX: Final = 0.01  # for the jobs of one message; then other clients get their turn
_ROOM: Final = QUEUE_LENGTH_MAX // 10  # jobs that a full queue archives at once, so it is rare
# The time for new rules at once; usual ones judge all jobs of a full queue in that time.
FILTERS_S_MAX: Final = 0.25


class Submissions:
    """The door of the queue."""

    def __init__(
        self,
        known_jobs: KnownJobs,
        store: JobStore,
        starter: JobStarter,
        follower: Follower,
        tasks: Tasks,
    ) -> None:
        self.is_drained = store.files.is_drained()
        self.filters = JobFilters()
        self.last_id = 0
        self._known_jobs = known_jobs
        self._store = store
        self._starter = starter
        self._follower = follower
        self._tasks = tasks
        self._unsaved: dict[JobId, KnownJob] = {}
        self._making_room = asyncio.Lock()

    # At start.

    def load(self) -> None:
        """Read the queue: jobs that wait will run, jobs that run are followed."""
        jobs = self._store.load()
        self.last_id = max([self._store.files.last_id(), *jobs])
        for job in jobs.values():
            self._known_jobs.add(KnownJob(job, phase_of(job)))
        for known in self._known_jobs.in_phase(Phase.RUNNING):
            job = known.job
            hold = self.filters.judge(job).hold
            self._starter.tell(Running(job.id, hold, job.priority, limits_of(job)))
            self._starter.on_moved(known)
            self._follower.follow(known)
            self._follower.check_soon(known.job.id)
        for known in self._known_jobs.in_phase(Phase.QUEUED):
            self._take_back(known)
        logger.info("The queue has %s jobs, the last id is %s", len(jobs), self.last_id)

    def _take_back(self, known: KnownJob) -> None:
        """Put a job that waits back into the scheduler after a restart."""
        if has_lost_secrets(known.job):
            self._refuse_late(known, OpExecError(SECRETS_LOST_TEXT))
        else:
            self._enter(known)

    def _enter(self, known: KnownJob) -> None:
        """Let the scheduler have a job, with its dependencies as they stand now."""
        try:
            self._starter.tell(self._added(known.job))
        except OpPrereqError as err:  # a job that it depends on is gone meanwhile
            self._refuse_late(known, err)

    def _refuse_late(self, known: KnownJob, error: GenericError) -> None:
        self._starter.end_soon(known, lambda job: changes.failed(job, error, timestamp()))

    def set_filters(self, filters: JobFilters) -> None:
        """Take other job filters: jobs that wait are held back, let go or refused by them.

        Jobs that are not durable yet may have a process: they are held back as well, not refused.
        All that happens at once, unless the rules are so costly that others would wait.
        """
        if not filters and not self.filters:
            return
        self.filters = filters
        verdicts: dict[JobId, Verdict] = {}
        if self._judge_some(filters, verdicts, FILTERS_S_MAX):
            self._apply(verdicts)
        else:
            self._tasks.create_task(self._judge_rest(filters, verdicts), name="job filters")

    def _judge_some(
        self, filters: JobFilters, verdicts: dict[JobId, Verdict], seconds: float
    ) -> bool:
        """Judge jobs for so long; returns whether all are."""
        deadline = clock.monotonic() + seconds
        for known in self._all():
            if known.phase is Phase.ENDED or known.job.id in verdicts:
                continue
            if clock.monotonic() >= deadline:
                return False
            verdicts[known.job.id] = filters.judge(known.job)
        return True

    async def _judge_rest(self, filters: JobFilters, verdicts: dict[JobId, Verdict]) -> None:
        while self.filters is filters:  # otherwise newer ones take over
            if self._judge_some(filters, verdicts, SLICE_S):
                self._apply(verdicts)
                return
            await asyncio.sleep(0)

    def _all(self) -> Iterator[KnownJob]:
        """Return all jobs, those that are not durable yet included."""
        return itertools.chain(self._known_jobs, self._unsaved.values())

    def _apply(self, verdicts: Mapping[JobId, Verdict]) -> None:
        holds = {}
        for known in self._all():
            verdict = verdicts.get(known.job.id, FREE)
            if known.phase is Phase.ENDED:
                continue
            if verdict.hold is not None:
                holds[known.job.id] = verdict.hold
            is_queued = known.phase is Phase.QUEUED and known.job.id not in self._unsaved
            if verdict.rejected_by is not None and is_queued:
                self._reject_late(known, f"Job {rejection_text(verdict.rejected_by)}")
        self._starter.tell(HoldsChanged(holds))

    def held_by(self, job_id: JobId) -> str | None:
        """Return the job filter that holds a job back now, or None."""
        return held_by(self._starter.state, job_id)

    def _reject_late(self, known: KnownJob, text: str) -> None:
        self._starter.end_soon(known, lambda job: changes.canceled(job, text, timestamp()))

    # Submission.

    async def submit(
        self, jobs: Sequence[OpCodes], *, even_if_drained: bool = False
    ) -> list[JobId | GenericError]:
        """Take jobs in; each is durable now, or refused by the error in its place.

        None of them starts before all are durable: a client that sends many waits for the answer.

        Raises:
            OpCodeUnknown, OpPrereqError: one of them is no valid job; nothing was submitted.
        """
        checked = [_checked(jobs, position) async for position in _in_turns(range(len(jobs)))]
        if self.is_drained and not even_if_drained:
            return [GenericError(QUEUE_DRAINED)] * len(jobs)
        made = await self._make_all(checked)
        if any(isinstance(each, KnownJob) for each in made):
            self._store.spread_serial_soon()
        if len(made) == 1 and isinstance(alone := made[0], KnownJob):
            return [await self._take_in(alone)]
        answers = list(await asyncio.gather(*map(self._save, made)))
        for each, answer in zip(made, answers, strict=True):
            if isinstance(each, KnownJob) and answer == each.job.id:
                self._enter_unless_ended(each)
        return answers

    def pass_over(self, job_id: int) -> None:
        """Give new jobs higher ids than this one."""
        self.last_id = max(self.last_id, job_id)

    async def _make_all(self, checked: Sequence[Submission]) -> list[KnownJob | GenericError]:
        """Give valid jobs their numbers, as `_make`; all of them, or there is an error of ours."""
        made: list[KnownJob | GenericError] = []
        earlier: list[JobId | None] = []
        try:
            async for submission in _in_turns(checked):
                try:
                    if self._is_full():
                        await self._make_room()
                    known = self._make(submission, earlier)
                except GenericError as err:
                    made.append(err)
                    earlier.append(None)
                else:
                    made.append(known)
                    earlier.append(known.job.id)
        except BaseException:
            for job_id in filter(None, earlier):  # or they would count as jobs for ever
                self._unsaved.pop(job_id, None)
                self._starter.tell(Ended(job_id, Status.ERROR))
            raise
        return made

    def _is_full(self) -> bool:
        return len(self._known_jobs) + len(self._unsaved) >= QUEUE_LENGTH_MAX

    async def _make_room(self) -> None:
        """Archive those jobs of a full queue that ended first.

        Raises:
            JobQueueError: the disk does not allow that.
        """
        async with self._making_room:
            ended = self._known_jobs.in_phase(Phase.ENDED)[:_ROOM]
            if not (ended and self._is_full()):
                return
            logger.warning(
                "The queue has %s jobs, which is its limit; the first %s that ended are archived",
                QUEUE_LENGTH_MAX,
                len(ended),
            )
            await archive(self._known_jobs, self._store, ended)

    def _make(self, submission: Submission, earlier: Sequence[JobId | None]) -> KnownJob:
        """Give a valid job a number, if queue, filters and the jobs it depends on allow."""
        if self._is_full():
            raise JobQueueFull(
                f"the queue has {QUEUE_LENGTH_MAX} jobs that have not ended; wait, or cancel some"
            )
        job_id = JobId(self.last_id + 1)
        job = make_job(job_id, resolve_relative(submission.inputs, earlier), timestamp())
        self.filters.judge(job).check()
        self._added(job)  # complains where it depends on nothing that exists
        self.last_id = job_id
        known = self._unsaved[job_id] = KnownJob(job, Phase.QUEUED, submission.secrets)
        return known

    async def _take_in(self, known: KnownJob) -> JobId | GenericError:
        """Take in a job that comes alone; if it can start at once, its first record says so."""
        try:
            if await self._starter.start_new(known, self._added, self.last_id):
                return known.job.id
            answer = await self._save(known)
        except JobQueueError as err:
            self._withdraw(known, err)
            return err
        finally:
            self._unsaved.pop(known.job.id, None)
        if answer == known.job.id:
            self._enter_unless_ended(known)
        return answer

    def _enter_unless_ended(self, known: KnownJob) -> None:
        if known.phase is Phase.QUEUED:  # it may have been canceled meanwhile
            self._enter(known)

    async def _save(self, known: KnownJob | GenericError) -> JobId | GenericError:
        if isinstance(known, GenericError):
            return known
        try:
            await self._store.save_new(known.job, self.last_id)
        except JobQueueError as err:
            self._withdraw(known, err)
            return err
        except Exception as err:
            logger.exception("Internal error when job %s is made durable", known.job.id)
            refusal = JobQueueError(f"internal error: {type(err).__name__}: {err}")
            self._withdraw(known, refusal)
            return refusal
        finally:
            self._unsaved.pop(known.job.id, None)
        self._known_jobs.take_in(known)
        return known.job.id

    def _withdraw(self, known: KnownJob, err: JobQueueError) -> None:
        """Take back a job that could not be made durable."""
        self._starter.tell(Ended(known.job.id, Status.ERROR))  # for those that depend on it
        self._store.withdraw(changes.canceled(known.job, err.message, timestamp()))

    def _added(self, job: QueuedJob) -> Added:
        """Make the event by which the scheduler learns of a job.

        Raises:
            OpPrereqError: it depends on a job that does not exist.
        """
        dependencies = dependencies_of(job)
        known: dict[JobId, Status] = {}
        for dependency in dependencies:
            status = self._status_of(dependency.job_id)
            if status is not None:
                known[dependency.job_id] = status
        check_known(job.id, dependencies, known)
        ended = {job_id: status for job_id, status in known.items() if status in FINAL}
        hold = self.filters.judge(job).hold
        waiting = WaitingJob(
            job.id, job.priority, dependencies, hold, job.mends, limits=limits_of(job)
        )
        return Added(waiting, ended)

    def _status_of(self, job_id: JobId) -> Status | None:
        """Return the status of a job, archived ones included; None if there is none."""
        known = self._known_jobs.get(job_id)
        if known is not None:
            # A final status counts from its event on, unless that is long over.
            return known.job.status if known.phase is Phase.ENDED else Status.QUEUED
        if job_id in self._unsaved:
            return Status.QUEUED
        archived = self._store.read_archived(job_id)
        return None if archived is None else archived.status


async def _in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield each item, and let others work in between."""
    turn_ends = clock.monotonic() + _TURN_S_MAX
    for item in items:
        yield item
        if clock.monotonic() >= turn_ends:
            await asyncio.sleep(0)
            turn_ends = clock.monotonic() + _TURN_S_MAX


def _checked(jobs: Sequence[OpCodes], position: int) -> Submission:
    """Check one of the jobs; errors as of `check_submission`, with its place among others."""
    try:
        return check_submission(jobs[position])
    except GenericError as err:
        if len(jobs) == 1:
            raise
        message = f"job {position + 1} of {len(jobs)}: {err.message}"
        raise type(err)(message, *err.args[1:]) from err
