"""What is known of backups from the answers of LuxiD, and the opcodes that come of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ganeti.backups.facts import gather, opcode_of
from ganeti.backups.plan import Export, Facts, NodeState, Place, Step, Work
from ganeti.backups.policy import Policy
from ganeti.objects.model import Rehearsal
from ganeti.opcodes.backup import OpBackupExport, OpBackupRehearse, OpBackupRemove

NOW = 10_000.0
Rows = Sequence[Sequence[object]]
RESULT = {"ended": 5.0, "job": 3, "node": "n2", "exported": 4, "failure": "no memory"}
ANSWERS: Mapping[str, Rows] = {
    "lock": [["instance/locked", ["job 9"]], ["node/n1", ["job 9"]]],
    "export": [
        ["n1", None, None, None],
        ["n2", "web", [500, 0], [3, 4]],
        ["n3", "db", [7, 0], [0]],
        ["n4", "untold", None, None],
        ["n4", "broken", None, []],
    ],
    "group": [["g1", ["ganeti:backup:every:1d"]]],
    "instance": [
        ["web", "n1", ["n3"], 12.5, ["x"], "g1", RESULT, 512, "drbd"],
        ["db", "n1", [], 1.0, [], "g1", None, 128, "plain"],
        ["coming", None, [], 1.0, [], None, None, 128, "diskless"],
        ["rehearsal.db", "n4", [], 1.0, [], "g1", None, 128, "plain"],
    ],
    "node": [
        ["n1", False, False, True, "boot", "g1", 4096],
        ["n2", False, True, True, "boot", "g1", 2048],
        ["n3", False, False, True, None, "g1", None],
        ["n4", True, False, True, None, "g2", None],
        ["n5", False, False, False, None, "g2", None],
    ],
}


def told(*jobs: Sequence[object]) -> Facts:
    asked: list[str] = []

    def ask(resource: str, fields: Sequence[str], wanted: Any) -> Rows:
        asked.append(resource)
        return jobs if resource == "job" else ANSWERS[resource]

    found = gather(ask, ["t"], now=NOW, local=float)
    assert asked[0] == "job", "a job that ends meanwhile is not missed"
    return found


def test_machines_nodes_and_exports() -> None:
    found = told()
    assert [each.name for each in found.machines] == ["web", "db", "rehearsal.db"]
    web = found.machines[0]
    assert (web.primary, web.secondaries, web.made) == ("n1", ("n3",), 12.5)
    assert (web.rehearsed, web.memory_mib, web.disk_template) == (
        Rehearsal(ended=5.0, job=3, node="n2", exported=4.0, failure="no memory"),
        512,
        "drbd",
    )
    assert found.machines[1].rehearsed is None
    assert found.places == {
        "n1": Place("g1", 4096),
        "n2": Place("g1", 2048),
        "n3": Place("g1"),
        "n4": Place("g2"),
    }
    assert web.tags == {"instance": ("x",), "nodegroup": ("ganeti:backup:every:1d",)}
    assert found.nodes == {
        "n1": NodeState.GOOD,
        "n2": NodeState.DRAINED,
        "n3": NodeState.SILENT,
        "n4": NodeState.OFFLINE,
        "n5": NodeState.GOOD,
    }
    assert found.exports == {"web": [Export("n2", 500.0, (3, 4))], "db": [Export("n3", 7.0)]}
    assert found.untold == {"untold": "n4"}
    assert found.busy == {"locked": "it is locked by job 9"}
    assert found.cluster_tags == ["t"]


def test_jobs() -> None:
    ours = {"OP_ID": "OP_BACKUP_EXPORT", "reason": [["gnt:watcher", "backup by schedule: x", 1]]}
    found = told(
        [1, "running", None, [{**ours, "instance_name": "web", "target_node": "n2"}]],
        [2, "queued", None, [{"OP_ID": "OP_BACKUP_REMOVE", "instance_name": "db"}]],
        [3, "waiting", None, [{"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "other"}]],
        [4, "error", [9_000, 0], [{**ours, "instance_name": "bad"}]],
        [5, "canceled", [9_500, 0], [{**ours, "instance_name": "bad"}]],
        [6, "success", [9_500, 0], [{**ours, "instance_name": "good"}]],
        [7, "error", [9_500, 0], [{"OP_ID": "OP_BACKUP_EXPORT", "instance_name": "by hand"}]],
    )
    assert found.busy == {
        "web": "job 1 is about it",
        "db": "job 2 is about it",
        "other": "job 3 is about it",
        "locked": "it is locked by job 9",
    }
    assert found.under_way == [{"n1", "n2"}, {"n3"}]
    assert found.failed == {"bad": 9_500.0}


@pytest.mark.parametrize("reason", [None, [], [[]], [["x"]], [5], ["ab"], [[1, 2, 3]]])
def test_a_failed_job_may_have_any_reason(reason: object) -> None:
    """Such a job kept all backups from being begun until it was an hour old."""
    opcode = {"OP_ID": "OP_BACKUP_EXPORT", "instance_name": "web", "reason": reason}
    assert told([1, "error", [9_000, 0], [opcode]]).failed == {}


def test_rehearsals() -> None:
    ours = {
        "OP_ID": "OP_BACKUP_REHEARSE",
        "reason": [["gnt:watcher", "backup by schedule: rehearse its newest export, bad", 1]],
    }
    found = told(
        [1, "running", None, [{**ours, "instance_name": "web", "src_node": "n2", "pnode": "n5"}]],
        [2, "running", None, [{**ours, "instance_name": "db"}]],
        [3, "error", [9_000, 0], [{**ours, "instance_name": "bad"}]],
        [4, "error", [9_000, 0], [{"OP_ID": "OP_BACKUP_REHEARSE", "instance_name": "by hand"}]],
    )
    assert found.under_way == [{"n2", "n5"}, {"n3", "n4"}], "where its copy is, if that is known"
    assert found.busy["web"] == "job 1 is about it"
    assert (found.failed, found.rehearsals_failed) == ({}, {"bad": 9_000.0})


def test_the_opcodes_of_steps() -> None:
    chain, whole = Policy(86_400, keep=7), Policy(86_400, stops=True)
    made = opcode_of(Step(Work.EXPORT, "web", chain, "n2"), "gnt:watcher", 5)
    assert isinstance(made, OpBackupExport)
    assert (made.target_node, made.shutdown, made.incremental) == ("n2", False, True)
    assert made.reason == [["gnt:watcher", "backup by schedule: export it, web", 5]]
    made = opcode_of(Step(Work.EXPORT, "web", whole, "n2"), "gnt:watcher", 5)
    assert isinstance(made, OpBackupExport)
    assert (made.shutdown, made.incremental) == (True, None)
    made = opcode_of(Step(Work.SHORTEN, "web", chain, "n2", 4), "gnt:watcher", 5)
    assert isinstance(made, OpBackupRemove)
    assert made.before == 4
    step = Step(Work.REHEARSE, "web", chain, "n1", source="n2", disk_template="plain")
    made = opcode_of(step, "gnt:watcher", 5)
    assert isinstance(made, OpBackupRehearse)
    assert (made.src_node, made.pnode, made.disk_template) == ("n2", "n1", "plain")
    assert made.reason == [
        ["gnt:watcher", "backup by schedule: rehearse its newest export, web", 5]
    ]
