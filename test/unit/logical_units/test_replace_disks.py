"""Replacing one side of the disks of an instance.

A failure at any call leads back, or the same command goes on; no write is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakes.cuts import every_kill
from fakes.fake_cluster import FakeCluster, FakeNode, uuid_of
from fakes.pairs import NAME, UP, add_pair, nodes_of, pair_cluster, sides, volumes

from ganeti.base.errors import GenericError, JobCanceled, OpExecError, OpPrereqError
from ganeti.logical_units.instance.storage.swapping import way_back, way_there

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


@pytest.mark.parametrize("where", ["-p", "-s", "-n"])
def test_old_volumes_that_stay_because_the_wait_was_canceled_are_told(
    pair: FakeCluster, where: str
) -> None:
    before = {(node, name) for node, names in volumes(pair).items() for name in names}
    pair.rpc.sync_steps = 50
    pair.cancel_after = 20
    with pytest.raises(JobCanceled):
        replace_disks(pair, **ON_NODES[where])
    named = {name for disk in pair.config.disks.values() for name in map(_path, disk["children"])}
    old = before if where == "-n" else {(node, f"{name}_old") for node, name in before}
    holders = nodes_of(pair)
    left = sorted(
        name
        for node, name in old
        if name in volumes(pair)[node] and (node not in holders or name not in named)
    )
    [told] = [message for message in pair.messages if "lvremove" in message]
    assert len(left) == 2
    assert all(name in told for name in left)


def _path(volume: dict[str, Any]) -> str:
    return "/".join(volume["logical_id"])


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


# Volumes by kind (0 data, 1 metadata) and suffix, with the pair that each belongs to.
Places = dict[tuple[int, str], str]
BEGUN: Places = {(0, ""): "old", (1, ""): "old", (0, "_new"): "new", (1, "_new"): "new"}
EARLIER_ORDER = [(0, "", "_old"), (0, "_new", ""), (1, "", "_old"), (1, "_new", "")]


def after_each(places: Places, renames: list[tuple[int, str, str]]) -> Iterator[Places]:
    """Yield the places before, between and after renames."""
    yield places
    for kind, now, then in renames:
        assert (kind, then) not in places, "the name is taken"
        places = {**places, (kind, then): places[kind, now]}
        del places[kind, now]
        yield places


def is_foreign(places: Places) -> bool:
    return len({places[name] for name in ((0, ""), (1, "")) if name in places}) == 2


def test_no_volume_is_ever_beside_one_of_the_other_pair() -> None:
    ways = list(after_each(BEGUN, way_there(frozenset(BEGUN))))
    assert ways[-1] == {(0, ""): "new", (1, ""): "new", (0, "_old"): "old", (1, "_old"): "old"}
    for begun in ways:
        back = list(after_each(begun, way_back(frozenset(begun))))
        assert back[-1] == BEGUN
        assert not any(map(is_foreign, back))
        for interrupted in back:
            assert list(after_each(interrupted, way_back(frozenset(interrupted))))[-1] == BEGUN


def test_what_the_earlier_order_of_renames_has_left_is_led_back() -> None:
    states = list(after_each(BEGUN, EARLIER_ORDER))
    assert [is_foreign(each) for each in states] == [False, False, True, False, False]
    for state in states:
        back = list(after_each(state, way_back(frozenset(state))))
        assert back[-1] == BEGUN
        assert not any(map(is_foreign, back[2:]))


@pytest.mark.parametrize(
    "left",
    [
        {(0, ""), (1, ""), (1, "_old")},  # the old data is removed already
        {(0, ""), (1, ""), (0, "_old")},
        {(0, ""), (1, "_old")},
        {(1, ""), (0, "_old")},
        {(0, ""), (1, "")},
    ],
)
def test_nothing_is_led_back_where_the_pair_is_not_certain(left: set[tuple[int, str]]) -> None:
    assert way_back(frozenset(left)) == []


def foreign_pairs(cluster: FakeCluster) -> list[str]:
    """Return the nodes where metadata says that data is complete which is not there."""
    return [
        node.name
        for node in cluster.rpc.nodes.values()
        for name, metadata in node.metadata.items()
        if name.endswith("disk0_meta") and metadata.is_complete
        if node.data.get(name.replace("_meta", "_data"), "acknowledged") != "acknowledged"
    ]


def written_pair(tmp_path: Path) -> FakeCluster:
    """Return a new cluster whose instance has written something on both of its nodes."""
    cluster = pair_cluster(str(tmp_path))
    add_pair(cluster)
    cluster.rpc.write("acknowledged")
    return cluster


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("where", ["-p", "-s"])
@pytest.mark.usefixtures("pairs")
def test_after_a_job_died_anywhere_the_next_one_does_it(
    tmp_path: Path, where: str, *, is_closed: bool
) -> None:
    for cluster in every_kill(
        partial(written_pair, tmp_path), lambda cluster: replace_disks(cluster, **ON_NODES[where])
    ):
        if is_closed:
            cluster.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
        else:  # as the watcher does; without metadata it cannot
            with contextlib.suppress(OpExecError):
                cluster.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME)
        assert not foreign_pairs(cluster)
        replace_disks(cluster, **ON_NODES[where])
        cluster.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
        assert sides(cluster) == UP
        assert data_on(cluster) == {"node1": "acknowledged", "node2": "acknowledged"}
        assert [len(names) for names in volumes(cluster).values()] == [2, 2]


@pytest.mark.parametrize("where", ["-p", "-s"])
@pytest.mark.usefixtures("pairs")
def test_a_next_try_without_room_leaves_the_old_volumes_in_place(
    tmp_path: Path, where: str
) -> None:
    for cluster in every_kill(
        partial(written_pair, tmp_path), lambda cluster: replace_disks(cluster, **ON_NODES[where])
    ):
        cluster.rpc.fail("blockdev_create")
        with pytest.raises(OpExecError, match="it broke"):
            replace_disks(cluster, **ON_NODES[where])
        cluster.rpc.fail("")
        assert sides(cluster) == UP
        assert data_on(cluster) == {"node1": "acknowledged", "node2": "acknowledged"}
        assert [len(names) for names in volumes(cluster).values()] == [2, 2]


def rename(node: FakeNode, now: str, then: str) -> None:
    node.disks = {then if name == now else name for name in node.disks}
    for table in (node.data, node.metadata, node.sizes):
        if now in table:
            table[then] = table.pop(now)  # type: ignore[attr-defined, index]


@pytest.mark.parametrize("is_attached", [False, True])
@pytest.mark.parametrize("has_room", [False, True])
@pytest.mark.parametrize("where", ["-p", "-s"])
def test_a_pair_that_an_earlier_version_has_mixed_is_parted(
    pair: FakeCluster, where: str, *, has_room: bool, is_attached: bool
) -> None:
    node = pair.rpc.node({"-p": "node1", "-s": "node2"}[where])
    [side] = node.sides.values()
    side.lose_half()
    [data, meta] = sorted(node.disks)
    for kind in (data, meta):
        node.disks.add(f"{kind}_new")
        node.data[f"{kind}_new"] = ""
    rename(node, data, f"{data}_old")
    rename(node, f"{data}_new", data)
    if is_attached:
        pair.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME)
    if not has_room:
        pair.rpc.fail("blockdev_create")
    with contextlib.nullcontext() if has_room else pytest.raises(OpExecError, match="it broke"):
        replace_disks(pair, **ON_NODES[where])
    assert data_on(pair) == {"node1": "acknowledged", "node2": "acknowledged"}
    assert sides(pair) == UP
    assert [len(names) for names in volumes(pair).values()] == [2, 2]
