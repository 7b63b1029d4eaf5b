"""What is known of backups from the answers of LuxiD, and the opcodes that come of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.backups.facts import gather, opcode_of
from ganeti.backups.plan import Export, Facts, NodeState, Step, Work
from ganeti.backups.policy import Policy
from ganeti.opcodes.backup import OpBackupExport, OpBackupRemove

NOW = 10_000.0
Rows = Sequence[Sequence[object]]
ANSWERS: Mapping[str, Rows] = {
    "lock": [["instance/locked", ["job 9"]], ["node/n1", ["job 9"]]],
    "export": [
        ["n1", None, None, None],
        ["n2", "web", [500, 0], [3, 4]],
        ["n3", "db", [7, 0], [0]],
    ],
    "group": [["g1", ["ganeti:backup:every:1d"]]],
    "instance": [
        ["web", "n1", ["n3"], 12.5, ["x"], "g1"],
        ["db", "n1", [], 1.0, [], "g1"],
        ["coming", None, [], 1.0, [], None],
    ],
    "node": [
        ["n1", False, False, True, "boot"],
        ["n2", False, True, True, "boot"],
        ["n3", False, False, True, None],
        ["n4", True, False, True, None],
        ["n5", False, False, False, None],
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
    assert [each.name for each in found.machines] == ["web", "db"]
    web = found.machines[0]
    assert (web.primary, web.secondaries, web.made) == ("n1", ("n3",), 12.5)
    assert web.tags == {"instance": ("x",), "nodegroup": ("ganeti:backup:every:1d",)}
    assert found.nodes == {
        "n1": NodeState.GOOD,
        "n2": NodeState.DRAINED,
        "n3": NodeState.SILENT,
        "n4": NodeState.OFFLINE,
        "n5": NodeState.GOOD,
    }
    assert found.exports == {"web": [Export("n2", 500.0, (3, 4))], "db": [Export("n3", 7.0)]}
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
