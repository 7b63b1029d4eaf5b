"""Tests of the single steps of an upgrade: ganeti/config/upgrade/{cluster,disks,identity,...}."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.old_configs import counted_uuids, load_config

from ganeti.base.errors import ConfigurationError
from ganeti.config.upgrade import cluster, identity, instances, keys, parameters
from ganeti.config.upgrade.draft import Draft, count_of
from ganeti.config.upgrade.upgrading import upgrade_config
from ganeti.config.upgrade.versions import Version

NODE_A = "0000000a-0000-4000-8000-000000000000"
NODE_B = "0000000a-0000-4000-8000-000000000001"
UUIDS = [f"ffffffff-0000-4000-8000-{number:012x}" for number in range(1, 9)]


def draft_of(**tables: Any) -> Draft:
    return Draft({"cluster": {}, **tables}, Version(2, 7), counted_uuids())


def instance_of(draft: Draft, name: str = "i") -> Any:
    return draft.config["instances"][name]


@pytest.mark.parametrize(
    ("used", "cluster_settings", "enabled"),
    [
        ([], {}, ["diskless"]),
        ([], {"volume_group_name": "vg"}, ["plain"]),
        ([], {"volume_group_name": "vg", "drbd_usermode_helper": "/bin/true"}, ["plain", "drbd"]),
        (["file", "drbd", "drbd"], {"volume_group_name": "vg"}, ["drbd", "file", "plain"]),
        (["diskless", "diskless", "rbd"], {}, ["rbd", "diskless"]),
        (["ext"], {"enabled_disk_templates": ["plain"]}, ["plain"]),
        (["ext"], {"enabled_disk_templates": []}, ["ext"]),
    ],
)
def test_templates_in_use_are_enabled(
    used: list[str], cluster_settings: Any, enabled: list[str]
) -> None:
    draft = draft_of(
        instances={str(number): {"disk_template": one} for number, one in enumerate(used)}
    )
    draft.cluster.update(cluster_settings)
    list(cluster.templates_are_enabled(draft))
    assert draft.cluster["enabled_disk_templates"] == enabled


def test_templates_are_known_by_the_disks_too() -> None:
    draft = draft_of(
        instances={
            "a": {"disks": ["u"]},
            "b": {"disks": [{"dev_type": "file"}]},
            "c": {"disks": []},
        },
        disks={"u": {"dev_type": "rbd"}},
    )
    list(cluster.templates_are_enabled(draft))
    assert draft.cluster["enabled_disk_templates"] == ["file", "rbd", "diskless"]


@pytest.mark.parametrize(("family", "netmask"), [(None, 32), (2, 32), (10, 128)])
def test_the_master_address_stands_alone(family: int | None, netmask: int) -> None:
    draft = draft_of()
    if family is not None:
        draft.cluster["primary_ip_family"] = family
    notes = list(cluster.settings_are_there(draft))
    assert draft.cluster["master_netmask"] == netmask
    assert any("renew-crypto --new-node-certificates" in note for note in notes)


def test_collectors_that_are_off_stay_off() -> None:
    draft = draft_of()
    draft.cluster["data_collectors"] = {"lv": {"active": False, "interval": 9}}
    (note,) = cluster.collectors_are_there(draft)
    assert "diskstats" in note
    assert draft.cluster["data_collectors"]["lv"] == {"active": False, "interval": 9}
    assert draft.cluster["data_collectors"]["drbd"] == {"active": True, "interval": 5000000}


def test_settings_are_not_shared_with_the_table() -> None:
    one, other = draft_of(), draft_of()
    for draft in (one, other):
        list(cluster.settings_are_there(draft))
    one.cluster["data_collectors"]["lv"]["active"] = False
    one.cluster["compression_tools"].append("x")
    assert other.cluster["data_collectors"]["lv"]["active"] is True
    assert "x" not in other.cluster["compression_tools"]


def test_objects_with_one_uuid_are_refused() -> None:
    draft = draft_of(nodes={"a": {"uuid": NODE_A}, "b": {"uuid": NODE_A}})
    with pytest.raises(ConfigurationError, match=r"nodes 'a' and 'b' have the same UUID, 0000000a"):
        list(identity.tables_by_uuid(draft))


@pytest.mark.shows("2.1/uuid-one/upgraded")
def test_objects_without_uuid_get_one_or_their_key() -> None:
    draft = draft_of(nodes={"a": {}, NODE_B: {"name": "b"}})
    list(identity.tables_by_uuid(draft))
    assert draft.config["nodes"] == {
        UUIDS[0]: {"name": "a", "uuid": UUIDS[0]},
        NODE_B: {"name": "b", "uuid": NODE_B},
    }


def test_a_node_that_nobody_knows_keeps_its_name() -> None:
    """It cannot be guessed; the check of the result names it."""
    config = load_config("2.7")
    config["instances"]["db.example.com"]["primary_node"] = "gone.example.com"
    result: Any = upgrade_config(config, new_uuid=counted_uuids()).config
    assert "gone.example.com" in {one["primary_node"] for one in result["instances"].values()}


@pytest.mark.shows("2.1/uuid-two/inside", "2.1/uuid-two/rename-node")
@pytest.mark.parametrize(
    "logical_id", [["a", "b", None, 0, 0, "s"], ["a", "b", 11000, 3, 4, "s"], ["a", "b"]]
)
def test_drbd_disks_name_nodes_by_uuid(logical_id: list[Any]) -> None:
    disk = {"dev_type": "drbd8", "logical_id": list(logical_id)}
    draft = draft_of(
        nodes={NODE_A: {"name": "a", "uuid": NODE_A}, NODE_B: {"name": "b", "uuid": NODE_B}},
        instances={"i": {"disks": [disk], "primary_node": "b"}},
    )
    draft.cluster["master_node"] = "a"
    list(identity.nodes_by_uuid(draft))
    assert disk["logical_id"] == [NODE_A, NODE_B, *logical_id[2:]]
    assert instance_of(draft)["primary_node"] == NODE_B
    assert draft.cluster["master_node"] == NODE_A


@pytest.mark.parametrize("logical_id", [[], ["a"], [5, 6, 7], ["x", "y", 1, 2, 3, "s"]])
def test_drbd_disks_in_no_known_form_are_left_alone(logical_id: list[Any]) -> None:
    disk = {"dev_type": "drbd", "logical_id": list(logical_id)}
    draft = draft_of(nodes={NODE_A: {"name": "a", "uuid": NODE_A}}, disks={"d": disk}, instances={})
    list(identity.nodes_by_uuid(draft))
    expected = (
        [NODE_A if one == "a" else one for one in logical_id] if len(logical_id) > 1 else None
    )
    assert disk["logical_id"] == (expected or logical_id)


@pytest.mark.shows("2.0/disks/drbd8")
@pytest.mark.parametrize(
    ("template", "dev_type", "result"),
    [
        ("sharedfile", "file", "sharedfile"),
        ("gluster", "file", "gluster"),
        ("file", "file", "file"),
        ("plain", "lvm", "plain"),
        ("drbd", "drbd8", "drbd"),
        ("ext", "ext", "ext"),
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_types_of_disks_are_templates(
    template: str, dev_type: str, result: str, inside: bool
) -> None:
    disk = {"dev_type": dev_type, "uuid": "u"}
    draft = draft_of(
        instances={"i": {"disk_template": template, "disks": [disk if inside else "u"]}},
        disks={} if inside else {"u": disk},
    )
    list(instances.types_are_templates(draft))
    assert disk["dev_type"] == result


@pytest.mark.shows("2.1/uuid-two/rename-node")
@pytest.mark.parametrize(
    ("dev_type", "logical_id", "nodes"),
    [
        ("plain", ["vg", "lv"], [NODE_A]),
        ("file", ["loop", "/x"], [NODE_A]),
        ("drbd", [NODE_B, NODE_A, 1, 2, 3, "s"], [NODE_B, NODE_A]),
        ("sharedfile", ["loop", "/x"], []),
        ("rbd", ["rbd", "x"], []),
        ("ext", ["provider", "x"], []),
    ],
)
def test_disks_know_their_nodes(dev_type: str, logical_id: list[Any], nodes: list[str]) -> None:
    draft = draft_of(
        instances={"i": {"disks": ["u"], "primary_node": NODE_A}},
        disks={"u": {"dev_type": dev_type, "logical_id": logical_id}},
    )
    list(instances.disks_know_their_nodes(draft))
    assert draft.config["disks"]["u"]["nodes"] == nodes


def test_disks_keep_the_nodes_that_they_know() -> None:
    draft = draft_of(
        instances={"i": {"disks": ["u"], "primary_node": NODE_A}},
        disks={"u": {"dev_type": "plain", "nodes": [NODE_B]}},
    )
    list(instances.disks_know_their_nodes(draft))
    assert draft.config["disks"]["u"]["nodes"] == [NODE_B]


def test_disks_of_an_instance_keep_their_order() -> None:
    mine = [{"uuid": "u1"}, "u0", {"uuid": "u2", "iv_name": "disk/7"}]
    draft = draft_of(instances={"i": {"disks": mine}}, disks={"u0": {}})
    list(instances.disks_have_a_table(draft))
    assert instance_of(draft)["disks"] == ["u1", "u0", "u2"]
    assert draft.config["disks"]["u1"]["iv_name"] == "disk/0"
    assert draft.config["disks"]["u2"]["iv_name"] == "disk/7"


def test_two_disks_with_one_uuid_are_refused() -> None:
    draft = draft_of(instances={"i": {"name": "i", "disks": [{"uuid": "u"}, {"uuid": "u"}]}})
    with pytest.raises(ConfigurationError, match="disk 1 of instance 'i' has the UUID u, which"):
        list(instances.disks_have_a_table(draft))


def test_a_template_that_the_disks_contradict_is_refused() -> None:
    draft = draft_of(
        instances={"i": {"name": "i", "disk_template": "plain", "disks": ["u"]}},
        disks={"u": {"dev_type": "file"}},
    )
    with pytest.raises(ConfigurationError, match="'i' has the disk template plain, but disks of"):
        list(keys.obsolete_keys_are_gone(draft))


@pytest.mark.shows("2.0/parameters/no-none")
def test_nulls_are_removed_where_they_mean_nothing() -> None:
    draft = draft_of(
        instances={"i": {"network_port": None, "mystery": None, "nics": [{"ip": None}]}},
        nodes={"n": {"ctime": None}},
    )
    (note,) = keys.no_value_is_no_key(draft)
    assert note == "3 keys without a value removed"
    assert draft.config["instances"] == {"i": {"mystery": None, "nics": [{}]}}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"memory": 512}, {"minmem": 512, "maxmem": 512}),
        ({"memory": 512, "maxmem": 700}, {"minmem": 512, "maxmem": 700}),
        ({"vcpus": 2}, {"vcpus": 2}),
    ],
)
def test_memory_has_bounds(params: dict[str, int], expected: dict[str, int]) -> None:
    draft = draft_of(instances={"i": {"beparams": dict(params)}})
    draft.cluster["beparams"] = {"default": dict(params)}
    list(instances.memory_has_bounds(draft))
    assert instance_of(draft)["beparams"] == expected
    assert draft.cluster["beparams"]["default"] == expected


@pytest.mark.parametrize(("state", "active"), [("up", True), ("down", False), ("offline", False)])
def test_disks_are_active_while_the_instance_is_up(state: str, active: bool) -> None:
    draft = draft_of(instances={"i": {"admin_state": state}})
    list(instances.states_are_told_apart(draft))
    assert instance_of(draft) == {
        "admin_state": state,
        "admin_state_source": "admin",
        "disks_active": active,
    }


@pytest.mark.parametrize(
    ("value", "converted"),
    [
        ({"acpi": "True"}, {"acpi": True}),
        ({"acpi": 1}, {"acpi": True}),
        ({"acpi": "perhaps"}, {"acpi": "perhaps"}),
        ({"serial_speed": "9600"}, {"serial_speed": 9600}),
        ({"vnc_password_file": None}, {}),
        ({"root_path": None}, {"root_path": None}),
        ({"disk_cache": "default"}, {"disk_cache": "default"}),
        ({"unknown": "1"}, {"unknown": "1"}),
    ],
)
def test_parameters_have_their_types(value: Any, converted: Any) -> None:
    draft = draft_of(instances={"i": {"hypervisor": "kvm", "hvparams": dict(value)}})
    draft.cluster["hvparams"] = {"kvm": dict(value)}
    draft.cluster["os_hvp"] = {"os": {"kvm": dict(value)}}
    list(parameters.values_have_types(draft))
    assert instance_of(draft)["hvparams"] == converted
    assert draft.cluster["hvparams"]["kvm"] == converted
    assert draft.cluster["os_hvp"]["os"]["kvm"] == converted


def test_a_number_keeps_its_form() -> None:
    draft = draft_of()
    draft.cluster["ndparams"] = {"cpu_speed": 1}
    assert not list(parameters.values_have_types(draft))
    assert type(draft.cluster["ndparams"]["cpu_speed"]) is int


def test_new_volumes_for_metadata_go_where_the_old_ones_went() -> None:
    draft = draft_of()
    draft.cluster.update(volume_group_name="othervg", enabled_hypervisors=["kvm", "unheard-of"])
    list(parameters.hvparams_are_full(draft))
    assert draft.cluster["diskparams"]["drbd"]["metavg"] == "othervg"
    assert draft.cluster["hvparams"]["kvm"]["serial_speed"] == 38400
    assert "unheard-of" not in draft.cluster["hvparams"]


CLUSTER_MIN = {"memory-size": 64, "cpu-count": 2}


@pytest.mark.parametrize(
    "policy",
    [
        {"min": dict(CLUSTER_MIN), "max": {"memory-size": 1000}},
        {"minmax": {"min": dict(CLUSTER_MIN), "max": {"memory-size": 1000}}},
        {"minmax": [{"min": dict(CLUSTER_MIN), "max": {"memory-size": 1000}}]},
    ],
)
def test_bounds_are_pairs_and_complete(policy: Any) -> None:
    draft = draft_of(
        nodegroups={"g": {"ipolicy": {"max": {"disk-count": 3}}}, "h": {"ipolicy": {}}}
    )
    draft.cluster["ipolicy"] = policy
    assert list(parameters.bounds_are_pairs(draft))
    (pair,) = draft.cluster["ipolicy"]["minmax"]
    assert set(draft.cluster["ipolicy"]) == {"minmax"}
    assert pair["min"] == {
        "memory-size": 64,
        "cpu-count": 2,
        "disk-size": 1024,
        "disk-count": 1,
        "nic-count": 1,
        "spindle-use": 1,
    }
    assert pair["max"]["memory-size"] == 1000
    (of_group,) = draft.config["nodegroups"]["g"]["ipolicy"]["minmax"]
    assert of_group["min"] == pair["min"]
    assert of_group["max"] == {**pair["max"], "disk-count": 3}
    assert draft.config["nodegroups"]["h"]["ipolicy"] == {}
    assert not list(parameters.bounds_are_pairs(draft))


@pytest.mark.parametrize(("number", "text"), [(0, "0 disks"), (1, "1 disk"), (2, "2 disks")])
def test_counting(number: int, text: str) -> None:
    assert count_of(number, "disk") == text


@pytest.mark.parametrize(
    ("table", "value", "words"),
    [
        ("nodes", [], "nodes: expected object, got array"),
        ("instances", {"i": 5}, r"instances\['i'\]: expected object, got int"),
        ("instances", {"i": {"nics": [5]}}, r"instances\['i'\]\.nics\[0\]|instances\['i'\]\.nics"),
        ("disks", {"d": {"children": {}}}, r"disks\['d'\]\.children: expected array"),
    ],
)
def test_a_shape_that_never_was_is_refused(table: str, value: object, words: str) -> None:
    config = load_config("2.16") | {table: value}
    with pytest.raises(ConfigurationError, match=f"cannot be understood: ({words})"):
        upgrade_config(config, new_uuid=counted_uuids())


@pytest.mark.shows("2.0/hypervisor/default")
def test_a_default_hypervisor_that_is_first_already_stays() -> None:
    draft = draft_of()
    draft.cluster.update(default_hypervisor="kvm", enabled_hypervisors=["kvm", "fake"])
    assert list(cluster.default_hypervisor_is_first(draft)) == []
    draft.cluster["default_hypervisor"] = "fake"
    assert len(list(cluster.default_hypervisor_is_first(draft))) == 1
    assert draft.cluster["enabled_hypervisors"] == ["fake", "kvm"]


def test_what_a_nic_says_itself_counts_more_than_its_bridge() -> None:
    draft = draft_of(
        instances={"i": {"nics": [{"bridge": "br1", "nicparams": {"link": "br2"}}, {"mac": "m"}]}}
    )
    assert list(parameters.bridges_are_links(draft)) == [
        "1 NIC: the bridge became the parameter link"
    ]
    assert instance_of(draft)["nics"] == [
        {"nicparams": {"mode": "bridged", "link": "br2"}},
        {"mac": "m"},
    ]


def test_nodes_without_a_group_join_the_one_that_is_there() -> None:
    draft = draft_of(
        nodes={"a": {"name": "a"}, "b": {"name": "b", "group": "g2"}},
        nodegroups={"g1": {"name": "first", "uuid": "g1"}, "g2": {"name": "second", "uuid": "g2"}},
    )
    assert list(identity.nodes_have_a_group(draft)) == ["1 node put into the node group 'first'"]
    assert [node["group"] for node in draft.config["nodes"].values()] == ["g1", "g2"]


def test_a_state_in_words_counts_more_than_admin_up() -> None:
    draft = draft_of(instances={"i": {"admin_up": True, "admin_state": "offline"}})
    assert list(instances.states_are_words(draft)) == []
    assert draft.config["instances"] == {"i": {"admin_state": "offline"}}
