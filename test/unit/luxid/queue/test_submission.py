"""What jobs that come in are told to the scheduler, and when."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ganeti.base.errors import JobQueueError, JobQueueFull, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.jobs import changes
from ganeti.jobs.record import QueuedJob
from ganeti.jobs.scheduler import Added, Ended, HoldsChanged
from ganeti.jobs.status import Status
from ganeti.jobs.submission import make_job
from ganeti.luxid.queue import submission
from ganeti.luxid.queue.filters import JobFilters
from ganeti.luxid.queue.known_jobs import KnownJob, KnownJobs, Phase
from ganeti.luxid.queue.submission import Submissions
from ganeti.luxid.tasks import Tasks
from ganeti.objects.model import FilterRule

DEADLINE_S = 60


def delay(**more: object) -> dict[str, object]:
    return {"OP_ID": "OP_TEST_DELAY", "duration": 0.0, **more}


def ended_job(number: int) -> QueuedJob:
    return changes.canceled(make_job(JobId(number), [delay()], (1, 1)), "x", (2, 2))


class SlowStore:
    """Makes a job durable when it is allowed to."""

    def __init__(self) -> None:
        self.files = SimpleNamespace(is_drained=lambda: False, last_id=lambda: 1)
        self.allowed: dict[int, asyncio.Event] = {}
        self.saving = asyncio.Semaphore(0)
        self.failing: set[int] = set()
        self.ended: list[QueuedJob] = []
        self.archived: list[JobId] = []
        self.archived_there: list[JobId] = []
        self.full_archive: set[int] = set()

    def may_save(self, number: int) -> asyncio.Event:
        return self.allowed.setdefault(number, asyncio.Event())

    async def save_new(self, job: QueuedJob, _last_id: int) -> None:
        self.saving.release()
        await self.may_save(job.id).wait()
        if job.id in self.failing:
            raise JobQueueError("disk full")

    def read_archived(self, job_id: JobId) -> QueuedJob | None:
        return ended_job(job_id) if job_id in self.archived else None

    def archive_here(self, job_id: JobId) -> None:
        if job_id in self.full_archive:
            raise JobQueueError(f"cannot archive job {job_id}: disk full")
        self.archived.append(job_id)

    async def archive_there(self, job_ids: Sequence[JobId]) -> None:
        await asyncio.sleep(0)
        self.archived_there += job_ids

    def spread_serial_soon(self) -> None:
        return None

    def withdraw(self, job: QueuedJob) -> None:
        self.ended.append(job)


class Scheduler:
    """Takes note of the events."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.ended: list[QueuedJob] = []

    def tell(self, event: object) -> None:
        self.events.append(event)

    async def start_new(self, *_args: object) -> bool:
        return False

    def end_soon(self, entry: KnownJob, end: Callable[[QueuedJob], QueuedJob]) -> None:
        entry.set_phase(Phase.ENDED)
        self.ended.append(end(entry.job))

    def added(self) -> dict[int, dict[JobId, Status]]:
        return {each.job.id: each.ended for each in self.events if isinstance(each, Added)}


