"""Questions for allocators: what is told of nodes and instances, from plain values."""

from __future__ import annotations

import json
import tempfile
from typing import Any

import pytest
from fakes.fake_cluster import FakeConfig, uuid_of
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from ganeti.base.errors import OpPrereqError
from ganeti.config.config_data import split_config
from ganeti.logical_units.allocator.question import (
    NodeFacts,
    Snapshot,
    build_question,
    like_existing,
)
from ganeti.objects.disk_templates import disk_space_mib, traits_of
from ganeti.protocol.iallocator import AllocateSecondary, AllocatorNode, encode_request
from ganeti.query.view import HypervisorInfo, InstanceLive, NodeLive, StorageInfo

PLACES = tempfile.TemporaryDirectory(prefix="gnt-")  # made by examples, too: no fixture of a test
NODE = uuid_of("node1")
WANTED = AllocateSecondary(name="a")


def config(**instance: Any) -> FakeConfig:
    """Return a cluster with instance ``a`` on node1, of one mirrored disk."""
    made = FakeConfig(tempfile.mkdtemp(dir=PLACES.name))
    made.instances["i"] = {
        "name": "a",
        "primary_node": NODE,
        "os": "debian",
        "hypervisor": "fake",
        "beparams": {"maxmem": 512},
        "admin_state": "up",
        "disks_active": True,
        "disks": ["d"],
        "nics": [{"mac": "aa:00:00:00:00:01", "uuid": "n", "nicparams": {"mode": "routed"}}],
        "uuid": "i",
        "serial_no": 1,
        **instance,
    }
    made.disks["d"] = {
        "logical_id": [],
        "dev_type": "drbd",
        "nodes": [NODE, uuid_of("node2")],
        "size": 1000,
        "uuid": "d",
        "serial_no": 1,
    }
    return made


def facts(running_mib: int | None = None, **more: Any) -> NodeFacts:
    info = NodeLive(
        boot_id="b",
        storage=more.pop("storage", []),
        hypervisors=[
            HypervisorInfo(
                memory_total=4000, memory_free=3000, memory_dom0=900, cpu_total=8, cpu_dom0=1
            )
        ],
    )
    running = (
        {} if running_mib is None else {"a": InstanceLive(memory=running_mib, vcpus=1, state=0)}
    )
    return NodeFacts(info, running, **more)


def node_of(made: FakeConfig, known: NodeFacts | None) -> AllocatorNode:
    snapshot = Snapshot(split_config(bytes(made.read_config())))
    question = build_question(snapshot, {} if known is None else {NODE: known}, WANTED)
    json.loads(encode_request(question))
    return question.nodes["node1.example.com"]


@pytest.mark.parametrize(
    ("instance", "running_mib", "free_mib"),
    [
        ({}, 512, 3000),
        ({}, 128, 3000 - 384),  # it may still grow
        ({}, 600, 3000),  # it has more than it should: nothing is given back
        ({}, None, 3000 - 512),  # meant to be up, and is not
        ({"admin_state": "down"}, None, 3000),
        ({"forthcoming": True}, None, 3000),  # the job that makes it has reserved its memory
    ],
)
def test_free_memory_is_what_instances_may_not_take_any_more(
    instance: dict[str, Any], running_mib: int | None, free_mib: int
) -> None:
    assert node_of(config(**instance), facts(running_mib)).free_memory == free_mib


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(0, 5000))
def test_what_is_reserved_is_not_free_and_nothing_is_below_zero(
    running_mib: int, memory_mib: int, disk_mib: int
) -> None:
    storage = [StorageInfo(type="file", name="/srv", storage_free=900, storage_size=2000)]
    known = facts(
        running_mib, storage=storage, reserved_memory_mib=memory_mib, reserved_disk_mib=disk_mib
    )
    node = node_of(config(), known)
    assert node.free_memory == max(0, 3000 - max(0, 512 - running_mib) - memory_mib)
    assert node.free_disk == max(0, 900 - disk_mib)
    assert (node.total_memory, node.reserved_memory, node.total_disk) == (4000, 900, 2000)


