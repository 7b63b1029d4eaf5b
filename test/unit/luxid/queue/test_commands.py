"""Changes of a job are answered even while something else is being done with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import JobQueueError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.jobs import changes
from ganeti.jobs.merging import furthest
from ganeti.jobs.record import QueuedJob, decode_job, encode_job
from ganeti.jobs.status import Status
from ganeti.jobs.submission import make_job
from ganeti.luxid.queue import commands, follower, starter
from ganeti.luxid.queue.commands import JobCommands
from ganeti.luxid.queue.follower import Follower
from ganeti.luxid.queue.known_jobs import KnownJob, KnownJobs, Phase
from ganeti.luxid.queue.metrics import QueueMetrics
from ganeti.luxid.queue.starter import JobStarter
from ganeti.luxid.tasks import Tasks

DEADLINE_S = 60
JOB = make_job(JobId(7), [{"OP_ID": "OP_TEST_DELAY", "duration": 0.0}], (1, 1))


class World:
    """A queue with one job, on a disk that is full until it is mended."""

    def __init__(self, group: asyncio.TaskGroup, paths: Paths) -> None:
        self.is_disk_full = True
        self.failed = asyncio.Event()
        self.jobs = KnownJobs()
        tasks = Tasks(group)
        parts: list[Any] = [paths, self.jobs, self, None, tasks, self.note, self.note]
        self.follower = Follower(*parts)
        more: list[Any] = [self.jobs, self, None, self.follower, tasks, None, None, QueueMetrics()]
        self.starter = JobStarter(*more)
        known: list[Any] = [paths, self.jobs, self, None, self.starter, self.follower]
        self.commands = JobCommands(*known)

    def note(self, _known: KnownJob) -> None:
        """A job has ended, or moved."""

    async def save(self, _job: QueuedJob, **_how: bool) -> None:
        if self.is_disk_full:
            self.failed.set()
            raise JobQueueError("cannot write: No space left on device")

    def read(self, _job_id: JobId) -> None:
        return None


def end_queued(world: World) -> KnownJob:
    """Have a job end that waits in the queue."""
    known = KnownJob(JOB, Phase.QUEUED)
    world.jobs.add(known)
    world.starter.end_soon(known, lambda job: changes.canceled(job, "stranded", (2, 2)))
    return known


def find_dead(world: World) -> KnownJob:
    """Have a job looked after whose process is dead."""
    started = changes.handed_over(JOB, livelock="/nowhere", process_id=1, now=(2, 2))
    known = KnownJob(started, Phase.RUNNING)
    world.jobs.add(known)
    world.follower.check_soon(JOB.id)
    return known


@pytest.mark.parametrize(
    ("begin", "why", "end"),
    [
        (end_queued, "it ends, which cannot be recorded", Status.CANCELED),
        (find_dead, "its process died, which cannot be recorded", Status.ERROR),
    ],
)
def test_who_changes_a_job_whose_end_cannot_be_written_hears_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    begin: Callable[[World], KnownJob],
    why: str,
    end: Status,
) -> None:
    monkeypatch.setattr(commands, "TURN_S_MAX", 0.05)
    monkeypatch.setattr(starter, "RETURN_DELAY_S", 0.2)
    monkeypatch.setattr(follower, "_RETRY_S", 0.2)
    paths = Paths(str(tmp_path))

    async def act() -> None:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            world = World(group, paths)
            known = begin(world)
            await world.failed.wait()
            questions: list[Awaitable[object]] = [
                world.commands.cancel_job(7, None),
                world.commands.change_job_priority(7, -5),
            ]
            for question in questions:
                with pytest.raises(JobQueueError, match=f"job 7 .* {why}: .*No space left"):
                    await question
            world.is_disk_full = False
            while known.phase is not Phase.ENDED:  # noqa: ASYNC110 - it is tried again and again
                await asyncio.sleep(0.01)
            text = f"Job 7 has ended already, in {end}"
            assert await world.commands.cancel_job(7, None) == (False, text)
            world.starter.stop()

    asyncio.run(act())


def test_who_changes_a_job_whose_start_hangs_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "TURN_S_MAX", 0.05)

    async def act() -> None:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            world = World(group, Paths(str(tmp_path)))
            known = KnownJob(JOB, Phase.STARTING)
            world.jobs.add(known)
            async with known.turn:
                with pytest.raises(JobQueueError, match="was being started or ended for"):
                    await world.commands.cancel_job(7, None)
            known.set_phase(Phase.QUEUED)
            world.is_disk_full = False
            assert await world.commands.cancel_job(7, None) == (True, "Job 7 canceled")
            assert not known.turn.locked()
            world.starter.stop()

    asyncio.run(act())


def test_a_candidate_that_missed_a_change_of_priority_does_not_undo_it(tmp_path: Path) -> None:
    async def act() -> KnownJob:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            world = World(group, Paths(str(tmp_path)))
            world.is_disk_full = False
            known = KnownJob(JOB, Phase.QUEUED)
            world.jobs.add(known)
            for priority in (10, -5):
                (changed, _text) = await world.commands.change_job_priority(7, priority)
                assert changed
            world.starter.stop()
        return known

    missed, urgent = encode_job(JOB), encode_job(asyncio.run(act()).job)
    assert furthest(7, [missed, urgent]) == urgent
    assert decode_job(urgent, 7).priority == -5
    begun = encode_job(changes.handed_over(JOB, livelock="/lock", process_id=1, now=(2, 2)))
    assert furthest(7, [urgent, begun]) == begun, "though the change was refused, and not noted"
