"""The scheduler: examples, and laws against a slow, obvious version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from ganeti.base.ids import JobId
from ganeti.jobs.scheduler import (
    Added,
    Decisions,
    Ended,
    Event,
    Hold,
    HoldsChanged,
    LimitChanged,
    Moved,
    PriorityChanged,
    QueueState,
    QuorumChanged,
    Returned,
    Running,
    SteppedBack,
    Tired,
    WaitingJob,
    held_by,
    schedule,
    tracked_limit,
)
from ganeti.jobs.status import FINAL, Status
from ganeti.jobs.submission import Dependency

SUCCESS = frozenset({Status.SUCCESS})


def waiting(
    number: int,
    priority: int = 0,
    after: dict[int, frozenset[Status]] | None = None,
    hold: Hold | None = None,
) -> WaitingJob:
    depends = tuple(Dependency(JobId(k), v) for k, v in (after or {}).items())
    return WaitingJob(JobId(number), priority, depends, hold)


def run(*events: Event, limit: int = 20) -> tuple[QueueState, Decisions]:
    return schedule(QueueState(), [LimitChanged(limit), *events])


@pytest.mark.shows(
    "backend/opcodes/other-order",
    "backend/jobs/order",
    "backend/jobs/priority-number",
    "backend/life/heap",
    "2.12/steps/scheduling",
)
def test_priority_then_age() -> None:
    _, decisions = run(Added(waiting(1)), Added(waiting(2, -5)), Added(waiting(3, -5)))
    assert decisions.start == (2, 3, 1)


def test_without_enough_candidates_only_what_mends_that_starts() -> None:
    mends = WaitingJob(JobId(3), 0, mends=True)
    events = [Running(JobId(9)), Added(waiting(1)), QuorumChanged(True), Added(waiting(2))]
    state, decisions = run(*events, limit=1)
    assert decisions.start == ()
    state, decisions = schedule(state, [Added(mends)])
    assert decisions.start == (3,), "though the limit is reached"
    state, decisions = schedule(state, [Ended(JobId(9), Status.ERROR), Returned(JobId(3))])
    assert decisions.start == (3,)
    state, decisions = schedule(state, [Ended(JobId(3), Status.SUCCESS)])
    assert decisions.start == ()
    state, decisions = schedule(state, [QuorumChanged(False)])
    assert decisions.start == (1,)
    _, decisions = schedule(state, [Ended(JobId(1), Status.SUCCESS)])
    assert decisions.start == (2,)


@pytest.mark.shows(
    "backend/life/limit", "2.12/steps/job-limit", "2.0/queue/parallel", "2.0/queue-life/first-free"
)
def test_no_more_than_the_limit_run() -> None:
    state, decisions = run(*(Added(waiting(n)) for n in range(1, 6)), limit=2)
    assert decisions.start == (1, 2)
    state, decisions = schedule(state, [Ended(JobId(2), Status.ERROR)])
    assert decisions.start == (3,)
    state, decisions = schedule(state, [LimitChanged(4)])
    assert decisions.start == (4, 5)
    _, decisions = schedule(state, [Ended(JobId(1), Status.SUCCESS)])
    assert decisions == Decisions()


@pytest.mark.shows("backend/life/limit")
def test_jobs_found_running_count() -> None:
    _, decisions = run(Running(JobId(1)), Added(waiting(2)), limit=1)
    assert decisions.start == ()


@pytest.mark.shows("backend/jobs/order", "2.12/steps/scheduling")
def test_a_dependent_starts_on_the_event() -> None:
    state, decisions = run(Added(waiting(1)), Added(waiting(2, after={1: SUCCESS})))
    assert decisions.start == (1,)
    _, decisions = schedule(state, [Ended(JobId(1), Status.SUCCESS)])
    assert decisions.start == (2,)


def test_failure_goes_down_the_chain_one_event_at_a_time() -> None:
    chain = [Added(waiting(n, after={n - 1: SUCCESS})) for n in (2, 3)]
    state, _ = run(Added(waiting(1)), *chain)
    state, decisions = schedule(state, [Ended(JobId(1), Status.CANCELED)])
    (stranded,) = decisions.stranded
    assert (stranded.job_id, stranded.status) == (2, Status.CANCELED)
    assert "job 1" in stranded.reason
    state, decisions = schedule(state, [Ended(JobId(2), Status.ERROR)])
    (stranded,) = decisions.stranded
    assert (stranded.job_id, stranded.status) == (3, Status.ERROR)
    state, decisions = schedule(state, [Ended(JobId(3), Status.ERROR)])
    assert decisions == Decisions()
    assert not state.waiting
    assert not state.dependents


def test_a_stranded_job_is_handed_out_once() -> None:
    state, _ = run(Added(waiting(1)), Added(waiting(2, after={1: SUCCESS})))
    state, decisions = schedule(state, [Ended(JobId(1), Status.ERROR)])
    assert len(decisions.stranded) == 1
    _, decisions = schedule(state, [Added(waiting(3))])
    assert not decisions.stranded
    assert decisions.start == (3,)


def test_a_dependency_that_ended_before_counts() -> None:
    _, decisions = run(Added(waiting(5, after={1: SUCCESS}), {JobId(1): Status.SUCCESS}))
    assert decisions.start == (5,)
    _, decisions = run(Added(waiting(5, after={1: SUCCESS}), {JobId(1): Status.ERROR}))
    assert decisions.stranded[0].job_id == 5


def test_a_job_that_could_not_start_waits_again() -> None:
    state, _ = run(Added(waiting(1, -3)), limit=1)
    state, decisions = schedule(state, [Returned(JobId(1))])
    assert decisions.start == (1,)


@pytest.mark.shows("backend/jobs/canceled", "2.0/queue-life/cancel")
def test_a_canceled_job_never_starts() -> None:
    state, _ = run(Added(waiting(1)), Added(waiting(2)), limit=1)
    _, decisions = schedule(
        state, [Ended(JobId(2), Status.CANCELED), Ended(JobId(1), Status.SUCCESS)]
    )
    assert decisions.start == ()


def test_changed_priority_changes_the_order() -> None:
    state, _ = run(*(Added(waiting(n)) for n in (1, 2, 3)), limit=1)
    state, _ = schedule(state, [PriorityChanged(JobId(3), -1)])
    _, decisions = schedule(state, [Ended(JobId(1), Status.SUCCESS)])
    assert decisions.start == (3,)


def test_a_priority_that_changes_after_a_start_that_failed_counts_when_the_job_returns() -> None:
    state, decisions = run(Added(waiting(1)), Added(waiting(2)), limit=1)
    assert decisions.start == (1,)
    state, decisions = schedule(state, [PriorityChanged(JobId(1), 19)])
    assert decisions.start == ()
    state, decisions = schedule(state, [Returned(JobId(1))])
    assert decisions.start == (2,)
    _, decisions = schedule(state, [Ended(JobId(2), Status.SUCCESS)])
    assert decisions.start == (1,)


def test_a_paused_job_is_held_until_the_rule_goes() -> None:
    state, decisions = run(Added(waiting(1, hold=Hold("r", 0))), Added(waiting(2)))
    assert (held_by(state, JobId(1)), held_by(state, JobId(2))) == ("r", None)
    assert decisions.start == (2,)
    _, decisions = schedule(state, [HoldsChanged({})])
    assert decisions.start == (1,)


def test_a_rate_limit_counts_jobs_under_its_rule() -> None:
    hold = Hold("r", 2)
    state, decisions = run(*(Added(waiting(n, hold=hold)) for n in range(1, 5)), Added(waiting(9)))
    assert decisions.start == (1, 2, 9)
    _, decisions = schedule(state, [Ended(JobId(1), Status.SUCCESS)])
    assert decisions.start == (3,)


def test_there_is_always_one_process_more_than_may_work() -> None:
    assert tracked_limit(running_max=20, tracked_max=25) == 25
    assert tracked_limit(running_max=20, tracked_max=5) == 21


def idle(number: int, priority: int = 0) -> Moved:
    return Moved(JobId(number), priority, may_leave=True)


def busy(number: int, priority: int = 0) -> Moved:
    return Moved(JobId(number), priority, may_leave=False)


def waiting_for_locks(*jobs: tuple[int, int], limit: int) -> QueueState:
    """Return a queue in which these jobs (number, priority) have processes that wait."""
    state, decisions = run(*(Added(waiting(*job)) for job in jobs), limit=limit)
    assert len(decisions.start) == len(jobs)
    return schedule(state, [idle(*job) for job in jobs])[0]


def test_at_the_limit_the_least_urgent_waiter_makes_room_for_an_urgent_job() -> None:
    waiters = [(1, 0), (2, 3), (3, 5)]
    state = waiting_for_locks(*waiters, limit=3)
    state, decisions = schedule(state, [Added(waiting(4, -20)), Added(waiting(5, 19))])
    assert decisions == Decisions(start=(4,), step_back=(3,))
    state, decisions = schedule(state, [SteppedBack(JobId(3), 5)])
    assert decisions == Decisions()
    assert [key[-1] for key in state.ready] == [3, 5]


def test_a_job_that_got_its_locks_meanwhile_stays_and_another_one_is_asked() -> None:
    waiters = [(1, 0), (2, 3)]
    state = waiting_for_locks(*waiters, limit=2)
    state, decisions = schedule(state, [Added(waiting(4, -20))])
    assert decisions == Decisions(start=(4,), step_back=(2,))
    state, decisions = schedule(state, [busy(2, 3)])
    assert decisions == Decisions(), "there is one more than the limit, until somebody ends"
    state, decisions = schedule(state, [Added(waiting(5, -19))])
    assert decisions == Decisions(), "job 1 makes no room for two"
    _, decisions = schedule(state, [idle(2, 3)])
    assert decisions == Decisions(start=(5,), step_back=(2, 1))


def test_jobs_at_work_are_never_asked() -> None:
    state, _ = schedule(waiting_for_locks((1, 19), limit=1), [busy(1, 19)])
    _, decisions = schedule(state, [Added(waiting(2, -20))])
    assert decisions == Decisions()


def test_equally_urgent_jobs_take_turns() -> None:
    state, _ = schedule(waiting_for_locks((1, 0), (2, 0), limit=2), [Added(waiting(3))])
    state, decisions = schedule(state, [Tired(JobId(1))])
    assert decisions == Decisions(start=(3,), step_back=(1,))
    state, decisions = schedule(state, [SteppedBack(JobId(1), 0)])
    state, decisions = schedule(state, [idle(3)])
    assert decisions == Decisions(), "job 1 had its turn, the others have theirs now"
    state, decisions = schedule(state, [Tired(JobId(2)), Tired(JobId(3))])
    assert decisions == Decisions(start=(1,), step_back=(3,))


def test_everybody_gets_a_turn_however_many_wait_for_one_lock() -> None:
    """200 jobs wait for one lock, and an equally urgent job comes last of all."""
    state, decisions = run(*(Added(waiting(n)) for n in range(1, 202)), limit=25)
    started = list(decisions.start)
    for _ in range(200):
        if 201 in started:
            break
        state, decisions = schedule(state, [idle(n) for n in state.tracked])
        state, decisions = schedule(state, [Tired(n) for n in state.tracked])
        leaving = decisions.step_back
        assert leaving
        started += decisions.start
        state, decisions = schedule(state, [SteppedBack(n, 0) for n in leaving])
        started += decisions.start
    assert 201 in started
    before = started[: started.index(JobId(201))]
    assert len(before) == len(set(before)), "nobody got a second turn before all had one"


def test_a_held_job_makes_nobody_step_back() -> None:
    state = waiting_for_locks((1, 5), limit=1)
    _, decisions = schedule(state, [Added(waiting(2, -20, hold=Hold("r", 0)))])
    assert decisions == Decisions()


def test_limits_that_jobs_bring_count_beside_those_of_rules() -> None:
    own, rule = (Hold("rate-limit:hello", 2),), Hold("r", 1)
    jobs = [replace(waiting(n), limits=own) for n in range(1, 4)]
    both = [replace(waiting(n, hold=rule), limits=own) for n in (4, 5)]
    state, decisions = run(*map(Added, [*jobs, *both]), Added(waiting(9)))
    assert decisions.start == (1, 2, 9)
    assert held_by(state, JobId(3)) == "rate-limit:hello"
    state, decisions = schedule(state, [HoldsChanged({}), Ended(JobId(1), Status.SUCCESS)])
    assert decisions.start == (3,)
    state, _ = schedule(state, [Running(JobId(20), limits=own)])
    _, decisions = schedule(state, [Ended(JobId(2), Status.SUCCESS)])
    assert decisions.start == ()


def test_a_job_that_steps_back_keeps_the_limits_that_it_brought() -> None:
    own = (Hold("rate-limit:hello", 1),)
    first, second = (replace(waiting(n), limits=own) for n in (1, 2))
    state, _ = run(Added(first), Added(second), Moved(JobId(1), 0, True), limit=1)
    state, decisions = schedule(state, [Moved(JobId(1), 0, True), Added(waiting(3, -5))])
    assert (decisions.step_back, decisions.start) == ((1,), (3,))
    state, _ = schedule(state, [SteppedBack(JobId(1), 0), LimitChanged(9)])
    assert [job.limits for job in state.waiting.values()] == [own]
    assert held_by(state, JobId(1)) == "rate-limit:hello"


# Laws, by generated input.


LIMITS = {"a": 1, "b": 2}  # of jobs with such a label


class SchedulerWalk(RuleBasedStateMachine):
    """Any order of events; a dictionary of jobs says what must be true."""

    @initialize(limit=st.integers(0, 4))
    def start(self, limit: int) -> None:
        self.state = QueueState(tracked_max=limit)
        self.jobs: dict[int, WaitingJob] = {}  # neither started nor ended
        self.running: dict[int, WaitingJob] = {}
        self.idle: dict[int, bool] = {}
        self.leaving: set[int] = set()
        self.ended: dict[int, Status] = {}
        self.stranded: set[int] = set()
        self.limit = limit
        self.next_id = 1

    def feed(self, *events: Event) -> None:
        for event in events:
            self.note(event)
        before = (dict(self.state.waiting), list(self.state.ready), dict(self.state.tracked))
        old = self.state
        self.state, decisions = schedule(self.state, events)
        assert before == (old.waiting, old.ready, old.tracked), "the given state was changed"
        self.check_room_made([int(number) for number in decisions.step_back])
        expected = self.obvious_choice()
        assert list(decisions.start) == expected
        for number in decisions.start:
            self.running[number] = self.jobs.pop(number)
        for stranded in decisions.stranded:
            assert stranded.job_id not in self.stranded, "handed out twice"
            assert self.is_stranded(stranded.job_id)
            self.stranded.add(stranded.job_id)

    def note(self, event: Event) -> None:
        """Keep book of who waits for locks."""
        match event:
            case Moved(number, priority, may_leave):
                self.running[number] = replace(self.running[number], priority=priority)
                if may_leave:
                    self.idle.setdefault(number, False)
                else:
                    self.forget(number)
            case Tired(number):
                self.idle[number] = True
            case SteppedBack(number, priority):
                self.forget(number)
                job = self.running.pop(number)
                self.jobs[number] = replace(job, priority=priority, turns=job.turns + 1)
            case Ended(number, _):
                self.forget(number)

    def forget(self, number: int) -> None:
        self.idle.pop(number, None)
        self.leaving.discard(number)

    def idle_rank(self, number: int) -> tuple[int, int, int]:
        job = self.running[number]
        return (job.priority, job.turns + self.idle[number], number)

    def check_room_made(self, asked: list[int]) -> None:
        """Those who are asked wait, are the least urgent, and give way to somebody better."""
        over = max(0, len(self.running) - len(self.leaving) - self.limit)
        free = max(0, self.limit - len(self.running) + len(self.leaving))
        assert set(asked) <= self.idle.keys() - self.leaving
        self.leaving |= set(asked)
        staying = [self.idle_rank(n) for n in self.idle.keys() - self.leaving]
        going = [self.idle_rank(n) for n in asked]
        assert not staying or not going or min(going) > max(staying)
        comers = self.allowed_jobs()[free:]
        placed = max(0, len(asked) - over)
        assert bool(asked) == bool(placed)
        assert all(job.rank < min(going) for job in comers[:placed])
        if placed < len(comers) and len(staying) > (0 if asked else over):
            best = sorted(staying, reverse=True)[0 if asked else over]
            assert comers[placed].rank > best, "somebody more urgent finds no place"

    def is_stranded(self, number: int) -> bool:
        return any(
            d.job_id in self.ended and self.ended[d.job_id] not in d.accepted
            for d in self.jobs[number].dependencies
        )

    def ready_jobs(self) -> list[WaitingJob]:
        ready = [
            job
            for job in self.jobs.values()
            if all(self.ended.get(d.job_id) in d.accepted for d in job.dependencies)
        ]
        return sorted(ready, key=lambda job: job.rank)

    def obvious_choice(self) -> list[int]:
        free = self.limit - len(self.running) + len(self.leaving)
        return [job.id for job in self.allowed_jobs()[: max(0, free)]]

    def allowed_jobs(self) -> list[WaitingJob]:
        """Return the ready jobs that the limits that they bring let start, the others skipped."""
        counts = Counter(hold.rule_uuid for job in self.running.values() for hold in job.limits)
        allowed = []
        for job in self.ready_jobs():
            if all(counts[hold.rule_uuid] < hold.running_max for hold in job.limits):
                counts.update(hold.rule_uuid for hold in job.limits)
                allowed.append(job)
        return allowed

    def draw_tracked(self, data: st.DataObject, among: Iterable[int]) -> int | None:
        candidates = sorted(among)
        return data.draw(st.sampled_from(candidates)) if candidates else None

    @rule(data=st.data(), priority=st.integers(-20, 19), may_leave=st.booleans())
    def move(self, data: st.DataObject, priority: int, may_leave: bool) -> None:
        number = self.draw_tracked(data, self.running)
        if number is not None:
            self.feed(Moved(JobId(number), priority, may_leave))

    @rule(data=st.data())
    def tire(self, data: st.DataObject) -> None:
        number = self.draw_tracked(data, self.idle)
        if number is not None:
            self.feed(Tired(JobId(number)))

    @rule(data=st.data(), priority=st.integers(-20, 19))
    def step_back(self, data: st.DataObject, priority: int) -> None:
        number = self.draw_tracked(data, self.leaving)
        if number is not None:
            self.feed(SteppedBack(JobId(number), priority))

    @rule(
        priority=st.integers(-20, 19), labels=st.sets(st.sampled_from(list(LIMITS))), data=st.data()
    )
    def add(self, priority: int, labels: set[str], data: st.DataObject) -> None:
        known = sorted([*self.jobs, *self.running, *self.ended])
        after = data.draw(
            st.dictionaries(
                st.sampled_from(known), st.sets(st.sampled_from(sorted(FINAL)), min_size=1)
            )
            if known
            else st.just({})
        )
        limits = tuple(Hold(label, LIMITS[label]) for label in sorted(labels))
        job = waiting(self.next_id, priority, {k: frozenset(v) for k, v in after.items()})
        job = replace(job, limits=limits)
        self.jobs[self.next_id] = job
        self.next_id += 1
        ended = {d.job_id: self.ended[d.job_id] for d in job.dependencies if d.job_id in self.ended}
        self.feed(Added(job, ended))

    @rule(data=st.data(), status=st.sampled_from(sorted(FINAL)))
    def end(self, data: st.DataObject, status: Status) -> None:
        candidates = sorted([*self.jobs, *self.running])
        if candidates:
            number = data.draw(st.sampled_from(candidates))
            self.jobs.pop(number, None)
            self.running.pop(number, None)
            self.ended[number] = status
            self.feed(Ended(JobId(number), status))

    @rule(data=st.data(), priority=st.integers(-20, 19))
    def change_priority(self, data: st.DataObject, priority: int) -> None:
        if self.jobs:
            number = data.draw(st.sampled_from(sorted(self.jobs)))
            old = self.jobs[number]
            self.jobs[number] = replace(old, priority=priority)
            self.feed(PriorityChanged(JobId(number), priority))

    @rule(limit=st.integers(0, 4))
    def change_limit(self, limit: int) -> None:
        self.limit = limit
        self.feed(LimitChanged(limit))

    @invariant()
    def every_stranded_job_was_handed_out(self) -> None:
        if hasattr(self, "jobs"):
            assert {n for n in self.jobs if self.is_stranded(n)} <= self.stranded

    @invariant()
    def no_label_has_more_than_its_limit(self) -> None:
        if hasattr(self, "state"):
            tracked = self.state.tracked.values()
            counts = Counter(hold.rule_uuid for job in tracked for hold in job.limits)
            assert all(counts[label] <= limit for label, limit in LIMITS.items())

    @invariant()
    def tables_agree(self) -> None:
        if not hasattr(self, "state"):
            return
        state = self.state
        assert set(state.waiting) == set(self.jobs)
        assert set(state.tracked) == set(self.running)
        assert (state.idle, state.leaving) == (self.idle, self.leaving)
        assert state.leaving <= state.idle.keys() <= state.tracked.keys()
        assert state.ready == sorted(state.ready)
        inverse = {(d, j) for d, jobs in state.dependents.items() for j in jobs}
        assert inverse == {(d, j) for j, unmet in state.blocked.items() for d in unmet}


SchedulerWalk.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestSchedulerWalk = SchedulerWalk.TestCase


@given(
    st.lists(st.tuples(st.integers(-20, 19), st.integers(1, 50)), unique_by=lambda each: each[1])
)
def test_the_order_of_arrival_does_not_matter(jobs: list[tuple[int, int]]) -> None:
    events = [Added(waiting(number, priority)) for priority, number in jobs]
    whole = run(*events, limit=100)[1].start
    backwards = run(*reversed(events), limit=100)[1].start
    assert whole == backwards
