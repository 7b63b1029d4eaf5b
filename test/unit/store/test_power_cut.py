"""What a power cut leaves of the job queue: no acknowledged job is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.power_cut import Disk, lay_out, record

from ganeti.base.errors import JobQueueError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.copies.quorum import Tally
from ganeti.jobexec.job_file import JobFile
from ganeti.jobs import changes
from ganeti.jobs.record import QueuedJob, QueuedOp, decode_job
from ganeti.luxid.queue.job_store import JobStore
from ganeti.store.job_files import JobFiles
from ganeti.system import files


class Alone:
    """Replication without candidates."""

    async def write(
        self, _path: str, _data: bytes, local: Callable[[], None], **_how: object
    ) -> tuple[str, ...]:
        local()
        return ()

    def spread(self, _path: str, _data: bytes) -> None:
        return None

    def renew(self, _names: object, _path: str) -> None:
        return None


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path))
    JobFiles(found).prepare()
    files.write_durable(found.queue_serial, b"0\n")
    return found


def rebuild(base: Path, old: str, state: dict[str, bytes]) -> JobFiles:
    """Make a queue of what is left."""
    found = Paths(str(base))
    queue = JobFiles(found)
    queue.prepare()
    lay_out(base, old, state)
    return queue


def assert_whole(queue: JobFiles, acknowledged: dict[int, bool]) -> None:
    for number, has_ended in acknowledged.items():
        data = queue.read(JobId(number)) or queue.read_archived(JobId(number))
        assert data, f"job {number} is lost"
        job = decode_job(data, number)
        assert job.is_final or not has_ended, f"the end of job {number} is lost"
    assert queue.last_id() >= max(acknowledged, default=0), "an id would be given again"


def run_jobs(store: JobStore, paths: Paths, acknowledged: dict[int, bool]) -> None:
    """Let jobs come, start, say something, run opcodes, end and be archived.

    Args:
        acknowledged: gets {job: whether it has ended}.
    """

    def at(number: int) -> tuple[int, int]:
        return (number, 0)

    for number in (1, 2, 3, 4):
        job = QueuedJob(JobId(number), (QueuedOp({"OP_ID": "OP_X"}), QueuedOp({"OP_ID": "OP_Y"})))
        asyncio.run(store.save_new(job, number))
        acknowledged[number] = False
        started = changes.handed_over(job, livelock="/l", process_id=1, now=at(1))
        if number == 2:
            store.put_back(job)
        asyncio.run(store.save(started))
        file = JobFile(
            paths,
            started,
            send=lambda _data, _wait_s: lambda: Tally([], []),
            spread=lambda _data: None,
            sleep=lambda _seconds: None,
        )
        file.update(changes.op_running(file.job, 0, at(2)))
        file.update_log(changes.with_log_entry(file.job, 0, "message", "x" * number, at(3)), 0)
        file.update_opcode(changes.op_succeeded(file.job, 0, None, at(4)))
        file.update(changes.op_running(changes.op_waiting(file.job, 1, at(5)), 1, at(5)))
        file.finish_well(lambda job: changes.op_succeeded(job, 1, None, at(6)), lambda _text: None)
        acknowledged[number] = True
        if number % 2:
            store.archive_here(JobId(number))


def test_no_acknowledged_job_is_lost_by_a_power_cut(
    paths: Paths, tmp_path_factory: pytest.TempPathFactory
) -> None:
    disk, acknowledged = Disk(), dict[int, bool]()
    for place in (paths.queue_version, paths.queue_serial):
        disk.names[place] = disk.new_file(Path(place).read_bytes())
    store = JobStore(paths, Alone())  # type: ignore[arg-type]
    cuts = record(disk, lambda: dict(acknowledged), lambda: run_jobs(store, paths, acknowledged))
    assert len(cuts) > 40
    for state, promised in cuts:
        queue = rebuild(tmp_path_factory.mktemp("cut"), paths.root, state)
        assert_whole(queue, promised)


class TooFew(Alone):
    """Replication that gets no job on enough candidates."""

    async def write(
        self, path: str, data: bytes, local: Callable[[], None], **how: object
    ) -> tuple[str, ...]:
        await super().write(path, data, local, **how)
        raise JobQueueError("too few candidates")


def test_no_refused_job_is_back_after_a_power_cut(
    paths: Paths, tmp_path_factory: pytest.TempPathFactory
) -> None:
    disk, refused = Disk(), set[int]()
    store = JobStore(paths, TooFew())  # type: ignore[arg-type]
    job = QueuedJob(JobId(1), (QueuedOp({"OP_ID": "OP_X"}),))

    def refuse() -> None:
        with pytest.raises(JobQueueError, match="too few"):
            asyncio.run(store.save_new(job, 1))
        store.withdraw(changes.canceled(job, "refused", (2, 2)))
        refused.add(1)

    cuts = record(disk, lambda: set(refused), refuse)
    cuts += [(state, set(refused)) for state in disk.states()]
    assert any(told for _state, told in cuts)
    for state, told in cuts:
        queue = rebuild(tmp_path_factory.mktemp("cut"), paths.root, state)
        assert not told & set(queue.ids()), "it would run although it was refused"


def test_the_id_of_a_file_that_was_set_aside_is_not_given_again(paths: Paths) -> None:
    queue = JobFiles(paths)
    queue.write_durable(JobId(7), b"")
    queue.set_aside(JobId(7))
    assert queue.last_id() == 7


def test_an_empty_directory_of_the_archive_hides_no_id(paths: Paths) -> None:
    queue = JobFiles(paths)
    queue.write_durable(JobId(9_999), b"{}")
    queue.archive(JobId(9_999))
    files.ensure_directory(f"{paths.queue_archive_dir}/1")
    assert queue.last_id() == 9_999