class Door:
    """An intake with one job that runs, number 1."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.store, self.scheduler, self.entries = SlowStore(), Scheduler(), KnownJobs()
        first = make_job(JobId(1), [delay()], (1, 1))
        started = changes.handed_over(first, livelock="/l", process_id=1, now=(1, 1))
        self.first = KnownJob(started, Phase.RUNNING)
        self.entries.add(self.first)
        parts: list[Any] = [self.store, self.scheduler, None]
        self.intake = Submissions(self.entries, *parts, Tasks(group))
        self.intake.last_id = 1

    def end_first(self) -> None:
        running = changes.op_running(self.first.job, 0, (2, 2))
        self.first.set_job(changes.op_succeeded(running, 0, None, (3, 3)))
        self.first.set_phase(Phase.ENDED)
        self.scheduler.tell(Ended(JobId(1), Status.SUCCESS))


def test_what_ends_while_a_job_becomes_durable_counts() -> None:
    async def submit() -> Door:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            door = Door(group)
            task = group.create_task(door.intake.submit([[delay(depends=[[1, ["success"]]])]]))
            await door.store.saving.acquire()
            door.end_first()
            door.store.may_save(2).set()
            assert await task == [2]
        return door

    assert asyncio.run(submit()).scheduler.added() == {2: {1: Status.SUCCESS}}


def test_no_job_of_a_message_enters_before_all_are_durable() -> None:
    async def submit() -> None:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            door = Door(group)
            task = group.create_task(door.intake.submit([[delay()], [delay()]]))
            for _number in (2, 3):
                await door.store.saving.acquire()
                assert door.scheduler.added() == {}
            door.store.may_save(2).set()
            door.store.may_save(3).set()
            assert await task == [2, 3]
            assert door.scheduler.added() == {2: {}, 3: {}}

    asyncio.run(submit())


def test_a_job_that_depends_on_one_that_could_not_be_saved_ends() -> None:
    async def submit() -> Door:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            door = Door(group)
            door.store.failing.add(2)
            for number in (2, 3):
                door.store.may_save(number).set()
            jobs = [[delay()], [delay(depends=[[-1, []]])]]
            refused, accepted = await door.intake.submit(jobs)
            assert isinstance(refused, JobQueueError)
            assert accepted == 3
        return door

    door = asyncio.run(submit())
    assert door.scheduler.added() == {}
    (ended,) = door.scheduler.ended
    assert (ended.id, ended.status) == (3, Status.ERROR)


@pytest.mark.parametrize("jobs", [[[delay()]], [[delay()], [delay()]]])
def test_what_depends_on_a_refused_job_hears_of_it_even_if_it_cannot_be_taken_back(
    jobs: list[list[dict[str, object]]],
) -> None:
    async def submit() -> Door:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            door = Door(group)

            def fail(_job: QueuedJob) -> None:
                raise OSError("read-only")

            door.store.withdraw = fail  # type: ignore[method-assign]
            door.store.failing.add(2)
            door.store.may_save(2).set()
            door.store.may_save(3).set()
            with pytest.raises(OSError, match="read-only"):
                await door.intake.submit(jobs)
        return door

    assert Ended(JobId(2), Status.ERROR) in asyncio.run(submit()).scheduler.events


@pytest.mark.parametrize("number", ["9" * 5000, 10**300, "0" * 19])
def test_a_job_that_cannot_be_made_leaves_no_trace(number: object) -> None:
    async def submit() -> None:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            door = Door(group)
            for each in range(2, 10):
                door.store.may_save(each).set()
            with contextlib.suppress(OpPrereqError):  # or some of the jobs are accepted
                await door.intake.submit([[delay()], [delay(depends=[[number, []]])]])
            assert not door.intake._unsaved
            (accepted,) = await door.intake.submit([[delay()]])
            assert isinstance(accepted, int)

    asyncio.run(submit())


def test_an_error_of_ours_closes_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "QUEUE_LENGTH_MAX", 4)
    calls = 0

    def limits_of(_job: QueuedJob) -> tuple[()]:
        nonlocal calls
        calls += 1
        if calls <= 10 and calls % 2 == 0:
            raise ZeroDivisionError
        return ()

    monkeypatch.setattr(submission, "limits_of", limits_of)

    async def submit() -> Door:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            door = Door(group)
            for _round in range(5):
                with pytest.raises(ZeroDivisionError):
                    await door.intake.submit([[delay()], [delay()]])
            for each in range(2, 10):
                door.store.may_save(each).set()
            assert await door.intake.submit([[delay()], [delay()]]) == [7, 8]
        return door

    door = asyncio.run(submit())
    assert Ended(JobId(2), Status.ERROR) in door.scheduler.events
    assert not door.intake._unsaved


def full_door(group: asyncio.TaskGroup, ended: int) -> Door:
    """An intake that lets all be saved, with job 1 that runs and so many that ended after it."""
    door = Door(group)
    for number in range(2, 100):
        door.store.may_save(number).set()
        if number <= ended + 1:
            door.entries.add(KnownJob(ended_job(number), Phase.ENDED))
    door.intake.last_id = ended + 1
    return door


@pytest.fixture
def small_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue of ten jobs, of which three are archived at once."""
    monkeypatch.setattr(submission, "QUEUE_LENGTH_MAX", 10)
    monkeypatch.setattr(submission, "_ROOM", 3)


@pytest.mark.usefixtures("small_queue")
def test_a_full_queue_archives_the_oldest_that_ended(caplog: pytest.LogCaptureFixture) -> None:
    async def submit() -> None:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            door = full_door(group, ended=9)
            assert await door.intake.submit([[delay(depends=[[2, ["canceled"]]])]]) == [11]
            assert door.store.archived == door.store.archived_there == [2, 3, 4]
            assert door.scheduler.added() == {11: {2: Status.CANCELED}}
            assert await door.intake.submit([[delay()], [delay()]]) == [12, 13]
            assert len(door.store.archived) == 3
            assert len(door.entries) == 10

    asyncio.run(submit())
    assert [record.message for record in caplog.records] == [
        "The queue has 10 jobs, which is its limit; the first 3 that ended are archived"
    ]


