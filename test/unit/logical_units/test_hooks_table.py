"""Every opcode with hooks tells its scripts what the specification says, on the nodes it names.

Source: hooks_os_ext.json, "per_opcode".
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster

from ganeti.logical_units.processor import all_units

NAME = "web1.example.com"
INSTANCE_ENV = (
    "OP_TARGET INSTANCE_NAME INSTANCE_PRIMARY INSTANCE_SECONDARIES INSTANCE_OS_TYPE"
    " INSTANCE_STATUS INSTANCE_MINMEM INSTANCE_MAXMEM INSTANCE_MEMORY INSTANCE_VCPUS"
    " INSTANCE_DISK_TEMPLATE INSTANCE_HYPERVISOR INSTANCE_TAGS INSTANCE_NIC_COUNT"
    " INSTANCE_DISK_COUNT INSTANCE_BE_vcpus INSTANCE_NIC0_MAC INSTANCE_DISK0_SIZE"
)
NETWORK_ENV = (
    "NETWORK_NAME NETWORK_TAGS NETWORK_SUBNET NETWORK_GATEWAY NETWORK_SUBNET6 NETWORK_GATEWAY6"
    " NETWORK_MAC_PREFIX"
)
LINK_ENV = "GROUP_NAME GROUP_NETWORK_LINK GROUP_NETWORK_MODE GROUP_NETWORK_VLAN"
NETWORK = {
    "network_name": "net1",
    "network": "192.0.2.0/28",
    "gateway": "192.0.2.1",
    "network6": "2001:db8::/64",
    "gateway6": "2001:db8::1",
    "mac_prefix": "aa:bb:00",
}
LINK = {"network_name": "net1", "group_name": "default"}
CONNECT = {**LINK, "network_mode": "bridged", "network_link": "br0", "network_vlan": ""}


@dataclass(frozen=True)
class Row:
    """An operation on a cluster of three nodes: node 1 is the master, node 2 has the instance."""

    op_id: str
    own: str
    pre: str
    post: str
    params: dict[str, Any] = field(default_factory=dict)
    instance: str = ""  # what state it is in; "" without one
    before: tuple[tuple[str, dict[str, Any]], ...] = ()

    def __str__(self) -> str:
        return self.op_id


def of_instance(op_id: str, own: str, pre: str, post: str, state: str, **params: Any) -> Row:
    """A row for an operation on the instance."""
    return Row(op_id, f"{own} {INSTANCE_ENV}", pre, post, {"instance_name": NAME, **params}, state)


MIGRATE_ENV = "ALLOW_RUNTIME_CHANGES MIGRATE_CLEANUP MIGRATE_LIVE NEW_PRIMARY NEW_SECONDARY"
OLD_ENV = "OLD_PRIMARY OLD_SECONDARY"
EXPORT_ENV = "EXPORT_DO_SHUTDOWN EXPORT_MODE EXPORT_NODE REMOVE_INSTANCE SHUTDOWN_TIMEOUT"
NODE_ENV = "MASTER_CAPABLE NODE_NAME NODE_PIP NODE_SIP OP_TARGET VM_CAPABLE"
ROWS = (
    of_instance("OP_BACKUP_EXPORT", EXPORT_ENV, "123", "123", "up", target_node="node3"),
    Row("OP_CLUSTER_POST_INIT", "OP_TARGET", "", "1"),
    Row("OP_CLUSTER_RENAME", "NEW_NAME OP_TARGET", "1", "123", {"name": "node5.example.com"}),
    Row("OP_CLUSTER_SET_PARAMS", "NEW_VG_NAME OP_TARGET", "1", "1", {"max_running_jobs": 7}),
    Row("OP_CLUSTER_VERIFY_GROUP", "CLUSTER_TAGS NODE_TAGS_node2.example.com", "", "123",
        {"group_name": "default"}),
    Row("OP_GROUP_ADD", "GROUP_NAME", "1", "1", {"group_name": "far"}),
    Row("OP_GROUP_REMOVE", "GROUP_NAME", "1", "1", {"group_name": "far"},
        before=(("OP_GROUP_ADD", {"group_name": "far"}),)),
    Row("OP_GROUP_RENAME", "NEW_NAME OLD_NAME", "123", "123",
        {"group_name": "default", "new_name": "near"}),
    Row("OP_GROUP_SET_PARAMS", "GROUP_NAME NEW_ALLOC_POLICY", "1", "1",
        {"group_name": "default", "alloc_policy": "last_resort"}),
    Row("OP_INSTANCE_CREATE", f"ADD_MODE {INSTANCE_ENV}", "12", "12",
        {"instance_name": NAME, "mode": "create", "disk_template": "sharedfile", "nics": [{}],
         "disks": [{"size": 64}], "os_type": "debian", "pnode": "node2", "name_check": False,
         "ip_check": False}),
    of_instance("OP_INSTANCE_FAILOVER", f"FAILOVER_CLEANUP IGNORE_CONSISTENCY NEW_PRIMARY"
                f" NEW_SECONDARY {OLD_ENV} SHUTDOWN_TIMEOUT", "13", "123", "up",
                target_node="node3"),
    of_instance("OP_INSTANCE_GROW_DISK", "ABSOLUTE AMOUNT DISK", "12", "12", "down", disk=0,
                amount=64),
    of_instance("OP_INSTANCE_MIGRATE", f"{MIGRATE_ENV} {OLD_ENV}", "123", "123", "up",
                target_node="node3"),
    of_instance("OP_INSTANCE_REBOOT", "IGNORE_SECONDARIES REBOOT_TYPE SHUTDOWN_TIMEOUT", "12",
                "12", "up", reboot_type="hard"),
    of_instance("OP_INSTANCE_RECREATE_DISKS", "", "12", "12", "lost"),
    of_instance("OP_INSTANCE_REINSTALL", "", "12", "12", "down"),
    of_instance("OP_INSTANCE_REMOVE", "SHUTDOWN_TIMEOUT", "1", "12", "down"),
    of_instance("OP_INSTANCE_RENAME", "INSTANCE_NEW_NAME", "12", "12", "down",
                new_name="web2.example.com", name_check=False, ip_check=False),
    of_instance("OP_INSTANCE_SET_PARAMS", "", "12", "12", "down", beparams={"vcpus": 2}),
    of_instance("OP_INSTANCE_SHUTDOWN", "TIMEOUT", "12", "12", "up"),
    of_instance("OP_INSTANCE_STARTUP", "FORCE", "12", "12", "down"),
    Row("OP_NETWORK_ADD", NETWORK_ENV, "1", "1", NETWORK),
    Row("OP_NETWORK_CONNECT", LINK_ENV, "123", "123", CONNECT,
        before=(("OP_NETWORK_ADD", NETWORK),)),
    Row("OP_NETWORK_DISCONNECT", LINK_ENV, "123", "123", LINK,
        before=(("OP_NETWORK_ADD", NETWORK), ("OP_NETWORK_CONNECT", CONNECT))),
    Row("OP_NETWORK_REMOVE", "NETWORK_NAME", "1", "1", {"network_name": "net1"},
        before=(("OP_NETWORK_ADD", NETWORK),)),
    Row("OP_NETWORK_SET_PARAMS", NETWORK_ENV, "1", "1",
        {"network_name": "net1", "mac_prefix": "aa:bb:cc"}, before=(("OP_NETWORK_ADD", NETWORK),)),
    # Afterwards on the new node as well, which by then is one like the others.
    Row("OP_NODE_ADD", NODE_ENV, "123", "1234", {"node_name": "node4.example.com"}),
    Row("OP_NODE_MIGRATE", "ALLOW_RUNTIME_CHANGES NODE_NAME", "1", "1",
        {"node_name": "node2", "target_node": "node3"}, "up"),
    Row("OP_NODE_REMOVE", "NODE_NAME OP_TARGET", "12", "12", {"node_name": "node3"}),
    Row("OP_NODE_SET_PARAMS", "DRAINED MASTER_CANDIDATE MASTER_CAPABLE OFFLINE OP_TARGET"
        " VM_CAPABLE", "13", "13", {"node_name": "node3", "drained": True}),
)  # fmt: skip
# These need a scene of their own, see their tests, or are not built.
ELSEWHERE = frozenset(
    {
        "OP_CLUSTER_DESTROY",
        "OP_GROUP_EVACUATE",
        "OP_INSTANCE_CHANGE_GROUP",
        "OP_INSTANCE_MOVE",
        "OP_INSTANCE_REPLACE_DISKS",
        "OP_INSTANCE_SNAPSHOT",
    }
)
HOOK_POINTS = {op_id: unit.hooks for (op_id, _), unit in all_units().items() if unit.hooks}


def test_every_opcode_with_hooks_is_looked_at() -> None:
    assert {row.op_id for row in ROWS} | ELSEWHERE == set(HOOK_POINTS)
    assert len(HOOK_POINTS) == 36


def prepare(cluster: FakeCluster, row: Row) -> None:
    """Bring the cluster to where the operation can be done, with a script for each phase."""
    for op_id, params in row.before:
        cluster.execute(op_id, **params)
    if row.instance:
        cluster.add_instance(pnode="node2", start=row.instance == "up")
    if row.instance == "lost":
        cluster.rpc.shared.clear()
    for phase in ("pre", "post"):
        path = f"{cluster.context.paths.hooks_dir}/{HOOK_POINTS[row.op_id].path}-{phase}.d"
        os.makedirs(path)
        with open(f"{path}/script", "w", encoding="ascii"):
            continue
    cluster.rpc.calls.clear()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_what_the_scripts_are_told_and_where(cluster: FakeCluster, row: Row) -> None:
    prepare(cluster, row)
    cluster.execute(row.op_id, **row.params)
    asked: dict[str, list[str]] = {"pre": [], "post": []}
    for node, (path, phase, env) in cluster.rpc.called("hooks_runner"):
        if path != HOOK_POINTS[row.op_id].path:
            continue  # of another operation, or of the change to the configuration
        asked[phase].append(node.removeprefix("node"))
        assert env["GANETI_OP_CODE"] == row.op_id
        assert env["GANETI_OBJECT_TYPE"] == HOOK_POINTS[row.op_id].object_type.value
        assert env["GANETI_HOOKS_PHASE"] == phase
        assert not {f"GANETI_{name}" for name in row.own.split()} - set(env)
        assert any(name.startswith("GANETI_POST_") for name in env) <= (phase == "post")
    assert {phase: "".join(sorted(nodes)) for phase, nodes in asked.items()} == {
        "pre": row.pre,
        "post": row.post,
    }
