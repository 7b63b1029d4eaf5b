"""The node's side of a change of masters."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path

import pytest

from ganeti.base.errors import GenericError, OpPrereqError, TransportError
from ganeti.base.ids import JobId
from ganeti.jobs.merging import digest
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine import job_queue, master
from ganeti.protocol.luxi import DrainedBy
from ganeti.protocol.node_rpc_values import CompressedText, DrainResult, QueueListing
from ganeti.store import ssconf
from ganeti.store.job_files import JobFiles
from ganeti.system.environment import own_hostname
from ganeti.system.filelock import FileLock


def test_facts_survive_the_wire(context: NodeContext) -> None:
    ssconf.write_values(context.paths, {"master_node": "n1"})
    master.Master(context).master_claim(0, 7, "n2")
    facts = master.Master(context).master_facts()
    assert (facts.master_name, facts.claim_serial, facts.claim_name) == ("n1", 7, "n2")


def test_a_claim_comes_before_the_change(context: NodeContext) -> None:
    values = {"master_node": "n2", "node_list": "n1\nn2"}
    with pytest.raises(OpPrereqError):
        master.Master(context).master_accept(7, values)
    master.Master(context).master_claim(0, 7, "n2")
    master.Master(context).master_accept(7, values)
    assert ssconf.node_list(context.paths) == ["n1", "n2"]


def test_the_configuration_is_given_out_as_it_is(context: NodeContext) -> None:
    assert master.Master(context).config_read() is None
    content = json.dumps({"serial_no": 1, "pad": "x" * 9000}).encode()
    Path(context.paths.config_data).write_bytes(content)
    assert master.Master(context).config_read() == CompressedText(content)


def test_a_configuration_is_set_aside_with_the_claim(context: NodeContext) -> None:
    calls = master.Master(context)
    assert calls.config_set_aside() is None
    Path(context.paths.config_data).write_bytes(b'{"serial_no": 60000}')
    calls.master_claim(0, 70000, "n2")
    path = calls.config_set_aside()
    assert path is not None
    assert path.startswith("/var/lib/ganeti/config.data.aside-60000-")
    assert Path(context.paths.localize(path)).read_bytes() == b'{"serial_no": 60000}'
    facts = calls.master_facts()
    assert (facts.config_serial, facts.claim_serial) == (0, 0)


def test_the_jobs_of_another_cluster_are_set_aside_with_its_configuration(
    context: NodeContext,
) -> None:
    """Archived ones would count as the end of the jobs here that have the same ids."""
    Path(context.paths.config_data).write_bytes(b'{"serial_no": 60000}')
    queue = JobFiles(context.paths)
    queue.prepare()
    queue.write_serial(500)
    for job_id in (499, 500):
        queue.write_durable(JobId(job_id), b"job %d" % job_id)
    queue.archive(JobId(499))
    path = master.Master(context).config_set_aside()
    assert path is not None
    assert job_queue.JobQueue(context).jobqueue_list() == QueueListing()
    assert master.Master(context).master_facts().last_job_id == 0
    kept = Path(context.paths.localize(path.replace("config.data", "queue")))
    assert sorted(each.name for each in kept.rglob("job-*")) == ["job-499", "job-500"]
    job_queue.JobQueue(context).jobqueue_update(
        "/var/lib/ganeti/queue/job-7", CompressedText(b"job 7")
    )
    assert queue.ids() == [7]


def test_the_configuration_of_a_living_master_stays(context: NodeContext) -> None:
    Path(context.paths.config_data).write_bytes(b"{}")
    Path(context.paths.run_dir).mkdir(parents=True, exist_ok=True)
    with FileLock(context.paths.pid_file("ganeti-wconfd")) as lock:
        Path(lock.path).write_text("1")
        with pytest.raises(GenericError, match="ganeti-wconfd run"):
            master.Master(context).config_set_aside()
    assert Path(context.paths.config_data).exists()


def test_the_queue_is_listed_and_read(context: NodeContext) -> None:
    queue = JobFiles(context.paths)
    assert job_queue.JobQueue(context).jobqueue_list() == QueueListing()
    queue.prepare()
    for job_id in (1, 2, 3):
        queue.write_durable(JobId(job_id), b"job %d" % job_id)
    queue.archive(JobId(1))
    queue.set_drained(True)
    listing = job_queue.JobQueue(context).jobqueue_list()
    assert listing == QueueListing(
        jobs={2: digest(b"job 2"), 3: digest(b"job 3")}, archived=(1,), is_drained=True
    )
    found = job_queue.JobQueue(context).jobqueue_read([1, 3, 99])
    assert {key: value.content for key, value in found.items()} == {"1": b"job 1", "3": b"job 3"}


def test_an_answer_has_a_limit_and_at_least_one_file(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = JobFiles(context.paths)
    queue.prepare()
    for job_id in (1, 2, 3):
        queue.write_durable(JobId(job_id), b"x" * 40)
    monkeypatch.setattr(job_queue, "ANSWER_BYTES_MAX", 90)
    assert list(job_queue.JobQueue(context).jobqueue_read([1, 2, 3])) == ["1", "2"]
    monkeypatch.setattr(job_queue, "ANSWER_BYTES_MAX", 10)
    assert list(job_queue.JobQueue(context).jobqueue_read([1, 2, 3])) == ["1"]


def test_only_an_operator_has_drained_a_queue_before(context: NodeContext) -> None:
    """What another failover, or an earlier one, left behind is not to be kept."""
    queue = JobFiles(context.paths)
    queue.prepare()
    queue.set_drained(True, DrainedBy.FAILOVER)
    assert master.Master(context).master_drain(0.0) == DrainResult(left=(), was_drained=False)
    queue.set_drained(True)
    assert master.Master(context).master_drain(0.0) == DrainResult(left=(), was_drained=True)


def test_one_node_at_a_time_waits_for_a_master_to_be_idle(context: NodeContext) -> None:
    lock = FileLock(f"{context.paths.lock_dir}/ganeti-master-drain.lock")
    lock.acquire()
    with lock, pytest.raises(GenericError, match="finishing its jobs for another node"):
        master.Master(context).master_drain(0.05)
    assert master.Master(context).master_drain(0.05) == DrainResult(left=(), was_drained=False)


def test_a_node_where_nothing_runs_is_idle(context: NodeContext) -> None:
    assert master.Master(context).master_drain(0.0) == DrainResult(left=(), was_drained=False)


class IdleLuxid:
    """A LuxiD with a job that a filter holds, one that depends on it, and perhaps one at work."""

    def __init__(self, *more: tuple[str, object]) -> None:
        self.jobs = dict(enumerate([("queued", None), ("waiting", None), *more], 1))
        self.drained: list[bool] = []

    def __enter__(self) -> IdleLuxid:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        return None

    def set_drain_flag(self, flag: bool, by: DrainedBy | None = None) -> bool:
        self.drained.append(flag)
        return by is None

    def query_jobs(self, _job_ids: None, fields: list[str]) -> list[list[object]]:
        rows = [
            {"id": job_id, "status": status, "start_ts": start}
            for job_id, (status, start) in self.jobs.items()
        ]
        return [[row[name] for name in fields] for row in rows]


@pytest.mark.parametrize(
    ("more", "left"), [((), ()), ((("running", [1, 0]),), (3,)), ((("waiting", [1, 0]),), (3,))]
)
def test_jobs_that_have_not_begun_are_no_hindrance(
    context: NodeContext,
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[tuple[str, object], ...],
    left: tuple[int, ...],
) -> None:
    """One that waits for another job is shown as waiting, and has no process."""
    luxid = IdleLuxid(*more)
    monkeypatch.setattr(master, "LuxiClient", lambda *_args, **_named: luxid)
    monkeypatch.setattr(master, "_ensure_wconfd", lambda _context: None)
    monkeypatch.setattr(master.daemon_control, "running_pid", lambda *_args: 1)
    drained = master.Master(context).master_drain(0.0)
    assert drained == DrainResult(left=left, was_drained=False)
    assert luxid.drained == ([True, False] if left else [True])


@pytest.mark.parametrize("ends", [True, False])
def test_a_luxid_that_hangs_up_because_it_ends_is_idle(
    context: NodeContext, monkeypatch: pytest.MonkeyPatch, *, ends: bool
) -> None:
    """It has closed its socket, and is gone when the node has turned to it."""
    luxid = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    path = context.paths.pid_file("ganeti-luxid")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(master, "_CONNECT_TIMEOUT_S", 0.0)
    monkeypatch.setattr(master, "_END_S", 30.0 if ends else 0.0)
    monkeypatch.setattr(master, "_ensure_wconfd", lambda _context: luxid.kill() if ends else None)
    expected = (
        contextlib.nullcontext()
        if ends
        else pytest.raises(TransportError, match="is ganeti-luxid running here")
    )
    with luxid, FileLock(path):
        Path(path).write_text(str(luxid.pid))
        ssconf.write_values(context.paths, {"master_node": own_hostname()})
        with expected:
            drained = master.Master(context).master_drain(0.0)
            assert drained == DrainResult(left=(), was_drained=False)
        luxid.kill()
