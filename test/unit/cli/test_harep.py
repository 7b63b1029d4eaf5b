"""What harep prints, submits and leaves in tags, with a master daemon whose jobs are scripted."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from fakes.luxi_client import FakeLuxiClient

from ganeti.allocation.autorepair import PREFIX
from ganeti.allocation.sources.text_data import from_text
from ganeti.base.errors import GenericError, JobQueueDrainError
from ganeti.base.ids import JobId
from ganeti.cli.declaration.parser import Options
from ganeti.cli.declaration.program import Command
from ganeti.cli.htools import harep
from ganeti.cli.run.context import Context, Terminal
from ganeti.protocol.luxi import QueryResponse

ID = "813c37a4-276f-4c5e-902f-624ff7380e17"
DONE = "success", [None], list[str]()
FAILED = "error", [["OpExecError", ["no"]]], list[str]()


class Luxi(FakeLuxiClient):
    """Its jobs that have not ended are given."""

    def __init__(self, *scripts: Any) -> None:
        super().__init__(*scripts)
        self.unfinished: list[tuple[int, list[dict[str, object]]]] = []
        self.is_drained = False

    def submit_job(self, opcodes: Sequence[Mapping[str, Any]]) -> JobId:
        if self.is_drained and self.submitted:
            raise JobQueueDrainError("the queue is drained")
        return super().submit_job(opcodes)

    def query(self, what: str, fields: Sequence[str], _filter: object) -> QueryResponse:
        assert (what, fields) == ("job", ["id", "ops"])
        rows = [[[0, job], [0, ops]] for job, ops in self.unfinished]
        return QueryResponse([], rows)


class Cluster:
    """n1 and n2 are online, n3 is not; the only instance has these nodes and tags."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, nodes: str, *tags: str, scripts: Any = (DONE,)
    ) -> None:
        self.client = Luxi(*scripts)
        self.out, self.err = io.StringIO(), io.StringIO()
        self.loads = 0
        self._text = f"""default|uuid|preferred||

n1|16000|0|15000|100000|90000|8|M|uuid|1
n2|16000|0|15000|100000|90000|8|N|uuid|1
n3|16000|0|15000|100000|90000|8|Y|uuid|1

web|512|1024|1|running|Y|{nodes.replace(" ", "|")}|drbd|{",".join(PREFIX + each for each in tags)}|1


|128,1,1024,1,1,1|1,1,0,0,0,1;32768,8,1048576,16,8,12|drbd|4.0|32.0
"""
        numbers = itertools.count(1)
        monkeypatch.setattr(harep, "from_luxi", self._load)
        monkeypatch.setattr(harep.clock, "new_uuid", lambda: f"uuid-{next(numbers)}")
        monkeypatch.setattr(harep.clock, "now", lambda: 1795000100.5)

    def _load(self, *_args: object) -> Any:
        self.loads += 1
        return from_text(self._text)

    def repair(self, **more: Any) -> int:
        options = Options({"reason": None, "luxi": "", "job_delay": 10.0, "dry_run": False, **more})
        terminal = Terminal(self.out, self.err, io.StringIO())
        context = Context("harep", Command("harep", "repair"), options, terminal)
        context._client = self.client  # type: ignore[assignment]  # the fake
        return harep.repair(context, options, [])

    @property
    def jobs(self) -> list[list[str]]:
        return [[each["OP_ID"] for each in job] for job in self.client.submitted]


@pytest.mark.shows("maintd/harep/harep-stays")
def test_a_repair_is_submitted_and_noted_in_a_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, "n3 n1", "failover")
    assert cluster.repair() == 0
    assert cluster.jobs == [["OP_TEST_DELAY", "OP_INSTANCE_FAILOVER"], ["OP_TAGS_SET"]]
    delay, failover = cluster.client.submitted[0]
    assert (delay["duration"], failover["instance_name"]) == (10.0, "web")
    assert failover["comment"] == "automated repairs by harep"
    tag = f"{PREFIX}pending:failover:uuid-1:1795000100:1"
    assert cluster.client.submitted[1][0]["tags"] == [tag]
    assert cluster.out.getvalue().splitlines() == [
        "Executing failover repair on web",
        ">>> Adding the following tag to web:",
        tag,
        "---------------------",
        "Instance status count",
        "---------------------",
        "Pending repair: 1",
    ]


