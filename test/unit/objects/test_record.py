"""Configuration objects from JSON and back."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.sample_config import CONFIG, only

from ganeti.base.errors import ConfigurationError
from ganeti.config.config_data import TABLES, ConfigData
from ganeti.objects.hypervisors import ConsoleKind
from ganeti.objects.model import (
    Cluster,
    Disk,
    Instance,
    InstanceConsole,
    IpFamily,
    Node,
    NodeRole,
    master_network_parameters,
    role_of,
)
from ganeti.objects.nic import NIC
from ganeti.objects.record import PrivateParams, Record


@pytest.mark.shows("backend/config-data/objects")
def test_the_whole_configuration_survives() -> None:
    assert ConfigData.from_wire(CONFIG).to_wire() == CONFIG


@pytest.mark.shows(
    "backend/config-data/objects",
    "2.0/parameters/classes",
    "2.0/node-parameters/attributes",
    "2.1/uuid-one/attribute",
)
@pytest.mark.parametrize(("table", "kind"), TABLES.items())
def test_each_object_survives(table: str, kind: type[Record]) -> None:
    for wire in CONFIG[table].values():
        assert kind.from_wire(wire).to_wire() == wire


@pytest.mark.shows("2.0/parameters/no-none")
def test_unset_fields_are_left_out() -> None:
    nic = NIC(mac="aa:00:00:00:00:01", uuid="u")
    assert nic.to_wire() == {"mac": "aa:00:00:00:00:01", "nicparams": {}, "uuid": "u"}
    console = InstanceConsole(instance="i", kind=ConsoleKind.MESSAGE, message="none")
    assert console.to_wire() == {"instance": "i", "kind": "msg", "message": "none"}


def test_a_disk_with_children_survives() -> None:
    child = {**only("disks"), "uuid": "child", "dev_type": "plain", "logical_id": ["vg", "lv"]}
    disk = {**only("disks"), "children": [child], "name": "data"}
    assert Disk.from_wire(disk).to_wire() == disk


def test_private_parameters_survive_and_hide() -> None:
    wire = {**only("instances"), "osparams_private": {"key": "PRIVATE"}}
    instance = Instance.from_wire(wire)
    assert instance.osparams_private.reveal() == {"key": "PRIVATE"}
    assert instance.to_wire() == wire
    assert "PRIVATE" not in repr(instance)
    cluster = Cluster.from_wire(
        {**CONFIG["cluster"], "osparams_private_cluster": {"os": {"key": "PRIVATE"}}}
    )
    assert "PRIVATE" not in repr(cluster)
    assert cluster.to_wire()["osparams_private_cluster"] == {"os": {"key": "PRIVATE"}}


def test_a_planned_instance_may_lack_fields() -> None:
    instance = Instance.from_wire({"uuid": "u", "serial_no": 1, "forthcoming": True})
    assert (instance.name, instance.admin_state) == ("", "down")
    disk = Disk.from_wire({"uuid": "u", "serial_no": 1, "forthcoming": True})
    assert disk.to_wire()["forthcoming"] is True
    with pytest.raises(ConfigurationError, match="field 'name': is missing"):
        Instance.from_wire({"uuid": "u", "serial_no": 1})


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (
            Instance,
            {"serial_no": "x"},
            "Instance 'inst1': field 'serial_no': expected int, got str",
        ),
        (Instance, {"nics": [{"mac": 1}]}, "Instance 'inst1': field 'nics[0].mac': expected str"),
        (Instance, {"admin_state": "on"}, "Instance 'inst1': field 'admin_state': invalid"),
        (Instance, {"osparams_private": 3}, "field 'osparams_private': expected object"),
        (Disk, {"size": None}, "field 'size': expected int, got null"),
    ],
)
def test_errors_name_object_and_field(
    kind: type[Record], changes: dict[str, Any], message: str
) -> None:
    table = "instances" if kind is Instance else "disks"
    with pytest.raises(ConfigurationError) as caught:
        kind.from_wire({**only(table), **changes})
    assert message in caught.value.message


def test_errors_in_the_whole_configuration_name_the_object() -> None:
    broken = {**CONFIG, "nodes": {"u": {**only("nodes", "node2"), "offline": "no"}}}
    with pytest.raises(ConfigurationError, match="Node 'node2': field 'offline': expected bool"):
        ConfigData.from_wire(broken)
    with pytest.raises(ConfigurationError, match="Node: field 'name': is missing"):
        ConfigData.from_wire({**CONFIG, "nodes": {"u": 3}})


@pytest.mark.shows(
    "backend/cluster-node/roles",
    "2.0/node-parameters/attributes",
    "2.0/flags/three",
    "2.0/interaction/exclusive",
)
def test_roles() -> None:
    cluster = Cluster.from_wire(CONFIG["cluster"])
    wire = {**only("nodes", "node2"), "master_candidate": False}

    def role(**flags: bool) -> NodeRole:
        return role_of(cluster, Node.from_wire({**wire, **flags}))

    assert role_of(cluster, Node.from_wire(only("nodes", "node1"))) is NodeRole.MASTER
    assert role(master_candidate=True) is NodeRole.CANDIDATE
    assert role(drained=True) is NodeRole.DRAINED
    assert role(offline=True) is NodeRole.OFFLINE
    assert role() is NodeRole.REGULAR


def test_master_network_parameters() -> None:
    params = master_network_parameters(Cluster.from_wire(CONFIG["cluster"]))
    assert params.to_wire() == {
        "uuid": only("nodes", "node1")["uuid"],
        "ip": "192.0.2.1",
        "netmask": 32,
        "netdev": "lo",
        "ip_family": 2,
    }
    assert IpFamily.IPV6.version == 6


def test_only_names_are_shown() -> None:
    params = PrivateParams({"key": "VALUE"})
    for shown in (repr(params), str(params), f"{params}", f"{[params]}"):
        assert "VALUE" not in shown
        assert "'key': ***" in shown


def test_values_are_there_for_who_asks() -> None:
    params = PrivateParams({"a": "1", "b": 2})
    revealed = params.reveal()
    revealed["c"] = 3
    assert params.reveal() == {"a": "1", "b": 2}
    assert (list(params), params.names(), len(params), "a" in params) == (
        ["a", "b"],
        ["a", "b"],
        2,
        True,
    )


def test_merging_and_comparing() -> None:
    params = PrivateParams({"a": "1"})
    assert params.merged({"b": "2"}) == PrivateParams({"a": "1", "b": "2"})
    assert params.merged(PrivateParams({"a": "3"})).reveal() == {"a": "3"}
    assert params != PrivateParams({"a": "2"})
    assert params != {"a": "1"}
