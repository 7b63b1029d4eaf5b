"""Emptying nodes, their power, and commands that they allow."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, uuid_of

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError
from ganeti.logical_units.node.power import mistake_in_answer
from ganeti.opcodes.node import OobCommand
from ganeti.opcodes.opcode import OpCode

HELPER = "/usr/bin/oob"


@pytest.fixture
def submitted(cluster: FakeCluster) -> list[OpCode]:
    """The opcodes of the jobs that are submitted, one each."""
    found: list[OpCode] = []

    def submit(jobs: Any) -> list[int]:
        found.extend(op for job in jobs for op in job)
        return list(range(100, 100 + len(jobs)))

    cluster.context.submit_jobs = submit
    return found


def evacuate(cluster: FakeCluster, **params: Any) -> Any:
    return cluster.execute("OP_NODE_EVACUATE", **{"node_name": "node1", "mode": "all", **params})


@pytest.mark.shows("2.0/queue/one-command", "2.1/evacuate-node/opcode")
def test_each_instance_leaves_in_a_job_of_its_own(
    cluster: FakeCluster, submitted: list[OpCode]
) -> None:
    for name in ("b.example.com", "a.example.com"):
        cluster.add_instance(name)
    assert evacuate(cluster, remote_node="node2") == {"jobs": [(True, 100), (True, 101)]}
    assert [(type(op).__name__, op.instance_name, op.target_node) for op in submitted] == [  # type: ignore[attr-defined]
        ("OpInstanceMigrate", "a.example.com", "node2.example.com"),
        ("OpInstanceMigrate", "b.example.com", "node2.example.com"),
    ]
    assert cluster.said("job 100 migrates instance a.example.com")
    assert cluster.config.lock_history == [
        [("cluster/BGL", "shared"), ("node/" + uuid_of("node1"), "shared")]
    ]


@pytest.mark.parametrize(
    ("target", "mode", "stay"),
    [("node2", "all", True), ("node2", "primary-only", False), ("node3", "all", False)],
)
def test_copies_that_stay_on_the_node_are_told(
    pair: FakeCluster, monkeypatch: pytest.MonkeyPatch, target: str, mode: str, stay: bool
) -> None:
    monkeypatch.setattr(pair.context, "submit_jobs", lambda jobs: [100 for _ in jobs])
    evacuate(pair, remote_node=target, mode=mode)
    assert pair.said("keeps copies of its disks on node node1.example.com") is stay


@pytest.mark.shows("backend/overview/recovery")
def test_from_a_dead_node_they_are_failed_over(
    cluster: FakeCluster, submitted: list[OpCode]
) -> None:
    cluster.add_instance()
    cluster.config.nodes[uuid_of("node1")]["offline"] = True
    evacuate(cluster, remote_node="node2")
    assert [type(op).__name__ for op in submitted] == ["OpInstanceFailover"]


@pytest.mark.shows("2.1/migrate-node/opcode")
def test_a_node_is_migrated(cluster: FakeCluster, submitted: list[OpCode]) -> None:
    cluster.add_instance()
    result = cluster.execute("OP_NODE_MIGRATE", node_name="node1", target_node="node3")
    assert result == {"jobs": [(True, 100)]}
    [op] = submitted
    assert op.allow_failover is True  # type: ignore[attr-defined]


def test_a_migration_tries_each_instance(cluster: FakeCluster, submitted: list[OpCode]) -> None:
    cluster.add_instance("local.example.com", disk_template="file")
    cluster.add_instance("shared.example.com")
    cluster.execute("OP_NODE_MIGRATE", node_name="node1", target_node="node2")
    names = [op.instance_name for op in submitted]  # type: ignore[attr-defined]
    assert names == ["local.example.com", "shared.example.com"]


@pytest.mark.parametrize("op_id", ["OP_NODE_EVACUATE", "OP_NODE_MIGRATE"])
def test_an_empty_node_needs_no_target(
    cluster: FakeCluster, submitted: list[OpCode], op_id: str
) -> None:
    params = {"mode": "all"} if op_id == "OP_NODE_EVACUATE" else {}
    assert cluster.execute(op_id, node_name="node3", **params) == {"jobs": []}
    assert not submitted


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"mode": "primary-only"}, "'hail' is not in"),
        ({"remote_node": "node1"}, "is the node that the instances are to leave"),
        ({"remote_node": "node9"}, "node 'node9' is not known"),
        ({"remote_node": "node2", "iallocator": "hail"}, "give one of them"),
    ],
)
def test_targets_that_will_not_do(
    cluster: FakeCluster, submitted: list[OpCode], params: dict[str, Any], text: str
) -> None:
    cluster.add_instance()
    with pytest.raises(GenericError, match=text):
        evacuate(cluster, **params)
    assert not submitted


@pytest.mark.parametrize("flag", ["offline", "drained"])
def test_a_target_that_takes_nothing(
    cluster: FakeCluster, submitted: list[OpCode], flag: str
) -> None:
    cluster.add_instance()
    cluster.config.nodes[uuid_of("node2")][flag] = True
    with pytest.raises(OpPrereqError, match=flag):
        evacuate(cluster, remote_node="node2")


def test_disks_that_only_the_node_has_keep_all_there(
    cluster: FakeCluster, submitted: list[OpCode]
) -> None:
    cluster.add_instance("shared.example.com")
    cluster.add_instance("local.example.com", disk_template="file")
    with pytest.raises(OpPrereqError, match=r"only copy of the disks of local\.example\.com"):
        evacuate(cluster, remote_node="node2")
    assert not submitted


def powercycle(cluster: FakeCluster, node: str, **params: Any) -> Any:
    return cluster.execute("OP_NODE_POWERCYCLE", node_name=node, **params)


@pytest.mark.shows("2.1/noded/powercycle")
def test_a_node_is_restarted(cluster: FakeCluster) -> None:
    cluster.rpc.answers["node_powercycle"] = "restarting in 1 second"
    assert powercycle(cluster, "node2") == "restarting in 1 second"
    assert cluster.rpc.called("node_powercycle") == [
        ("node2", ["fake", {"migration_mode": "live"}])
    ]


def test_the_master_is_not_restarted_from_here(cluster: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match="is the master node"):
        powercycle(cluster, "node1")
    cluster.rpc.fail("node_powercycle", text="no power")
    with pytest.raises(OpExecError, match="no power"):
        powercycle(cluster, "node1", force=True)


def oob(cluster: FakeCluster, command: str, *nodes: str, **params: Any) -> Any:
    return cluster.execute("OP_OOB_COMMAND", command=command, node_names=list(nodes), **params)


@pytest.fixture
def helped(cluster: FakeCluster) -> FakeCluster:
    cluster.config.cluster["ndparams"] = {"oob_program": HELPER}
    cluster.rpc.answers["run_oob"] = None
    return cluster


def test_power_is_recorded(helped: FakeCluster) -> None:
    node = helped.config.nodes[uuid_of("node2")]
    with pytest.raises(OpPrereqError, match="it is not marked offline"):
        oob(helped, "power-off", "node2")
    assert oob(helped, "power-off", "node2", ignore_status=True) == [
        [(0, "node2.example.com"), (0, None)]
    ]
    assert node["powered"] is False
    oob(helped, "power-on", "node2")
    assert node["powered"] is True
    calls = [args for _, args in helped.rpc.called("run_oob")]
    assert calls == [
        [HELPER, "power-off", "node2.example.com", 60],
        [HELPER, "power-on", "node2.example.com", 60],
    ]


def test_the_master_keeps_its_power(helped: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match=f"by hand: '{HELPER} power-off node1.example.com'"):
        oob(helped, "power-off", "node1")
    assert [row[0][1] for row in oob(helped, "power-cycle")] == [
        "node2.example.com",
        "node3.example.com",
    ]


@pytest.mark.parametrize("command", OobCommand)
def test_a_node_that_is_named_twice_is_switched_once(helped: FakeCluster, command: str) -> None:
    rows = oob(helped, command, "node2", "node2.example.com", "node3", ignore_status=True)
    assert [row[0][1] for row in rows] == ["node2.example.com", "node3.example.com"]
    assert len(helped.rpc.called("run_oob")) == 2


def test_power_that_is_not_as_recorded(helped: FakeCluster) -> None:
    helped.rpc.answers["run_oob"] = {"powered": False}
    [[_, (status, value)]] = oob(helped, "power-status", "node2")
    assert (status, value) == (0, {"powered": False})
    assert helped.said("has no power, but it is recorded that it has power")


def test_power_is_compared_with_the_record_as_it_is_by_then(helped: FakeCluster) -> None:
    node = helped.config.nodes[uuid_of("node2")]

    def switch(_node: object, *_args: object) -> object:
        node["powered"] = False  # another job, while the helper was asked
        return {"powered": False}

    helped.rpc.do_run_oob = switch  # type: ignore[attr-defined]
    oob(helped, "power-status", "node2")
    assert not helped.said("it is recorded")
    node["powered"] = True
    helped.rpc.do_run_oob = lambda *_: switch(None) and {"powered": True}  # type: ignore[attr-defined]
    oob(helped, "power-status", "node2")
    assert helped.said("has power, but it is recorded that it has no power")


def test_a_helper_that_fails_or_talks_nonsense(helped: FakeCluster) -> None:
    helped.rpc.answers["run_oob"] = {"powered": "perhaps"}
    assert [row[1] for row in oob(helped, "power-status")] == [(2, None)] * 3
    helped.rpc.fail("run_oob", text="it broke")
    assert [row[1] for row in oob(helped, "health")] == [(2, None)] * 3
    assert helped.said("it broke")


def test_without_a_helper(cluster: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match="set the node parameter oob_program"):
        oob(cluster, "power-off", "node2")
    assert [row[1] for row in oob(cluster, "power-status", "node2")] == [(3, None)]
    assert [row[1] for row in oob(cluster, "power-on", "node2")] == [(3, None)]
    assert [row[1] for row in oob(cluster, "health")] == [(3, None)] * 3


@pytest.mark.parametrize(
    ("command", "answer", "good"),
    [
        (OobCommand.HEALTH, [["disk0", "OK"], ["fan", "CRITICAL"]], True),
        (OobCommand.HEALTH, [], True),
        (OobCommand.HEALTH, [["disk0", "FINE"]], False),
        (OobCommand.HEALTH, {"disk0": "OK"}, False),
        (OobCommand.POWER_STATUS, {"powered": True}, True),
        (OobCommand.POWER_STATUS, {}, False),
        (OobCommand.POWER_ON, None, True),
        (OobCommand.POWER_ON, "done", False),
    ],
)
def test_what_helpers_may_say(command: OobCommand, answer: object, good: bool) -> None:
    assert (mistake_in_answer(command, answer) is None) is good


def test_a_command_that_nodes_allow(cluster: FakeCluster) -> None:
    cluster.rpc.answers["restricted_command"] = "up 3 days\n"
    cluster.rpc.fail("restricted_command", node="node3", text="there is none of that name")
    result = cluster.execute("OP_RESTRICTED_COMMAND", command="uptime", nodes=["node2", "node3"])
    assert result == [
        (True, "up 3 days\n"),
        (False, "Node node3.example.com: there is none of that name"),
    ]


@pytest.mark.shows("maintd/command/executed")
def test_a_repair_command_gets_its_input(cluster: FakeCluster) -> None:
    cluster.rpc.answers["repair_command"] = "fixed\n"
    params = {"command": "fix", "node_name": "node2", "input": "{}"}
    assert cluster.execute("OP_REPAIR_COMMAND", **params) == "fixed\n"
    cluster.rpc.fail("repair_command", node="node2", text="there is none of that name")
    with pytest.raises(OpExecError, match="there is none of that name"):
        cluster.execute("OP_REPAIR_COMMAND", **params)
