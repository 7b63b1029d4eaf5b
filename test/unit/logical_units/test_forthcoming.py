"""Instances that are planned first and made later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, uuid_of

from ganeti.base.errors import OpExecError, OpPrereqError
from ganeti.base.ids import DiskUuid
from ganeti.logical_units.instance.creation.sources import with_planned_disks
from ganeti.logical_units.processor import execute_opcode
from ganeti.objects.model import Disk
from ganeti.opcodes.registry import decode_opcode

NAME = "web1.example.com"
BARE: dict[str, Any] = {
    "OP_ID": "OP_INSTANCE_CREATE",
    "instance_name": NAME,
    "mode": "create",
    "disks": [],
    "nics": [],
}
WISH: dict[str, Any] = {
    **BARE,
    "disk_template": "file",
    "disks": [{"size": 1024, "name": "root"}, {"size": 2048, "mode": "ro"}],
    "nics": [{"ip": "192.0.2.77"}],
    "os_type": "debian",
    "pnode": "node2",
    "beparams": {"memory": 256, "vcpus": 2},
    "name_check": False,
    "ip_check": False,
    "tags": ["planned"],
}


def run(cluster: FakeCluster, **op: Any) -> object:
    return execute_opcode(cluster.context, decode_opcode(op))


def plan(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    run(cluster, **WISH, **{"forthcoming": True, **more})
    return stored(cluster)


def commit(cluster: FakeCluster, **more: Any) -> object:
    return run(cluster, **{**BARE, "commit": True, **more})


def stored(cluster: FakeCluster) -> dict[str, Any]:
    return dict(cluster.config.instance(NAME))


def disks_of(cluster: FakeCluster) -> list[dict[str, Any]]:
    return [cluster.config.disks[uuid] for uuid in stored(cluster)["disks"]]


def test_a_plan_asks_no_node_and_makes_nothing(cluster: FakeCluster) -> None:
    planned = plan(cluster)
    assert planned["forthcoming"] is True
    assert planned["admin_state"] == "down"
    assert planned["primary_node"] == uuid_of("node2")
    assert planned["nics"][0]["ip"] == "192.0.2.77"
    assert all(disk["forthcoming"] for disk in disks_of(cluster))
    made = {"blockdev_create", "file_storage_dir_create", "instance_os_add", "instance_start"}
    assert not made & set(cluster.rpc.names())
    assert not cluster.rpc.node("node2").disks


def test_what_a_commit_leaves_out_is_as_it_was_planned(cluster: FakeCluster) -> None:
    planned, paths = plan(cluster), [disk["logical_id"] for disk in disks_of(cluster)]
    assert commit(cluster) == ["node2.example.com"]
    made = stored(cluster)
    assert "forthcoming" not in made or made["forthcoming"] is None
    for name in ("uuid", "beparams", "os", "tags", "disks", "hypervisor"):
        assert made[name] == planned[name], name
    assert [nic["mac"] for nic in made["nics"]] == [nic["mac"] for nic in planned["nics"]]
    assert [nic["ip"] for nic in made["nics"]] == ["192.0.2.77"]
    assert made["admin_state"] == "up"
    assert [disk["logical_id"] for disk in disks_of(cluster)] == paths
    assert [disk["mode"] for disk in disks_of(cluster)] == ["rw", "ro"]
    assert not any(disk.get("forthcoming") for disk in disks_of(cluster))
    assert len(cluster.rpc.node("node2").disks) == 2
    assert cluster.rpc.node("node2").running == {NAME: 0}


def test_a_commit_may_wish_otherwise(cluster: FakeCluster) -> None:
    planned = plan(cluster)
    commit(
        cluster,
        pnode="node3",
        disks=[{"size": 512}],
        nics=[{}, {}],
        beparams={"memory": 128},
        start=False,
    )
    made = stored(cluster)
    assert made["uuid"] == planned["uuid"]
    assert made["primary_node"] == uuid_of("node3")
    assert [disk["size"] for disk in disks_of(cluster)] == [512]
    assert len(made["nics"]) == 2
    assert made["beparams"]["maxmem"] == 128
    assert made["beparams"]["vcpus"] == 2
    assert set(planned["disks"]).isdisjoint(cluster.config.disks)
    assert not cluster.rpc.node("node2").disks


def test_a_commit_may_do_without_the_planned_interfaces(cluster: FakeCluster) -> None:
    plan(cluster)
    commit(cluster, no_nics=True)
    assert stored(cluster)["nics"] == []


@pytest.mark.parametrize("step", ["blockdev_create", "instance_os_add", "instance_start"])
def test_a_commit_that_fails_leaves_the_plan(cluster: FakeCluster, step: str) -> None:
    planned = plan(cluster)
    cluster.rpc.fail(step, "node2", "no room")
    with pytest.raises(OpExecError, match="no room"):
        commit(cluster)
    left = stored(cluster)
    assert left["forthcoming"] is True
    assert left["disks"] == planned["disks"]
    assert not left.get("network_port")
    assert all(disk["forthcoming"] for disk in disks_of(cluster))
    assert not cluster.rpc.node("node2").disks
    assert not cluster.rpc.node("node2").running


@pytest.mark.parametrize(
    ("op", "text"),
    [
        ({**WISH, "forthcoming": True, "commit": True}, "one of them"),
        ({**BARE, "commit": True, "instance_name": "real1"}, "not forthcoming"),
        ({**BARE, "commit": True, "instance_name": "nobody"}, "not known"),
        ({**WISH, "forthcoming": True}, "already in the cluster"),
        ({"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": NAME}, "gnt-instance add --commit"),
        ({"OP_ID": "OP_INSTANCE_REINSTALL", "instance_name": NAME}, "disks were never made"),
    ],
)
def test_what_cannot_be_done_is_refused(cluster: FakeCluster, op: Any, text: str) -> None:
    plan(cluster)
    cluster.add_instance("real1.example.com")
    with pytest.raises(OpPrereqError, match=text):
        run(cluster, **op)


def test_a_plan_is_dropped_without_its_node(cluster: FakeCluster) -> None:
    plan(cluster)
    cluster.config.nodes[uuid_of("node2")]["offline"] = True
    run(cluster, OP_ID="OP_INSTANCE_REMOVE", instance_name=NAME)
    assert all(other["name"] != NAME for other in cluster.config.instances.values())
    assert "instance_shutdown" not in cluster.rpc.names()


@pytest.mark.shows("2.12/aims/special-instance")
@pytest.mark.parametrize(
    ("template", "logical_id", "settings"),
    [
        ("ext", ["pvd", "id"], {"size": 5, "mode": "rw", "provider": "pvd"}),
        ("blockdev", ["manual", "/dev/disk/x"], {"adopt": "/dev/disk/x", "mode": "rw"}),
    ],
)
def test_who_looks_for_room_sees_the_planned_disks(
    template: str, logical_id: list[str], settings: dict[str, Any]
) -> None:
    disk = Disk(uuid=DiskUuid("d1"), dev_type=template, logical_id=logical_id, size=5, serial_no=1)
    planned: Any = SimpleNamespace(templates=[template], disks=[disk])
    op: Any = decode_opcode({**BARE, "disk_template": template})
    assert with_planned_disks(op, planned).disks == [{**settings, "dev_type": template}]
    assert with_planned_disks(op, None).disks == []
