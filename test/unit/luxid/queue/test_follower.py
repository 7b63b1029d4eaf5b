"""How the end of a job is found, and what is left of it then."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import GenericError, JobFileCorrupted, JobQueueError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.jobs import changes
from ganeti.jobs.record import QueuedJob
from ganeti.jobs.submission import make_job
from ganeti.luxid.queue import follower
from ganeti.luxid.queue.follower import Follower
from ganeti.luxid.queue.known_jobs import KnownJob, KnownJobs, Phase
from ganeti.luxid.tasks import Tasks
from ganeti.store.job_files import running_log

DEADLINE_S = 60
JOB = make_job(JobId(7), [{"OP_ID": "OP_TEST_DELAY", "duration": 0.0}], (1, 1))
STARTED = changes.handed_over(JOB, livelock="/nowhere", process_id=1, now=(2, 2))
RUNNING = changes.op_running(STARTED, 0, (3, 3))
ENDED = changes.op_succeeded(RUNNING, 0, None, (4, 4))


class World:
    """A job that runs, with its file and its log."""

    def __init__(self, group: asyncio.TaskGroup, paths: Paths) -> None:
        self.ended = asyncio.Event()
        self.file = RUNNING
        self.full_disk = 0  # so many writes fail
        self.unreadable: list[Exception] = []  # the outcome of the first reads
        self.saved: list[QueuedJob] = []
        self.watches: list[OSError | bool] = []  # the outcome of each try to watch the process
        self.jobs = KnownJobs()
        self.known = KnownJob(RUNNING, Phase.RUNNING)
        self.jobs.add(self.known)
        self.log = Path(running_log(paths, JOB.id))
        os.makedirs(paths.luxid_message_dir)
        self.log.write_bytes(b"")
        tell: list[Any] = [lambda _known: self.ended.set(), lambda _known: None]
        parts: list[Any] = [paths, self.jobs, self, self, Tasks(group), *tell]
        self.follower = Follower(*parts)

    def read(self, _job_id: JobId) -> QueuedJob:
        if self.unreadable:
            raise self.unreadable.pop(0)
        return self.file

    def watch(self, _pid: int, _callback: Callable[[], None]) -> bool:
        return answer(self.watches)

    async def save(self, job: QueuedJob, **_how: bool) -> None:
        if self.full_disk:
            self.full_disk -= 1
            raise JobQueueError("disk full")
        self.saved.append(job)


def shortage() -> OSError:
    return OSError(errno.ENFILE, os.strerror(errno.ENFILE))


def play(paths: Paths, act: Callable[[World], None]) -> World:
    """Let something happen to the job, and wait until it has ended."""

    async def run() -> World:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            world = World(group, paths)
            act(world)
            await world.ended.wait()
        return world

    return asyncio.run(run())


@pytest.mark.parametrize("file", [RUNNING, ENDED])
def test_the_log_of_an_earlier_process_goes_with_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: QueuedJob
) -> None:
    """The last process had nothing to log, so it knows of no file; or it died."""
    monkeypatch.setattr(follower, "_RETRY_S", 0.0)

    async def end() -> World:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            world = World(group, Paths(str(tmp_path)))
            world.follower.on_file_changed(JOB.id)
            await asyncio.sleep(0)
            assert world.log.exists()
            world.file, world.full_disk = file, 2
            if file is ENDED:
                world.follower.on_file_changed(JOB.id)
            else:
                world.follower.check_soon(JOB.id)
            await world.ended.wait()
        return world

    world = asyncio.run(end())
    assert world.known.phase is Phase.ENDED
    assert not world.log.exists()


DAMAGED = JobFileCorrupted("Input/output error")


@pytest.mark.parametrize(
    ("unreadable", "is_lost"),
    [
        ([shortage()] * 10, False),
        ([DAMAGED] * (follower._READS_MAX - 1), False),
        ([shortage(), DAMAGED, shortage(), DAMAGED, shortage()], False),
        ([DAMAGED] * follower._READS_MAX, True),
    ],
)
def test_a_job_that_ended_well_is_not_taken_for_dead_as_its_file_cannot_be_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unreadable: list[GenericError | OSError],
    is_lost: bool,
) -> None:
    monkeypatch.setattr(follower, "_RETRY_S", 0.0)

    def act(world: World) -> None:
        world.file, world.unreadable = ENDED, list(unreadable)
        world.follower.check_soon(JOB.id)

    world = play(Paths(str(tmp_path)), act)
    assert not world.unreadable
    assert [job.status for job in world.saved] == (["error"] if is_lost else [])
    assert world.known.job.status == ("error" if is_lost else "success")
    assert world.known.trouble == ""


def test_an_event_of_a_file_that_cannot_be_read_is_no_end(tmp_path: Path) -> None:
    def act(world: World) -> None:
        world.file, world.unreadable = ENDED, [shortage()]
        world.follower.on_file_changed(JOB.id)
        loop = asyncio.get_running_loop()
        loop.call_soon(world.follower.on_file_changed, JOB.id)  # the next version

    assert play(Paths(str(tmp_path)), act).known.job.status == "success"


def test_nobody_is_taken_for_dead_whose_lock_cannot_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "_RETRY_S", 0.0)
    looks: list[OSError | bool] = [shortage(), shortage(), False]
    monkeypatch.setattr(Follower, "is_alive", lambda *_args: answer(looks))

    def act(world: World) -> None:
        world.follower.check_soon(JOB.id)

    world = play(Paths(str(tmp_path)), act)
    assert not looks
    assert [job.status for job in world.saved] == ["error"]


def test_a_sweep_goes_on_where_locks_cannot_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follower, "SWEEP_S", 0.0)
    looks: list[OSError | bool] = [True, shortage(), shortage(), False, False]
    monkeypatch.setattr(Follower, "is_alive", lambda *_args: answer(looks))

    def act(world: World) -> None:
        world.watches = [True]
        world.follower.follow(world.known)
        sweep = asyncio.create_task(world.follower.sweep())
        monkeypatch.setattr(world.follower, "_on_ended", lambda _known: end(world, sweep))

    def end(world: World, sweep: asyncio.Task[None]) -> None:
        sweep.cancel()
        world.ended.set()

    assert [job.status for job in play(Paths(str(tmp_path)), act).saved] == ["error"]
    said = [each.message for each in caplog.records]
    assert len([text for text in said if text.startswith("Cannot tell whether all")]) == 2


def test_a_process_that_cannot_be_watched_at_first_is_watched_by_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Follower, "is_alive", lambda *_args: True)

    async def run() -> World:
        async with asyncio.TaskGroup() as group:
            world = World(group, Paths(str(tmp_path)))
            world.watches = [shortage(), shortage(), True]
            world.follower.follow(world.known)
            for _sweep in range(4):
                world.follower._look_after([world.known])
        return world

    world = asyncio.run(run())
    assert not world.watches
    assert world.known.phase is Phase.RUNNING


def answer(answers: list[OSError | bool]) -> bool:
    """Return the next answer, or raise it."""
    given = answers.pop(0)
    if isinstance(given, OSError):
        raise given
    return given
