"""One version of the configuration after the other."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from fakes.confd_config import DB, DB_DISK, NODES, WEB, confd_config, encoded, nic
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base.errors import ConfigurationError
from ganeti.config.config_data import split_config
from ganeti.config.index import KEYS, By
from ganeti.config.tables import Tables


def tables_of(config: dict[str, Any], before: Tables | None = None) -> Tables:
    return Tables(split_config(encoded(config)), before)


def rename_node(config: dict[str, Any]) -> None:
    config["nodes"][NODES[4]]["name"] = "other.example.com"


def remove_instance(config: dict[str, Any]) -> None:
    config["instances"].pop(DB, None)


def move_address(config: dict[str, Any]) -> None:
    config["instances"][WEB]["nics"] = [nic(9, "198.51.100.9")]


def move_disk(config: dict[str, Any]) -> None:
    config["disks"][DB_DISK]["logical_id"][1] = NODES[4]
    config["disks"][DB_DISK]["nodes"] = [NODES[1], NODES[4]]


def change_default_link(config: dict[str, Any]) -> None:
    config["cluster"]["nicparams"]["default"]["link"] = "br7"


EDITS = [rename_node, remove_instance, move_address, move_disk, change_default_link]


def everything(tables: Tables) -> tuple[object, ...]:
    """Return all that can be told from tables: every object, name and index."""
    keys = {
        (name, by, key): list(table.find_all(by, key))
        for name, table in tables.by_name.items()
        for by in KEYS[name]
        for uuid in table
        for key in table.keys_of(by, uuid)
    }
    return (
        tables.cluster,
        {name: dict(table.items()) for name, table in tables.by_name.items()},
        {name: list(table.order) for name, table in tables.by_name.items()},
        {key: sorted(uuids) for key, uuids in keys.items()},
        {node: sorted(tables.secondary_instances(node)) for node in tables.nodes},
        [tables.nodes.find(name) for name in ("node5", "other", "node1.example.com", "nosuch")],
        [tables.nodes.named(name) for name in ("node5", "other", "node1.example.com", "nosuch")],
        [list(tables.instances.find_all(By.PRIMARY, node)) for node in (*NODES, "gone")],
    )


@settings(max_examples=40)
@given(edits=st.lists(st.lists(st.sampled_from(EDITS), max_size=3), max_size=4))
def test_what_is_taken_over_is_as_if_read_anew(edits: list[list[Any]]) -> None:
    config = confd_config()
    tables = tables_of(config)
    for several in edits:
        config = copy.deepcopy(config)
        for edit in several:
            edit(config)
        before, was = tables, everything(tables)
        tables = tables_of(config, before)
        assert everything(tables) == everything(tables_of(config))
        assert everything(before) == was


def test_what_did_not_change_is_not_decoded_again() -> None:
    first = tables_of(confd_config())
    config = confd_config()
    config["nodes"][NODES[0]]["serial_no"] = 99
    known = dict(first.nodes.items())
    second = tables_of(config, first)
    assert second.nodes[NODES[1]] is known[NODES[1]]
    assert second.nodes[NODES[0]].serial_no == 99


@pytest.mark.parametrize(
    ("table", "uuid", "value", "text"),
    [
        ("nodes", NODES[0], {}, f"node {NODES[0]}: "),
        ("instances", WEB, [], f"instance {WEB}: "),
        ("disks", DB_DISK, {"nodes": 7}, f"disk {DB_DISK}: "),
    ],
)
def test_what_cannot_be_understood_is_named(
    table: str, uuid: str, value: object, text: str
) -> None:
    config = confd_config()
    config[table][uuid] = value
    with pytest.raises(ConfigurationError, match=text):
        tables_of(config).check()


def test_a_broken_cluster_is_named() -> None:
    with pytest.raises(ConfigurationError, match="Cluster: field"):
        tables_of({**confd_config(), "cluster": {"master_node": "x"}}).check()


def test_planned_and_dangling_things_do_not_matter() -> None:
    config = confd_config()
    config["instances"][WEB] = {"forthcoming": True, "uuid": WEB, "serial_no": 1}
    config["instances"][DB].update(disks=["gone", DB_DISK], primary_node="gone")
    config["disks"][DB_DISK].update(dev_type="drbd", logical_id=[], nodes=["gone"])
    tables = tables_of(config)
    assert all(not tables.primary_instances(node) for node in NODES)
    assert all(not tables.secondary_instances(node) for node in NODES)
    assert tables.instances.find(WEB) == WEB


def test_nodes_have_short_names_and_groups_have_none() -> None:
    config = confd_config()
    (uuid,) = config["nodegroups"]
    config["nodegroups"][uuid]["name"] = "rack.old"
    tables = tables_of(config)
    assert tables.nodes.find("NODE1") == NODES[0]
    assert [tables.groups.find(key) for key in ("rack", "rack.old", uuid)] == [None, uuid, uuid]


def test_mirrors_inside_of_other_disks_are_seen() -> None:
    config = confd_config()
    inner = copy.deepcopy(config["disks"][DB_DISK])
    config["disks"][DB_DISK].update(dev_type="file", logical_id=["x"], nodes=[], children=[inner])
    tables = tables_of(config)
    assert tables.disks.find_all(By.MINOR, (NODES[0], 7)) == (DB_DISK,)
    assert list(tables.primary_instances(NODES[0])) == [WEB]
    assert list(tables.secondary_instances(NODES[0])) == [DB]


def test_objects_that_moved_keep_the_others_in_their_order() -> None:
    first = tables_of(confd_config())
    assert list(first.primary_instances(NODES[0])) == [WEB]
    config = confd_config()
    config["instances"][DB]["primary_node"] = NODES[0]
    config["instances"][WEB]["serial_no"] = 77
    second = tables_of(config, first)
    assert list(second.primary_instances(NODES[0])) == [WEB, DB]
    assert list(second.primary_instances(NODES[1])) == []
    assert list(first.primary_instances(NODES[1])) == [DB], "the version before is as it was"


def test_a_disk_that_changed_touches_its_instance_alone() -> None:
    first = tables_of(confd_config())
    config = confd_config()
    config["disks"][DB_DISK]["size"] += 1
    assert tables_of(config, first).touched_instances == {DB}
