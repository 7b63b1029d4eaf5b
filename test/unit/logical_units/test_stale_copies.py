"""Copies that may lack what was written since they lost the other one: never taken silently."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster
from fakes.pairs import NAME, UP, add_pair, cut_link, data_on, guests, lose, nodes_of, sides

from ganeti.base.errors import OpExecError
from ganeti.logical_units.instance.storage.generations import Age, compare, risky_age
from ganeti.protocol.node_rpc_values import CopySide
from ganeti.storage.interface import Link


def failover(cluster: FakeCluster, **params: Any) -> None:
    cluster.execute("OP_INSTANCE_FAILOVER", instance_name=NAME, **params)


def replace_disks(cluster: FakeCluster, mode: str, **params: Any) -> None:
    mode = f"replace_{mode}"
    cluster.execute("OP_INSTANCE_REPLACE_DISKS", instance_name=NAME, mode=mode, **params)


def shutdown(cluster: FakeCluster) -> None:
    cluster.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)


def mend_link(cluster: FakeCluster) -> None:
    """Let sides reach each other that have given their connection up."""
    cluster.rpc.is_link_cut = False
    for node in cluster.rpc.nodes.values():
        for side in node.sides.values():
            side.link = Link.NONE


def verify_disks(cluster: FakeCluster) -> Any:
    return cluster.execute("OP_GROUP_VERIFY_DISKS", group_name="default")


@pytest.fixture
def alone(pair: FakeCluster) -> FakeCluster:
    """The sides have lost each other, and the guest on node1 has written since."""
    cut_link(pair)
    pair.rpc.write("newer")
    return pair


def side(*generations: str) -> CopySide:
    return CopySide(False, False, False, generations=generations)


@pytest.mark.parametrize(
    ("mine", "others", "age"),
    [
        (["A0", "0", "0", "0"], ["A0", "0", "0", "0"], Age.SAME),
        (["A1", "0", "0", "0"], ["A0", "0", "0", "0"], Age.SAME),  # the primary node's last bit
        (["A0", "0", "0", "0"], ["B1", "A1", "0", "0"], Age.OLDER),
        (["A0", "0", "0", "0"], ["C0", "0", "B0", "A0"], Age.OLDER),
        (["B1", "A0", "0", "0"], ["A0", "0", "0", "0"], Age.NEWER),
        (["B0", "A0", "0", "0"], ["C0", "A0", "0", "0"], Age.APART),
        ([], ["A0", "0", "0", "0"], Age.APART),
        ([], [], Age.APART),
    ],
)
def test_generations_tell_which_side_is_newer(mine: list[str], others: list[str], age: Age) -> None:
    assert compare(side(*mine), side(*others)) is age


NEWER, OLDER = side("B1", "A0", "0", "0"), side("A0", "0", "0", "0")


@pytest.mark.parametrize(
    ("mine", "other", "age"),
    [
        (OLDER, NEWER, Age.OLDER),
        (side("C0", "A0", "0", "0"), NEWER, Age.APART),
        (NEWER, OLDER, None),
        (OLDER, OLDER, None),
        (OLDER._replace(is_connected=True), NEWER, None),
        (OLDER, side(), None),  # its disk is lost
        (OLDER, side("0000000000000004", "0", "0", "0"), None),  # or was made anew
        (OLDER, None, None),
        (None, NEWER, None),
    ],
)
def test_data_is_at_risk_only_where_the_other_side_has_some(
    mine: CopySide | None, other: CopySide | None, age: Age | None
) -> None:
    assert risky_age(mine, other) is age


def test_a_failover_while_the_primary_writes_alone_is_refused(alone: FakeCluster) -> None:
    text = (
        r"node 'node2\.example\.com': it is not connected with node1\.example\.com, which is written"
        r" alone and has newer data than it; nothing was changed: connect .*--ignore-consistency"
    )
    with pytest.raises(OpExecError, match=text):
        failover(alone)
    assert (guests(alone), data_on(alone, "node1")) == (["node1"], "newer")
    failover(alone, ignore_consistency=True)
    assert alone.said("which is written alone and has newer data than it; ignoring")
    assert (guests(alone), data_on(alone, "node2")) == (["node2"], "acknowledged")


@pytest.mark.parametrize("target", [None, "node3"])
def test_a_link_lost_while_the_guest_goes_down_leads_back(
    pair: FakeCluster, target: str | None
) -> None:
    def cut(_node: str, call: str, _args: Any) -> None:
        if call == "instance_shutdown":
            cut_link(pair)
            pair.rpc.write("newer")
        elif call == "blockdev_create":
            pair.rpc.is_link_cut = False

    pair.rpc.failure = cut
    if target is None:
        with pytest.raises(OpExecError, match="written alone and has newer data than it"):
            failover(pair)
        assert (guests(pair), nodes_of(pair)) == (["node1"], ["node1", "node2"])
    else:  # the copies are made from the side that has all
        failover(pair, target_node=target)
        assert nodes_of(pair) == [target, "node1"]
    assert data_on(pair, nodes_of(pair)[0]) == "newer"


def test_a_stopped_instance_is_judged_by_the_generations_of_both_sides(pairs: FakeCluster) -> None:
    add_pair(pairs, start=False)
    pairs.rpc.is_link_cut = True
    failover(pairs)  # both have the same data, connected or not
    assert nodes_of(pairs) == ["node2", "node1"]
    pairs.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    pairs.rpc.write("newer")
    shutdown(pairs)
    with pytest.raises(OpExecError, match=r"it lacks writes of node2\.example\.com; nothing was"):
        failover(pairs)
    assert nodes_of(pairs) == ["node2", "node1"]
    pairs.rpc.is_link_cut = False
    failover(pairs)  # what it lacked comes as soon as they meet
    assert data_on(pairs, "node1") == "newer"


def test_both_sides_written_apart_are_never_decided(alone: FakeCluster) -> None:
    failover(alone, ignore_consistency=True)
    alone.rpc.write("on the other side")
    with pytest.raises(OpExecError, match=r"is written alone and has other writes than it"):
        failover(alone)
    shutdown(alone)
    with pytest.raises(OpExecError, match=r"no node certainly has all data .* it has other writes"):
        failover(alone, target_node="node3")
    assert {data_on(alone, "node1"), data_on(alone, "node2")} == {"newer", "on the other side"}


def test_newer_data_is_not_replaced_by_a_copy_that_calls_itself_up_to_date(
    alone: FakeCluster,
) -> None:
    shutdown(alone)
    text = (
        r"on node 'node2\.example\.com', which is to give the data, the data is up to date only as"
        r" far as it knows: it lacks writes of node 'node1\.example\.com'; nothing was changed: .*"
        r"--wait-for-sync"
    )
    with pytest.raises(OpExecError, match=text):
        replace_disks(alone, "on_primary")
    assert not alone.rpc.called("blockdev_rename")
    assert (sides(alone), data_on(alone, "node1")) == ({}, "newer")
    alone.rpc.is_link_cut = False
    replace_disks(alone, "on_primary")  # what it lacked comes as soon as they meet
    assert [data_on(alone, node) for node in ("node1", "node2")] == ["newer"] * 2


def test_newer_data_is_found_on_a_node_that_was_started_anew(alone: FakeCluster) -> None:
    alone.rpc.node("node1").cut_power()
    alone.rpc.node("node1").boot()
    with pytest.raises(OpExecError, match=r"lacks writes of node 'node1"):
        replace_disks(alone, "on_primary")
    assert data_on(alone, "node1") == "newer"


def test_newer_data_is_looked_for_where_the_answer_is_lost(alone: FakeCluster) -> None:
    shutdown(alone)
    alone.rpc.failure = lambda node, call, _args: (
        "it broke" if call == "drbd_sides" and node.startswith("node1") else None
    )
    with pytest.raises(OpExecError, match="it broke"):
        replace_disks(alone, "on_primary")
    assert data_on(alone, "node1") == "newer"


def test_what_is_lost_is_replaced_by_what_there_is(alone: FakeCluster) -> None:
    shutdown(alone)
    lost = alone.rpc.node("node1")
    for names in (lost.disks, lost.data, lost.metadata):
        names.clear()
    with pytest.raises(OpExecError, match="degraded disks"):  # the link is down
        replace_disks(alone, "on_primary")
    mend_link(alone)
    alone.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME, wait_for_sync=True)
    assert [data_on(alone, node) for node in ("node1", "node2")] == ["acknowledged"] * 2


@pytest.mark.parametrize(
    "params", [{"mode": "on_secondary"}, {"mode": "new_secondary", "remote_node": "node3"}]
)
def test_the_copy_is_not_replaced_while_it_has_the_newer_data(
    alone: FakeCluster, params: dict[str, Any]
) -> None:
    shutdown(alone)
    failover(alone, ignore_consistency=True)
    with pytest.raises(OpExecError, match=r"lacks writes of node 'node1"):
        replace_disks(alone, **params)
    assert (nodes_of(alone), data_on(alone, "node1")) == (["node2", "node1"], "newer")


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({"mode": "on_primary"}, None),
        ({"mode": "on_secondary"}, ["node2", "node1"]),
        ({"mode": "new_secondary", "remote_node": "node3"}, ["node2", "node3"]),
    ],
)
def test_of_sides_written_apart_that_of_the_primary_node_is_kept(
    alone: FakeCluster, params: dict[str, Any], kept: list[str] | None
) -> None:
    failover(alone, ignore_consistency=True)
    alone.rpc.write("on the other side")
    if kept is None:
        with pytest.raises(OpExecError, match=r"it has other writes than node 'node2"):
            replace_disks(alone, **params)
        assert data_on(alone, "node2") == "on the other side"
    else:
        mend_link(alone)
        replace_disks(alone, **params)
        assert nodes_of(alone) == kept
        assert [data_on(alone, node) for node in kept] == ["on the other side"] * 2


def test_the_risk_of_a_dead_primary_is_told_and_needs_no_option(pair: FakeCluster) -> None:
    lose(pair, 1)
    failover(pair)
    assert guests(pair) == ["node2"]
    assert pair.said("node node2.example.com lost node1.example.com at 2023-11-14 22:13:20 UTC")
    assert pair.said("what it wrote after it is lost by going on without it; make sure")


def test_a_dead_primary_that_is_not_marked_offline_is_named(pair: FakeCluster) -> None:
    lose(pair, 1, offline=False)
    text = r"cannot be asked what it wrote since; if that node is dead, .*--offline yes node1"
    with pytest.raises(OpExecError, match=text):
        failover(pair)
    failover(pair, ignore_consistency=True)
    assert guests(pair) == ["node2"]


@pytest.mark.parametrize("params", [{}, {"ignore_consistency": True}, {"target_node": "node3"}])
def test_a_node_marked_offline_that_is_at_work_is_noticed(
    pair: FakeCluster, params: dict[str, Any]
) -> None:
    pair.config.node(1)["offline"] = True
    pair.config.cluster["master_node"] = pair.config.node(4)["uuid"]
    with pytest.raises(
        OpExecError, match=r"but its DRBD answers and has .*nothing was changed: switch"
    ):
        failover(pair, **params)
    assert nodes_of(pair) == ["node1", "node2"]
    assert sides(pair) == UP


def test_a_dead_node_that_is_not_missed_yet_is_waited_for(pair: FakeCluster) -> None:
    pair.config.node(1)["offline"] = True
    pair.config.cluster["master_node"] = pair.config.node(4)["uuid"]
    start_s, looks = pair.clock, iter(range(10))

    def die(_node: str, call: str, _args: Any) -> None:
        if call == "drbd_sides" and next(looks) == 3:
            pair.rpc.node("node1").cut_power()

    pair.rpc.failure = die
    failover(pair)
    assert guests(pair) == ["node2"]
    assert 1 <= pair.clock - start_s <= 20


def test_a_copy_left_behind_is_marked_so_that_it_is_known_after_the_loss(
    alone: FakeCluster,
) -> None:
    assert verify_disks(alone) == ({}, [], {})
    assert alone.said(f"a copy of a disk of instance {NAME} lacks what was written")
    lose(alone, 1)
    with pytest.raises(OpExecError, match=r"its data is outdated: .*--ignore-consistency"):
        failover(alone)
    with pytest.raises(OpExecError, match=r"no node certainly has all data"):
        failover(alone, target_node="node3")
    assert nodes_of(alone) == ["node1", "node2"]
    failover(alone, ignore_consistency=True)
    assert (guests(alone), data_on(alone, "node2")) == (["node2"], "acknowledged")


def test_a_marked_copy_is_as_good_as_before_once_it_has_caught_up(alone: FakeCluster) -> None:
    for _ in range(2):  # a mark is made once, and told as long as it counts
        alone.messages.clear()
        verify_disks(alone)
        assert alone.said("it is marked as outdated")
    assert len(alone.rpc.called("drbd_outdate")) == 1
    mend_link(alone)
    alone.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME, wait_for_sync=True)
    assert sides(alone) == UP
    failover(alone)
    assert data_on(alone, "node2") == "newer"


def test_a_mark_that_cannot_be_made_is_told(alone: FakeCluster) -> None:
    alone.rpc.failure = lambda _node, call, _args: "it broke" if call == "drbd_outdate" else None
    verify_disks(alone)
    assert alone.said("cannot mark disk/0")
    assert not alone.said("it is marked as outdated")