@pytest.mark.parametrize(
    ("template", "free_mib"), [("plain", 1000), ("drbd", 1000 - 128), ("rbd", 2000)]
)
def test_planned_disks_keep_their_room(template: str, free_mib: int) -> None:
    made = config(forthcoming=True, admin_state="down")
    made.disks["d"] |= {"forthcoming": True, "dev_type": template}
    storage = [StorageInfo(type="lvm-vg", name="xenvg", storage_free=2000, storage_size=3000)]
    assert node_of(made, facts(storage=storage)).free_disk == free_mib


def test_planned_disks_keep_their_spindles() -> None:
    made = config(forthcoming=True, admin_state="down")
    made.disks["d"] |= {"forthcoming": True, "dev_type": "plain", "spindles": 2}
    storage = [StorageInfo(type="lvm-pv", name="xenvg", storage_free=3, storage_size=4)]
    node = node_of(made, facts(storage=storage))
    assert (node.total_spindles, node.free_spindles) == (4, 1)


def test_spindles_are_those_of_nodes_with_exclusive_storage() -> None:
    units = [
        StorageInfo(type="lvm-vg", name="xenvg", storage_free=10, storage_size=20),
        StorageInfo(type="file", name="/srv", storage_free=1, storage_size=2),
        StorageInfo(type="lvm-pv", name="xenvg", storage_free=3, storage_size=4),
    ]
    node = node_of(config(), facts(512, storage=units))
    assert (node.total_disk, node.free_disk) == (20, 10)
    assert (node.total_spindles, node.free_spindles) == (4, 3)
    unknown = [StorageInfo(type="lvm-vg", name="xenvg")]
    assert node_of(config(), facts(512, storage=unknown)).total_disk == 0


@pytest.mark.parametrize("flags", [{"offline": True}, {"vm_capable": False}])
def test_of_some_nodes_nothing_is_known(flags: dict[str, Any]) -> None:
    made = config()
    made.nodes[NODE].update(flags)
    node = node_of(made, facts(512))
    assert node.total_memory is UNSET
    assert node.offline is flags.get("offline", False)


def test_an_instance_and_the_wish_for_one_like_it() -> None:
    snapshot = Snapshot(split_config(bytes(config().read_config())))
    told = build_question(snapshot, {}, WANTED).instances["a"]
    assert told.nodes == ["node1.example.com", "node2.example.com"]
    assert told.disk_space_total == 1000 + 128
    assert (told.nics[0].mode, told.nics[0].bridge) == ("routed", UNSET)
    wish = like_existing(snapshot, snapshot.instance("a"))
    assert (wish.required_nodes, wish.memory, wish.disk_template) == (2, 512, "drbd")
    assert wish.disks == [{"size": 1000, "mode": "rw", "dev_type": "drbd"}]
    assert wish.nics == [{"mac": "aa:00:00:00:00:01", "ip": None, "mode": "routed", "link": "br0"}]


def test_a_disk_like_one_with_spindles_needs_as_many() -> None:
    made = config()
    made.disks["d"] |= {"dev_type": "plain", "nodes": [NODE], "spindles": 3}
    snapshot = Snapshot(split_config(bytes(made.read_config())))
    wish = like_existing(snapshot, snapshot.instance("a"))
    assert wish.disks == [{"size": 1000, "mode": "rw", "dev_type": "plain", "spindles": 3}]


def test_networks_that_a_place_must_have_are_told() -> None:
    nic = {"mac": "aa:00:00:00:00:01", "uuid": "n", "nicparams": {}, "network": "lan-uuid"}
    snapshot = Snapshot(split_config(bytes(config(nics=[nic]).read_config())))
    wish = like_existing(snapshot, snapshot.instance("a"))
    assert wish.nics == [{"mac": "aa:00:00:00:00:01", "ip": None, "network": "lan-uuid"}]


def test_an_instance_that_is_nowhere_yet_is_left_out() -> None:
    made = config(primary_node="", forthcoming=True)
    snapshot = Snapshot(split_config(bytes(made.read_config())))
    assert build_question(snapshot, {}, WANTED).instances == {}
    with pytest.raises(OpPrereqError, match="instance 'a' is on no node"):
        snapshot.instance("a")


@pytest.mark.parametrize(
    ("template", "nodes", "space_mib"), [("drbd", 2, 556), ("file", 1, 300), ("diskless", 1, 300)]
)
def test_what_templates_need(template: str, nodes: int, space_mib: int) -> None:
    assert traits_of(template).node_count == nodes
    assert disk_space_mib([(template, 100), (template, 200)]) == space_mib
