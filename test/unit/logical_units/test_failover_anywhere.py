"""Failover of instances with copies to a third node: no acknowledged write is lost on the way."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster
from fakes.pairs import NAME, UP, add_pair, data_on, guests, lose, nodes_of, sides, volumes

from ganeti.base.errors import GenericError, OpExecError


def failover(cluster: FakeCluster, node: str = "node3") -> None:
    cluster.execute("OP_INSTANCE_FAILOVER", instance_name=NAME, target_node=node)


@pytest.mark.shows("2.0/any-node/mirrored", "2.0/any-node/running-early", "2.0/any-node/old-data")
def test_it_runs_there_as_soon_as_the_copy_has_begun(pair: FakeCluster) -> None:
    pair.rpc.sync_steps = 20
    seen: list[object] = []

    def look(_node: str, call: str, _args: Any) -> None:
        if call == "instance_start":
            seen.append((sides(pair)["node3"], sorted(volumes(pair))))

    pair.rpc.failure = look
    failover(pair)
    assert seen == [(["Secondary connected incomplete"], ["node1", "node2", "node3"])]
    assert guests(pair) == ["node3"]
    assert nodes_of(pair) == ["node3", "node2"]
    assert sides(pair) == {"node3": UP["node1"], "node2": UP["node2"]}
    assert sorted(volumes(pair)) == ["node2", "node3"]
    assert data_on(pair, "node3") == "acknowledged"
    assert pair.said("node2.example.com has the only complete data")


def test_a_dead_primary_node_leaves_its_volumes_and_that_is_told(pair: FakeCluster) -> None:
    lose(pair, 1)
    failover(pair)
    assert guests(pair) == ["node3"]
    assert nodes_of(pair) == ["node3", "node2"]
    assert data_on(pair, "node3") == "acknowledged"
    assert pair.said("remove it by hand on node node1.example.com: 'lvremove xenvg/")


def test_with_a_dead_secondary_node_the_primary_one_keeps_the_data(pair: FakeCluster) -> None:
    pair.rpc.node("node2").cut_power()
    pair.config.node(2)["offline"] = True
    pair.rpc.write("newer")
    failover(pair)
    assert nodes_of(pair) == ["node3", "node1"]
    assert data_on(pair, "node3") == "newer"


def test_a_copy_that_lacks_writes_is_never_taken(pair: FakeCluster) -> None:
    pair.rpc.node("node2").cut_power()
    pair.rpc.write("newer")
    pair.rpc.node("node2").boot()
    lose(pair, 1)
    with pytest.raises(OpExecError, match=r"no node certainly has all data .*nothing was changed"):
        failover(pair)
    assert nodes_of(pair) == ["node1", "node2"]


@pytest.mark.parametrize("after", [False, True])
def test_a_failure_anywhere_loses_no_write_and_names_the_next_step(
    pairs: FakeCluster, *, after: bool
) -> None:
    add_pair(pairs)
    pairs.rpc.calls.clear()
    failover(pairs)
    for number in range(len(pairs.rpc.calls)):
        pairs.rpc.write(f"before {number}")
        before, seen = nodes_of(pairs), iter(range(10**6))
        target = next(n for n in ("node1", "node2", "node3") if n not in before)

        def failure(
            _node: str, _call: str, _args: Any, number: int = number, seen: Any = seen
        ) -> str | None:
            return "it broke" if next(seen) == number else None

        kind = "lost_answer" if after else "failure"
        setattr(pairs.rpc, kind, failure)
        pairs.messages.clear()
        try:
            failover(pairs, target)
        except GenericError as err:
            pairs.messages.append(str(err))
        setattr(pairs.rpc, kind, lambda *_args: None)
        assert len(guests(pairs)) <= 1
        pairs.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME, wait_for_sync=True)
        if not guests(pairs):
            assert pairs.said("gnt-instance startup"), (number, pairs.messages)
            pairs.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
        now = nodes_of(pairs)
        assert guests(pairs) == now[:1]
        assert [data_on(pairs, name) for name in now] == [f"before {number}"] * 2
        for left in set(volumes(pairs)) - set(now):
            assert pairs.said("lvremove xenvg/"), (number, pairs.messages)
            pairs.rpc.node(left).sides.clear()
            pairs.rpc.node(left).disks.clear()
            pairs.rpc.node(left).metadata.clear()


@pytest.mark.parametrize("target", ["node2", "node3"])
def test_a_guest_that_a_broken_off_migration_has_left_is_not_started_twice(
    pair: FakeCluster, target: str
) -> None:
    lose(pair, 1)
    pair.rpc.node("node2").running[NAME] = 0
    if target == "node2":
        failover(pair, target)
        assert nodes_of(pair) == ["node2", "node1"]
    else:
        with pytest.raises(OpExecError, match=r"runs on node2.*gnt-instance migrate --cleanup"):
            failover(pair, target)
        assert nodes_of(pair) == ["node1", "node2"]
        pair.execute("OP_INSTANCE_MIGRATE", instance_name=NAME, cleanup=True)
        assert nodes_of(pair) == ["node2", "node1"]
    assert guests(pair) == ["node2"]
