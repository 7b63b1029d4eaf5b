"""Replacing one side of the disks of an instance.

A failure at any call leads back, or the same command goes on; no write is lost.
"""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, uuid_of
from fakes.pairs import NAME, UP, add_pair, nodes_of, sides, volumes

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError

ON_NODES = {
    "-p": {"mode": "replace_on_primary"},
    "-s": {"mode": "replace_on_secondary"},
    "-n": {"mode": "replace_new_secondary", "remote_node": "node3"},
}


def replace_disks(cluster: FakeCluster, **params: Any) -> None:
    cluster.execute("OP_INSTANCE_REPLACE_DISKS", instance_name=NAME, **params)


def data_on(cluster: FakeCluster) -> dict[str, str]:
    return {
        node.name.partition(".")[0]: node.data[name]
        for node in cluster.rpc.nodes.values()
        for name in node.disks
        if name.endswith("disk0_data")
    }


@pytest.fixture
def pair(pairs: FakeCluster) -> FakeCluster:
    """An instance that runs on node1 and has written something."""
    add_pair(pairs)
    pairs.rpc.write("acknowledged")
    return pairs


@pytest.mark.shows("2.1/repair/replace")
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("where", ["-p", "-s"])
def test_new_volumes_on_the_same_node_have_the_names_of_the_old(
    pair: FakeCluster, where: str, *, early: bool
) -> None:
    before, disks = volumes(pair), dict(pair.config.disks)
    pair.rpc.sync_steps = 3
    replace_disks(pair, early_release=early, **ON_NODES[where])
    assert volumes(pair) == before
    assert pair.config.disks == disks
    assert sides(pair) == UP
    assert data_on(pair) == {"node1": "acknowledged", "node2": "acknowledged"}
    node = {"-p": "node1", "-s": "node2"}[where]
    assert {name for name, _args in pair.rpc.called("blockdev_rename")} == {node}
    names = pair.rpc.names()
    last_look = len(names) - 1 - names[::-1].index("blockdev_getmirrorstatus_multi")
    assert (names.index("blockdev_remove") < last_look) is early


@pytest.mark.shows("2.1/evacuate-node/secondary")
def test_a_new_secondary_node_takes_over(pair: FakeCluster) -> None:
    [old] = pair.config.disks.values()
    port, secret = old["logical_id"][2], old["logical_id"][5]
    replace_disks(pair, **ON_NODES["-n"])
    assert nodes_of(pair) == ["node1", "node3"]
    assert sorted(volumes(pair)) == ["node1", "node3"]
    assert sides(pair) == {"node1": UP["node1"], "node3": UP["node2"]}
    [disk] = pair.config.disks.values()
    assert disk["logical_id"] == [uuid_of("node1"), uuid_of("node3"), port, 0, 0, secret]
    assert [child["nodes"] for child in disk["children"]] == [disk["nodes"]] * 2
    assert data_on(pair) == {"node1": "acknowledged", "node3": "acknowledged"}


def test_a_dead_secondary_node_is_replaced_and_its_volumes_are_told(pair: FakeCluster) -> None:
    pair.rpc.node("node2").cut_power()
    pair.config.node(2)["offline"] = True
    replace_disks(pair, **ON_NODES["-n"])
    assert nodes_of(pair) == ["node1", "node3"]
    assert sides(pair) == {"node1": UP["node1"], "node3": UP["node2"]}
    assert pair.said("remove it by hand on node node2.example.com: 'lvremove xenvg/")


def test_an_allocator_names_the_new_secondary_node(pair: FakeCluster) -> None:
    asked: list[dict[str, Any]] = []

    def answer(question: dict[str, Any], _options: dict[str, Any]) -> str:
        asked.append(question["request"])
        return '{"success": true, "info": "", "result": ["node4.example.com"]}'

    pair.rpc.allocators["mine"] = answer
    replace_disks(pair, mode="replace_new_secondary", iallocator="mine")
    assert asked[0]["relocate_from"] == ["node2.example.com"]
    assert nodes_of(pair) == ["node1", "node4"]


@pytest.mark.shows("2.0/disks/less-work")
@pytest.mark.parametrize("node", ["node1", "node2"])
def test_the_broken_side_is_found(pair: FakeCluster, node: str) -> None:
    replace_disks(pair, mode="replace_auto")
    assert pair.said("has no broken disks, nothing to replace")
    found = pair.rpc.node(node)
    found.broken |= found.disks
    replace_disks(pair, mode="replace_auto")
    assert not found.broken
    assert {name for name, _args in pair.rpc.called("blockdev_rename")} == {node}
    assert data_on(pair) == {"node1": "acknowledged", "node2": "acknowledged"}