@pytest.mark.usefixtures("small_queue")
@pytest.mark.parametrize("ended", [0, 4, 9])
def test_only_jobs_that_have_not_ended_fill_the_queue(ended: int) -> None:
    async def submit() -> None:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            door = full_door(group, ended)
            answers = await door.intake.submit([[delay()]] * 12)
            assert [isinstance(each, JobQueueFull) for each in answers] == [False] * 9 + [True] * 3
            assert len(door.store.archived) == ended
            assert not door.intake._unsaved

    asyncio.run(submit())


@pytest.mark.usefixtures("small_queue")
def test_clients_that_come_to_a_full_queue_together_archive_once() -> None:
    async def submit() -> None:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            door = full_door(group, ended=9)
            for answers in await asyncio.gather(
                *(door.intake.submit([[delay()]]) for _client in range(3))
            ):
                assert isinstance(answers[0], int)
            assert door.store.archived == door.store.archived_there == [2, 3, 4]

    asyncio.run(submit())


@pytest.mark.usefixtures("small_queue")
def test_who_is_refused_as_the_archive_takes_nothing_hears_so() -> None:
    async def submit() -> None:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            door = full_door(group, ended=9)
            door.store.full_archive = {3}
            (refused,) = await door.intake.submit([[delay()]])
            assert isinstance(refused, JobQueueError)
            assert refused.message == "cannot archive job 3: disk full"
            assert door.store.archived_there == [2]

    asyncio.run(submit())


def test_an_error_of_ours_while_one_of_several_is_saved_is_an_answer() -> None:
    async def submit() -> Door:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            door = Door(group)
            save = door.store.save_new

            async def fail(job: QueuedJob, last_id: int) -> None:
                if job.id == 2:
                    raise ZeroDivisionError
                await save(job, last_id)

            door.store.save_new = fail  # type: ignore[method-assign]
            door.store.may_save(3).set()
            refused, accepted = await door.intake.submit([[delay()], [delay()]])
            assert isinstance(refused, JobQueueError)
            assert "internal error" in refused.message
            assert accepted == 3
        return door

    door = asyncio.run(submit())
    assert [job.id for job in door.store.ended] == [2]
    assert door.scheduler.added() == {3: {}}
    assert Ended(JobId(2), Status.ERROR) in door.scheduler.events


def test_a_job_canceled_at_the_door_does_not_enter() -> None:
    async def submit() -> None:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            door = Door(group)
            task = group.create_task(door.intake.submit([[delay()], [delay()]]))
            door.store.may_save(2).set()
            while door.entries.get(JobId(2)) is None:  # noqa: ASYNC110 - a turn of the loop each
                await asyncio.sleep(0)
            entry = door.entries.get(JobId(2))
            assert entry is not None
            entry.set_phase(Phase.ENDED)
            door.store.may_save(3).set()
            await task
            assert door.scheduler.added() == {3: {}}

    asyncio.run(submit())


@pytest.mark.parametrize("at_once_s", [60.0, 0.0])
def test_new_filters_hold_every_job_that_has_not_ended(
    monkeypatch: pytest.MonkeyPatch, at_once_s: float
) -> None:
    """Costly ones judge in slices; what comes in meanwhile is judged as well, older rules are not."""
    monkeypatch.setattr(submission, "FILTERS_S_MAX", at_once_s)

    def pausing(uuid: str) -> JobFilters:
        rule = FilterRule(uuid=uuid, priority=0, watermark=0, predicates=[], action="PAUSE")
        return JobFilters([rule])

    async def change() -> Door:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            door = Door(group)
            for number in range(2, 9):
                job = make_job(JobId(number), [delay()], (1, 1))
                door.entries.add(KnownJob(job, Phase.QUEUED))
            door.end_first()
            door.intake.set_filters(pausing("old"))
            door.intake.set_filters(pausing("new"))
        return door

    events = asyncio.run(change()).scheduler.events
    told = [each for each in events if isinstance(each, HoldsChanged)]
    assert {uuid: hold.rule_uuid for uuid, hold in told[-1].holds.items()} == dict.fromkeys(
        range(2, 9), "new"
    )
    assert len(told) == (2 if at_once_s else 1)
