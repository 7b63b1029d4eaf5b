"""The comparison of a candidate's queue with the master's, while jobs come in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import RpcResult, Target
from ganeti.jobs.record import encode_job
from ganeti.jobs.submission import make_job
from ganeti.luxid.queue.candidate_calls import CandidateCalls
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
