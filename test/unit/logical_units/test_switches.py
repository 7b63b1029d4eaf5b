"""Open vSwitches of nodes: made where node parameters ask for them, wherever these are set."""

from __future__ import annotations

import pytest
from fakes.fake_cluster import FakeCluster, make_group, uuid_of

from ganeti.base.errors import OpExecError

WANTED = {"ovs": True, "ovs_name": "sw1", "ovs_link": "eth1"}


@pytest.fixture(autouse=True)
def _nodes_can(cluster: FakeCluster) -> None:
    cluster.rpc.do_node_configure_ovs = lambda *_args: None  # type: ignore[attr-defined]


def made(cluster: FakeCluster) -> list[tuple[str, list[object]]]:
    return cluster.rpc.called("node_configure_ovs")


def test_a_new_node_gets_its_switch(cluster: FakeCluster) -> None:
    cluster.execute("OP_NODE_ADD", node_name="node4", ndparams=WANTED)
    assert made(cluster) == [("node4", ["sw1", "eth1"])]


def test_a_node_that_cannot_is_not_added(cluster: FakeCluster) -> None:
    cluster.rpc.fail("node_configure_ovs", text="no interface eth1")
    with pytest.raises(OpExecError, match=r"Open vSwitch 'sw1'.*node4.*no interface eth1"):
        cluster.execute("OP_NODE_ADD", node_name="node4", ndparams=WANTED)
    assert len(cluster.config.nodes) == 3


def test_a_known_node_gets_it_when_it_is_asked_for_and_only_then(cluster: FakeCluster) -> None:
    def modify(**params: object) -> None:
        cluster.execute("OP_NODE_SET_PARAMS", node_name="node2", **params)

    modify(ndparams={"ovs_name": "sw1"})
    assert made(cluster) == []
    modify(ndparams={"ovs": True})
    assert made(cluster) == [("node2", ["sw1", ""])]
    assert cluster.said("connected to no interface")
    modify(ndparams={"spindle_count": 4})
    assert len(made(cluster)) == 1
    modify(ndparams={"ovs_link": "eth2"})
    assert made(cluster)[1:] == [("node2", ["sw1", "eth2"])]
    modify(ndparams={"ovs": False})
    assert len(made(cluster)) == 2


def test_a_failure_leaves_the_parameters_as_they_were(cluster: FakeCluster) -> None:
    cluster.rpc.fail("node_configure_ovs")
    with pytest.raises(OpExecError):
        cluster.execute("OP_NODE_SET_PARAMS", node_name="node2", ndparams=WANTED)
    assert cluster.config.nodes[uuid_of("node2")]["ndparams"] == {}


def test_a_node_that_is_offline_gets_it_when_it_comes_back(cluster: FakeCluster) -> None:
    cluster.config.nodes[uuid_of("node2")]["offline"] = True
    cluster.execute("OP_NODE_SET_PARAMS", node_name="node2", ndparams=WANTED)
    assert made(cluster) == []
    assert cluster.said("node node2.example.com is offline")
    cluster.execute("OP_NODE_SET_PARAMS", node_name="node2", offline=False)
    assert made(cluster) == [("node2", ["sw1", "eth1"])]


def test_all_nodes_of_a_group_or_of_the_cluster_get_theirs(cluster: FakeCluster) -> None:
    cluster.config.nodes[uuid_of("node3")]["ndparams"] = {"ovs": False}
    cluster.execute("OP_GROUP_SET_PARAMS", group_name="default", ndparams=WANTED)
    assert made(cluster) == [(node, ["sw1", "eth1"]) for node in ("node1", "node2")]
    cluster.rpc.calls.clear()
    cluster.execute("OP_CLUSTER_SET_PARAMS", ndparams={"ovs": True, "ovs_name": "sw2"})
    assert made(cluster) == []  # the group says otherwise for all of them
    cluster.execute("OP_GROUP_SET_PARAMS", group_name="default", ndparams={"ovs_name": "default"})
    assert made(cluster) == [(node, ["sw2", "eth1"]) for node in ("node1", "node2")]


def test_the_master_of_a_new_cluster_gets_it(cluster: FakeCluster) -> None:
    cluster.config.cluster["ndparams"] = {"ovs": True, "ovs_link": "eth1"}
    cluster.execute("OP_CLUSTER_POST_INIT")
    assert made(cluster) == [("node1", ["switch1", "eth1"])]


def test_a_node_gets_that_of_the_group_it_moves_to(cluster: FakeCluster) -> None:
    cluster.config.nodegroups["g2"] = make_group("rack2", "g2", ndparams=WANTED)
    cluster.execute("OP_GROUP_ASSIGN_NODES", group_name="rack2", nodes=["node3"])
    assert made(cluster) == [("node3", ["sw1", "eth1"])]
