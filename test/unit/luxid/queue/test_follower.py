"""What is left of a job once its process has ended."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.errors import JobQueueError
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
        self.jobs = KnownJobs()
        self.known = KnownJob(RUNNING, Phase.RUNNING)
        self.jobs.add(self.known)
        self.log = Path(running_log(paths, JOB.id))
        os.makedirs(paths.luxid_message_dir)
        self.log.write_bytes(b"")
        tell: list[Any] = [lambda _known: self.ended.set(), lambda _known: None]
        parts: list[Any] = [paths, self.jobs, self, None, Tasks(group), *tell]
        self.follower = Follower(*parts)

    def read(self, _job_id: JobId) -> QueuedJob:
        return self.file

    async def save(self, _job: QueuedJob, **_how: bool) -> None:
        if self.full_disk:
            self.full_disk -= 1
            raise JobQueueError("disk full")


@pytest.mark.parametrize("file", [RUNNING, ENDED])
def test_the_log_of_an_earlier_process_goes_with_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: QueuedJob
) -> None:
    """The last process had nothing to log, so it knows of no file; or it died."""
    monkeypatch.setattr(follower, "_WRITE_RETRY_S", 0.0)

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
