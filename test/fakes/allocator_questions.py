"""Questions to an allocator, made up: small clusters with whatever a test wants in them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from ganeti.base.json import dumps
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.protocol.iallocator import AllocatorRequest, decode_request

Json = dict[str, Any]

SMALLEST = {
    "memory-size": 4,
    "disk-size": 0,
    "disk-count": 0,
    "cpu-count": 1,
    "nic-count": 0,
    "spindle-use": 0,
}
LARGEST = {
    "memory-size": 32768,
    "disk-size": 1048576,
    "disk-count": 16,
    "cpu-count": 8,
    "nic-count": 8,
    "spindle-use": 12,
}
NDPARAMS = {
    "cpu_speed": 1,
    "exclusive_storage": False,
    "oob_program": "",
    "ovs": False,
    "ovs_link": "",
    "ovs_name": "switch1",
    "spindle_count": 1,
    "ssh_port": 22,
}
DYNAMIC = ("total_", "free_", "reserved_", "i_pri_")


# Examples of the modes that 3.0 does not have, beside those in data/model/iallocator.json.
OWN_EXAMPLES: dict[str, Json] = {
    "balance": {
        "request": {"type": "balance", "groups": [], "moves_max": 3},
        "response": {
            "success": True,
            "info": "text",
            "result": [
                [["inst1", "default", ["node2"]]],
                [],
                [
                    [
                        {
                            "OP_ID": "OP_INSTANCE_MIGRATE",
                            "instance_name": "inst1",
                            "target_node": "node2",
                        }
                    ]
                ],
            ],
        },
    },
    "capacity": {
        "request": {
            "type": "capacity",
            "name": "more",
            "memory": 128,
            "vcpus": 1,
            "spindle_use": 1,
            "disks": [{"size": 1024, "mode": "rw", "dev_type": "file"}],
            "disk_space_total": 1024,
            "disk_template": "file",
            "group_name": None,
            "os": "debian",
            "tags": [],
            "nics": [],
            "required_nodes": 1,
            "hypervisor": "fake",
            "count_max": 2,
        },
        "response": {"success": True, "info": "text", "result": [["node1"], ["node2"]]},
    },
}


def ipolicy(**changes: object) -> Json:
    policy = {
        "minmax": [{"min": SMALLEST, "max": LARGEST}],
        "std": {**SMALLEST, "memory-size": 128},
        "spindle-ratio": 32,
        "vcpu-ratio": 4,
        "disk-templates": [template.value for template in DiskTemplate],
    }
    return policy | {name.replace("_", "-"): value for name, value in changes.items()}


def group(name: str = "default", **changes: object) -> Json:
    found: Json = {
        "name": name,
        "alloc_policy": "preferred",
        "networks": [],
        "ipolicy": ipolicy(),
        "tags": [],
    }
    return found | changes


def node(**changes: Any) -> Json:
    """A node with 10,000 MiB of memory and 100,000 of disk, all free unless said otherwise."""
    found: Json = {
        "total_memory": 10000,
        "reserved_memory": 0,
        "total_disk": 100000,
        "total_spindles": 0,
        "free_spindles": 0,
        "total_cpus": 8,
        "reserved_cpus": 0,
        "i_pri_memory": 0,
        "i_pri_up_memory": 0,
        "tags": [],
        "primary_ip": "192.0.2.1",
        "secondary_ip": "192.0.2.1",
        "offline": False,
        "drained": False,
        "master_candidate": True,
        "group": "g1",
        "master_capable": True,
        "vm_capable": True,
        "ndparams": NDPARAMS | {name: changes.pop(name) for name in NDPARAMS if name in changes},
    }
    found |= changes
    found.setdefault("free_memory", found["total_memory"])
    found.setdefault("free_disk", found["total_disk"])
    if found["offline"] or not found["vm_capable"]:
        return {name: value for name, value in found.items() if not name.startswith(DYNAMIC)}
    return found


def _specification(template: str, memory: int, disk: int, changes: Mapping[str, Any]) -> Json:
    disks = [] if template == "diskless" else [{"dev_type": template, "size": disk, "mode": "rw"}]
    metadata = 128 if template == "drbd" else 0
    return {
        "tags": [],
        "vcpus": 1,
        "memory": memory,
        "spindle_use": 1,
        "os": "noop",
        "nics": [],
        "disks": disks,
        "disk_template": template,
        "hypervisor": "fake",
        "disk_space_total": sum(each["size"] + metadata for each in disks),
    } | dict(changes)


def instance(
    nodes: Iterable[str],
    template: str = "drbd",
    memory: int = 1000,
    disk: int = 1000,
    **changes: Any,
) -> Json:
    found = _specification(template, memory, disk, changes)
    return {"admin_state": "up", "disks_active": True, "nodes": list(nodes)} | found


def new(
    name: str = "new", template: str = "drbd", memory: int = 1000, disk: int = 1000, **changes: Any
) -> Json:
    """A wish for a place for a new instance, in mode allocate."""
    found = _specification(template, memory, disk, changes)
    needed = {"name": name, "group_name": None, "required_nodes": 1 + (template == "drbd")}
    return {"type": "allocate"} | found | needed | changes


def several(*wishes: Json) -> Json:
    rows = [{name: value for name, value in wish.items() if name != "type"} for wish in wishes]
    return {"type": "multi-allocate", "instances": rows}


def question(
    request: Json,
    nodes: Mapping[str, Json],
    instances: Mapping[str, Json] | None = None,
    groups: Mapping[str, Json] | None = None,
    **changes: Any,
) -> Json:
    return {
        "version": 2,
        "cluster_name": "cluster",
        "cluster_tags": [],
        "enabled_hypervisors": ["fake"],
        "ipolicy": ipolicy(),
        "nodegroups": groups or {"g1": group()},
        "nodes": nodes,
        "instances": instances or {},
        "request": request,
    } | changes


def decoded(content: Json) -> AllocatorRequest:
    return decode_request(dumps(content))


class Draw:
    """Random clusters in which what nodes have free is what their instances leave."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def cluster(
        self,
        node_count: int,
        instance_count: int,
        templates: Iterable[str] = ("drbd", "plain", "ext", "sharedfile", "diskless"),
        *,
        states: tuple[str, ...] = ("up",),
        tags: tuple[str, ...] = (),
        odd: float = 0.0,
        memory: tuple[int, ...] = (8000, 16000, 32000),
    ) -> tuple[dict[str, Json], dict[str, Json]]:
        """Return nodes and instances; ``odd`` is how likely a node is offline or drained."""
        draw = self.random
        names = [f"node{number}" for number in range(1, node_count + 1)]
        totals = {name: draw.choice(memory) for name in names}
        free = dict(totals)
        space = dict.fromkeys(names, 100000)
        instances: dict[str, Json] = {}
        for number in range(instance_count):
            template = draw.choice(list(templates))
            size, disk = draw.choice((500, 1000, 2000, 4000)), draw.choice((1000, 5000, 20000))
            where = draw.sample(names, 2 if template == "drbd" and node_count > 1 else 1)
            if template == "drbd" and len(where) < 2:
                continue
            made = instance(
                where,
                template,
                size,
                disk,
                vcpus=draw.randint(1, 4),
                admin_state=draw.choice(states),
                tags=draw.sample(tags, draw.randint(0, min(2, len(tags)))),
            )
            takes = made["disk_space_total"] if template in ("drbd", "plain", "file") else 0
            if free[where[0]] <= size or any(space[name] <= takes for name in where):
                continue
            if made["admin_state"] == "up":
                free[where[0]] -= size
            for name in where:
                space[name] -= takes
            instances[f"inst{number}"] = made
        nodes = {}
        for name in names:
            flag = draw.choice(("offline", "drained")) if draw.random() < odd else None
            nodes[name] = node(
                total_memory=totals[name],
                free_memory=free[name],
                free_disk=space[name],
                total_cpus=draw.choice((4, 8, 16)),
                **({flag: True} if flag else {}),
            )
        return nodes, instances

    def wish(self, templates: Iterable[str] = ("drbd", "plain", "ext", "diskless")) -> Json:
        draw = self.random
        return new(
            template=draw.choice(list(templates)),
            memory=draw.choice((500, 1000, 3000, 6000)),
            disk=draw.choice((1000, 10000, 60000)),
            vcpus=draw.randint(1, 6),
        )
