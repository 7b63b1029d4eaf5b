"""Invariant 1, cut at each step: a job either never starts or is found dead."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.held_jobs import HELD, let_go, wait_held
from fakes.luxid_node import DEADLINE_S, LuxidNode, delay, is_final, kill_and_wait, wait_status
from fakes.waiting import PROMPT_S, wait_until

from ganeti.base.ids import JobId
from ganeti.jobs.record import QueuedJob, encode_job
from ganeti.jobs.status import Status
from ganeti.jobs.submission import make_job
from ganeti.luxid.queue.processes import ALONE, launch_argv
from ganeti.protocol.envelope import ETX
from ganeti.protocol.job_start import Assign, Confirm, Dialog, Named, Ready
from ganeti.store.job_files import JOB_BYTES_MAX
from ganeti.system import nursery
from ganeti.system.filelock import is_alive

HERE = os.path.dirname(os.path.abspath(__file__))
CUT = f"{HERE}/../fakes/cut_job_process.py"
RUN_LUXID = f"{HERE}/../fakes/run_luxid.py"


@pytest.fixture
def node() -> Iterator[LuxidNode]:
    with LuxidNode() as made:
        yield made


class ExecNode(LuxidNode):
    """A node whose job processes are programs of their own."""

    def luxid_argv(self) -> list[str]:
        return [*super().luxid_argv(), "--exec-jobs"]


@pytest.fixture(params=[LuxidNode, ExecNode], ids=["fork", "exec"])
def any_node(request: pytest.FixtureRequest) -> Iterator[LuxidNode]:
    with request.param() as made:
        yield made


class PlayedLuxid:
    """The test in the place of LuxiD, with one real job process."""

    def __init__(self, node: LuxidNode) -> None:
        self._received = b""
        self.dialog = Dialog("luxid")
        self.stream, theirs = socket.socketpair()
        self.stream.settimeout(DEADLINE_S)
        with theirs:
            self.begin(node, theirs)

    def begin(self, node: LuxidNode, theirs: socket.socket) -> None:
        """Have the process made, which gets one end of a channel."""
        self.control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(DEADLINE_S)
        with its:
            self.template = subprocess.Popen(launch_argv(), stdin=its, env=node.environment())
        nursery.send_request(self.control, 1, theirs)
        ready, begun = (nursery.receive_report(self.control) for _ in range(2))
        assert ready is not None
        assert ready.number == nursery.READY
        assert begun is not None
        assert begun.wait_status is None
        self.pid = begun.pid

    def hear(self) -> object:
        while ETX not in self._received:
            chunk = self.stream.recv(65536)
            assert chunk, "the job process hung up"
            self._received += chunk
        message, _, self._received = self._received.partition(ETX)
        return self.dialog.receive(message)

    def say(self, message: Assign | Confirm) -> None:
        self.stream.sendall(self.dialog.send(message) + ETX)

    def leave(self) -> int:
        """Hang up; returns the exit status of the process."""
        self.stream.close()
        ended = nursery.receive_report(self.control)
        assert ended is not None
        assert ended.wait_status is not None
        self.control.close()
        assert self.template.wait(DEADLINE_S) == 0
        return os.waitstatus_to_exitcode(ended.wait_status)


class PlayedWithExec(PlayedLuxid):
    """The same with a process that has no template."""

    def begin(self, node: LuxidNode, theirs: socket.socket) -> None:
        self.job = subprocess.Popen(launch_argv(ALONE), stdin=theirs, env=node.environment())
        self.pid = self.job.pid

    def leave(self) -> int:
        self.stream.close()
        return self.job.wait(DEADLINE_S)


any_luxid = pytest.mark.parametrize("played", [PlayedLuxid, PlayedWithExec], ids=["fork", "exec"])


def queued_job(node: LuxidNode, number: int) -> QueuedJob:
    job = make_job(JobId(number), [delay()], (1, 1))
    node.files.write_durable(job.id, encode_job(job))
    return job


@pytest.mark.shows(
    "2.12/death/lock-first",
    "2.12/execution/child-names",
    "2.12/execution/starts-after",
    "2.12/execution/unconfirmed-ends",
)
@any_luxid
@pytest.mark.parametrize("heard", [0, 1, 2])
def test_a_process_that_is_not_confirmed_leaves_nothing(
    node: LuxidNode, heard: int, played: type[PlayedLuxid]
) -> None:
    job = queued_job(node, 1)
    luxid = played(node)
    ready = luxid.hear()
    assert isinstance(ready, Ready)
    assert ready.process_id == luxid.pid
    assert is_alive(ready.livelock)
    if heard >= 1:
        luxid.say(Assign(1))
    if heard >= 2:
        named = luxid.hear()
        assert isinstance(named, Named)
        assert is_alive(named.livelock)
        assert not os.path.exists(ready.livelock)
    assert luxid.leave() == 1
    assert node.job(1) == job
    assert os.listdir(node.paths.livelock_dir) == []
    assert node.wconfd.calls == []


@pytest.mark.shows("2.12/execution/broken-after", "2.12/further/own-file")
@any_luxid
def test_a_confirmed_process_goes_on_without_luxid(
    node: LuxidNode, played: type[PlayedLuxid]
) -> None:
    queued_job(node, 1)
    luxid = played(node)
    luxid.hear()
    luxid.say(Assign(1))
    luxid.hear()
    luxid.say(Confirm((None,)))
    assert luxid.leave() == 0
    assert node.job(1).status is Status.SUCCESS
    assert os.listdir(node.paths.livelock_dir) == []


@pytest.mark.shows("2.12/execution/starts-after")
@any_luxid
def test_a_process_that_hears_nonsense_does_not_start(
    node: LuxidNode, played: type[PlayedLuxid]
) -> None:
    job = queued_job(node, 1)
    luxid = played(node)
    luxid.hear()
    luxid.say(Assign(1))
    luxid.hear()
    luxid.stream.sendall(b'{"type":"assign","job_id":2}' + ETX)
    assert luxid.leave() == 1
    assert node.job(1) == job


# LuxiD with processes that end, or hang, at each step.


class CutNode(LuxidNode):
    """A node whose job processes are cut at one step, one for each flag that is set."""

    step = ""
    options: tuple[str, ...] = ()

    def flag(self, suffix: str = "") -> str:
        return f"{self.paths.run_dir}/cut{suffix}"

    def set_flag(self, suffix: str = "") -> None:
        with open(self.flag(suffix), "x", encoding="ascii"):
            pass

    def __exit__(self, *exc: object) -> None:
        if os.path.exists(self.flag(".pid")):
            with open(self.flag(".pid"), encoding="ascii") as file:
                kill_and_wait(int(file.read()))
        super().__exit__(*exc)

    def luxid_argv(self) -> list[str]:
        return [RUN_LUXID, "-f", *self.options, "--", CUT, self.step, self.flag()]


class CutExecNode(CutNode):
    """The same with processes that are programs of their own."""

    options = ("--exec-jobs",)


@pytest.fixture(params=[CutNode, CutExecNode], ids=["fork", "exec"])
def cut_node(request: pytest.FixtureRequest) -> Iterator[CutNode]:
    with request.param() as made:
        yield made


def wait_gone(path: str) -> None:
    wait_until(lambda: not os.path.exists(path), f"{path} to be removed")


@pytest.mark.shows("2.12/execution/broken-before-replaced")
@pytest.mark.parametrize("step", ["begin", "ready", "assign"])
def test_a_process_that_ends_before_it_is_named_is_replaced(cut_node: CutNode, step: str) -> None:
    cut_node.step = step
    cut_node.set_flag()
    client = cut_node.start()
    job_id = client.submit_job([delay()])
    assert wait_status(client, job_id, is_final) == "success"
    assert not os.path.exists(cut_node.flag())
    assert cut_node.stop() == 0
    livelocks = cut_node.paths.livelock_dir
    wait_until(lambda: not os.listdir(livelocks), "the waiting processes to end by themselves")


def test_a_program_that_hangs_before_it_is_ready_is_killed() -> None:
    with CutExecNode() as node:
        node.step = "begin"
        node.set_flag(".hang")
        client = node.start()
        job_id = client.submit_job([delay()])
        assert wait_status(client, job_id, is_final, PROMPT_S) == "success", "others were there"
        wait_gone(node.flag(".hang"))
        wait_until(lambda: "hangs, it is killed" in node.log(), "its end")
        pid = int(Path(node.flag(".pid")).read_text())
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "its end")
        assert wait_status(client, client.submit_job([delay()]), is_final) == "success"


@pytest.mark.shows("2.12/execution/named-then-dead", "2.12/further/died-silent")
def test_a_process_that_ends_after_it_was_named_is_found_dead(cut_node: CutNode) -> None:
    cut_node.step = "named"
    cut_node.set_flag()
    client = cut_node.start()
    job_id = client.submit_job([delay()])
    started = time.monotonic()
    assert wait_status(client, job_id, is_final) == "error"
    assert time.monotonic() - started < PROMPT_S
    assert cut_node.job(job_id).ops[0].result == ["OpExecError", ["Job process died"]]
    assert not [call for call in cut_node.wconfd.calls if call[0] == "waitLocks"]


@pytest.mark.shows("2.12/execution/confirmed-after-record", "2.12/execution/luxid-dies-early")
def test_luxid_killed_before_the_start_record_leaves_the_job_in_the_queue(
    cut_node: CutNode,
) -> None:
    cut_node.step = "assign"
    cut_node.set_flag(".hang")
    client = cut_node.start()
    job_id = client.submit_job([delay()])
    wait_gone(cut_node.flag(".hang"))
    cut_node.stop(signal.SIGKILL)
    assert cut_node.job(job_id).status is Status.QUEUED
    client = cut_node.start()
    assert wait_status(client, job_id, is_final) == "success"
    locks = [call for call in cut_node.wconfd.calls if call[0] == "waitLocks"]
    assert len(locks) == 1, "it ran twice"


@pytest.mark.shows("2.12/execution/confirmed-after-record", "2.12/execution/luxid-dies-late")
def test_luxid_killed_after_the_start_record_finds_the_job_dead(cut_node: CutNode) -> None:
    cut_node.step = "named"
    cut_node.set_flag(".hang")
    client = cut_node.start()
    job_id = client.submit_job([delay()])
    wait_status(client, job_id, "waiting")
    cut_node.stop(signal.SIGKILL)
    job = cut_node.job(job_id)
    assert job.status is Status.WAITING
    assert job.process_id is not None
    client = cut_node.start()
    assert client.query_jobs([job_id], ["status"]) == [["waiting"]], "its process lives"
    os.kill(job.process_id, signal.SIGKILL)
    started = time.monotonic()
    assert wait_status(client, job_id, is_final) == "error"
    assert time.monotonic() - started < PROMPT_S


@pytest.mark.shows("2.12/further/watched")
def test_running_jobs_survive_luxid_and_are_followed_by_the_next_one(any_node: LuxidNode) -> None:
    client = any_node.start()
    job_id = client.submit_job([HELD, delay()])
    place = wait_held(client, job_id)
    any_node.stop(signal.SIGKILL)
    client = any_node.start()
    assert client.query_jobs([job_id], ["status"]) == [["running"]]
    let_go(place)
    assert wait_status(client, job_id, is_final) == "success"


@pytest.mark.shows("2.12/further/own-file")
def test_a_job_that_ended_while_luxid_was_away_is_not_run_again(any_node: LuxidNode) -> None:
    client = any_node.start()
    job_id = client.submit_job([HELD])
    place = wait_held(client, job_id)
    queued = client.submit_job([delay(depends=[[job_id, []]])])
    any_node.stop(signal.SIGKILL)
    let_go(place)
    wait_until(lambda: any_node.job(job_id).is_final and not any_node.livelocks(), "the job to end")
    client = any_node.start()
    assert wait_status(client, queued, is_final) == "success"
    assert any_node.job(job_id).status is Status.SUCCESS


@pytest.mark.shows("2.12/death/after-restart", "2.0/queue-status/aborted")
def test_a_job_that_died_while_luxid_was_away_is_in_error(any_node: LuxidNode) -> None:
    client = any_node.start()
    job_id = client.submit_job([delay(60)])
    wait_status(client, job_id, "running")
    any_node.stop(signal.SIGKILL)
    pid = any_node.job(job_id).process_id
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    client = any_node.start()
    assert wait_status(client, job_id, is_final, PROMPT_S) == "error"


@pytest.mark.shows("backend/masterd/pending-kept")
def test_a_stopped_luxid_exits_within_a_second_and_loses_nothing(any_node: LuxidNode) -> None:
    client = any_node.start()
    ids = [client.submit_job([opcode]) for opcode in (HELD, delay(0.5), delay(0.5))]
    place = wait_held(client, ids[0])
    started = time.monotonic()
    assert any_node.stop() == 0
    assert time.monotonic() - started < PROMPT_S
    client = any_node.start()
    let_go(place)
    assert [wait_status(client, job_id, is_final) for job_id in ids] == ["success"] * 3


def test_corrupt_job_files_are_set_aside_and_reported(node: LuxidNode) -> None:
    node.files.write_durable(JobId(4), b"{broken")
    queued_job(node, 5)
    client = node.start()
    assert wait_status(client, 5, is_final) == "success"
    assert os.path.exists(f"{node.paths.queue_dir}/job-4.corrupt")
    assert "Job 4 is lost" in node.log()
    assert client.submit_job([delay()]) == 6


def test_luxid_starts_whatever_lies_in_its_directory(node: LuxidNode) -> None:
    queue = Path(node.paths.queue_dir)
    queued_job(node, 9)
    with (queue / "job-1").open("wb") as file:
        file.truncate(JOB_BYTES_MAX + 1)
    (queue / "job-2").mkdir()
    (queue / "job-2" / "inside").touch()
    os.mkfifo(queue / "job-3")
    (queue / "job-4").symlink_to("job-9")
    (queue / "job-5").symlink_to("nowhere")
    (queue / "job-5.corrupt").mkdir()  # of an earlier time
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(queue / "job-6"))
    (queue / "job-7").touch()
    (queue / "serial").unlink(missing_ok=True)
    os.mkfifo(queue / "serial")
    (queue / "drain-of-somebody").mkdir()
    client = node.start()
    assert wait_status(client, 9, is_final) == "success"
    lost = range(1, 8)
    assert all(f"Job {number} is lost" in node.log() for number in lost), node.log()
    assert (queue / "job-2.corrupt" / "inside").exists()
    assert (queue / "job-5.corrupt-2").is_symlink()
    rows = client.query("job", ["id", "status", "summary", "opresult"]).rows()
    assert [row[:3] for row in rows] == [
        *([number, "error", ["LOST"]] for number in lost),
        [9, "success", ["TEST_DELAY(0.0)"]],
    ]
    assert f"{queue}/job-2.corrupt" in str(rows[1][3])
    [row] = client.query_jobs([3], ["status", "opresult"])
    assert row[0] == "error"
    assert "job-3.corrupt" in str(row[1])
    (queue / "job-3.corrupt").unlink()
    assert client.query_jobs([3], ["status"]) == [[None]]
    assert client.submit_job([delay()]) == 10
    assert node.stop() == 0, node.log()
    client = node.start()
    assert wait_status(client, 10, is_final) == "success"
    assert len(client.query("job", ["id"]).rows()) == 8


def test_a_queued_job_with_lost_secrets_fails_and_says_so(node: LuxidNode) -> None:
    opcode = {"OP_ID": "OP_TEST_OS_PARAMS", "osparams_secret": {"pw": "<redacted>"}, "reason": []}
    job = make_job(JobId(1), [opcode], (1, 1))
    node.files.write_durable(job.id, encode_job(job))
    client = node.start()
    assert wait_status(client, 1, is_final) == "error"
    assert "secret parameters" in str(node.job(1).ops[0].result)


@pytest.mark.shows("2.12/execution/others-check")
def test_a_queue_left_by_3_0_is_taken_over(node: LuxidNode) -> None:
    queued = make_job(JobId(1), [delay()], (1, 1))
    by_luxid = encode_job(queued).replace(
        b'"livelock":null', b'"livelock":"/var/run/ganeti/livelocks/luxi-daemon_1700000000"'
    )
    node.files.write_durable(JobId(1), by_luxid)
    running = make_job(JobId(2), [delay()], (1, 1))
    elsewhere = (
        encode_job(running)
        .replace(b'"livelock":null', b'"livelock":"/var/run/ganeti/livelocks/job_000002_17"')
        .replace(b'"queued"', b'"running"')
    )
    node.files.write_durable(JobId(2), elsewhere)
    client = node.start()
    assert wait_status(client, 1, is_final) == "success"
    assert wait_status(client, 2, is_final, PROMPT_S) == "error"
