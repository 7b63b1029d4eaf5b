"""The jobs that LuxiD knows, and the clients that wait to hear of them."""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum, auto
from typing import Final

from ganeti.base.errors import JobLost, JobQueueError
from ganeti.base.ids import JobId
from ganeti.jobs import changes
from ganeti.jobs.record import QueuedJob
from ganeti.system import clock

logger = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0  # a signal just before a system call begins may go unnoticed

_LUXID_LIVELOCK_PREFIX: Final = "luxi-daemon"  # 3.0's LuxiD names itself before it has a process

Secrets = tuple[dict[str, object] | None, ...]


class Phase(Enum):
    """Whose job it is."""

    QUEUED = auto()  # ours: it waits for its turn
    STARTING = auto()  # ours: a process is being given the job
    RUNNING = auto()  # the job process's: we only read its file
    ENDED = auto()  # ours again, to archive


_NEXT: Final = {
    Phase.QUEUED: {Phase.STARTING, Phase.RUNNING, Phase.ENDED},
    Phase.STARTING: {Phase.QUEUED, Phase.RUNNING, Phase.ENDED},
    Phase.RUNNING: {Phase.QUEUED, Phase.ENDED},  # queued again: it made room for another one
    Phase.ENDED: set[Phase](),
}


OfPhase = dict[Phase, dict[JobId, "KnownJob"]]


class KnownJob:
    """One job in memory.

    Attributes:
        turn: held while the job is changed; by one at a time.
        trouble: why who holds the turn does not get on; "" if nothing is known.
        secrets: secret parameters, which no file has.
        lagging: candidates that may still get an old record after newer ones.
        brought: digest of the last version that was brought to candidates for its process, or "".
        turns: how often the job waited for locks in vain and stepped back.
        is_blocked: whether it waits for the end of jobs that it depends on.
        of_phase: the known jobs of each phase; None while it is not among them.
    """

    __slots__ = (
        *("_waiters", "brought", "is_blocked", "job", "lagging", "of_phase", "phase"),
        *("secrets", "trouble", "turn", "turns"),
    )

    def __init__(self, job: QueuedJob, phase: Phase, secrets: Secrets = ()) -> None:
        self.job = job
        self.phase = phase
        self.secrets = secrets
        self.lagging: tuple[str, ...] = ()
        self.brought = ""
        self.turns = 0
        self.is_blocked = False
        self.of_phase: OfPhase | None = None
        self.turn = asyncio.Lock()
        self.trouble = ""
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def shown(self) -> QueuedJob:
        """The job as clients see it: one that is blocked waits, though its file says queued."""
        return changes.shown_waiting(self.job) if self.is_blocked else self.job

    def set_blocked(self, is_blocked: bool) -> None:
        """Take note whether it waits for other jobs, and tell clients if that is new."""
        if self.is_blocked != is_blocked:
            self.is_blocked = is_blocked
            self.wake()

    def set_phase(self, phase: Phase) -> None:
        """Go on to another phase."""
        assert phase in _NEXT[self.phase], f"job {self.job.id}: {self.phase} -> {phase}"
        if self.of_phase is not None:
            self.of_phase[phase][self.job.id] = self.of_phase[self.phase].pop(self.job.id)
        self.phase = phase

    def set_job(self, job: QueuedJob) -> None:
        """Take a new record, and tell all clients that wait for a change."""
        self.job = job
        self.wake()

    @contextlib.asynccontextmanager
    async def turn_within(self, timeout_s: float) -> AsyncIterator[None]:
        """Hold the turn, on behalf of a client.

        Raises:
            JobQueueError: it is not free in time; the text says why, as far as that is known.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self.turn.acquire()
        except TimeoutError as err:
            why = self.trouble or f"it was being started or ended for {timeout_s:g} s"
            raise JobQueueError(
                f"job {self.job.id} cannot be changed now: {why}; try again"
            ) from err
        try:
            yield
        finally:
            self.turn.release()

    def wake(self) -> None:
        """Let all waiting clients look again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_for(
        self, is_done: Callable[[], bool], timeout_s: float, again: Callable[[], None] | None = None
    ) -> bool:
        """Wait until something is true of the job; returns whether it is.

        Args:
            again: called once a second meanwhile.
        """
        deadline = clock.monotonic() + timeout_s
        while not is_done():
            left_s = deadline - clock.monotonic()
            if left_s <= 0:
                return False
            await self.changes_within(min(left_s, _AGAIN_S) if again else left_s)
            if again and not is_done():
                again()
        return True

    async def changes_within(self, timeout_s: float) -> bool:
        """Wait for the next change; returns whether there was one in time."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            return False
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        return True


class KnownJobs:
    """All jobs that are not archived, by id."""

    def __init__(self) -> None:
        self._by_id: dict[JobId, KnownJob] = {}
        self._of_phase: OfPhase = {phase: {} for phase in Phase}
        self._ids: list[JobId] = []  # in order; new ones come at the end or near it

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[KnownJob]:
        return iter(self._by_id.values())

    def get(self, job_id: JobId) -> KnownJob | None:
        """Return the entry of a job, or None."""
        return self._by_id.get(job_id)

    def require(self, job_id: JobId) -> KnownJob:
        """Return the entry of a job.

        Raises:
            JobLost: there is none.
        """
        known = self._by_id.get(job_id)
        if known is None:
            raise JobLost(f"Job {job_id} not found")
        return known

    def add(self, known: KnownJob) -> None:
        """Take a new job."""
        assert known.job.id not in self._by_id
        self._by_id[known.job.id] = known
        known.of_phase = self._of_phase
        self._of_phase[known.phase][known.job.id] = known
        bisect.insort(self._ids, known.job.id)

    def take_in(self, known: KnownJob) -> None:
        """Take a job that was just submitted."""
        self.add(known)
        job = known.job
        logger.info("Job %s submitted: %s", job.id, ", ".join(op.op_id for op in job.ops))

    def remove(self, job_id: JobId) -> None:
        """Forget a job."""
        known = self._by_id.pop(job_id, None)
        if known is not None:
            known.of_phase = None
            del self._of_phase[known.phase][job_id]
            del self._ids[bisect.bisect_left(self._ids, job_id)]
            known.wake()

    def latest(self, limit: int, before: JobId | None = None) -> list[KnownJob]:
        """Return the newest jobs, or the newest of those before one, oldest first."""
        end = len(self._ids) if before is None else bisect.bisect_left(self._ids, before)
        return [self._by_id[job_id] for job_id in self._ids[max(0, end - limit) : end]]

    def in_phase(self, phase: Phase) -> list[KnownJob]:
        """Return the jobs in one phase, in the order in which they came to it."""
        return list(self._of_phase[phase].values())


def phase_of(job: QueuedJob) -> Phase:
    """Tell whose a job is by its record alone.

    A job without the lock file of a job process was never given to one.
    """
    if job.is_final:
        return Phase.ENDED
    livelock = (job.livelock or "").rpartition("/")[2]
    if not livelock or livelock.startswith(_LUXID_LIVELOCK_PREFIX):
        return Phase.QUEUED
    return Phase.RUNNING
