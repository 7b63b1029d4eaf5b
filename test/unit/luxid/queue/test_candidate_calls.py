"""The comparison of a candidate's queue with the master's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fakes.nodes_in_place import NodesInPlace

from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import RpcResult, Target
from ganeti.jobs import changes
from ganeti.jobs.record import encode_job
from ganeti.jobs.submission import make_job
from ganeti.luxid.queue.candidate_calls import CandidateCalls
from ganeti.node_ops.machine import job_queue
from ganeti.protocol.node_rpc_values import QueueListing
from ganeti.store.job_files import JobFiles

CANDIDATE = Target("n2", "192.0.2.2")
JOB = make_job(JobId(7), [{"OP_ID": "OP_TEST_DELAY", "duration": 0.0}], (1, 1))


class Candidate:
    """A candidate that has a job in its queue already; `asked` are the calls that it gets."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def call_one(self, method: Any, target: Target, *_args: object) -> RpcResult[Any]:
        self.asked.append(method.__name__)
        listing = QueueListing(jobs={JOB.id: "digest"}, archived=(), is_drained=False)
        return RpcResult(target.name, listing if len(self.asked) == 1 else {})


def test_a_job_that_gets_here_during_the_comparison_stays_in_the_queue_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, candidate = Paths(str(tmp_path)), Candidate()
    queue = JobFiles(paths)
    queue.prepare()
    writing = {JOB.id}  # it is on the candidate before it is here
    look = JobFiles.present

    def look_too_early(files: JobFiles) -> set[JobId]:
        found = look(files)
        queue.write_durable(JOB.id, encode_job(JOB))
        writing.clear()
        return found

    monkeypatch.setattr(JobFiles, "present", look_too_early)
    rpc: Any = candidate
    calls = CandidateCalls(paths, rpc, lambda: None)
    compared = calls.compare(CANDIDATE, writing.__contains__, lambda _job_id: None)
    assert asyncio.run(compared) == ()
    assert candidate.asked == ["jobqueue_list"], "it would be archived as never accepted"


class Nodes:
    """Nodes whose handlers are called in place of the network."""

    def __init__(self, **paths: Paths) -> None:
        self._nodes = NodesInPlace(paths)

    async def call_one(self, method: Any, target: Target, *args: object) -> RpcResult[Any]:
        result: RpcResult[Any] = self._nodes.call_one(method, target, *args)
        return result


def test_jobs_that_a_candidate_has_left_are_archived_there_with_their_ends_however_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, theirs = Paths(str(tmp_path / "n1")), Paths(str(tmp_path / "n2"))
    here, there = JobFiles(own), JobFiles(theirs)
    jobs = [make_job(JobId(number), [{"OP_ID": "OP_TEST_DELAY"}], (1, 1)) for number in (1, 2, 3)]
    ends = {job.id: encode_job(changes.canceled(job, "ended", (2, 2))) for job in jobs}
    for paths, queue in ((own, here), (theirs, there)):
        Path(paths.data_dir).mkdir(parents=True)
        queue.prepare()
    for job in jobs:
        there.write_durable(job.id, encode_job(job))
        here.write_durable(job.id, ends[job.id])
        here.archive(job.id)
    monkeypatch.setattr(job_queue, "ANSWER_BYTES_MAX", len(encode_job(jobs[0])))
    rpc: Any = Nodes(n2=theirs)
    calls = CandidateCalls(own, rpc, lambda: None)
    compared = calls.compare(CANDIDATE, lambda _job_id: False, lambda _job_id: None)
    assert asyncio.run(compared) == ()
    assert {job_id: there.read_archived(job_id) for job_id in there.archived_ids()} == ends
