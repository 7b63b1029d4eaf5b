"""A job that comes alone starts with its first record, or waits in the queue like any other."""

from __future__ import annotations

import asyncio
import errno
import signal
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ganeti.base.errors import JobQueueError
from ganeti.base.ids import JobId
from ganeti.jobs.record import QueuedJob
from ganeti.jobs.scheduler import LimitChanged, QueueState
from ganeti.jobs.status import Status
from ganeti.luxid.queue import starter, submission
from ganeti.luxid.queue.filters import JobFilters
from ganeti.luxid.queue.job_process import ProcessGoneError
from ganeti.luxid.queue.known_jobs import KnownJobs, Phase
from ganeti.luxid.queue.metrics import QueueMetrics
from ganeti.luxid.queue.starter import JobStarter
from ganeti.luxid.queue.submission import Submissions
from ganeti.luxid.tasks import Tasks
from ganeti.objects.model import FilterRule

DEADLINE_S = 60
DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.0}


class Process:
    """A job process that takes a job, unless it has ended."""

    pid = 17
    livelock = ""
    is_gone = False

    def __init__(self, world: World) -> None:
        self._world = world

    async def assign(self, job_id: int, _timeout_s: float) -> None:
        self._world.says.append(f"assign {job_id}")
        await self._world.on_assign()
        if self.is_gone:
            raise ProcessGoneError("it ended")
        self.livelock = f"/lock/{job_id}"

    async def confirm(self, _confirm: object) -> None:
        self._world.says.append("confirm")

    def drop(self) -> None:
        self._world.says.append("drop")

    async def serve_copies(self, *_parts: object) -> None:
        return None


class World:
    """The parts around the queue; `says` has what they were told, in order."""

    def __init__(self, group: asyncio.TaskGroup, processes: int) -> None:
        self.says: list[str] = []
        self.saved: list[QueuedJob] = []
        self.is_disk_full = False
        self.on_assign: Callable[[], Awaitable[None]] = nothing
        self.on_save: Callable[[], Awaitable[None]] = nothing
        self.warm = [Process(self) for _ in range(processes)]
        self.files = SimpleNamespace(is_drained=lambda: False)
        self.jobs = KnownJobs()
        tasks, parts = Tasks(group), [self, self, self]
        more: list[Any] = [tasks, yes, lambda: True, QueueMetrics()]
        self.starter = JobStarter(self.jobs, *parts, *more)  # type: ignore[arg-type]
        self.door = Submissions(self.jobs, self, self.starter, self, tasks)  # type: ignore[arg-type]

    # The pool.

    def has_warm(self) -> bool:
        return bool(self.warm)

    async def take(self) -> Process:
        return self.warm.pop() if self.warm else Process(self)

    def end(self, process: Process) -> None:
        process.drop()

    # The store.

    async def save_start(self, job: QueuedJob, last_id: int | None) -> tuple[str, ...]:
        await self._save(f"save start {job.id}, last id {last_id}", job)
        return ()

    async def save_new(self, job: QueuedJob, last_id: int) -> None:
        await self._save(f"save new {job.id}, last id {last_id}", job)

    async def _save(self, what: str, job: QueuedJob) -> None:
        self.says.append(what)
        await self.on_save()
        await asyncio.sleep(0)
        if self.is_disk_full:
            raise JobQueueError("disk full")
        self.saved.append(job)

    def withdraw(self, job: QueuedJob) -> None:
        self.says.append(f"withdraw {job.id}")

    def put_back(self, job: QueuedJob) -> None:
        self.says.append(f"put back {job.id}")

    def read_archived(self, _job_id: JobId) -> None:
        return None

    def spread_serial_soon(self) -> None:
        return None

    async def bring(self, *_parts: object) -> None:
        return None

    # Who follows running jobs.

    def follow(self, _known: object) -> None:
        self.says.append("follow")

    def send_signal(self, _known: object, number: signal.Signals) -> bool:
        self.says.append(number.name)
        return True


async def nothing() -> None:
    """Do nothing."""


async def yes() -> bool:
    """This node is the master."""
    return True


def play(processes: int, act: Callable[[World], Awaitable[None]]) -> World:
    """Let something happen around a queue with so many processes that wait."""

    async def run() -> World:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            world = World(group, processes)
            await act(world)
            await asyncio.sleep(0)
            world.starter.stop()
        return world

    return asyncio.run(run())


async def submit_one(world: World) -> None:
    assert await world.door.submit([[DELAY]]) == [1]


def test_a_job_that_comes_alone_starts_with_its_first_record() -> None:
    world = play(2, submit_one)
    assert world.says == ["assign 1", "save start 1, last id 1", "follow", "confirm"]
    (record,) = world.saved
    assert (record.status, record.livelock, record.process_id) == (Status.WAITING, "/lock/1", 17)
    assert world.jobs.require(JobId(1)).phase is Phase.RUNNING
    assert set(world.starter.state.tracked) == {1}


def test_it_is_known_to_nobody_before_that_is_durable() -> None:
    known: list[object] = []

    async def act(world: World) -> None:
        async def look() -> None:
            known.append(world.jobs.get(JobId(1)))

        world.on_assign = look
        await submit_one(world)

    play(1, act)
    assert known == [None]


def test_without_a_process_that_waits_it_is_queued() -> None:
    world = play(0, submit_one)
    assert world.says[0] == "save new 1, last id 1"


def test_where_it_cannot_start_no_process_is_bothered() -> None:
    async def act(world: World) -> None:
        world.starter.tell(LimitChanged(0))
        await submit_one(world)
        assert world.jobs.require(JobId(1)).phase is Phase.QUEUED

    assert play(1, act).says == ["save new 1, last id 1"]


