"""Decides which jobs get a process, as a function from (queue, events) to (queue, decisions).

Theory of operation.  The queue knows the jobs that are queued and those that are *tracked*: that
have a process, which waits for locks or works.  A job is *ready* once every job that it depends on
has ended well; ready jobs start by priority (-20 first), then age (smaller id first), while fewer
jobs are tracked than the limit allows.  How many of these work at once is decided where locks are
granted (`ganeti.locking.allocation`), so a job that waits for locks keeps nobody from working.

At the limit the least urgent job that waits for locks is asked to *step back*, into the queue, for
a ready one that is more urgent and takes its place at once: who leaves does not count any more.
That order is by rank: priority, then how often the job stepped back, then age.  A waiter is *tired*
when it has waited for a while in vain; it then ranks as if it had stepped back already, so that
those who wait for one lock do not keep equally urgent jobs away for ever, but take turns.  As the
limit is greater than the number of jobs that may work, somebody always waits: the most urgent job
has a process at once, and gets the first slot that becomes free, which may be between two opcodes
of another job.

A job whose dependency ended badly is *stranded*: it is handed out to be ended, once; when that is
recorded, the event makes its own dependents stranded in turn.  Job filters hold a ready job back
(PAUSE; RATE_LIMIT while so many jobs under the same rule are tracked); which rule applies to a job
comes in with it.  A job may bring limits of its own, which are the same with a label for the rule.
While too few master candidates answer, only those jobs start that mend this, but all of them.

The state given in is never changed; no clock, no I/O.  An event about a job that is not there is
ignored: decisions and events cross each other.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from ganeti.base.errors import ProgrammerError
from ganeti.base.ids import JobId
from ganeti.jobs.status import FINAL, Status
from ganeti.jobs.submission import Dependency

# Source: constants.json, LUXID_MAXIMAL_TRACKED_JOBS_DEFAULT
TRACKED_MAX_DEFAULT: Final = 25

Rank = tuple[int, int, JobId]


def tracked_limit(*, running_max: int, tracked_max: int) -> int:
    """Return how many jobs may have a process.

    One more than may work at least, so that somebody always waits who can make room.
    """
    return max(tracked_max, running_max + 1)


class Hold(msgspec.Struct, frozen=True):
    """The limit of a filter rule for a job: ``running_max`` under that rule, 0 to pause it.

    A limit that a job brings itself has a text of its own in place of a rule.
    """

    rule_uuid: str
    running_max: int


class WaitingJob(msgspec.Struct, frozen=True):
    """A job, as the scheduler sees it; ``turns`` counts how often it stepped back."""

    id: JobId
    priority: int
    dependencies: tuple[Dependency, ...] = ()
    hold: Hold | None = None
    mends: bool = False  # it does nothing but change which nodes are candidates
    turns: int = 0
    limits: tuple[Hold, ...] = ()  # those that it brings itself

    @property
    def holds(self) -> tuple[Hold, ...]:
        """All limits."""
        return self.limits if self.hold is None else (self.hold, *self.limits)

    @property
    def rank(self) -> Rank:
        """The key by which jobs are started: smaller first."""
        return (self.priority, self.turns, self.id)


class Added(msgspec.Struct, frozen=True):
    """A job was accepted; ``ended`` are those of its dependencies that have ended already."""

    job: WaitingJob
    ended: dict[JobId, Status] = {}


class Ended(msgspec.Struct, frozen=True):
    """A job has a final status on disk."""

    job_id: JobId
    status: Status


class Running(msgspec.Struct, frozen=True):
    """A job was found with a process: it was started by an earlier incarnation."""

    job_id: JobId
    hold: Hold | None = None
    priority: int = 0
    limits: tuple[Hold, ...] = ()


class Moved(msgspec.Struct, frozen=True):
    """The state of a tracked job; ``may_leave`` if it waits for locks and could step back."""

    job_id: JobId
    priority: int
    may_leave: bool


class Tired(msgspec.Struct, frozen=True):
    """A job has waited for locks for as long as its turn lasts."""

    job_id: JobId


class SteppedBack(msgspec.Struct, frozen=True):
    """A job that waited for locks has no process any more, and is queued again."""

    job_id: JobId
    priority: int


class Returned(msgspec.Struct, frozen=True):
    """A job that was to start could not get a process and waits again."""

    job_id: JobId


class PriorityChanged(msgspec.Struct, frozen=True):
    """A job that waits, or could not start and is to return, got another priority."""

    job_id: JobId
    priority: int


class HoldsChanged(msgspec.Struct, frozen=True):
    """The filter rules changed: their limits now for the jobs that wait and run."""

    holds: dict[JobId, Hold]


class LimitChanged(msgspec.Struct, frozen=True):
    """So many jobs may be tracked at once from now on: `tracked_limit`."""

    tracked_max: int


class QuorumChanged(msgspec.Struct, frozen=True):
    """Enough master candidates answer, or not any more."""

    is_lost: bool


Event = (
    Added
    | Ended
    | Running
    | Moved
    | Tired
    | SteppedBack
    | Returned
    | PriorityChanged
    | HoldsChanged
    | LimitChanged
    | QuorumChanged
)


class Stranded(msgspec.Struct, frozen=True):
    """A job to end because one that it depends on ended badly."""

    job_id: JobId
    reason: str
    status: Status  # CANCELED if the other one was canceled, else ERROR


class Decisions(msgspec.Struct, frozen=True):
    """The next steps: jobs to start, in order, to end, and to ask to step back."""

    start: tuple[JobId, ...] = ()
    stranded: tuple[Stranded, ...] = ()
    step_back: tuple[JobId, ...] = ()


class QueueState(msgspec.Struct, frozen=True):
    """The queue as the scheduler sees it.

    ``ready`` is sorted by rank and holds the waiting jobs that are not blocked; ``blocked`` maps a
    job to the dependencies that have not ended; ``dependents`` is its inverse.  ``idle`` are the
    tracked jobs that could step back, each with whether it is tired, and ``leaving`` those of them
    that were asked to.
    """

    waiting: dict[JobId, WaitingJob] = {}
    ready: list[Rank] = []
    blocked: dict[JobId, frozenset[JobId]] = {}
    dependents: dict[JobId, frozenset[JobId]] = {}
    tracked: dict[JobId, WaitingJob] = {}
    idle: dict[JobId, bool] = {}
    leaving: frozenset[JobId] = frozenset()
    tracked_max: int = TRACKED_MAX_DEFAULT
    is_quorum_lost: bool = False


def schedule(state: QueueState, events: Iterable[Event]) -> tuple[QueueState, Decisions]:
    """Apply the events to the queue, and decide which jobs start and which end."""
    step = _Step(state)
    for event in events:
        step.apply(event)
    start = step.pick()
    step_back = step.make_room()
    start += step.pick()  # the place of who leaves is taken at once
    return step.result(), Decisions(tuple(start), tuple(step.stranded), tuple(step_back))


def held_by(state: QueueState, job_id: JobId) -> str | None:
    """Return the rule that holds a job back now, or None."""
    job = state.waiting.get(job_id)
    if job is None or not job.holds:
        return None
    return _first_full(job, _tracked_under_limits(state.tracked))


def _first_full(job: WaitingJob, tracked: Mapping[str, int]) -> str | None:
    """Return the first limit of a job that lets no more start."""
    full = (it.rule_uuid for it in job.holds if tracked.get(it.rule_uuid, 0) >= it.running_max)
    return next(full, None)


def _tracked_under_limits(tracked: Mapping[JobId, WaitingJob]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for job in tracked.values():
        _count(job, counts)
    return counts


def _count(job: WaitingJob, counts: dict[str, int]) -> None:
    for hold in job.holds:
        counts[hold.rule_uuid] = counts.get(hold.rule_uuid, 0) + 1


class _Step:
    """One step: works on copies of the tables of a state."""

    def __init__(self, state: QueueState) -> None:
        self.waiting = dict(state.waiting)
        self.ready = list(state.ready)
        self.blocked = dict(state.blocked)
        self.dependents = dict(state.dependents)
        self.tracked = dict(state.tracked)
        self.idle = dict(state.idle)
        self.leaving = set(state.leaving)
        self.tracked_max = state.tracked_max
        self.is_quorum_lost = state.is_quorum_lost
        self.stranded: list[Stranded] = []

    def result(self) -> QueueState:
        return QueueState(
            self.waiting,
            self.ready,
            self.blocked,
            self.dependents,
            self.tracked,
            self.idle,
            frozenset(self.leaving),
            self.tracked_max,
            self.is_quorum_lost,
        )

    def apply(self, event: Event) -> None:
        match event:
            case Added(job, ended):
                self._add(job, ended)
            case Ended(job_id, status):
                self._end(job_id, status)
            case Running(job_id, hold, priority, limits):
                self._forget(job_id)
                self.tracked[job_id] = WaitingJob(job_id, priority, hold=hold, limits=limits)
            case Moved() | Tired() | SteppedBack() | Returned():
                self._follow(event)
            case PriorityChanged(job_id, priority):
                self._replace(job_id, priority=priority)
                if job_id in self.tracked:  # its start failed, and it will return
                    self.tracked[job_id] = replace(self.tracked[job_id], priority=priority)
            case HoldsChanged(holds):
                for job_id in list(self.waiting):
                    self._replace(job_id, hold=holds.get(job_id))
                for job_id, job in self.tracked.items():
                    self.tracked[job_id] = replace(job, hold=holds.get(job_id))
            case LimitChanged(tracked_max):
                self.tracked_max = tracked_max
            case QuorumChanged(is_lost):
                self.is_quorum_lost = is_lost

    def _add(self, job: WaitingJob, ended: Mapping[JobId, Status]) -> None:
        if job.id in self.waiting or job.id in self.tracked:
            raise ProgrammerError(f"job {job.id} is in the queue already")
        self.waiting[job.id] = job
        unmet = set()
        for dependency in job.dependencies:
            status = ended.get(dependency.job_id)
            if status is None:
                unmet.add(dependency.job_id)
            elif self._must_end(job, dependency, status):
                return
        if not unmet:
            insort(self.ready, job.rank)
            return
        self.blocked[job.id] = frozenset(unmet)
        for other in unmet:
            self.dependents[other] = self.dependents.get(other, frozenset()) | {job.id}

    def _must_end(self, job: WaitingJob, dependency: Dependency, status: Status) -> bool:
        refusal = dependency.refusal(status)
        if refusal is None:
            return False
        end = Status.CANCELED if status is Status.CANCELED else Status.ERROR
        self.stranded.append(Stranded(job.id, refusal, end))
        self._unblock(job.id)  # it stays among the waiting until its end is recorded
        return True

    def _end(self, job_id: JobId, status: Status) -> None:
        if status not in FINAL:
            raise ProgrammerError(f"job {job_id} has not ended: it is {status}")
        self._forget(job_id)
        self._untrack(job_id)
        for dependent in sorted(self.dependents.pop(job_id, frozenset())):
            job = self.waiting[dependent]
            mine = next(each for each in job.dependencies if each.job_id == job_id)
            if self._must_end(job, mine, status):
                continue
            unmet = self.blocked[dependent] - {job_id}
            if unmet:
                self.blocked[dependent] = unmet
            else:
                del self.blocked[dependent]
                insort(self.ready, job.rank)

    def _unblock(self, job_id: JobId) -> None:
        for other in self.blocked.pop(job_id, frozenset()):
            left = self.dependents.get(other, frozenset()) - {job_id}
            if left:
                self.dependents[other] = left
            else:
                self.dependents.pop(other, None)

    def _forget(self, job_id: JobId) -> None:
        job = self.waiting.pop(job_id, None)
        if job is None:
            return
        self._unblock(job_id)
        self._drop_ready(job)

    def _drop_ready(self, job: WaitingJob) -> bool:
        key = job.rank
        index = bisect_left(self.ready, key)
        if index < len(self.ready) and self.ready[index] == key:
            del self.ready[index]
            return True
        return False

    def _put_back(self, job: WaitingJob) -> None:
        self.waiting[job.id] = job
        insort(self.ready, job.rank)

    def _untrack(self, job_id: JobId) -> None:
        self.tracked.pop(job_id, None)
        self.idle.pop(job_id, None)
        self.leaving.discard(job_id)

    def _follow(self, event: Moved | Tired | SteppedBack | Returned) -> None:
        """Take what a tracked job did; ignored if it is not tracked any more."""
        job = self.tracked.get(event.job_id)
        match event:
            case _ if job is None:
                return
            case Moved(job_id, priority, may_leave):
                self._move(job_id, priority, may_leave=may_leave)
            case Tired(job_id):
                if job_id in self.idle:
                    self.idle[job_id] = True
            case SteppedBack(job_id, priority):
                self._untrack(job_id)
                self._put_back(replace(job, priority=priority, turns=job.turns + 1))
            case Returned(job_id):
                self._untrack(job_id)
                self._put_back(job)

    def _move(self, job_id: JobId, priority: int, *, may_leave: bool) -> None:
        self.tracked[job_id] = replace(self.tracked[job_id], priority=priority)
        if may_leave:
            self.idle.setdefault(job_id, False)
        else:
            self.idle.pop(job_id, None)
            self.leaving.discard(job_id)

    def _replace(self, job_id: JobId, **changes: object) -> None:
        job = self.waiting.get(job_id)
        if job is None:
            return
        was_ready = self._drop_ready(job)
        changed: WaitingJob = replace(job, **changes)
        self.waiting[job_id] = changed
        if was_ready:
            insort(self.ready, changed.rank)

    def pick(self) -> list[JobId]:
        """Start ready jobs, by priority and age, as far as limit and filters allow."""
        if self.is_quorum_lost:
            taken = [key[-1] for key in self.ready if self.waiting[key[-1]].mends]
        else:
            taken = self._allowed(self._free)
        gone = set(taken)
        self.ready = [key for key in self.ready if key[-1] not in gone]
        for job_id in taken:
            self.tracked[job_id] = self.waiting.pop(job_id)
        return taken

    @property
    def _free(self) -> int:
        return self.tracked_max - len(self.tracked) + len(self.leaving)

    def make_room(self) -> list[JobId]:
        """Choose those who step back for ready jobs of a better rank."""
        if self.is_quorum_lost or not self.ready:
            return []
        staying = [(self._idle_rank(job_id), job_id) for job_id in self.idle.keys() - self.leaving]
        staying.sort(reverse=True)
        missing = max(
            0, -self._free
        )  # somebody who was asked got his locks, or the limit was lowered
        comers = self._allowed(len(staying) - missing)
        count = 0
        for comer, (rank, _) in zip(comers, staying[missing:], strict=False):
            if self.waiting[comer].rank >= rank:
                break
            count += 1
        chosen = [job_id for _, job_id in staying[: missing + count]] if count else []
        self.leaving |= set(chosen)
        return chosen

    def _idle_rank(self, job_id: JobId) -> Rank:
        priority, turns, _ = self.tracked[job_id].rank
        return (priority, turns + self.idle[job_id], job_id)

    def _allowed(self, count: int) -> list[JobId]:
        """Return the first ready jobs that the filters let start, as many at most."""
        allowed: list[JobId] = []
        if count <= 0 or not self.ready:
            return allowed
        counts = _tracked_under_limits(self.tracked)
        for _, _, job_id in self.ready:
            if len(allowed) == count:
                break
            if _first_full(self.waiting[job_id], counts) is not None:
                continue
            _count(self.waiting[job_id], counts)
            allowed.append(job_id)
        return allowed
