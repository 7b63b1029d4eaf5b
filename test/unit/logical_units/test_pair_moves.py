"""Failover and migration between the two nodes of an instance.

At every failure at most one copy of the guest runs, no write is lost, and a command leads on.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster
from fakes.pairs import NAME, UP, add_pair, cut_link, data_on, guests, lose, nodes_of, sides

from ganeti.base.errors import GenericError, JobCanceled, OpExecError, OpPrereqError

MOVED = {"node1": ["Secondary connected complete"], "node2": ["Primary connected complete"]}


def failover(cluster: FakeCluster, **params: Any) -> None:
    cluster.execute("OP_INSTANCE_FAILOVER", instance_name=NAME, **params)


def migrate(cluster: FakeCluster, **params: Any) -> None:
    cluster.execute("OP_INSTANCE_MIGRATE", instance_name=NAME, **params)


@pytest.mark.parametrize("node", [{}, {"target_node": "node2"}])
def test_a_failover_goes_to_the_secondary_node(pair: FakeCluster, node: dict[str, str]) -> None:
    failover(pair, **node)
    assert guests(pair) == ["node2"]
    assert nodes_of(pair) == ["node2", "node1"]
    assert sides(pair) == MOVED
    assert data_on(pair, "node2") == "acknowledged"
    failover(pair)
    assert sides(pair) == UP


@pytest.mark.parametrize(
    ("op_id", "params"),
    [
        ("OP_INSTANCE_MIGRATE", {"target_node": "node3"}),
        ("OP_INSTANCE_MIGRATE", {"iallocator": "hail"}),
        ("OP_INSTANCE_FAILOVER", {"iallocator": "hail"}),
        ("OP_INSTANCE_FAILOVER", {"target_node": "node3", "cleanup": True}),
    ],
)
def test_no_other_node_has_the_copies(
    pair: FakeCluster, op_id: str, params: dict[str, Any]
) -> None:
    with pytest.raises(OpPrereqError, match=r"node2\.example\.com', which has the copies of"):
        pair.execute(op_id, instance_name=NAME, **params)


@pytest.mark.shows("backend/cluster-node/node-lost", "backend/overview/mirror")
def test_a_failover_from_a_dead_node_keeps_every_acknowledged_write(pair: FakeCluster) -> None:
    lose(pair, 1)
    failover(pair)
    assert guests(pair) == ["node2"]
    assert data_on(pair, "node2") == "acknowledged"
    pair.rpc.write("newer")
    pair.rpc.node("node1").boot()
    pair.config.node(1)["offline"] = False
    pair.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME, wait_for_sync=True)
    assert sides(pair) == MOVED
    assert data_on(pair, "node1") == "newer"


def test_an_incomplete_copy_is_refused(pair: FakeCluster) -> None:
    pair.rpc.node("node2").cut_power()
    pair.rpc.write("newer")
    pair.rpc.node("node2").boot()
    pair.rpc.sync_steps = 1000
    pair.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME)
    text = "its data is not complete yet.*nothing was changed: connect .*--wait-for-sync"
    with pytest.raises(OpExecError, match=text):
        failover(pair)
    assert guests(pair) == ["node1"]
    with pytest.raises(OpExecError, match=r"cannot migrate: disk 0 .*nothing was changed"):
        migrate(pair)
    assert guests(pair) == ["node1"]


def test_a_stopped_instance_stays_stopped(pairs: FakeCluster) -> None:
    add_pair(pairs, start=False)
    failover(pairs)
    assert nodes_of(pairs) == ["node2", "node1"]
    assert sides(pairs) == {}
    assert guests(pairs) == []


def test_a_move_says_which_commands_take_it_elsewhere(pair: FakeCluster) -> None:
    text = r"node node2\.example\.com has copies of its disks, so use .*failover -n NODE"
    with pytest.raises(OpPrereqError, match=text):
        pair.execute("OP_INSTANCE_MOVE", instance_name=NAME, target_node="node3")


def test_a_migration_goes_through_dual_primary_and_back(pair: FakeCluster) -> None:
    seen: list[dict[str, list[str]]] = []

    def look(_node: str, call: str, _args: Any) -> None:
        if call == "instance_migrate":
            seen.append(sides(pair))

    pair.rpc.failure = look
    migrate(pair)
    assert seen == [
        {"node1": ["Primary connected complete dual"], "node2": ["Primary connected complete dual"]}
    ]
    assert guests(pair) == ["node2"]
    assert nodes_of(pair) == ["node2", "node1"]
    assert sides(pair) == MOVED
    assert pair.config.instance(NAME)["disks_active"]


def calls_of_migration(cluster: FakeCluster) -> list[tuple[str, str]]:
    cluster.rpc.calls.clear()
    migrate(cluster)
    return [(node.partition(".")[0], call) for node, call, _args in cluster.rpc.calls]


def fail_nth(cluster: FakeCluster, number: int, *, after: bool) -> None:
    seen = iter(range(10**6))

    def failure(_node: str, _call: str, _args: Any) -> str | None:
        return "it broke" if next(seen) == number else None

    if after:
        cluster.rpc.lost_answer = failure
    else:
        cluster.rpc.failure = failure


@pytest.mark.parametrize("after", [False, True])
def test_a_migration_that_fails_anywhere_can_be_put_right(
    pairs: FakeCluster, *, after: bool
) -> None:
    add_pair(pairs)
    count = len(calls_of_migration(pairs))
    migrate(pairs)
    refused = []
    for number in range(count):
        pairs.rpc.write(f"before {number}")
        before = nodes_of(pairs)
        fail_nth(pairs, number, after=after)
        try:
            migrate(pairs)
        except GenericError as err:
            refused.append(str(err))
        fail_nth(pairs, -1, after=after)
        assert len(guests(pairs)) == 1, (number, pairs.messages[-5:])
        if guests(pairs) != nodes_of(pairs)[:1] or "dual" in str(sides(pairs)):
            assert pairs.said("gnt-instance migrate --cleanup") or pairs.said("activate-disks")
        migrate(pairs, cleanup=True)
        assert guests(pairs) == nodes_of(pairs)[:1]
        assert sorted(str(each) for rows in sides(pairs).values() for each in rows) == [
            "Primary connected complete",
            "Secondary connected complete",
        ], (number, before)
        assert data_on(pairs, "node1") == data_on(pairs, "node2") == f"before {number}"
    assert len(refused) > count / 3
    assert all(re.search(r"nothing was changed|cannot|--cleanup", text) for text in refused)


def test_a_canceled_migration_leads_back(pair: FakeCluster) -> None:
    pair.rpc.migration_states = [{"status": "active"}] * 100
    pair.cancel_after = 12
    with pytest.raises(JobCanceled):
        migrate(pair)
    pair.cancel_after = None
    assert guests(pair) == ["node1"]
    assert sides(pair) == UP


def lose_half(cluster: FakeCluster, node: str) -> None:
    """Let the disk of a node die under its side of the mirror."""
    [side] = cluster.rpc.node(node).sides.values()
    side.lose_half()


def watch_data(cluster: FakeCluster, failing: int = -1) -> list[str]:
    """Look before each call whether the guest's side has data, fail one; returns the calls."""
    seen: list[str] = []

    def look(_node: str, call: str, _args: Any) -> str | None:
        seen.append(call)
        for node in cluster.rpc.nodes.values():
            for side in node.sides.values():
                assert side.has_data or not side.is_primary, (node.name, seen)
        return "it broke" if len(seen) - 1 == failing else None

    cluster.rpc.failure = look
    return seen


