"""The disk of the queue is full, or takes no writes: submissions fail clearly, no job is lost."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import psutil
import pytest
from fakes.held_jobs import HELD, let_go, wait_held
from fakes.luxid_node import LuxidNode, delay, is_final, messages, wait_status
from fakes.waiting import wait_until

from ganeti.base.errors import JobQueueError
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs.record import decode_job
from ganeti.system import files

SIZE_KIB = 256
IS_ROOT = os.geteuid() == 0


class Disk:
    """The disk below a queue; `spoil` makes writes fail, `mend` lets them go on."""

    def __init__(self, node: LuxidNode) -> None:
        self.node = node

    def prepare(self) -> None:
        """Called before LuxiD starts."""

    def spoil(self) -> None:
        raise NotImplementedError

    def mend(self) -> None:
        raise NotImplementedError

    def remove(self) -> None:
        """Called when LuxiD has stopped."""


class OwnDisk(Disk):
    """A small file system of its own, which needs root."""

    def prepare(self) -> None:
        path = self.node.paths.queue_dir
        mount("-t", "tmpfs", "-o", f"size={SIZE_KIB}k", "tmpfs", path)
        self.node.files.prepare()

    def remove(self) -> None:
        unmount = ["umount", self.node.paths.queue_dir]
        wait_until(lambda: not subprocess.run(unmount, check=False).returncode, "it to be idle")


class FullDisk(OwnDisk):
    @property
    def _filler(self) -> str:
        return f"{self.node.paths.queue_dir}/filler"

    def spoil(self) -> None:
        with open(self._filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 1024)
            except OSError:
                pass

    def mend(self) -> None:
        files.remove_if_exists(self._filler)


class NotWritable(Disk):
    """A directory that even root cannot change."""

    def spoil(self) -> None:
        self._chattr("+i")

    def mend(self) -> None:
        self._chattr("-i")

    def _chattr(self, what: str) -> None:
        argv = ["chattr", what, self.node.paths.queue_dir]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"this file system has no such flag: {done.stderr}")


class SizeLimit(Disk):
    """No file may have any content any more: the same for LuxiD, without being root."""

    def spoil(self) -> None:
        self._limit(0)

    def mend(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size_bytes: int) -> None:
        if self.node.process is None:
            return
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):  # a job that has just ended
                hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, hard))

    def _pids(self) -> list[int]:
        """Return LuxiD, the template and the job processes."""
        assert self.node.process is not None
        luxid = psutil.Process(self.node.process.pid)
        return [luxid.pid, *(each.pid for each in luxid.children(recursive=True))]


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


needs_root = pytest.mark.skipif(not IS_ROOT, reason="only root can mount a file system")


@pytest.fixture(
    params=[
        pytest.param(FullDisk, marks=[needs_root, pytest.mark.root]),
        pytest.param(NotWritable, marks=[needs_root, pytest.mark.root]),
        SizeLimit,
    ]
)
def disk(request: pytest.FixtureRequest) -> Iterator[Disk]:
    with LuxidNode() as node:
        made: Disk = request.param(node)
        made.prepare()
        try:
            node.start()
            yield made
            made.mend()
            assert node.stop() == 0, node.log()
        finally:
            made.mend()
            node.stop(signal.SIGKILL)
            kill_jobs(node)
            made.remove()


def kill_jobs(node: LuxidNode) -> None:
    for job in node.jobs_on_disk():
        if job.process_id is not None and not job.is_final:
            try:
                os.kill(job.process_id, signal.SIGKILL)
            except ProcessLookupError:
                continue


@pytest.fixture
def client(disk: Disk) -> Iterator[LuxiClient]:
    with disk.node.client() as connected:
        yield connected


def queue_files(node: LuxidNode) -> dict[str, bytes]:
    """Return what lies in the queue, hidden files included, without what is to be written anew."""
    directory = node.paths.queue_dir
    names = [name for name in os.listdir(directory) if os.path.isfile(f"{directory}/{name}")]
    kept = [name for name in names if name != "filler" and not name.startswith(".spare.")]
    return {name: files.read_bytes(f"{directory}/{name}") for name in kept}


@pytest.mark.shows("backend/life/written-first")
def test_a_submission_fails_clearly_and_leaves_nothing(disk: Disk, client: LuxiClient) -> None:
    first = client.submit_job([delay()])
    wait_status(client, first, is_final)
    before = queue_files(disk.node)
    disk.spoil()
    with pytest.raises(JobQueueError, match=r"cannot write .*job-.*: \w+"):
        client.submit_job([delay()])
    answers = client.submit_many_jobs([[delay()]] * 3)
    assert [accepted for accepted, _ in answers] == [False] * 3
    assert all("cannot write" in str(text) for _, text in answers)
    after = queue_files(disk.node)
    assert {name for name in after if name.startswith(".")} == set()
    assert {name: after[name] for name in before if name != "serial"} == {
        name: before[name] for name in before if name != "serial"
    }
    assert [name for name in after if name.startswith("job-")] == [f"job-{first}"]
    assert client.query_jobs(None, ["id", "status"]) == [[first, "success"]]
    disk.mend()
    again = client.submit_job([delay()])
    assert again > first
    assert wait_status(client, again, is_final) == "success"


def test_a_job_that_runs_is_not_lost(disk: Disk, client: LuxiClient) -> None:
    job_id = client.submit_job([messages("before"), HELD, messages("after")])
    place = wait_held(client, job_id)
    disk.spoil()
    let_go(place)
    time.sleep(1.0)  # if the machine is not too slow it ends meanwhile, and cannot say so
    assert not disk.node.job(job_id).is_final
    disk.mend()
    assert wait_status(client, job_id, is_final) == "success"
    job = disk.node.job(job_id)
    said = [entry[3] for entry in job.log_after(0) if entry[2] == "message"]
    assert said == ["TESTMSG=before", "TESTMSG=after"]


def test_a_job_that_waits_starts_later(disk: Disk, client: LuxiClient) -> None:
    running = client.submit_job([HELD])
    dependent = client.submit_job([delay(depends=[[running, ["success"]]])])
    place = wait_held(client, running)
    disk.spoil()
    let_go(place)
    time.sleep(0.6)
    disk.mend()
    assert wait_status(client, running, is_final) == "success"
    assert wait_status(client, dependent, is_final) == "success"


def test_cancel_of_a_waiting_job_fails_clearly_or_holds(disk: Disk, client: LuxiClient) -> None:
    running = client.submit_job([delay(60)])
    waiting = client.submit_job([delay(depends=[[running, ["success"]]])])
    wait_status(client, running, "running")
    disk.spoil()
    reason = refusal(lambda: client.cancel_job(waiting))
    if reason is None:  # a version that was replaced had room enough
        assert client.query_jobs([waiting], ["status"]) == [["canceled"]]
        assert disk.node.job(waiting).status == "canceled"
        disk.mend()
    else:
        assert "cannot write" in reason
        assert client.query_jobs([waiting], ["status"]) == [["waiting"]]  # for the other job
        disk.mend()
        done, text = client.cancel_job(waiting)
        assert done, text
    assert client.cancel_job(running, kill=True)[0]
    assert wait_status(client, running, is_final) == "error"


def refusal(ask: Callable[[], object]) -> str | None:
    """Return why something is refused, None if it is done."""
    try:
        ask()
    except JobQueueError as err:
        return err.message
    return None


def test_archive_and_drain_fail_clearly_or_work(disk: Disk, client: LuxiClient) -> None:
    node = disk.node
    job_id = client.submit_job([delay()])
    wait_status(client, job_id, "success")
    disk.spoil()
    texts = [
        refusal(lambda: client.archive_job(job_id)),
        refusal(lambda: client.set_drain_flag(True)),
    ]
    assert texts[0] is None or f"cannot archive job {job_id}: " in texts[0]
    assert texts[1] is None or "cannot change the drained flag: " in texts[1]
    assert client.query_jobs([job_id], ["archived"]) == [[texts[0] is None]]
    assert client.query_config_values(["drain_flag"]) == [os.path.exists(node.paths.queue_drain)]
    disk.mend()
    client.auto_archive_jobs(-1, 10)
    assert client.query_jobs([job_id], ["archived"]) == [[True]]
    client.set_drain_flag(False)


def test_a_killed_job_is_recorded_once_that_is_possible(disk: Disk, client: LuxiClient) -> None:
    job_id = client.submit_job([delay(60)])
    wait_status(client, job_id, "running")
    pid = disk.node.job(job_id).process_id
    assert pid is not None
    disk.spoil()
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    disk.mend()
    assert wait_status(client, job_id, is_final) == "error"
    data = disk.node.files.read(job_id)
    assert data is not None
    assert decode_job(data, job_id).is_final
