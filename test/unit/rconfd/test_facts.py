"""One version of the configuration after the other."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from fakes.confd_config import DB, DB_DISK, NODES, WEB, confd_config, encoded, nic
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base.errors import ConfigurationError
from ganeti.objects.split import split_config
from ganeti.rconfd.facts import Facts


def facts_of(config: dict[str, Any], before: Facts | None = None) -> Facts:
    return Facts(split_config(encoded(config)), before)


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


def everything(facts: Facts) -> tuple[object, ...]:
    """Return all that can be told from facts."""
    return (
        facts.cluster,
        dict(facts.nodes.items()),
        dict(facts.instances.items()),
        {uuid: disk.nodes for uuid, disk in facts.disks.items()},
        facts.links,
        facts.instances_by_node,
        facts.drbd,
        [facts.nodes.find(name) for name in ("node5", "other", "node1.example.com", "nosuch")],
    )


@settings(max_examples=40)
@given(edits=st.lists(st.lists(st.sampled_from(EDITS), max_size=3), max_size=4))
def test_what_is_taken_over_is_as_if_read_anew(edits: list[list[Any]]) -> None:
    config = confd_config()
    facts = facts_of(config)
    for several in edits:
        config = copy.deepcopy(config)
        for edit in several:
            edit(config)
        before, was = facts, everything(facts)
        facts = facts_of(config, before)
        assert everything(facts) == everything(facts_of(config))
        assert everything(before) == was


def test_what_did_not_change_is_not_decoded_again() -> None:
    first = facts_of(confd_config())
    config = confd_config()
    config["nodes"][NODES[0]]["serial_no"] = 99
    second = facts_of(config, first)
    assert second.nodes[NODES[1]] is first.nodes[NODES[1]]
    assert second.nodes[NODES[0]].serial_no == 99


@pytest.mark.parametrize(
    ("table", "uuid", "value", "text"),
    [
        ("nodes", NODES[0], {}, f"node {NODES[0]} cannot be understood"),
        ("instances", WEB, [], f"instance {WEB} cannot be understood"),
        ("disks", DB_DISK, {"nodes": 7}, f"disk {DB_DISK} cannot be understood"),
    ],
)
def test_what_cannot_be_understood_is_named(
    table: str, uuid: str, value: object, text: str
) -> None:
    config = confd_config()
    config[table][uuid] = value
    with pytest.raises(ConfigurationError, match=text):
        facts_of(config)


def test_a_broken_cluster_is_named() -> None:
    with pytest.raises(ConfigurationError, match="the cluster cannot be understood"):
        facts_of({**confd_config(), "cluster": {"master_node": "x"}})


def test_planned_and_dangling_things_do_not_matter() -> None:
    config = confd_config()
    config["instances"][WEB] = {"forthcoming": True, "uuid": WEB, "serial_no": 1}
    config["instances"][DB].update(disks=["gone", DB_DISK], primary_node="gone")
    config["disks"][DB_DISK].update(dev_type="drbd", logical_id=[], nodes=["gone"])
    facts = facts_of(config)
    assert facts.drbd == {}
    assert all(found == ([], []) for found in facts.instances_by_node.values())
    assert facts.instances.find(WEB) == WEB


def test_mirrors_inside_of_other_disks_are_seen() -> None:
    config = confd_config()
    inner = copy.deepcopy(config["disks"][DB_DISK])
    config["disks"][DB_DISK].update(dev_type="file", logical_id=["x"], nodes=[], children=[inner])
    facts = facts_of(config)
    assert [half.minor for half in facts.drbd[NODES[0]]] == [7]
    assert facts.instances_by_node[NODES[0]] == ([WEB], [DB])
