"""Copies of the job queue on several nodes put together on one of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes.nodes_in_place import NodesInPlace

from ganeti.base.errors import OpExecError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.bootstrap import queue_merge
from ganeti.bootstrap.queue_merge import describe, merge_queue, raise_serial
from ganeti.clients.node_rpc import Target
from ganeti.jobs import changes
from ganeti.jobs.record import QueuedJob, decode_job, encode_job
from ganeti.jobs.status import Status
from ganeti.jobs.submission import make_job
from ganeti.node_ops.machine import job_queue
from ganeti.store.job_files import JobFiles

NOW = (1, 2)


@pytest.fixture
def nodes(tmp_path: Path) -> dict[str, Paths]:
    found = {name: Paths(str(tmp_path / name)) for name in ("n1", "n2", "n3")}
    for paths in found.values():
        os.makedirs(paths.data_dir)
        JobFiles(paths).prepare()
    return found


def queued(job_id: int) -> QueuedJob:
    return make_job(JobId(job_id), [{"OP_ID": "OP_TEST_DELAY"}], NOW)


def ended(job_id: int) -> QueuedJob:
    started = changes.handed_over(queued(job_id), livelock="/l", process_id=1, now=NOW)
    return changes.op_succeeded(changes.op_running(started, 0, NOW), 0, True, NOW)


def put(paths: Paths, *jobs: QueuedJob) -> None:
    for job in jobs:
        JobFiles(paths).write_durable(job.id, encode_job(job))


def statuses(paths: Paths) -> dict[int, Status]:
    queue = JobFiles(paths)
    return {
        job_id: decode_job(data).status for job_id in queue.ids() if (data := queue.read(job_id))
    }


def targets(nodes: dict[str, Paths]) -> list[Target]:
    return [Target(name, "192.0.2.1") for name in nodes if name != "n1"]


def test_what_is_missing_or_old_is_taken(nodes: dict[str, Paths]) -> None:
    put(nodes["n1"], queued(1), ended(2), queued(3))
    put(nodes["n2"], ended(1), queued(2), queued(3), queued(4))
    put(nodes["n3"], queued(1), queued(5))
    merged = merge_queue(nodes["n1"], NodesInPlace(nodes), targets(nodes))
    assert merged.changed == (1, 4, 5)
    assert statuses(nodes["n1"]) == {
        1: Status.SUCCESS,
        2: Status.SUCCESS,
        3: Status.QUEUED,
        4: Status.QUEUED,
        5: Status.QUEUED,
    }
    assert describe(merged) == "jobs 1, 4, 5"


def test_jobs_archived_elsewhere_are_archived_with_their_end(nodes: dict[str, Paths]) -> None:
    put(nodes["n1"], queued(1))
    put(nodes["n2"], ended(1), ended(2))
    put(nodes["n3"], queued(2), queued(1))
    for job_id in (1, 2):
        JobFiles(nodes["n2"]).archive(JobId(job_id))
    merged = merge_queue(nodes["n1"], NodesInPlace(nodes), targets(nodes))
    assert (merged.changed, merged.archived) == ((), (1, 2))
    queue = JobFiles(nodes["n1"])
    assert queue.ids() == []
    assert queue.archived_ids() == [1, 2]
    assert queue.read_archived(JobId(1)) == encode_job(ended(1))
    assert describe(merged) == "2 archived jobs"


def test_nothing_is_read_where_nothing_differs(nodes: dict[str, Paths]) -> None:
    for paths in nodes.values():
        put(paths, ended(1))
    rpc = NodesInPlace(nodes)
    merged = merge_queue(nodes["n1"], rpc, targets(nodes))
    assert describe(merged) == "nothing"
    assert {name for _, name in rpc.calls} == {"jobqueue_list"}


def test_many_jobs_come_in_several_answers(
    nodes: dict[str, Paths], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_merge, "JOBS_PER_CALL_MAX", 4)
    monkeypatch.setattr(job_queue, "ANSWER_BYTES_MAX", 3 * len(encode_job(ended(1))))
    put(nodes["n2"], *(ended(job_id) for job_id in range(1, 11)))
    merge_queue(nodes["n1"], NodesInPlace(nodes), targets(nodes))
    assert list(statuses(nodes["n1"])) == list(range(1, 11))


def test_of_equal_records_that_of_the_preferred_node_counts(nodes: dict[str, Paths]) -> None:
    urgent = changes.with_priority(queued(1), -5)
    for own_first, priority in ((True, 0), (False, -5)):
        put(nodes["n1"], queued(1))
        put(nodes["n2"], urgent)
        merge_queue(nodes["n1"], NodesInPlace(nodes), targets(nodes), own_first=own_first)
        data = JobFiles(nodes["n1"]).read(JobId(1))
        assert data is not None
        assert decode_job(data).priority == priority


def test_a_copy_that_cannot_be_read_is_named(nodes: dict[str, Paths]) -> None:
    rpc = NodesInPlace(nodes)
    rpc.down = {"n3"}
    with pytest.raises(OpExecError, match="'n3'"):
        merge_queue(nodes["n1"], rpc, targets(nodes))


def test_the_serial_only_rises(nodes: dict[str, Paths]) -> None:
    queue = JobFiles(nodes["n1"])
    raise_serial(nodes["n1"], 7)
    raise_serial(nodes["n1"], 5)
    assert queue.read_serial() == 7
    put(nodes["n1"], queued(9))
    raise_serial(nodes["n1"], 8)
    assert queue.last_id() == 9
