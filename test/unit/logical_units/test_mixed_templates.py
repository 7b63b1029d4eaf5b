"""Instances whose disks are of several templates: the weakest disk says where they can be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster
from fakes.pairs import NAME, UP, add_pair, nodes_of, sides, volumes

from ganeti.base.errors import OpPrereqError
from ganeti.objects.disk_templates import DiskTemplate, Mirroring, binding_template, traits_of_all


def modify(cluster: FakeCluster, *changes: Any, **params: Any) -> Any:
    return cluster.execute(
        "OP_INSTANCE_SET_PARAMS", instance_name=NAME, disks=list(changes), **params
    )


def disks(cluster: FakeCluster) -> list[dict[str, Any]]:
    return [cluster.config.disks[uuid] for uuid in cluster.config.instance(NAME)["disks"]]


def types(cluster: FakeCluster) -> list[str]:
    return [disk["dev_type"] for disk in disks(cluster)]


def mixed(cluster: FakeCluster, *templates: str, **params: Any) -> FakeCluster:
    """Return the cluster with a stopped instance on node1 that has a disk of each template."""
    wanted = [{"size": 64 * (n + 1), "dev_type": each} for n, each in enumerate(templates)]
    second = {"snode": "node2"} if "drbd" in templates else {}
    values = {"disk_template": "plain", "pnode": "node1", "start": False, "disks": wanted}
    cluster.add_instance(**{**values, **second, **params})
    return cluster


def loose_disk(cluster: FakeCluster, template: str, name: str = "loose", **params: Any) -> None:
    """Leave a disk of a template that belongs to no instance."""
    cluster.add_instance(
        "giver.example.com",
        start=False,
        no_install=True,
        disk_template=template,
        disks=[{"size": 8}, {"size": 32, "name": name}],
        **{"pnode": "node1", **params},
    )
    detach = [["detach", name, {}]]
    cluster.execute("OP_INSTANCE_SET_PARAMS", instance_name="giver.example.com", disks=detach)


PLAIN, FILE, SHARED, DRBD = "plain", "file", "sharedfile", "drbd"


@pytest.mark.parametrize(
    ("templates", "mirroring", "binding"),
    [
        ([SHARED, "rbd"], Mirroring.EXTERNAL, SHARED),
        ([SHARED, DRBD], Mirroring.INTERNAL, DRBD),
        ([SHARED, DRBD, PLAIN], Mirroring.NONE, PLAIN),
        ([PLAIN], Mirroring.NONE, PLAIN),
        ([], Mirroring.EXTERNAL, "diskless"),
    ],
)
def test_the_weakest_disk_counts(templates: list[str], mirroring: Mirroring, binding: str) -> None:
    assert traits_of_all(templates).mirroring is mirroring
    assert binding_template(templates) == binding
    assert traits_of_all([PLAIN, FILE]).can_copy
    assert not traits_of_all([PLAIN, SHARED]).can_copy
    assert traits_of_all([DiskTemplate.PLAIN, "plain"]) is DiskTemplate.PLAIN.traits


def test_each_disk_can_name_its_template(pairs: FakeCluster) -> None:
    mixed(pairs, PLAIN, FILE, DRBD)
    assert types(pairs) == [PLAIN, FILE, DRBD]
    assert nodes_of(pairs) == ["node1", "node2"]
    paths = [disk["logical_id"] for disk in disks(pairs)]
    assert paths[0][0] == "xenvg"
    assert paths[1][1].startswith("/srv/ganeti/file-storage/")
    pairs.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert sides(pairs) == UP
    pairs.execute("OP_INSTANCE_REMOVE", instance_name=NAME, shutdown_timeout=1)
    assert volumes(pairs) == {}


def test_a_template_that_is_not_enabled_is_refused(pairs: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match="'rbd' is not enabled on this cluster"):
        mixed(pairs, PLAIN, "rbd")
    with pytest.raises(OpPrereqError, match="keeps its disks on two nodes"):
        mixed(pairs, PLAIN, DRBD, snode=None)


def test_a_disk_of_another_kind_is_added_and_attached(pairs: FakeCluster) -> None:
    loose_disk(pairs, SHARED)
    pairs.add_instance(disk_template=PLAIN, start=False)
    modify(pairs, ["add", {"size": 16, "dev_type": FILE}])
    modify(pairs, ["attach", {"name": "loose"}])
    assert types(pairs) == [PLAIN, FILE, SHARED]
    with pytest.raises(OpPrereqError, match="has disks of plain and file and sharedfile; say"):
        modify(pairs, ["add", {"size": 16}])
    with pytest.raises(OpPrereqError, match="has a copy on a second node, which"):
        modify(pairs, ["add", {"size": 16, "dev_type": DRBD}])
    modify(pairs, ["detach", "loose", {}])
    modify(pairs, ["remove", 1, {}])
    assert types(pairs) == [PLAIN]
    assert [name for name in volumes(pairs)["node1"] if NAME in name] == []


def test_a_disk_with_a_copy_brings_its_second_node(pairs: FakeCluster) -> None:
    loose_disk(pairs, DRBD, snode="node3")
    pairs.add_instance(disk_template=PLAIN, start=False)
    modify(pairs, ["attach", {"name": "loose"}])
    assert nodes_of(pairs) == ["node1", "node3"]
    pairs.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert UP["node1"][0] in sides(pairs)["node1"]
    pairs.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    modify(pairs, ["detach", "loose", {}])
    assert nodes_of(pairs) == ["node1"]


def test_copies_on_two_second_nodes_are_refused(pairs: FakeCluster) -> None:
    loose_disk(pairs, DRBD, snode="node3")
    add_pair(pairs, start=False)
    with pytest.raises(OpPrereqError, match="'gnt-instance replace-disks -n NODE'"):
        modify(pairs, ["attach", {"name": "loose"}])
    assert types(pairs) == [DRBD]


@pytest.mark.parametrize("op_id", ["OP_INSTANCE_FAILOVER", "OP_INSTANCE_MIGRATE"])
def test_a_disk_that_one_node_has_keeps_the_instance(pairs: FakeCluster, op_id: str) -> None:
    mixed(pairs, DRBD, PLAIN, start=True)
    with pytest.raises(OpPrereqError, match=r"disk 1 of template 'plain' is on node 'node1.*alone"):
        pairs.execute(op_id, instance_name=NAME)
    with pytest.raises(OpPrereqError, match=r"disk 1 is on node node1.* alone, while others"):
        pairs.execute("OP_INSTANCE_MOVE", instance_name=NAME, target_node="node2")
    modify(pairs, ["detach", 1, {}], hotplug=True)
    pairs.execute(op_id, instance_name=NAME)
    assert pairs.config.instance(NAME)["primary_node"] == pairs.config.node(2)["uuid"]


def test_a_copy_and_a_shared_disk_go_together(pairs: FakeCluster) -> None:
    mixed(pairs, DRBD, SHARED, start=True)
    pairs.execute("OP_INSTANCE_MIGRATE", instance_name=NAME)
    assert nodes_of(pairs) == ["node2", "node1"]
    assert sides(pairs)["node2"] == UP["node1"]
    pairs.execute("OP_INSTANCE_FAILOVER", instance_name=NAME)
    assert nodes_of(pairs) == ["node1", "node2"]
    with pytest.raises(OpPrereqError, match="bring the copies"):
        pairs.execute("OP_INSTANCE_MOVE", instance_name=NAME, target_node="node2")


def test_a_move_copies_what_has_to_be_copied(pairs: FakeCluster) -> None:
    mixed(pairs, PLAIN, SHARED, FILE)
    shared = disks(pairs)[1]
    before = set(pairs.rpc.shared)
    pairs.execute("OP_INSTANCE_MOVE", instance_name=NAME, target_node="node3")
    assert pairs.rpc.shared == before
    assert disks(pairs)[1]["logical_id"] == shared["logical_id"]
    assert disks(pairs)[1]["nodes"] == []
    assert [len(names) for names in volumes(pairs).values()] == [2]
    assert nodes_of(pairs) == ["node3"]


def test_grown_and_replaced_disk_by_disk(pairs: FakeCluster) -> None:
    mixed(pairs, DRBD, PLAIN)
    pairs.execute("OP_INSTANCE_GROW_DISK", instance_name=NAME, disk=1, amount=8)
    pairs.execute("OP_INSTANCE_GROW_DISK", instance_name=NAME, disk=0, amount=8)
    assert [disk["size"] for disk in disks(pairs)] == [72, 136]
    pairs.execute(
        "OP_INSTANCE_REPLACE_DISKS",
        instance_name=NAME,
        mode="replace_new_secondary",
        remote_node="node3",
    )
    assert nodes_of(pairs) == ["node1", "node3"]
    assert [len(names) for names in volumes(pairs).values()] == [3, 2]
    with pytest.raises(OpPrereqError, match="has no disk 1 with a copy"):
        pairs.execute(
            "OP_INSTANCE_REPLACE_DISKS", instance_name=NAME, mode="replace_on_primary", disks=[1]
        )


def test_only_disks_with_copies_are_repaired(pairs: FakeCluster) -> None:
    mixed(pairs, FILE, DRBD, start=True)
    answer = pairs.execute("OP_INSTANCE_REPAIR", instance_name=NAME)
    assert [row[:3] for row in answer["disks"]] == [
        (1, "node1.example.com", "good"),
        (1, "node2.example.com", "good"),
    ]
    assert answer["jobs"] == []


def test_lost_disks_are_made_anew_where_they_belong(pairs: FakeCluster) -> None:
    mixed(pairs, DRBD, PLAIN)
    for node in ("node1", "node2"):
        pairs.rpc.node(node).disks.clear()
        pairs.rpc.node(node).sides.clear()
    pairs.execute("OP_INSTANCE_RECREATE_DISKS", instance_name=NAME, nodes=["node3", "node4"])
    assert nodes_of(pairs) == ["node3", "node4"]
    assert disks(pairs)[1]["nodes"] == [pairs.config.node(3)["uuid"]]
    assert [len(names) for names in volumes(pairs).values()] == [3, 2]


@pytest.mark.parametrize("template", [PLAIN, FILE, DRBD])
def test_a_conversion_brings_all_to_one_template(pairs: FakeCluster, template: str) -> None:
    mixed(pairs, DRBD, PLAIN, FILE)
    kept = {
        disk["uuid"]: disk["logical_id"] for disk in disks(pairs) if disk["dev_type"] == template
    }
    pairs.execute("OP_INSTANCE_SET_PARAMS", instance_name=NAME, disk_template=template)
    assert types(pairs) == [template] * 3
    assert nodes_of(pairs) == ["node1", "node2"][: 2 if template == DRBD else 1]
    for uuid, logical_id in kept.items():
        assert pairs.config.disks[uuid]["logical_id"] == logical_id
    many = {DRBD: [6, 6], PLAIN: [3], FILE: [3]}[template]
    assert [len(names) for names in volumes(pairs).values()] == many


def test_queries_and_policies_see_each_disk(pairs: FakeCluster) -> None:
    mixed(pairs, PLAIN, FILE)
    fields = ["disk_template", "disk_usage", "disk.templates"]
    answer: Any = pairs.execute("OP_QUERY", what="instance", fields=fields)
    assert [[value for _, value in row] for row in answer["data"]] == [
        ["mixed", 192, [PLAIN, FILE]]
    ]
    group = next(iter(pairs.config.nodegroups.values()))
    group["ipolicy"] = {"disk-templates": [PLAIN, FILE]}
    with pytest.raises(OpPrereqError, match="disk template sharedfile is not allowed"):
        modify(pairs, ["add", {"size": 1, "dev_type": SHARED}])


def test_an_allocator_is_told_of_the_weakest(pairs: FakeCluster) -> None:
    mixed(pairs, DRBD, SHARED)
    asked: list[dict[str, Any]] = []

    def answer(question: dict[str, Any], _options: dict[str, Any]) -> str:
        asked.append(question)
        return json.dumps({"success": True, "info": "", "result": ["node3.example.com"]})

    pairs.rpc.allocators["hail"] = answer
    pairs.execute(
        "OP_INSTANCE_REPLACE_DISKS",
        instance_name=NAME,
        mode="replace_new_secondary",
        iallocator="hail",
    )
    told = asked[0]["instances"][NAME]
    assert (told["disk_template"], told["disk_space_total"]) == (DRBD, 64 + 128)
    assert [disk["dev_type"] for disk in told["disks"]] == [DRBD, SHARED]
    wanted = [{"size": 10, "dev_type": SHARED}, {"size": 20}]
    create = {"pnode": None, "iallocator": "hail", "disk_template": PLAIN, "disks": wanted}
    pairs.add_instance("web2.example.com", **create)
    request = asked[-1]["request"]
    assert (request["disk_template"], request["disk_space_total"]) == (PLAIN, 20)
    assert request["required_nodes"] == 1
    assert [disk["dev_type"] for disk in request["disks"]] == [SHARED, PLAIN]


def test_a_planned_instance_keeps_its_mixture(pairs: FakeCluster) -> None:
    mixed(pairs, PLAIN, FILE, forthcoming=True)
    assert types(pairs) == [PLAIN, FILE]
    pairs.execute(
        "OP_INSTANCE_CREATE", instance_name=NAME, mode="create", commit=True, disks=[], nics=[]
    )
    assert types(pairs) == [PLAIN, FILE]
    assert [len(names) for names in volumes(pairs).values()] == [2]


def test_a_rename_takes_the_files_along(pairs: FakeCluster) -> None:
    mixed(pairs, FILE, DRBD, SHARED)
    before = [disk["logical_id"] for disk in disks(pairs)]
    new = "web9.example.com"
    rename = {"instance_name": NAME, "new_name": new, "name_check": False, "ip_check": False}
    pairs.execute("OP_INSTANCE_RENAME", **rename)
    after = [pairs.config.disks[u]["logical_id"] for u in pairs.config.instance(new)["disks"]]
    assert after[1] == before[1]
    for number in (0, 2):
        assert after[number] == [before[number][0], before[number][1].replace(NAME, new)]
