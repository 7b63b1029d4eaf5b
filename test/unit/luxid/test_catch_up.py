"""Jobs that only others know of, when LuxiD starts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ganeti.base.errors import NotMasterError, OpExecError
from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import Target
from ganeti.jobs.votes import Answer, Poll
from ganeti.luxid import daemon as luxid
from ganeti.protocol.node_rpc_values import NodeFacts


def test_jobs_that_cannot_be_taken_over_keep_it_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def fail(_paths: Paths, _rpc: object, targets: Sequence[Target]) -> None:
        asked.extend(target.name for target in targets)
        raise OpExecError("cannot read jobs: the disk is broken")

    last_ids = {"n1": 7, "n2": 50, "n3": 7}
    answers = {
        name: Answer("n1", NodeFacts(master_name="n1", last_job_id=last_id))
        for name, last_id in last_ids.items()
    }
    others = [Target("n2", "192.0.2.2"), Target("n3", "192.0.2.3")]
    monkeypatch.setattr(luxid, "merge_queue", fail)
    monkeypatch.setattr(luxid, "other_nodes", lambda _paths, _own_name: others)
    with pytest.raises(NotMasterError, match=r"n2 know of jobs up to 50, .* the disk is broken"):
        luxid.catch_up(Paths("/nowhere"), Poll("n1", list(last_ids), answers))
    assert asked == ["n2"]
