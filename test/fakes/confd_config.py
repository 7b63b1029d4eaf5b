"""A small configuration with everything that RConfD can be asked about."""

from __future__ import annotations

import json
from typing import Any

from fakes.large_config import large_config, uuid_of

NODES = [uuid_of("node", number) for number in range(1, 6)]
WEB, DB = uuid_of("instance", 0), uuid_of("instance", 1)
WEB_DISK, DB_DISK = uuid_of("disk", 0), uuid_of("disk", 1)


def nic(number: int, ip: str | None, link: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"mac": f"aa:00:00:01:00:{number:02x}", "uuid": uuid_of("nic", number)}
    found["nicparams"] = {} if link is None else {"link": link}
    return found if ip is None else {**found, "ip": ip}


def confd_config() -> dict[str, Any]:
    """Return the configuration: five nodes of all roles, two instances.

    web runs on node1, its disk is a file; db runs on node2 and is mirrored to node1.
    """
    config = large_config(2, nodes=5, candidates=2)
    nodes = config["nodes"]
    nodes[NODES[2]]["offline"] = True
    nodes[NODES[3]]["drained"] = True
    for number, uuid in enumerate(NODES, 1):
        nodes[uuid].update(primary_ip=f"192.0.2.{number}", serial_no=10 + number)
    cluster = config["cluster"]
    config["serial_no"] = 42
    cluster.update(serial_no=7, master_ip="192.0.2.254", cluster_name="cluster.example.com")
    cluster["nicparams"] = {"default": {"mode": "bridged", "link": "br0", "vlan": ""}}
    cluster["enabled_hypervisors"] = ["kvm"]
    cluster["data_collectors"] = {
        "drbd": {"active": True, "interval": 5000000},
        "inst-status-xen": {"active": True, "interval": 1},
        "lv": {"active": False, "interval": 7},
    }
    web, db = config["instances"][WEB], config["instances"][DB]
    web.update(name="web.example.com", serial_no=5, primary_node=NODES[0])
    web["nics"] = [nic(1, "198.51.100.1"), nic(2, "198.51.100.1", "br1"), nic(3, None)]
    db.update(name="db.example.com", serial_no=6, primary_node=NODES[1])
    db["nics"] = [nic(4, "198.51.100.2"), nic(5, "2001:db8::2")]
    mirror = config["disks"][DB_DISK]
    mirror.update(
        dev_type="drbd",
        logical_id=[NODES[1], NODES[0], 11000, 3, 7, "secret"],
        nodes=[NODES[1], NODES[0]],
    )
    return config


def mirrored_config(count: int) -> dict[str, Any]:
    """Return the configuration with so many disks of one instance, mirrored on the first node."""
    config = confd_config()
    mirror = config["disks"].pop(DB_DISK)
    disks = []
    for number in range(count):
        disk = uuid_of("disk", 1000 + number)
        logical_id = [NODES[1], NODES[0], 11000 + number, number, number, "secret"]
        config["disks"][disk] = {**mirror, "uuid": disk, "logical_id": logical_id}
        disks.append(disk)
    config["instances"][DB]["disks"] = disks
    return config


def encoded(config: dict[str, Any]) -> bytes:
    return json.dumps(config, separators=(",", ":")).encode()