def test_two_broken_sides_are_refused(pair: FakeCluster) -> None:
    for name in ("node1", "node2"):
        pair.rpc.node(name).broken |= pair.rpc.node(name).disks
    with pytest.raises(OpPrereqError, match="broken disks on both"):
        replace_disks(pair, mode="replace_auto")


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"mode": "replace_new_secondary"}, "is for a new secondary node"),
        ({"mode": "replace_on_primary", "remote_node": "node3"}, "is for a new secondary node"),
        ({**ON_NODES["-n"], "remote_node": "node2"}, "is the secondary node of .* already"),
        ({**ON_NODES["-n"], "remote_node": "node1"}, "cannot be the primary node"),
        ({**ON_NODES["-n"], "disks": [0]}, "leave --disks out"),
        ({"mode": "replace_on_secondary", "disks": [4]}, "has no disk 4 with a copy"),
    ],
)
def test_wrong_replacements(pair: FakeCluster, params: dict[str, Any], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        replace_disks(pair, **params)
    assert sides(pair) == UP


@pytest.mark.parametrize("where", ["-p", "-s", "-n"])
def test_the_other_side_must_have_all_data(pair: FakeCluster, where: str) -> None:
    pair.rpc.sync_steps = 1000
    pair.rpc.node("node2").cut_power()
    pair.rpc.write("newer")
    pair.rpc.node("node2").boot()
    pair.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME)
    pair.rpc.sync_steps = 0
    if where == "-p":
        with pytest.raises(OpExecError, match="nothing was changed: wait for the copy"):
            replace_disks(pair, **ON_NODES[where])
    else:
        replace_disks(pair, **ON_NODES[where])
        assert set(data_on(pair).values()) == {"newer"}


def test_a_stopped_instance_is_closed_again(pairs: FakeCluster) -> None:
    add_pair(pairs, start=False)
    replace_disks(pairs, **ON_NODES["-s"])
    assert sides(pairs) == {}
    replace_disks(pairs, **ON_NODES["-n"])
    assert sides(pairs) == {}
    pairs.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert sides(pairs)["node3"] == UP["node2"]


def failing(cluster: FakeCluster, number: int, *, after: bool) -> None:
    seen = iter(range(10**6))

    def failure(_node: str, _call: str, _args: Any) -> str | None:
        return "it broke" if next(seen) == number else None

    if after:
        cluster.rpc.lost_answer = failure
    else:
        cluster.rpc.failure = failure


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("where", ["-p", "-s", "-n"])
def test_a_replacement_that_fails_anywhere_leads_back_or_goes_on(
    pairs: FakeCluster, where: str, *, after: bool
) -> None:
    add_pair(pairs, disks=[{"size": 64}, {"size": 32}])
    pairs.rpc.calls.clear()
    other = {"node3": "node2", "node2": "node3"}
    params = dict(ON_NODES[where])
    replace_disks(pairs, **params)
    count = len(pairs.rpc.calls)
    for number in range(count):
        pairs.rpc.write(f"before {number}")
        if "remote_node" in params:
            params["remote_node"] = other[nodes_of(pairs)[1]]
        failing(pairs, number, after=after)
        before = nodes_of(pairs)
        pairs.messages.clear()
        try:
            replace_disks(pairs, **params)
        except GenericError as err:
            pairs.messages.append(str(err))
        failing(pairs, -1, after=after)
        assert pairs.rpc.node("node1").running == {NAME: 0}
        assert data_on(pairs)["node1"] == f"before {number}" or where == "-p"
        pairs.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME, wait_for_sync=True)
        if nodes_of(pairs) == before:  # once more, as the operator would
            replace_disks(pairs, **params)
        assert sides(pairs)["node1"] == UP["node1"] * 2, number
        assert sides(pairs)[nodes_of(pairs)[1]] == UP["node2"] * 2, number
        here = volumes(pairs)
        assert here["node1"] == here[nodes_of(pairs)[1]], number
        assert [data_on(pairs)[name] for name in nodes_of(pairs)] == [f"before {number}"] * 2
        for left in set(here) - set(nodes_of(pairs)):  # told, and removed by hand
            assert pairs.said("lvremove xenvg/"), (number, pairs.messages)
            pairs.rpc.node(left).sides.clear()
            pairs.rpc.node(left).disks.clear()
            pairs.rpc.node(left).metadata.clear()
