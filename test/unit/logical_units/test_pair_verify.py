"""verify-disks on disks with copies: lost volumes, sides that are not ready."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster
from fakes.pairs import NAME, UP, add_pair, sides

from ganeti.opcodes.instance import OpInstanceFailover, OpInstanceMigrate, OpInstanceReplaceDisks

AWAY = "5a6e89c9-26b7-4042-9bf3-00000000dead"


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
        *["drbd_sides"] * 2,
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


def test_volumes_that_cannot_be_looked_at_are_not_missing(pairs: FakeCluster) -> None:
    add_pair(pairs)
    add_pair(pairs, name="web2.example.com")
    node = pairs.rpc.node("node2")
    node.cut_power()
    node.boot()
    node.unreadable |= node.disks
    pairs.rpc.calls.clear()
    failing = {"node2.example.com": "cannot look at disks: it broke"}
    assert verify_disks(pairs) == (failing, [NAME, "web2.example.com"], {})
    assert len(pairs.rpc.called("blockdev_find")) == 1


def test_a_node_that_does_not_answer_is_told_and_an_offline_one_is_not(pairs: FakeCluster) -> None:
    add_pair(pairs)
    pairs.rpc.node("node2").cut_power()
    failing, inactive, missing = verify_disks(pairs)
    assert failing == {"node2.example.com": "no route to host"}
    assert (inactive, missing) == ([], {})
    pairs.config.node(2)["offline"] = True
    assert verify_disks(pairs) == ({}, [], {})


def test_a_disk_on_a_node_that_does_not_exist_keeps_nobody_from_looking(pairs: FakeCluster) -> None:
    broken = add_pair(pairs)
    add_pair(pairs, name="web2.example.com")
    [uuid] = broken["disks"]
    disk = pairs.config.disks[uuid]
    disk["nodes"] = [disk["nodes"][0], AWAY]
    disk["logical_id"] = [disk["logical_id"][0], AWAY, *disk["logical_id"][2:]]
    pairs.rpc.node("node2").cut_power()
    pairs.rpc.node("node2").boot()
    failing, inactive, missing = verify_disks(pairs)
    assert (failing, inactive, missing) == (
        {AWAY: "there is no such node"},
        ["web2.example.com"],
        {},
    )
    pairs.execute("OP_CLUSTER_VERIFY_GROUP", group_name="default", error_codes=True)
    assert pairs.said("EINSTANCEFAULTYDISK:instance:web2.example.com")


def jobs_of(cluster: FakeCluster, op_id: str, **params: Any) -> list[tuple[str, str | None]]:
    """Return (instance, node that it or its copies go to) of the jobs that are submitted."""
    cluster.jobs.clear()
    cluster.execute(op_id, node_name="node2", **params)
    return [
        (op.instance_name, getattr(op, "remote_node", None) or getattr(op, "target_node", None))
        for [op] in cluster.jobs
    ]


def test_a_node_is_evacuated_of_copies(pairs: FakeCluster) -> None:
    add_pair(pairs)
    add_pair(pairs, name="web2.example.com", pnode="node2", snode="node3")
    found = jobs_of(pairs, "OP_NODE_EVACUATE", mode="secondary-only", remote_node="node4")
    assert found == [(NAME, "node4.example.com")]
    assert pairs.said("replaces the secondary node of instance web1")


@pytest.mark.parametrize("offline", [False, True])
def test_a_node_is_evacuated_of_instances_with_copies(pairs: FakeCluster, *, offline: bool) -> None:
    add_pair(pairs)
    add_pair(pairs, name="web2.example.com", pnode="node2", snode="node3")
    add_pair(pairs, name="web3.example.com", pnode="node2", snode="node4")
    pairs.config.node(2)["offline"] = offline
    pairs.jobs.clear()
    params = {"node_name": "node2", "remote_node": "node4"}
    pairs.execute("OP_NODE_EVACUATE", mode="primary-only", **params)
    move = OpInstanceFailover if offline else OpInstanceMigrate
    assert [[(type(op), op.instance_name) for op in job] for job in pairs.jobs] == [
        [(each, "web2.example.com") for each in (move, OpInstanceReplaceDisks)],
        [(move, "web3.example.com")],
    ]
    [[first, copies], [second]] = pairs.jobs
    assert (first.target_node, copies.remote_node) == (None, "node4.example.com")
    assert second.target_node == "node4.example.com"
    assert pairs.said("then replaces the secondary node of instance web2.example.com")
    pairs.jobs.clear()
    pairs.execute("OP_NODE_EVACUATE", mode="all", **params)
    assert [[op.instance_name for op in job] for job in pairs.jobs][-1] == [NAME]


def test_instances_migrate_to_their_secondary_nodes(pairs: FakeCluster) -> None:
    add_pair(pairs, name="web2.example.com", pnode="node2", snode="node3")
    pairs.config.cluster["default_iallocator"] = ""
    assert jobs_of(pairs, "OP_NODE_MIGRATE") == [("web2.example.com", None)]
    assert pairs.jobs[0][0].iallocator is None


def findings_of(cluster: FakeCluster) -> list[str]:
    cluster.messages.clear()
    cluster.execute("OP_CLUSTER_VERIFY_GROUP", group_name="default", error_codes=True)
    return [text for text in cluster.messages if "EINSTANCE" in text]


def test_verify_looks_at_both_sides(pairs: FakeCluster) -> None:
    add_pair(pairs)
    assert findings_of(pairs) == []
    pairs.rpc.node("node2").broken |= pairs.rpc.node("node2").disks
    [text] = findings_of(pairs)
    assert f"EINSTANCEFAULTYDISK:instance:{NAME}:disk/0 on node2.example.com state is" in text
    assert f"'gnt-instance replace-disks -a {NAME}'" in text
    pairs.rpc.node("node2").broken.clear()
    pairs.rpc.sync_steps = 1000
    pairs.rpc.node("node2").cut_power()
    pairs.rpc.write("newer")
    pairs.rpc.node("node2").boot()
    pairs.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME)
    one, two = findings_of(pairs)
    assert "disk/0 on node1.example.com is degraded; state is 'ok'; connect its sides" in one
    assert "disk/0 on node2.example.com is degraded; state is 'syncing'" in two


def test_sizes_are_compared_on_the_primary_node(pairs: FakeCluster) -> None:
    add_pair(pairs)
    assert pairs.execute("OP_CLUSTER_REPAIR_DISK_SIZES", instances=[]) == []
    assert {node for node, _args in pairs.rpc.called("blockdev_getdimensions")} == {"node1"}


def split(pairs: FakeCluster) -> None:
    """The disk and its volumes have grown, and only the size of the disk was written down."""
    add_pair(pairs)
    pairs.execute("OP_INSTANCE_GROW_DISK", instance_name=NAME, disk=0, amount=2048, absolute=True)
    [disk] = pairs.config.disks.values()
    disk["children"][0]["size"] = 1024


@pytest.mark.parametrize("disk_mib", [1024, 2048])
def test_a_corrected_size_is_that_of_the_data_volume_too(pairs: FakeCluster, disk_mib: int) -> None:
    split(pairs)
    [disk] = pairs.config.disks.values()
    disk["size"] = disk_mib
    assert pairs.execute("OP_CLUSTER_REPAIR_DISK_SIZES", instances=[]) == [(NAME, 0, "size", 2048)]
    [disk] = pairs.config.disks.values()
    assert [disk["size"], *(child["size"] for child in disk["children"])] == [2048, 2048, 128]
    assert pairs.execute("OP_CLUSTER_REPAIR_DISK_SIZES", instances=[]) == []
