"""Node groups and tags."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import GROUP, FakeCluster, make_group, uuid_of

from ganeti.base.errors import OpPrereqError
from ganeti.logical_units.parameters import check_ipolicy_changes, merge_ipolicy
from ganeti.objects.parameters import ISPEC_PARAMS

NAME = "web1.example.com"


def group(cluster: FakeCluster, name: str) -> dict[str, Any]:
    (found,) = (g for g in cluster.config.nodegroups.values() if g["name"] == name)
    return found


def test_a_group_is_added_with_its_parameters(cluster: FakeCluster) -> None:
    cluster.execute(
        "OP_GROUP_ADD",
        group_name="rack2",
        alloc_policy="last_resort",
        ndparams={"ssh_port": 2222},
        diskparams={"rbd": {"pool": "p"}},
        ipolicy={"vcpu-ratio": 2.0},
    )
    made = group(cluster, "rack2")
    assert made["alloc_policy"] == "last_resort"
    assert made["ndparams"] == {"ssh_port": 2222}
    assert made["diskparams"] == {"rbd": {"pool": "p"}}
    assert made["ipolicy"] == {"vcpu-ratio": 2.0}


@pytest.mark.parametrize(
    ("params", "text", "ecode"),
    [
        ({"group_name": "default"}, "already used by node group", "already_exists"),
        ({"group_name": "x\ny"}, r"'x\\ny' cannot be the name of a node group", "wrong_input"),
        ({"group_name": "p|q"}, r"and no \|", "wrong_input"),
        ({"group_name": "esc\x1b[31m"}, "can be printed", "wrong_input"),
        ({"group_name": "a" * 256}, "longer than 255 characters", "wrong_input"),
        ({"ndparams": {"nix": 1}}, "nix", "wrong_input"),
        ({"diskparams": {"rbd": {"nix": 1}}}, "nix", "wrong_input"),
        (
            {"diskparams": {"drbd": {"protocol": "Z"}}},
            "drbd disk parameter 'protocol': 'Z' is not one of A, B, C",
            "wrong_input",
        ),
        ({"ipolicy": {"nix": 1}}, "unknown key 'nix'", "wrong_input"),
        ({"hv_state": {"nix": {}}}, "'nix' is unknown", "wrong_input"),
        ({"disk_state": {"plain": {"vg": {"nix": 1}}}}, "nix", "wrong_input"),
    ],
)
def test_groups_that_cannot_be(
    cluster: FakeCluster, params: dict[str, Any], text: str, ecode: str
) -> None:
    with pytest.raises(OpPrereqError, match=text) as caught:
        cluster.execute("OP_GROUP_ADD", **{"group_name": "new", **params})
    assert caught.value.ecode == ecode
    assert len(cluster.config.nodegroups) == 1


def test_a_group_is_renamed_and_changed(cluster: FakeCluster) -> None:
    assert cluster.execute("OP_GROUP_RENAME", group_name="default", new_name="main") == "main"
    cluster.config.nodegroups[GROUP]["ndparams"] = {"ssh_port": 1, "spindle_count": 3}
    result = cluster.execute(
        "OP_GROUP_SET_PARAMS",
        group_name="main",
        ndparams={"ssh_port": "default"},
        alloc_policy="unallocable",
    )
    assert group(cluster, "main")["ndparams"] == {"spindle_count": 3}
    assert ("alloc_policy", "unallocable") in result


@pytest.mark.parametrize("name", ["x\ny", "a|b", "a\u2028b", "a" * 256])
def test_a_group_is_not_renamed_to_a_name_that_cannot_be(cluster: FakeCluster, name: str) -> None:
    with pytest.raises(OpPrereqError, match="cannot be the name of a node group"):
        cluster.execute("OP_GROUP_RENAME", group_name="default", new_name=name)
    assert group(cluster, "default")


def test_names_of_groups_may_have_blanks_and_any_letters(cluster: FakeCluster) -> None:
    cluster.execute("OP_GROUP_ADD", group_name="Gestell 2 für Köln")
    assert group(cluster, "Gestell 2 für Köln")


def test_a_change_of_nothing_is_refused(cluster: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match="at least one change"):
        cluster.execute("OP_GROUP_SET_PARAMS", group_name="default")
    before = dict(group(cluster, "default"))
    assert cluster.execute("OP_GROUP_SET_PARAMS", group_name="default", diskparams={}) == []
    assert group(cluster, "default") == before


def test_only_an_empty_group_that_is_not_the_last_goes(cluster: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match="is not empty"):
        cluster.execute("OP_GROUP_REMOVE", group_name="default")
    cluster.execute("OP_GROUP_ADD", group_name="other")
    cluster.execute("OP_GROUP_REMOVE", group_name="other")
    assert list(cluster.config.nodegroups) == [GROUP]
    for node in cluster.config.nodes.values():
        node["group"] = "elsewhere"
    with pytest.raises(OpPrereqError, match="is the only one"):
        cluster.execute("OP_GROUP_REMOVE", group_name="default")


def test_a_group_is_not_removed_under_the_beginning_of_its_name(cluster: FakeCluster) -> None:
    cluster.execute("OP_GROUP_ADD", group_name="rack.old")
    for name in ("rack", "RACK.OLD"):
        with pytest.raises(OpPrereqError, match=f"node group '{name}' is not known"):
            cluster.execute("OP_GROUP_REMOVE", group_name=name)
    cluster.execute("OP_GROUP_REMOVE", group_name="rack.old")


def test_nodes_move_to_another_group(cluster: FakeCluster) -> None:
    cluster.config.nodegroups["g2"] = make_group("other", "g2")
    cluster.execute("OP_GROUP_ASSIGN_NODES", group_name="other", nodes=["node2", "node3"])
    groups = [cluster.config.node(number)["group"] for number in (1, 2, 3)]
    assert groups == [GROUP, "g2", "g2"]


SMALL = {
    "minmax": [
        {
            "min": dict.fromkeys(ISPEC_PARAMS, 1),
            "max": {**dict.fromkeys(ISPEC_PARAMS, 100000), "memory-size": 64},
        }
    ]
}


def test_a_new_policy_names_the_instances_that_violate_it(cluster: FakeCluster) -> None:
    cluster.add_instance()
    cluster.execute("OP_GROUP_SET_PARAMS", group_name="default", ipolicy={"vcpu-ratio": 3.0})
    assert not cluster.said("violate")
    cluster.execute("OP_GROUP_SET_PARAMS", group_name="default", ipolicy=SMALL)
    assert cluster.said(f"with the new policy these instances violate it: {NAME}")
    cluster.messages.clear()
    cluster.execute("OP_GROUP_SET_PARAMS", group_name="default", ipolicy={"vcpu-ratio": 4.0})
    assert not cluster.said("violate")  # it did before


def test_a_move_of_nodes_names_the_instances_that_do_not_fit_there(cluster: FakeCluster) -> None:
    cluster.add_instance()
    cluster.config.nodegroups["g2"] = make_group("other", "g2", ipolicy=SMALL)
    cluster.execute("OP_GROUP_ASSIGN_NODES", group_name="other", nodes=["node3"])
    assert not cluster.said("violate")
    cluster.execute("OP_GROUP_ASSIGN_NODES", group_name="other", nodes=["node1"])
    assert cluster.said(f"these instances violate the policy of group other: {NAME}")


def test_a_move_of_nodes_names_the_networks_that_are_not_there(cluster: FakeCluster) -> None:
    net = {"network_name": "net1"}
    cluster.execute("OP_NETWORK_ADD", **net, network="198.51.100.0/28")
    link = {"network_mode": "bridged", "network_link": "br0"}
    cluster.execute("OP_NETWORK_CONNECT", **net, group_name="default", **link)
    cluster.add_instance(nics=[{"network": "net1"}, {}])
    cluster.config.nodegroups["g2"] = make_group("other", "g2")
    for node, is_told in (("node2", False), ("node1", True)):
        cluster.execute("OP_GROUP_ASSIGN_NODES", group_name="other", nodes=[node])
        assert cluster.said("other is not connected to network(s) net1 of") is is_told
    cluster.messages.clear()
    cluster.execute("OP_GROUP_ASSIGN_NODES", group_name="other", nodes=["node1", "node3"])
    cluster.execute("OP_GROUP_ASSIGN_NODES", group_name="default", nodes=["node1"])
    assert not cluster.said("is not connected")


def test_instances_are_split_only_by_force(cluster: FakeCluster) -> None:
    cluster.add_instance(disk_template="file")
    (disk,) = cluster.config.disks.values()
    disk["nodes"] = [uuid_of("node1"), uuid_of("node2")]
    cluster.config.nodegroups["g2"] = make_group("other", "g2")
    params = {"group_name": "other", "nodes": ["node2"]}
    with pytest.raises(OpPrereqError, match=r"web1.example.com; use --force"):
        cluster.execute("OP_GROUP_ASSIGN_NODES", **params)
    cluster.execute("OP_GROUP_ASSIGN_NODES", **params, force=True)
    assert cluster.config.node(2)["group"] == "g2"


# Policies.


def spec(value: int) -> dict[str, int]:
    names = ("memory-size", "disk-size", "disk-count", "cpu-count", "nic-count", "spindle-use")
    return dict.fromkeys(names, value)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"minmax": []}, "not empty"),
        ({"minmax": [{"min": spec(1)}]}, "exactly 'min' and 'max'"),
        ({"minmax": [{"min": spec(5), "max": spec(1)}]}, "min 5 is greater than max 1"),
        ({"minmax": [{"min": {}, "max": spec(1)}]}, "missing"),
        ({"minmax": [{"min": spec(-1), "max": spec(1)}]}, "integer from 0"),
        ({"disk-templates": []}, "not empty"),
        ({"disk-templates": ["nix"]}, "unknown disk template"),
        ({"disk-templates": ["file", ["plain"], {}]}, "unknown disk template"),
        ({"vcpu-ratio": 0}, "greater than 0"),
        ({"vcpu-ratio": "x"}, "greater than 0"),
        ({"std": spec(1)}, "only be set for the whole cluster"),
    ],
)
def test_policies_that_make_no_sense(given: dict[str, Any], text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        check_ipolicy_changes(given, of_cluster=False)


def test_a_standard_outside_all_limits_is_refused() -> None:
    with pytest.raises(OpPrereqError, match="outside all limits"):
        merge_ipolicy(
            None, {"minmax": [{"min": spec(1), "max": spec(4)}], "std": spec(2)}, {"std": spec(9)}
        )


def test_default_goes_back_to_the_cluster() -> None:
    assert merge_ipolicy(None, {"vcpu-ratio": 2}, {"vcpu-ratio": "default"}) == {}


# Tags.


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("cluster", None),
        ("node", "node2"),
        ("nodegroup", "default"),
        ("instance", "web1"),
        ("instance", NAME),
    ],
)
def test_tags_of_everything(cluster: FakeCluster, kind: str, name: str | None) -> None:
    cluster.add_instance()
    what = {"kind": kind, "name": name}
    cluster.execute("OP_TAGS_SET", tags=["a", "b:c"], **what)
    assert cluster.execute("OP_TAGS_GET", **what) == ["a", "b:c"]
    found = cluster.execute("OP_TAGS_SEARCH", pattern="^b")
    assert len(found) == 1
    cluster.execute("OP_TAGS_DEL", tags=["a"], **what)
    assert cluster.execute("OP_TAGS_GET", **what) == ["b:c"]


def test_search_names_paths(cluster: FakeCluster) -> None:
    cluster.add_instance(tags=["x"])
    cluster.config.node(2)["tags"] = ["x"]
    assert cluster.execute("OP_TAGS_SEARCH", pattern="x") == [
        (f"/instances/{NAME}", "x"),
        ("/nodes/node2.example.com", "x"),
    ]


@pytest.mark.parametrize(
    ("op", "params", "text", "ecode"),
    [
        ("SET", {"tags": ["a b"]}, "not allowed", "wrong_input"),
        ("SET", {"tags": [""]}, "cannot be empty", "wrong_input"),
        ("DEL", {"tags": ["nix"]}, "not found: nix", "unknown_entity"),
        (
            "SET",
            {"kind": "node", "name": "nix", "tags": ["a"]},
            "'nix' is not known",
            "unknown_entity",
        ),
        ("SET", {"kind": "node", "tags": ["a"]}, "a name is needed", "wrong_input"),
        ("SEARCH", {"pattern": "(("}, "regular expression", "wrong_input"),
        ("SEARCH", {"pattern": "(a+)+$"}, "regular expression", "wrong_input"),
    ],
)
def test_bad_tags(
    cluster: FakeCluster, op: str, params: dict[str, Any], text: str, ecode: str
) -> None:
    values = params if op == "SEARCH" else {"kind": "cluster", **params}
    with pytest.raises(OpPrereqError, match=text) as caught:
        cluster.execute(f"OP_TAGS_{op}", **values)
    assert caught.value.ecode == ecode
