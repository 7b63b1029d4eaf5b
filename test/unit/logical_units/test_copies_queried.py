"""The state of disks' copies in queries: asked of primary nodes, and only where there is a copy."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster
from fakes.pairs import NAME, add_pair

from ganeti.base.errors import ProtocolError
from ganeti.clients.node_rpc import RpcResult
from ganeti.protocol.node_rpc import NodeCall
from ganeti.query.view import Copy, copies_from_rpc
from ganeti.storage.interface import Link

FIELDS = ["name", "disk.copies", "disk.copied"]
CALL = "blockdev_getmirrorstatus_multi"


def copies(cluster: FakeCluster, qfilter: object = None) -> dict[str, tuple[Any, Any]]:
    """Return {name of an instance: (states, percents)}, and forget the calls before."""
    cluster.rpc.calls.clear()
    answer: Any = cluster.execute("OP_QUERY", what="instance", fields=FIELDS, qfilter=qfilter)
    return {name: (states, percents) for (_, name), (_, states), (_, percents) in answer["data"]}


def asked(cluster: FakeCluster) -> list[tuple[str, int]]:
    return [(node, len(args[0])) for node, args in cluster.rpc.called(CALL)]


def test_the_primary_node_is_asked_about_copies_and_no_other_call_is_made(
    pairs: FakeCluster,
) -> None:
    add_pair(pairs)
    add_pair(pairs, name="two", pnode="node2", snode="node3", disks=[{"size": 64}, {"size": 32}])
    pairs.add_instance("alone", disk_template="plain", pnode="node4")
    assert copies(pairs) == {
        "alone": ([None], [None]),
        "two": (["up to date"] * 2, [None] * 2),
        NAME: (["up to date"], [None]),
    }
    assert sorted(asked(pairs)) == [("node1", 1), ("node2", 2)]
    assert {call for _node, call, _args in pairs.rpc.calls} == {CALL}
    copies(pairs, ["==", "name", "two"])
    assert asked(pairs) == [("node2", 2)], "only about the instances that are asked for"


def test_the_state_of_every_disk_can_be_asked_for(pairs: FakeCluster) -> None:
    add_pair(pairs)
    pairs.add_instance("alone", disk_template="plain", pnode="node4", disks=[{"size": 64}] * 2)
    pairs.add_instance("down", disk_template="plain", pnode="node4", start=False)
    node = pairs.rpc.node("node4")
    node.disks -= {name for name in node.disks if name.endswith(".disk1")}
    [side] = pairs.rpc.node("node1").sides.values()
    side.part(Link.WAITING)
    pairs.rpc.calls.clear()
    fields = ["name", "disk.status", "disk.copies"]
    answer: Any = pairs.execute("OP_QUERY", what="instance", fields=fields, qfilter=None)
    assert {name: (states, copied) for (_, name), (_, states), (_, copied) in answer["data"]} == {
        "alone": (["ok", "missing"], [None, None]),
        "down": (["inactive"], [None]),
        NAME: (["degraded"], ["degraded"]),
    }
    assert sorted(asked(pairs)) == [("node1", 1), ("node4", 2)]


def test_a_copy_that_is_being_made_has_its_percentage(pairs: FakeCluster) -> None:
    pairs.rpc.sync_steps = 4
    add_pair(pairs, wait_for_sync=False)
    found = [copies(pairs)[NAME] for _ in range(5)]
    states = [state for [state], _ in found]
    assert states[0] == "syncing"
    assert states[-1] == "up to date"
    percents = [percent for _, [percent] in found if percent is not None]
    assert percents == sorted(percents)
    assert len(set(percents)) > 2
    assert found[-1][1] == [None]


def test_copies_that_are_out_of_date_are_told(pairs: FakeCluster) -> None:
    add_pair(pairs)
    [side] = pairs.rpc.node("node1").sides.values()
    side.part(Link.WAITING)
    assert copies(pairs)[NAME] == (["degraded"], [None])
    side.lose_half()
    assert copies(pairs)[NAME] == (["faulty"], [None])


def test_disks_that_are_not_in_use_cost_no_call(pairs: FakeCluster) -> None:
    add_pair(pairs)
    pairs.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    assert copies(pairs)[NAME] == (["inactive"], [None])
    assert asked(pairs) == []


@pytest.mark.parametrize("payload", [["nonsense"], [[False, "minor 0 is used by a stranger"]]])
def test_a_node_that_cannot_tell_leaves_its_copies_unknown(
    pairs: FakeCluster, payload: object
) -> None:
    add_pair(pairs)
    add_pair(pairs, name="two", pnode="node2", snode="node3")
    real = pairs.rpc.perform

    def perform(call: NodeCall, targets: Any) -> dict[str, RpcResult[Any]]:
        results = real(call, targets)
        name = "node1.example.com"
        if call.name == CALL and name in results:
            results[name] = RpcResult(name, payload=payload)
        return results

    pairs.rpc.perform = perform  # type: ignore[method-assign]
    found = copies(pairs)
    assert found[NAME] == (["unknown"], [None])
    assert found["two"] == (["up to date"], [None])


def test_an_offline_primary_node_is_not_asked(pairs: FakeCluster) -> None:
    add_pair(pairs)
    pairs.config.node(1)["offline"] = True
    assert copies(pairs)[NAME] == (["unknown"], [None])
    assert asked(pairs) == []


def status(**values: object) -> list[object]:
    return [True, {"sync_percent": None, "is_degraded": False, "ldisk_status": 1, **values}]


def test_answers_are_read() -> None:
    payload = [
        status(),
        status(sync_percent=12.5, is_degraded=True, ldisk_status=2),
        status(is_degraded=True),
        status(is_degraded=True, ldisk_status=4),
        status(ldisk_status=3),
        [False, "no such device"],
    ]
    assert copies_from_rpc(payload) == [
        Copy("up to date"),
        Copy("syncing", 12.5),
        Copy("degraded"),
        Copy("faulty"),
        Copy("unknown"),
        Copy("missing"),
    ]
    with pytest.raises(ProtocolError, match="blockdev_getmirrorstatus_multi"):
        copies_from_rpc([[True, {"sync_percent": "much"}]])
