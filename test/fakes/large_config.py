"""Configurations of any size, valid ones."""

from __future__ import annotations

import copy
import json
import re
import uuid
from typing import Any

from fakes.sample_config import CONFIG

MASTER = "node1.example.com"


def uuid_of(kind: str, number: int) -> str:
    """Return the same UUID each time for one object."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{kind}/{number}"))


def mac_of(number: int) -> str:
    return f"aa:00:00:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"


def node(number: int, group: str, *, candidate: bool = False) -> dict[str, Any]:
    address = f"127.9.{number // 250}.{number % 250 + 1}"
    return {
        "name": f"node{number}.example.com",
        "primary_ip": address,
        "secondary_ip": address,
        "master_candidate": candidate,
        "offline": False,
        "drained": False,
        "group": group,
        "master_capable": True,
        "vm_capable": True,
        "ndparams": {},
        "powered": True,
        "ctime": 1700000000.25,
        "mtime": 1700000000.25,
        "uuid": uuid_of("node", number),
        "serial_no": 1,
        "tags": [],
    }


def disk(number: int, node_uuid: str) -> dict[str, Any]:
    return {
        "logical_id": ["loop", f"/srv/ganeti/file-storage/inst{number}/{number}.file.disk0"],
        "dev_type": "file",
        "children": [],
        "nodes": [node_uuid],
        "iv_name": "disk/0",
        "size": 1024,
        "mode": "rw",
        "params": {},
        "uuid": uuid_of("disk", number),
        "serial_no": 1,
        "ctime": 1700000000.5,
        "mtime": 1700000000.5,
    }


def instance(number: int, node_uuid: str, disks: list[str]) -> dict[str, Any]:
    return {
        "name": f"inst{number}.example.com",
        "primary_node": node_uuid,
        "os": "noop",
        "hypervisor": "fake",
        "hvparams": {},
        "beparams": {"maxmem": 512, "minmem": 512, "vcpus": 2},
        "osparams": {},
        "osparams_private": {},
        "admin_state": "up",
        "admin_state_source": "admin",
        "nics": [{"mac": mac_of(number), "nicparams": {}, "uuid": uuid_of("nic", number)}],
        "disks": disks,
        "disks_active": True,
        "uuid": uuid_of("instance", number),
        "serial_no": 1,
        "ctime": 1700000000.75,
        "mtime": 1700000000.75,
        "tags": [],
    }


def large_config(instances: int, nodes: int = 3, candidates: int = 1) -> dict[str, Any]:
    """Return a configuration whose master is `MASTER`; its instances are spread over all nodes."""
    config = copy.deepcopy(CONFIG)
    group = uuid_of("group", 0)
    template = next(iter(config["nodegroups"].values()))
    made = {**template, "name": "default", "uuid": group, "networks": {}}
    config["nodegroups"] = {group: made}
    all_nodes = [
        node(number, group, candidate=number <= candidates) for number in range(1, nodes + 1)
    ]
    config["nodes"] = {item["uuid"]: item for item in all_nodes}
    config["networks"] = {}
    config["filters"] = {}
    config["disks"] = {}
    config["instances"] = {}
    for number in range(instances):
        where = all_nodes[number % nodes]["uuid"]
        one = disk(number, where)
        config["disks"][one["uuid"]] = one
        config["instances"][uuid_of("instance", number)] = instance(number, where, [one["uuid"]])
    cluster = config["cluster"]
    cluster["master_node"] = uuid_of("node", 1)
    cluster["candidate_certs"] = {}
    cluster["candidate_pool_size"] = candidates
    cluster["tcpudp_port_pool"] = []
    cluster["tags"] = []
    return config


def large_config_bytes(instances: int, nodes: int = 3, candidates: int = 1) -> bytes:
    return json.dumps(large_config(instances, nodes, candidates), separators=(",", ":")).encode()


def other_config(instances: int = 2, nodes: int = 2) -> dict[str, Any]:
    """Another cluster: other names, addresses and UUIDs, and the same settings."""
    text = json.dumps(large_config(instances, nodes))
    for kind, count in {"node": nodes + 1, "instance": instances, "disk": instances}.items():
        for number in range(count):
            text = text.replace(uuid_of(kind, number), uuid_of(f"other-{kind}", number))
    for number in range(instances):
        text = text.replace(uuid_of("nic", number), uuid_of("other-nic", number))
    text = text.replace(uuid_of("group", 0), uuid_of("other-group", 0))
    text = re.sub(r"\bnode(\d+)\.example", r"peer\1.example", text)
    text = re.sub(r"\binst(\d+)\.example", r"guest\1.example", text)
    text = text.replace("127.9.", "127.8.").replace("aa:00:00", "aa:11:11")
    found: dict[str, Any] = json.loads(text)
    found["cluster"].update(uuid="other-cluster", cluster_name="other.example.com")
    return found
