"""An instance as node daemons get it: two disks, two network interfaces, all parameters filled."""

import copy
from typing import Any

UUID = "d57ad28d-8ef1-47df-9747-d09279cc8352"
PRIMARY = "1cff4dc5-4185-45b7-9db8-c54a78a490ef"
SECONDARY = "0d8ddf50-e1d2-42dc-bfb4-ee8748d8db54"

_DISK: dict[str, Any] = {
    "dev_type": "file",
    "children": [],
    "nodes": [PRIMARY],
    "mode": "rw",
    "params": {},
    "dynamic_params": {},
    "serial_no": 1,
}

_NETWORK: dict[str, Any] = {
    "name": "net1",
    "network": "10.9.0.0/28",
    "gateway": "10.9.0.1",
    "mac_prefix": "aa:00:01",
    "uuid": "45fbaa90-f4da-4de8-93e4-78e1958d9f98",
    "serial_no": 1,
    "tags": ["a", "b"],
}

_INSTANCE: dict[str, Any] = {
    "name": "inst1.example.com",
    "primary_node": PRIMARY,
    "secondary_nodes": [SECONDARY],
    "os": "noop+big",
    "hypervisor": "fake",
    "hvparams": {"disk_type": "paravirtual", "nic_type": "e1000", "acpi": True, "boot_order": None},
    "beparams": {
        "minmem": 128,
        "maxmem": 256,
        "vcpus": 2,
        "auto_balance": True,
        "always_failover": False,
        "spindle_use": 1,
    },
    "osparams": {"root-size": "2g", "password": "geheim"},
    "osparams_private": {},
    "admin_state": "up",
    "admin_state_source": "admin",
    "nics": [
        {
            "mac": "aa:00:00:3d:30:80",
            "ip": "10.9.0.2",
            "nicparams": {"mode": "bridged", "link": "br0", "vlan": ""},
            "network": _NETWORK["uuid"],
            "netinfo": _NETWORK,
            "uuid": "a8ea3c51-895c-49a4-ba49-3cf1863fbc41",
        },
        {
            "mac": "aa:00:00:3d:30:81",
            "name": "mgmt",
            "nicparams": {"mode": "routed", "link": "100", "vlan": ""},
            "uuid": "b8ea3c51-895c-49a4-ba49-3cf1863fbc42",
        },
    ],
    "disks": ["ee8b6d3b-9c9e-48f4-9373-1b4a3fd556cd", "ee8b6d3b-9c9e-48f4-9373-1b4a3fd556ce"],
    "disks_info": [
        _DISK
        | {
            "logical_id": ["loop", "/srv/ganeti/file-storage/inst1/disk0"],
            "iv_name": "disk/0",
            "size": 4,
            "uuid": "ee8b6d3b-9c9e-48f4-9373-1b4a3fd556cd",
        },
        _DISK
        | {
            "logical_id": ["loop", "/srv/ganeti/file-storage/inst1/disk1"],
            "iv_name": "disk/1",
            "size": 8,
            "mode": "ro",
            "name": "data",
            "uuid": "ee8b6d3b-9c9e-48f4-9373-1b4a3fd556ce",
        },
    ],
    "disk_template": "file",
    "disks_active": True,
    "uuid": UUID,
    "ctime": 1795236758.5,
    "mtime": 1795236765.25,
    "serial_no": 4,
    "tags": [],
}


def rpc_instance(**changes: Any) -> dict[str, Any]:
    """Return the instance as JSON value, with some fields changed."""
    return {**copy.deepcopy(_INSTANCE), **changes}
