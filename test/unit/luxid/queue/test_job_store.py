"""A job that was refused never runs: its record is taken back, here and on the candidates."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from ganeti.base.errors import JobQueueError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.jobs import changes
from ganeti.jobs.record import QueuedJob, decode_job
from ganeti.jobs.status import Status
from ganeti.jobs.submission import make_job
from ganeti.luxid.queue import job_store
from ganeti.luxid.queue.job_store import JobStore

DEADLINE_S = 60
JOB = make_job(JobId(7), [{"OP_ID": "OP_TEST_DELAY", "duration": 0.0}], (1, 1))


class Candidate:
    """A candidate that takes every file."""

    def __init__(self) -> None:
        self.records: list[QueuedJob] = []

    async def write(
        self, _path: str, data: bytes, local: Callable[[], None], **_how: bool
    ) -> tuple[str, ...]:
        self.records.append(decode_job(data, JOB.id))
        try:
            local()
        except OSError as err:
            raise JobQueueError(f"cannot write: {err.strerror}") from err
        return ()

    def spread(self, _path: str, data: bytes) -> None:
        self.records.append(decode_job(data, JOB.id))


class ReadOnlyDisk:
    """Refuses to remove anything, as a read-only file system does, until it is mended."""

    def __init__(self, store: JobStore) -> None:
        self.is_mended = False
        self.asked = 0
        self._remove = store.files.remove

    def remove(self, job_id: JobId) -> bool:
        self.asked += 1
        if not self.is_mended:
            raise OSError(errno.EROFS, "Read-only file system")
        return self._remove(job_id)


class World:
    """A queue whose directory is read-only, with one other candidate."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(job_store, "_REMOVE_AGAIN_S", 0.001)
        self.candidate = Candidate()
        self.store = JobStore(Paths(str(tmp_path)), self.candidate)  # type: ignore[arg-type]
        self.store.files.prepare()
        self.disk = ReadOnlyDisk(self.store)
        monkeypatch.setattr(self.store.files, "remove", self.disk.remove)

    def withdraw(self) -> None:
        self.store.withdraw(changes.canceled(JOB, "refused", (2, 2)))

    def ends(self) -> list[Status]:
        return [record.status for record in self.candidate.records]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_candidates_hear_of_a_refusal_though_the_disk_here_is_read_only(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse() -> None:
        def fail(*_args: object) -> None:
            raise OSError(errno.EROFS, "Read-only file system")

        world.store.files.write_durable = fail  # type: ignore[method-assign,assignment]
        with pytest.raises(JobQueueError, match="Read-only file system"):
            await world.store.save(JOB)
        world.withdraw()
        await asyncio.sleep(0.02)

    asyncio.run(refuse())
    assert world.ends() == [Status.QUEUED, Status.CANCELED]
    assert world.disk.asked == 1
    assert not caplog.records  # nothing is there to remove


def test_a_file_that_is_there_goes_as_soon_as_the_disk_lets_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse() -> None:
        await world.store.save(JOB)
        world.withdraw()
        assert world.store.read(JOB.id) == JOB
        world.disk.is_mended = True
        async with asyncio.timeout(DEADLINE_S):
            while world.store.read(JOB.id) is not None:  # noqa: ASYNC110 - a timer removes it
                await asyncio.sleep(0.001)

    asyncio.run(refuse())
    assert world.ends() == [Status.QUEUED, Status.CANCELED]
    assert "Cannot remove refused job" in caplog.text
