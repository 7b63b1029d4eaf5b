"""Decides which jobs start, as a function from (queue, events) to (queue, decisions).

Theory of operation.  The queue knows the waiting and the running jobs.  A job is *ready*
once every job that it depends on has ended well; ready jobs start by priority (-20 first), then
age (smaller id first), while fewer jobs run than the limit allows.  A job whose dependency ended
badly is *stranded*: it is handed out to be ended, once; when that is recorded, the event makes its
own dependents stranded in turn.  Job filters hold a ready job back (PAUSE; RATE_LIMIT while so many
jobs under the same rule run); which rule applies to a job comes in with it.  While too few master
candidates answer, only jobs that mend this start, but all of them.

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

# Source: constants.json, LUXID_MAXIMAL_RUNNING_JOBS_DEFAULT
RUNNING_MAX_DEFAULT: Final = 20


class Hold(msgspec.Struct, frozen=True):
    """The limit of a filter rule for a job: ``running_max`` under that rule, 0 to pause it."""

    rule_uuid: str
    running_max: int


class WaitingJob(msgspec.Struct, frozen=True):
    """A job that has not started."""

    id: JobId
    priority: int
    dependencies: tuple[Dependency, ...] = ()
    hold: Hold | None = None
    mends: bool = False  # it does nothing but change which nodes are candidates


class Added(msgspec.Struct, frozen=True):
    """A job was accepted; ``ended`` are those of its dependencies that have ended already."""

    job: WaitingJob
    ended: dict[JobId, Status] = {}


class Ended(msgspec.Struct, frozen=True):
    """A job has a final status on disk."""

    job_id: JobId
    status: Status


class Running(msgspec.Struct, frozen=True):
    """A job was found running: it was started by an earlier incarnation."""

    job_id: JobId
    hold: Hold | None = None


class Returned(msgspec.Struct, frozen=True):
    """A job that was to start could not get a process and waits again."""

    job_id: JobId


class PriorityChanged(msgspec.Struct, frozen=True):
    """A job that waits got another priority."""

    job_id: JobId
    priority: int


class HoldsChanged(msgspec.Struct, frozen=True):
    """The filter rules changed: their limits now for the jobs that wait and run."""

    holds: dict[JobId, Hold]


class LimitChanged(msgspec.Struct, frozen=True):
    """So many jobs may run at once from now on."""

    running_max: int


class QuorumChanged(msgspec.Struct, frozen=True):
    """Enough master candidates answer, or not any more."""

    is_lost: bool


Event = (
    Added
    | Ended
    | Running
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
    """The next steps: jobs to start, in order, and jobs to end."""

    start: tuple[JobId, ...] = ()
    stranded: tuple[Stranded, ...] = ()


class QueueState(msgspec.Struct, frozen=True):
    """The queue as the scheduler sees it.

    ``ready`` is sorted by (priority, id) and holds the waiting jobs that are not blocked;
    ``blocked`` maps a job to the dependencies that have not ended; ``dependents`` is its inverse.
    """

    waiting: dict[JobId, WaitingJob] = {}
    ready: list[tuple[int, JobId]] = []
    blocked: dict[JobId, frozenset[JobId]] = {}
    dependents: dict[JobId, frozenset[JobId]] = {}
    running: dict[JobId, WaitingJob] = {}
    running_max: int = RUNNING_MAX_DEFAULT
    is_quorum_lost: bool = False


def schedule(state: QueueState, events: Iterable[Event]) -> tuple[QueueState, Decisions]:
    """Apply the events to the queue, and decide which jobs start and which end."""
    step = _Step(state)
    for event in events:
        step.apply(event)
    start = step.pick()
    return step.result(), Decisions(tuple(start), tuple(step.stranded))


def held_by(state: QueueState, job_id: JobId) -> str | None:
    """Return the rule that holds a job back now, or None."""
    job = state.waiting.get(job_id)
    if job is None or job.hold is None:
        return None
    rule_uuid = job.hold.rule_uuid
    running = _running_under_rules(state.running).get(rule_uuid, 0)
    return rule_uuid if running >= job.hold.running_max else None


def _running_under_rules(running: Mapping[JobId, WaitingJob]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for job in running.values():
        if job.hold is not None:
            counts[job.hold.rule_uuid] = counts.get(job.hold.rule_uuid, 0) + 1
    return counts


class _Step:
    """One step: works on copies of the tables of a state."""

    def __init__(self, state: QueueState) -> None:
        self.waiting = dict(state.waiting)
        self.ready = list(state.ready)
        self.blocked = dict(state.blocked)
        self.dependents = dict(state.dependents)
        self.running = dict(state.running)
        self.running_max = state.running_max
        self.is_quorum_lost = state.is_quorum_lost
        self.stranded: list[Stranded] = []

    def result(self) -> QueueState:
        return QueueState(
            self.waiting,
            self.ready,
            self.blocked,
            self.dependents,
            self.running,
            self.running_max,
            self.is_quorum_lost,
        )

    def apply(self, event: Event) -> None:
        match event:
            case Added(job, ended):
                self._add(job, ended)
            case Ended(job_id, status):
                self._end(job_id, status)
            case Running(job_id, hold):
                self._forget(job_id)
                self.running[job_id] = WaitingJob(job_id, 0, hold=hold)
            case Returned(job_id):
                returned = self.running.pop(job_id, None)
                if returned is not None:
                    self._put_back(returned)
            case PriorityChanged(job_id, priority):
                self._replace(job_id, priority=priority)
            case HoldsChanged(holds):
                for job_id in list(self.waiting):
                    self._replace(job_id, hold=holds.get(job_id))
                for job_id, job in self.running.items():
                    self.running[job_id] = replace(job, hold=holds.get(job_id))
            case LimitChanged(running_max):
                self.running_max = running_max
            case QuorumChanged(is_lost):
                self.is_quorum_lost = is_lost

    def _add(self, job: WaitingJob, ended: Mapping[JobId, Status]) -> None:
        if job.id in self.waiting or job.id in self.running:
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
            insort(self.ready, (job.priority, job.id))
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
        self.running.pop(job_id, None)
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
                insort(self.ready, (job.priority, dependent))

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
        key = (job.priority, job.id)
        index = bisect_left(self.ready, key)
        if index < len(self.ready) and self.ready[index] == key:
            del self.ready[index]
            return True
        return False

    def _put_back(self, job: WaitingJob) -> None:
        self.waiting[job.id] = job
        insort(self.ready, (job.priority, job.id))

    def _replace(self, job_id: JobId, **changes: object) -> None:
        job = self.waiting.get(job_id)
        if job is None:
            return
        was_ready = self._drop_ready(job)
        changed: WaitingJob = replace(job, **changes)
        self.waiting[job_id] = changed
        if was_ready:
            insort(self.ready, (changed.priority, job_id))

    def pick(self) -> list[JobId]:
        """Start ready jobs, by priority and age, as far as limit and filters allow."""
        if self.is_quorum_lost:
            return self._take([key for key in self.ready if self.waiting[key[1]].mends])
        free = self.running_max - len(self.running)
        if free <= 0 or not self.ready:
            return []
        under_rule = _running_under_rules(self.running)
        picked: list[JobId] = []
        left: list[tuple[int, JobId]] = []
        for position, (priority, job_id) in enumerate(self.ready):
            if len(picked) == free:
                left += self.ready[position:]
                break
            hold = self.waiting[job_id].hold
            if hold is not None:
                if under_rule.get(hold.rule_uuid, 0) >= hold.running_max:
                    left.append((priority, job_id))
                    continue
                under_rule[hold.rule_uuid] = under_rule.get(hold.rule_uuid, 0) + 1
            picked.append(job_id)
            self.running[job_id] = self.waiting.pop(job_id)
        self.ready = left
        return picked

    def _take(self, keys: list[tuple[int, JobId]]) -> list[JobId]:
        """Start these ready jobs, regardless of limit and filters."""
        taken = set(keys)
        self.ready = [key for key in self.ready if key not in taken]
        for _, job_id in keys:
            self.running[job_id] = self.waiting.pop(job_id)
        return [job_id for _, job_id in keys]
