"""Every question and its answer."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from fakes.confd_config import (
    DB,
    DB_DISK,
    NODES,
    WEB,
    WEB_DISK,
    confd_config,
    encoded,
    mirrored_config,
)

from ganeti.config.config_data import split_config
from ganeti.config.tables import Tables
from ganeti.protocol.confd import ErrorKind
from ganeti.protocol.confd_queries import QueryType, decode_question
from ganeti.rconfd.answers import HANDLERS, Refused

CONFIG = confd_config()
SERIAL = CONFIG["serial_no"]
FACTS = Tables(split_config(encoded(CONFIG)))
INSTANCES, NICPARAMS = CONFIG["instances"], CONFIG["cluster"]["nicparams"]["default"]
PAGED = (QueryType.OFFLINE_NODES, QueryType.INSTANCE_LIST, QueryType.INSTANCE_PRIMARY_NODES)
UNKNOWN, INTERNAL, ARGUMENT = ErrorKind.UNKNOWN_ENTRY, ErrorKind.INTERNAL, ErrorKind.ARGUMENT


def find(kind: QueryType, question: object, facts: Tables = FACTS) -> bytes:
    return HANDLERS[kind](facts, decode_question(msgspec.json.encode(question)))


def value(kind: QueryType, question: object, facts: Tables = FACTS) -> Any:
    return json.loads(find(kind, question, facts))


def changed(**cluster: object) -> Tables:
    return Tables(split_config(encoded({**CONFIG, "cluster": {**CONFIG["cluster"], **cluster}})))


@pytest.mark.shows(
    "backend/cluster-node/roles",
    "backend/confd/questions",
    "2.1/confd/serial",
    "2.1/confd/candidates-list",
    "2.1/confd/master-node",
    "2.1/confd-wire/query-missing",
    "2.1/confd-wire/query-text",
    "2.1/confd-wire/query-dictionary",
    "2.1/confd-wire/answer-role",
    "2.1/confd-wire/answer-address",
)
@pytest.mark.parametrize(
    ("kind", "question", "answer"),
    [
        (QueryType.PING, None, 3000000),
        (QueryType.NODE_ROLE, "node1.example.com", 0),
        (QueryType.NODE_ROLE, "node2.example.com", 1),
        (QueryType.NODE_ROLE, "node3.example.com", 2),
        (QueryType.NODE_ROLE, "node4.example.com", 3),
        (QueryType.NODE_ROLE, "node5.example.com", 4),
        (QueryType.NODE_ROLE, "node5", 4),
        (QueryType.NODE_ROLE, NODES[4], 4),
        (QueryType.NODE_PIP_BY_INSTANCE_IP, {"1": "198.51.100.1"}, "192.0.2.1"),
        (QueryType.NODE_PIP_BY_INSTANCE_IP, {"1": "198.51.100.2", "0": "br0"}, "192.0.2.2"),
        (QueryType.NODE_PIP_BY_INSTANCE_IP, {"1": "2001:db8::2", "2": None}, "192.0.2.2"),
        (QueryType.NODE_PIP_BY_INSTANCE_IP, {"1": "198.51.100.1", "0": "br1"}, "192.0.2.1"),
        (
            QueryType.NODE_PIP_BY_INSTANCE_IP,
            {"2": ["198.51.100.2", "x", "198.51.100.1"]},
            [[0, "192.0.2.2", SERIAL], [1, 0, SERIAL], [0, "192.0.2.1", SERIAL]],
        ),
        (QueryType.NODE_PIP_BY_INSTANCE_IP, {"2": [], "0": "nosuch"}, []),
        (QueryType.CLUSTER_MASTER, None, "node1.example.com"),
        (QueryType.CLUSTER_MASTER, {"3": [2, 0, 1]}, None),
        (QueryType.CLUSTER_MASTER, {"3": [0]}, ["node1.example.com"]),
        (QueryType.CLUSTER_MASTER, {}, []),
        (QueryType.NODE_PIP_LIST, None, [f"192.0.2.{number}" for number in range(1, 6)]),
        (QueryType.NODE_PIP_LIST, "ignored", [f"192.0.2.{number}" for number in range(1, 6)]),
        (QueryType.MC_PIP_LIST, None, ["192.0.2.1", "192.0.2.2"]),
        (QueryType.INSTANCES_IPS_LIST, None, ["198.51.100.1", "198.51.100.2", "2001:db8::2"]),
        (QueryType.INSTANCES_IPS_LIST, "br1", ["198.51.100.1"]),
        (QueryType.INSTANCES_IPS_LIST, "nosuch", []),
        (QueryType.CONFIG_QUERY, "/cluster/cluster_name", "cluster.example.com"),
        (QueryType.CONFIG_QUERY, "/cluster/nicparams/default/link", "br0"),
        (QueryType.CONFIG_QUERY, "/cluster/enabled_hypervisors/0", "kvm"),
        (QueryType.CONFIG_QUERY, f"/nodes/{NODES[2]}/offline", True),
        (QueryType.CONFIG_QUERY, "/version", CONFIG["version"]),
        (QueryType.CONFIG_QUERY, "/networks", {}),
        (QueryType.CONFIG_QUERY, "/instances", CONFIG["instances"]),
        (QueryType.CONFIG_QUERY, "/cluster", CONFIG["cluster"]),
        (QueryType.CONFIG_PART, "/instances/0", [list(map(list, INSTANCES.items())), None]),
        (QueryType.CONFIG_PART, "/instances/1", [[list(list(INSTANCES.items())[1])], None]),
        (QueryType.CONFIG_PART, f"/instances/{WEB}/nics/2", [INSTANCES[WEB]["nics"][2:], None]),
        (QueryType.CONFIG_PART, "/cluster/nicparams/0", [[["default", NICPARAMS]], None]),
    ],
)
def test_answers(kind: QueryType, question: object, answer: object) -> None:
    expected = ["192.0.2.1", "node1.example.com", "192.0.2.254"] if answer is None else answer
    assert value(kind, question) == expected


ALL_OFFLINE = ["node3.example.com", "node10.example.com"]
ALL_INSTANCES = ["db.example.com", "web.example.com"]


def with_two_offline() -> Tables:
    config = confd_config()
    config["nodes"][NODES[1]].update(name="node10.example.com", offline=True)
    return Tables(split_config(encoded(config)))


@pytest.mark.shows("2.1/confd/offline-nodes", "2.1/confd/instance-list", "2.1/confd/primary-nodes")
@pytest.mark.parametrize(
    ("kind", "entries"),
    [
        (QueryType.OFFLINE_NODES, ALL_OFFLINE),
        (QueryType.INSTANCE_LIST, ALL_INSTANCES),
        (
            QueryType.INSTANCE_PRIMARY_NODES,
            [["db.example.com", "node10.example.com"], ["web.example.com", "node1.example.com"]],
        ),
    ],
)
def test_lists_in_pages(kind: QueryType, entries: list[object]) -> None:
    """In natural order of names, from any entry on."""
    facts = with_two_offline()
    assert value(kind, None, facts) == [entries, None]
    for first in (0, 1, 2, 7):
        assert value(kind, f"/{first}", facts) == [entries[first:], None]


def test_a_primary_node_that_is_not_there_is_named_by_its_uuid() -> None:
    config = confd_config()
    config["instances"][WEB]["primary_node"] = "nosuch"
    facts = Tables(split_config(encoded(config)))
    assert value(QueryType.INSTANCE_PRIMARY_NODES, "/1", facts)[0] == [
        ["web.example.com", "nosuch"]
    ]


@pytest.mark.shows("2.0/minors/known")
def test_drbd_devices_of_a_node() -> None:
    row = ["node2.example.com", 3, "db.example.com", "disk/0", "primary", "node1.example.com"]
    assert value(QueryType.NODE_DRBD, "node2.example.com") == [row]
    row = ["node1.example.com", 7, "db.example.com", "disk/0", "secondary", "node2.example.com"]
    assert value(QueryType.NODE_DRBD, NODES[0]) == [row]
    assert value(QueryType.NODE_DRBD, "node5.example.com") == []


def test_drbd_devices_are_listed_from_one_on() -> None:
    facts = Tables(split_config(encoded(mirrored_config(3))))
    rows = value(QueryType.NODE_DRBD, NODES[0], facts)
    assert value(QueryType.NODE_DRBD_PART, NODES[0], facts) == [rows, None]
    assert value(QueryType.NODE_DRBD_PART, "node1.example.com/2", facts) == [rows[2:], None]
    assert value(QueryType.NODE_DRBD_PART, "node1.example.com/9999", facts) == [[], None]


@pytest.mark.shows("backend/primary/of-node")
def test_instances_of_a_node() -> None:
    instances = CONFIG["instances"]
    assert value(QueryType.NODE_INSTANCES, "node1.example.com") == [
        [instances[WEB]],
        [instances[DB]],
    ]
    assert value(QueryType.NODE_INSTANCES, NODES[1]) == [[instances[DB]], []]
    assert value(QueryType.NODE_INSTANCES, NODES[4]) == [[], []]


def test_serial_numbers_of_instances() -> None:
    assert value(QueryType.NODE_INSTANCE_SERIALS, "node1.example.com") == [[[WEB, 5]], [[DB, 6]]]


def test_disks_of_an_instance() -> None:
    assert value(QueryType.INSTANCE_DISKS, "db.example.com") == [CONFIG["disks"][DB_DISK]]
    for name in ("web.example.com", "web", WEB):
        assert value(QueryType.INSTANCE_DISKS, name) == [CONFIG["disks"][WEB_DISK]]


def test_collectors_for_xen_are_off_without_xen() -> None:
    expected = {
        "drbd": {"active": True, "interval": 5000000},
        "inst-status-xen": {"active": False, "interval": 1},
        "lv": {"active": False, "interval": 7},
    }
    assert value(QueryType.DATA_COLLECTORS, None) == expected
    expected["inst-status-xen"]["active"] = True
    with_xen = changed(enabled_hypervisors=["kvm", "xen-pvm"])
    assert value(QueryType.DATA_COLLECTORS, None, with_xen) == expected


def test_pointers_have_escapes() -> None:
    facts = changed(osparams={"a/b": {"~1": 5}})
    assert value(QueryType.CONFIG_QUERY, "/cluster/osparams/a~1b/~01", facts) == 5


@pytest.mark.shows("2.1/confd-wire/query-dictionary")
@pytest.mark.parametrize(
    ("kind", "question", "error"),
    [
        (QueryType.NODE_ROLE, "nosuch", UNKNOWN),
        (QueryType.NODE_ROLE, "", UNKNOWN),
        (QueryType.NODE_ROLE, "web.example.com", UNKNOWN),
        (QueryType.NODE_ROLE, None, ARGUMENT),
        (QueryType.NODE_ROLE, {"1": "x"}, ARGUMENT),
        (QueryType.NODE_PIP_BY_INSTANCE_IP, None, ARGUMENT),
        (QueryType.NODE_PIP_BY_INSTANCE_IP, "198.51.100.1", ARGUMENT),
        (QueryType.NODE_PIP_BY_INSTANCE_IP, {}, ARGUMENT),
        (QueryType.NODE_PIP_BY_INSTANCE_IP, {"1": "198.51.100.1", "2": []}, ARGUMENT),
        (QueryType.NODE_PIP_BY_INSTANCE_IP, {"1": "198.51.100.9"}, UNKNOWN),
        (QueryType.NODE_PIP_BY_INSTANCE_IP, {"1": "198.51.100.2", "0": "br1"}, UNKNOWN),
        (QueryType.CLUSTER_MASTER, "name", ARGUMENT),
        (QueryType.INSTANCES_IPS_LIST, {"0": "br0"}, ARGUMENT),
        (QueryType.NODE_DRBD, "nosuch", UNKNOWN),
        (QueryType.NODE_INSTANCES, None, ARGUMENT),
        (QueryType.NODE_INSTANCE_SERIALS, "web", UNKNOWN),
        (QueryType.NODE_INSTANCE_SERIALS, None, ARGUMENT),
        (QueryType.NODE_DRBD_PART, "nosuch/0", UNKNOWN),
        (QueryType.NODE_DRBD_PART, "node1/x", ARGUMENT),
        (QueryType.NODE_DRBD_PART, "node1/", ARGUMENT),
        *((kind, "/x", ARGUMENT) for kind in PAGED),
        *((kind, "/", ARGUMENT) for kind in PAGED),
        *((kind, "/-1", ARGUMENT) for kind in PAGED),
        *((kind, {}, ARGUMENT) for kind in PAGED),
        *((kind, "web/0", ARGUMENT) for kind in PAGED),
        *((kind, "web", ARGUMENT) for kind in PAGED),
        (QueryType.CONFIG_PART, None, ARGUMENT),
        (QueryType.CONFIG_PART, "/0", ARGUMENT),
        (QueryType.CONFIG_PART, "/instances", ARGUMENT),
        (QueryType.CONFIG_PART, "/instances/", ARGUMENT),
        (QueryType.CONFIG_PART, "/nosuch/0", ARGUMENT),
        (QueryType.CONFIG_PART, "/cluster/cluster_name/0", ARGUMENT),
        (QueryType.INSTANCE_DISKS, "node1", UNKNOWN),
        (QueryType.INSTANCE_DISKS, {}, ARGUMENT),
        (QueryType.CONFIG_QUERY, None, ARGUMENT),
        (QueryType.CONFIG_QUERY, "", ARGUMENT),
        (QueryType.CONFIG_QUERY, "/", ARGUMENT),
        (QueryType.CONFIG_QUERY, "cluster", ARGUMENT),
        (QueryType.CONFIG_QUERY, "/nosuch", ARGUMENT),
        (QueryType.CONFIG_QUERY, "/nodes/nosuch", ARGUMENT),
        (QueryType.CONFIG_QUERY, f"/nodes/{NODES[0]}/name/x", ARGUMENT),
        (QueryType.CONFIG_QUERY, "/cluster/", ARGUMENT),
        (QueryType.CONFIG_QUERY, "/cluster/enabled_hypervisors/1", ARGUMENT),
        (QueryType.CONFIG_QUERY, "/cluster/enabled_hypervisors/-1", ARGUMENT),
        (QueryType.CONFIG_QUERY, "/cluster/enabled_hypervisors/x", ARGUMENT),
        (QueryType.CONFIG_QUERY, "/cluster/enabled_hypervisors/" + "9" * 5000, ARGUMENT),
    ],
)
def test_refusals(kind: QueryType, question: object, error: ErrorKind) -> None:
    with pytest.raises(Refused) as caught:
        find(kind, question)
    assert caught.value.kind is error


def test_a_master_that_is_no_node_is_an_error_of_ours() -> None:
    with pytest.raises(Refused) as caught:
        find(QueryType.CLUSTER_MASTER, None, changed(master_node="nosuch"))
    assert caught.value.kind is INTERNAL


def test_short_names_must_fit_only_one() -> None:
    config = confd_config()
    config["nodes"][NODES[3]]["name"] = "node5.example.org"
    facts = Tables(split_config(encoded(config)))
    with pytest.raises(Refused):
        find(QueryType.NODE_ROLE, "node5", facts)
    assert value(QueryType.NODE_ROLE, "node5.example.org", facts) == 3