def test_a_guest_leaves_a_node_that_has_lost_its_disk(pair: FakeCluster) -> None:
    lose_half(pair, "node1")
    pair.rpc.write("newer")
    calls = watch_data(pair)
    migrate(pair)
    assert "drbd_disconnect_net" not in calls
    assert pair.said("node1.example.com has lost disks of the instance")
    assert guests(pair) == ["node2"]
    assert sides(pair) == {
        "node1": ["Secondary connected incomplete"],
        "node2": ["Primary connected complete"],
    }
    assert data_on(pair, "node2") == "newer"
    pair.execute(
        "OP_INSTANCE_REPLACE_DISKS",
        instance_name=NAME,
        mode="replace_new_secondary",
        remote_node="node3",
    )
    assert sides(pair) == {
        "node2": ["Primary connected complete"],
        "node3": ["Secondary connected complete"],
    }


def test_whatever_fails_on_the_way_the_guest_has_its_data(pairs: FakeCluster) -> None:
    add_pair(pairs)
    for number in range(100):
        lose_half(pairs, "node1")
        seen = watch_data(pairs, failing=number)
        with contextlib.suppress(GenericError):
            migrate(pairs)
        if len(seen) <= number:
            break
        watch_data(pairs)
        migrate(pairs, cleanup=True)
        assert guests(pairs) == nodes_of(pairs)[:1]
        pairs.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME, wait_for_sync=True)
        if guests(pairs) == ["node2"]:
            migrate(pairs)
    assert 10 < number < 100


@pytest.mark.parametrize(
    ("lost", "text"),
    [
        ("node2", "node1.*, no complete copy; nothing was changed"),
        ("node1", "cannot migrate: .*waiting"),
    ],
)
def test_nothing_moves_to_a_node_without_the_data(pair: FakeCluster, lost: str, text: str) -> None:
    lose_half(pair, lost)
    if lost == "node1":
        cut_link(pair)
    with pytest.raises(OpExecError, match=text):
        migrate(pair)
    assert guests(pair) == ["node1"]


@pytest.mark.parametrize("after", [False, True])
def test_a_failover_that_fails_anywhere_can_be_tried_again(
    pairs: FakeCluster, *, after: bool
) -> None:
    add_pair(pairs)
    pairs.rpc.calls.clear()
    failover(pairs)
    count = len(pairs.rpc.calls)
    for number in range(count):
        pairs.rpc.write(f"before {number}")
        fail_nth(pairs, number, after=after)
        with contextlib.suppress(GenericError):
            failover(pairs)
        fail_nth(pairs, -1, after=after)
        assert len(guests(pairs)) <= 1
        if not guests(pairs):
            pairs.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
        pairs.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME)
        assert guests(pairs) == nodes_of(pairs)[:1]
        assert data_on(pairs, "node1") == data_on(pairs, "node2") == f"before {number}"