def test_a_repair_that_could_not_be_noted_is_not_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, "n3 n1", "failover")
    cluster.client.is_drained = True
    with pytest.raises(GenericError, match="drained"):
        cluster.repair()
    [repair] = cluster.client.submitted
    cluster.client.is_drained = False
    cluster.client.unfinished = [(1, [dict(each) for each in repair])]
    assert cluster.repair() == 0
    assert cluster.jobs[1:] == [["OP_TAGS_SET"]]
    tag = f"{PREFIX}pending:failover:uuid-2:1795000100:1"
    assert cluster.client.submitted[1][0]["tags"] == [tag]
    assert "Job 1 of an earlier run repairs web" in cluster.out.getvalue()


def test_without_delay_the_job_begins_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, "n3 n1", "failover")
    cluster.repair(job_delay=0.0)
    assert cluster.jobs[0] == ["OP_INSTANCE_FAILOVER"]


def test_a_dry_run_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, "n3 n1", "failover")
    assert cluster.repair(dry_run=True) == 0
    assert cluster.jobs == []
    assert '"OP_ID":"OP_INSTANCE_FAILOVER"' in cluster.out.getvalue()
    assert f"{PREFIX}pending:failover:uuid-1:1795000100:\n" in cluster.out.getvalue()


def test_a_repair_that_has_ended_gets_its_result_and_the_next_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pending = f"pending:failover:{ID}:1795000000:1"
    cluster = Cluster(monkeypatch, "n1 n3", "fix-storage", pending)
    assert cluster.repair() == 0
    assert cluster.loads == 2, "what is known about the instance is older than its job's end"
    assert cluster.jobs == [
        ["OP_TAGS_SET"],
        ["OP_TAGS_DEL"],
        ["OP_TEST_DELAY", "OP_INSTANCE_REPLACE_DISKS"],
        ["OP_TAGS_SET"],
        ["OP_TAGS_DEL"],
    ]
    changed = [job[0]["tags"] for job in cluster.client.submitted if len(job) == 1]
    success = f"{PREFIX}result:failover:{ID}:1795000100:success:1"
    following = f"{PREFIX}pending:fix-storage:uuid-1:1795000100:3"
    assert changed == [[success], [PREFIX + pending], [following], [success]]
    assert 'Moving web from "Pending repair" to "Healthy"' in cluster.out.getvalue()


def test_after_a_failure_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    pending = f"pending:failover:{ID}:1795000000:1"
    cluster = Cluster(monkeypatch, "n3 n1", "failover", pending, scripts=(FAILED, DONE))
    # Job 1 is the one of the tag; the fake numbers new jobs from 1 too.
    with pytest.raises(GenericError, match="job 1, which was to change the tags"):
        cluster.repair()
    assert "Failure" in cluster.out.getvalue()


def test_what_is_not_allowed_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, "n3 n1", "fix-storage")
    assert cluster.repair() == 0
    assert cluster.jobs == [["OP_TAGS_SET"]]
    assert "Not repairing web: it needs failover" in cluster.out.getvalue()
    assert "Needs repair: 1" in cluster.out.getvalue()


def test_tags_that_contradict_each_other_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pending = [f"pending:failover:{each}:1795000000:1" for each in ("a", "b")]
    cluster = Cluster(monkeypatch, "n3 n1", "failover", *pending)
    assert cluster.repair() == 1
    assert cluster.jobs == []
    assert "Not repairing web: of an unfinished repair is" in cluster.err.getvalue()


def test_a_negative_delay_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GenericError, match="--job-delay: a delay cannot be negative"):
        Cluster(monkeypatch, "n1 n2").repair(job_delay=-1.0)
