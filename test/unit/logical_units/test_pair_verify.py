"""verify-disks on disks with copies: lost volumes, sides that are not ready."""

from __future__ import annotations

from typing import Any

from fakes.fake_cluster import FakeCluster
from fakes.pairs import NAME, UP, add_pair, sides


def verify_disks(cluster: FakeCluster) -> Any:
    return cluster.execute("OP_GROUP_VERIFY_DISKS", group_name="default")


def test_all_is_well_and_each_node_is_asked_once_for_all_disks(pairs: FakeCluster) -> None:
    add_pair(pairs, disks=[{"size": 64}, {"size": 64}])
    add_pair(pairs, name="web2.example.com")
    pairs.rpc.calls.clear()
    assert verify_disks(pairs) == ({}, [], {})
    assert sorted(pairs.rpc.names()) == [
        *["blockdev_getmirrorstatus_multi"] * 2,
        *["drbd_needs_activation"] * 2,
    ]


def test_a_side_that_is_gone_is_activated(pairs: FakeCluster) -> None:
    add_pair(pairs)
    pairs.rpc.node("node2").cut_power()
    pairs.rpc.node("node2").boot()
    assert verify_disks(pairs) == ({}, [NAME], {})
    pairs.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME)
    assert verify_disks(pairs) == ({}, [], {})
    assert sides(pairs) == UP


def test_lost_volumes_are_named_with_their_node(pairs: FakeCluster) -> None:
    add_pair(pairs)
    node = pairs.rpc.node("node2")
    lost = sorted(node.disks)
    node.disks.clear()
    failing, inactive, missing = verify_disks(pairs)
    assert (failing, inactive) == ({}, [])
    assert missing == {NAME: [["node2.example.com", volume] for volume in lost]}


def test_a_node_that_does_not_answer_is_told_and_an_offline_one_is_not(pairs: FakeCluster) -> None:
    add_pair(pairs)
    pairs.rpc.node("node2").cut_power()
    failing, inactive, missing = verify_disks(pairs)
    assert failing == {"node2.example.com": "no route to host"}
    assert (inactive, missing) == ([], {})
    pairs.config.node(2)["offline"] = True
    assert verify_disks(pairs) == ({}, [], {})
