"""Problems of DRBD: helper, version and minors of nodes, copies given up for good."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, make_node
from fakes.pairs import NAME, add_pair, cut_link

from ganeti.logical_units.cluster import drbd_findings as judges
from ganeti.objects.model import Cluster, Node

NODE = Node.from_wire(make_node(1))
HELPER = "/bin/true"


def told(findings: Any) -> list[tuple[str, str, str]]:
    return [(each.code.value, each.item, each.text) for each in findings]


def test_only_a_cluster_with_a_helper_asks(pairs: FakeCluster) -> None:
    pairs.config.cluster["drbd_usermode_helper"] = None
    assert judges.checks(Cluster.from_wire(pairs.config.cluster)) == {}
    pairs.config.cluster["drbd_usermode_helper"] = HELPER
    asked = judges.checks(Cluster.from_wire(pairs.config.cluster))
    assert asked == {"drbd-helper": HELPER, "drbd-list": None, "drbd-version": None}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            [True, "/bin/false"],
            "is /bin/false, that of the cluster /bin/true: load the module with",
        ),
        ([False, "DRBD is not loaded"], "cannot look at the usermode helper of DRBD: DRBD is not"),
        (None, "is not known: the node's answer is None"),
    ],
)
def test_another_helper_is_told(answer: object, text: str) -> None:
    [found] = told(judges.judge_helper(NODE, HELPER, {"drbd-helper": answer}))
    assert found[:2] == ("ENODEDRBDHELPER", NODE.name)
    assert text in found[2]
    assert told(judges.judge_helper(NODE, HELPER, {"drbd-helper": [True, HELPER]})) == []


def test_versions_are_compared() -> None:
    def versions(*found: object) -> list[tuple[str, str, str]]:
        answers = {f"node{n}": {"drbd-version": version} for n, version in enumerate(found)}
        return told(judges.judge_versions(answers))

    assert versions("8.4.11", "8.4.11", "DRBD is not loaded on this node", None) == []
    one, two = versions("8.4.11", "8.4.10")
    assert one == ("ENODEDRBDVERSION", "node0", one[2])
    assert "has version 8.4.11, in the node group there are 8.4.10, 8.4.11" in one[2]
    assert two[1] == "node1"
    [nine] = versions("9.1.23", "9.1.23")[:1]
    assert "can only be looked at" in nine[2]


def findings_of(cluster: FakeCluster, code: str) -> list[str]:
    cluster.messages.clear()
    cluster.execute("OP_CLUSTER_VERIFY_GROUP", group_name="default", error_codes=True)
    return [text for text in cluster.messages if code in text]


@pytest.fixture
def asking(pairs: FakeCluster) -> FakeCluster:
    """An instance on node1 and node2, where minor 0 is in use, as on the other nodes by nobody."""
    pairs.config.cluster["drbd_usermode_helper"] = HELPER
    pairs.rpc.verify_answers = {"drbd-helper": [True, HELPER], "drbd-version": "8.4.11"}
    add_pair(pairs)
    return pairs


def test_minors_are_compared_with_those_of_disks(asking: FakeCluster) -> None:
    asking.rpc.verify_answers["drbd-list"] = [0]
    found = findings_of(asking, "ENODEDRBD")
    assert len(found) == 2
    assert all("DRBD minor 0 is in use by no disk of the cluster" in text for text in found)
    assert ["node3" in found[0], "node4" in found[1]] == [True, True]
    asking.rpc.verify_answers["drbd-list"] = []
    found = findings_of(asking, "ENODEDRBD")
    assert ["node1" in found[0], "node2" in found[1]] == [True, True]
    assert f"of disk/0 of instance {NAME}, is not active; type 'gnt-instance activate" in found[0]
    asking.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    assert findings_of(asking, "ENODEDRBD") == []  # its disks need not be ready
    asking.rpc.verify_answers["drbd-list"] = "DRBD is not loaded"
    assert "cannot look at the devices of DRBD: DRBD is not" in findings_of(asking, "ENODEDRBD")[0]


def test_a_split_brain_is_a_finding_with_the_command_that_decides(pairs: FakeCluster) -> None:
    add_pair(pairs)
    cut_link(pairs)
    assert not any("split brain" in text for text in findings_of(pairs, "EINSTANCEFAULTYDISK"))
    for node in ("node1", "node2"):
        for side in pairs.rpc.node(node).sides.values():
            side.link = side.link.NONE
            side.parting = "split brain: type 'gnt-instance replace-disks -s INSTANCE'"
    one, two = (t for t in findings_of(pairs, "EINSTANCEFAULTYDISK") if "split brain" in t)
    assert (
        f"disk/0 on node1.example.com: split brain: type 'gnt-instance replace-disks -s {NAME}"
        in one
    )
    assert "disk/0 on node2.example.com: split brain" in two
