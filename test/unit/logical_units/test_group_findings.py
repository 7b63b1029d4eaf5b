"""What is wrong when nodes and instances are seen together."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, make_node, uuid_of

from ganeti.logical_units.cluster import group_findings as judges
from ganeti.logical_units.cluster.findings import judge_dangling, judge_leftover_files
from ganeti.logical_units.cluster.findings import judge_oob_programs as judge_oob
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.model import Disk, Instance, Node, NodeGroup

NAME = "web1.example.com"
NODES = {uuid_of(f"node{number}"): f"node{number}" for number in (1, 2, 3)}


def guest(cluster: FakeCluster, *, disk: dict[str, Any] | None = None, **changes: Any) -> Any:
    """Return an instance of the cluster, changed."""
    wire = {**cluster.config.instance(NAME), **changes}
    disks = [
        Disk.from_wire({**cluster.config.disks[uuid], **(disk or {})}) for uuid in wire["disks"]
    ]
    return judges.Guest(Instance.from_wire(wire), disks)


def found(findings: Any) -> list[str]:
    return [f"{item.code.value} {item.item}: {item.text}" for item in findings]


def group_of(cluster: FakeCluster) -> NodeGroup:
    group: NodeGroup = cluster.config.get_node_groups()[0]
    return group


def test_layout(cluster: FakeCluster) -> None:
    cluster.add_instance()
    drbd = {"dev_type": "drbd", "nodes": [uuid_of(f"node{n}") for n in (1, 2, 3)]}
    nodes = {
        uuid_of("node1"): Node.from_wire(make_node(1, vm_capable=False)),
        uuid_of("node2"): Node.from_wire(make_node(2, offline=True, master_candidate=False)),
        uuid_of("node3"): Node.from_wire(make_node(3, group="elsewhere")),
    }
    texts = found(
        judges.judge_layout(
            guest(cluster, disk=drbd, beparams={"vcpus": 99}),
            cluster.config.get_cluster(),
            group_of(cluster),
            nodes,
        )
    )
    codes = [text.split()[0] for text in texts]
    assert codes == [
        "EINSTANCEBADNODE",
        "EINSTANCEBADNODE",
        "EINSTANCELAYOUT",
        "EINSTANCESPLITGROUPS",
        "EINSTANCEPOLICY",
    ]
    assert all(NAME in text for text in texts)
    assert "cpu-count: 99" in texts[-1]


def test_exclusive_storage_suits_few_templates(cluster: FakeCluster) -> None:
    cluster.add_instance()
    node = Node.from_wire(make_node(1, ndparams={"exclusive_storage": True}))
    texts = found(
        judges.judge_layout(
            guest(cluster), cluster.config.get_cluster(), group_of(cluster), {node.uuid: node}
        )
    )
    assert [text.split()[0] for text in texts] == ["EINSTANCEUNSUITABLENODE"]


def test_memory_for_instances_of_a_node_that_fails(cluster: FakeCluster) -> None:
    cluster.add_instance()
    settings = cluster.config.get_cluster()
    drbd = {"dev_type": "drbd", "nodes": [uuid_of("node1"), uuid_of("node2")]}
    free = {uuid_of("node1"): 5000, uuid_of("node2"): 100}
    mirrored = guest(cluster, disk=drbd)
    texts = found(judges.judge_memory(settings, [mirrored], free, NODES))
    assert len(texts) == 1
    assert texts[0].startswith("ENODEN1 node2: has not the memory to take over the instances of")
    assert texts[0].endswith("node1: 128 MiB are needed, 100 MiB are free")
    for harmless in (
        guest(cluster, disk=drbd, admin_state="down"),
        guest(cluster, disk=drbd, beparams={"auto_balance": False}),
        guest(cluster),
    ):
        assert not found(judges.judge_memory(settings, [harmless], free, NODES))


@pytest.mark.shows("2.0/any-node/memory")
def test_memory_for_instances_that_any_node_may_take(cluster: FakeCluster) -> None:
    cluster.add_instance()
    settings = cluster.config.get_cluster()
    shared = guest(cluster, disk={"dev_type": "sharedfile"})
    two = [shared, shared]
    enough = {uuid_of("node1"): 0, uuid_of("node2"): 128, uuid_of("node3"): 130}
    assert not found(judges.judge_spare_memory(settings, two, enough, NODES))
    short = {**enough, uuid_of("node2"): 127}
    texts = found(judges.judge_spare_memory(settings, two, short, NODES))
    assert len(texts) == 1
    assert texts[0].startswith("ENODEN1 node1: after its failure")
    assert not found(judges.judge_spare_memory(settings, two, {uuid_of("node1"): 1}, NODES))


def test_instances_that_tags_keep_apart(cluster: FakeCluster) -> None:
    cluster.add_instance()
    cluster.config.cluster["tags"] = ["htools:iextags:service"]
    settings = cluster.config.get_cluster()
    tagged = guest(cluster, tags=["service:dns", "services"])
    assert found(judges.judge_exclusion(settings, [tagged, tagged], NODES)) == [
        f"EEXTAGS node1: instances {NAME}, {NAME} are on it, which all have the tag service:dns"
    ]
    assert not found(judges.judge_exclusion(settings, [tagged], NODES))


def test_operating_systems_are_compared() -> None:
    good = ["a", "/a", True, "", ["v1"], [], [20], True]
    answers = {
        "n1": [good, ["b", "/b", True, ""]],
        "n2": [
            ["a", "/a", True, "", ["v2"], [], [15], True],
            ["a", "/z", True, ""],
            ["c", "/c", False, "no create"],
        ],
    }
    assert found(judges.judge_systems(answers)) == [
        "ENODEOS n2: OS a in /z is hidden by the one in /a",
        "ENODEOS n2: OS c (/c) is not valid: no create",
        "ENODEOS n2: OS b of node n1 is missing",
        "ENODEOS n2: OS c is not on node n1",
        "ENODEOS n2: OS a differs from node n1 in: api versions, variants",
    ]


def test_files_of_disks(cluster: FakeCluster) -> None:
    cluster.add_instance()
    stopped = guest(cluster, disk={"logical_id": ["loop", f"/srv/{NAME}/a"]}, disks_active=False)
    arguments: dict[str, Any] = {
        "owned": {f"/srv/{NAME}/a"},
        "busy": {"new"},
        "directories": {DiskTemplate.SHAREDFILE: "/srv"},
        "node_names": NODES,
    }
    stored = {"node1": ["/srv/gone/x", "/srv/new/y"], "node2": ["/srv/gone/x"]}
    assert found(judges.judge_stored_disks([stopped], stored, **arguments)) == [
        (
            "ENODEORPHANLV node1: file /srv/gone/x belongs to no disk; if nobody needs it:"
            " gnt-cluster command -n node1 rm /srv/gone/x"
        ),
        f"EINSTANCEMISSINGDISK {NAME}: disk/0 on node1: file /srv/{NAME}/a is missing",
    ]
    arguments["directories"] = {DiskTemplate.FILE: "/srv"}  # of each node
    assert len(found(judges.judge_stored_disks([stopped], stored, **arguments))) == 3
    stored = {"node1": ["/srv/new/a"]}
    assert found(judges.judge_stored_disks([stopped], stored, **arguments)) == [
        (
            f"EINSTANCEMISSINGDISK {NAME}: disk/0 on node1: file /srv/{NAME}/a is missing; it is in"
            f" /srv/new, as when a rename was cut off: 'gnt-instance rename {NAME} new' completes it,"
            f" 'gnt-instance rename {NAME} {NAME}' takes it back"
        )
    ]
    stored = {"node1": [f"/srv/{NAME}/a"]}
    assert not found(judges.judge_stored_disks([stopped], stored, **arguments))
    assert not found(judges.judge_stored_disks([stopped], {}, **arguments))  # it did not tell


def test_what_hangs_in_the_air(cluster: FakeCluster) -> None:
    cluster.add_instance()
    node = Node.from_wire(make_node(1))
    instance = Instance.from_wire(cluster.config.instance(NAME))
    assert found(judge_dangling([node], [instance], [])) == [
        f"ECLUSTERDANGLINGNODES {node.name}: its group {node.group} does not exist",
        f"ECLUSTERDANGLINGINST {node.name}: instance {NAME} is on this node, which is in no group",
    ]
    assert not found(judge_dangling([node], [instance], [node.group]))


def test_files_and_programs() -> None:
    texts = found(judge_leftover_files("n2", {"/a": "1", "/b": "2"}, ["/a"], ["/a", "/b"]))
    assert texts == ["ECLUSTERFILECHECK : file /b is on node n2, which is not to have it"]
    assert found(judge_oob("n1", ["/x", "/y"], [None, "/y is not there"])) == [
        "ENODEOOBPATH n1: /y is not there"
    ]