def test_with_a_process_that_ended_it_is_queued() -> None:
    async def act(world: World) -> None:
        world.warm[-1].is_gone = True
        await submit_one(world)

    assert play(1, act).says[:3] == ["assign 1", "drop", "save new 1, last id 1"]


def test_where_others_come_first_meanwhile_it_is_queued() -> None:
    async def act(world: World) -> None:
        async def fill() -> None:
            world.starter.tell(LimitChanged(0))

        world.on_assign = fill
        await submit_one(world)
        assert world.jobs.require(JobId(1)).phase is Phase.QUEUED

    assert play(1, act).says == ["assign 1", "drop", "save new 1, last id 1"]


def filters(*actions: object) -> JobFilters:
    """Return rules that match all jobs, named by their actions; the first one decides."""
    return JobFilters(
        FilterRule(uuid=str(action), priority=priority, watermark=0, predicates=[], action=action)
        for priority, action in enumerate(actions)
    )


@pytest.mark.parametrize("at_once_s", [60.0, 0.0])
@pytest.mark.parametrize("moment", ["on_assign", "on_save"])
def test_it_keeps_its_limit_where_filters_change_as_it_starts(
    monkeypatch: pytest.MonkeyPatch, moment: str, at_once_s: float
) -> None:
    monkeypatch.setattr(submission, "FILTERS_S_MAX", at_once_s)
    limit = ["RATE_LIMIT", 1]

    async def act(world: World) -> None:
        world.door.set_filters(filters(limit))

        async def change() -> None:
            setattr(world, moment, nothing)
            world.door.set_filters(filters(limit, "ACCEPT"))
            await asyncio.sleep(0)

        setattr(world, moment, change)
        await submit_one(world)
        assert await world.door.submit([[DELAY]]) == [2]
        for _turn in range(3):
            await asyncio.sleep(0)
        assert world.jobs.require(JobId(1)).phase is Phase.RUNNING
        assert world.jobs.require(JobId(2)).phase is Phase.QUEUED
        assert world.door.held_by(JobId(2)) == str(limit)

    assert play(3, act).starter.state.tracked.keys() == {1}


def test_a_pause_that_comes_while_it_gets_its_process_holds_it() -> None:
    async def act(world: World) -> None:
        async def pause() -> None:
            world.door.set_filters(filters("PAUSE"))

        world.on_assign = pause
        await submit_one(world)
        assert world.jobs.require(JobId(1)).phase is Phase.QUEUED
        await asyncio.sleep(0)
        assert world.door.held_by(JobId(1)) == "PAUSE"

    assert play(1, act).says == ["assign 1", "drop", "save new 1, last id 1"]


def test_a_rule_that_refuses_ends_no_job_that_is_not_durable() -> None:
    """It was accepted before; the record of its end would come before its first one."""

    async def act(world: World) -> None:
        async def refuse() -> None:
            world.door.set_filters(filters("REJECT"))
            await asyncio.sleep(0)

        world.on_save = refuse
        await submit_one(world)

    assert play(0, act).jobs.require(JobId(1)).job.status is not Status.CANCELED


def test_an_error_of_ours_while_it_gets_its_process_lets_that_go() -> None:
    async def act(world: World) -> None:
        async def fail() -> None:
            world.door.filters = None  # type: ignore[assignment]

        world.on_assign = fail
        with pytest.raises(AttributeError):
            await world.door.submit([[DELAY]])

    assert play(1, act).says == ["assign 1", "drop"]


def test_what_is_not_durable_is_refused_and_does_not_start() -> None:
    async def act(world: World) -> None:
        world.is_disk_full = True
        (answer,) = await world.door.submit([[DELAY]])
        assert isinstance(answer, JobQueueError)

    world = play(1, act)
    assert world.says == ["assign 1", "save start 1, last id 1", "drop", "withdraw 1"]
    assert world.jobs.get(JobId(1)) is None
    assert not world.starter.state.tracked


def test_a_job_that_fails_to_start_in_an_unforeseen_way_keeps_no_place() -> None:
    async def act(world: World) -> None:
        async def fail(_job: QueuedJob, _last_id: int | None) -> tuple[str, ...]:
            raise RuntimeError

        world.save_start = fail  # type: ignore[method-assign]
        with pytest.raises(RuntimeError):
            await world.door.submit([[DELAY]])

    world = play(1, act)
    assert not world.starter.state.tracked
    assert world.says == ["assign 1", "drop"]


def test_of_several_jobs_none_starts_before_all_are_durable() -> None:
    async def act(world: World) -> None:
        assert await world.door.submit([[DELAY], [DELAY]]) == [1, 2]

    assert play(2, act).says[:2] == ["save new 1, last id 2", "save new 2, last id 2"]


def test_a_job_is_asked_to_step_back_once_that_is_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starter, "STEP_BACK_AGAIN_S", 0.0)
    shortages = [OSError(errno.EMFILE, "Too many open files")] * 2

    def catches(_pid: int, _number: signal.Signals) -> bool:
        if shortages:
            raise shortages.pop()
        return True

    monkeypatch.setattr(starter, "catches", catches)

    async def act(world: World) -> None:
        await submit_one(world)
        world.starter.state = QueueState(leaving=frozenset({JobId(1)}))
        asking = asyncio.create_task(world.starter._ask_to_step_back(JobId(1)))
        while "SIGUSR2" not in world.says:  # noqa: ASYNC110 - a turn of the loop each
            await asyncio.sleep(0)
        world.starter.state = QueueState()
        await asking

    play(1, act)
    assert not shortages
