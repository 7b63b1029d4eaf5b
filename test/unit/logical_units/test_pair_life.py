"""Instances whose disks have copies on a second node: made, started, stopped, removed.

A failure at any call of any node leaves nothing behind, or a hint with the next command.
"""

from __future__ import annotations

import copy
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from fakes.cuts import every_kill
from fakes.fake_cluster import FakeCluster, make_group, uuid_of
from fakes.pairs import NAME, UP, VG, add_pair, nodes_of, pair_cluster, sides, volumes

from ganeti.base.errors import GenericError, JobCanceled, OpExecError, OpPrereqError
from ganeti.protocol.node_calls import NodeCalls
from ganeti.storage.interface import Link


@pytest.mark.shows("backend/primary/secondary")
def test_both_nodes_have_both_volumes_and_the_copy_is_complete(pairs: FakeCluster) -> None:
    pairs.rpc.sync_steps = 3
    instance = add_pair(pairs)
    [disk] = [pairs.config.disks[uuid] for uuid in instance["disks"]]
    names = volumes(pairs)
    assert sorted(names) == ["node1", "node2"]
    assert names["node1"] == names["node2"]
    data, meta = names["node1"]
    assert data.startswith(f"{VG}/")
    assert data.endswith(".disk0_data")
    assert meta == data.replace("_data", "_meta")
    assert pairs.rpc.node("node2").sizes == {data: 1024, meta: 128}
    assert sides(pairs) == UP
    assert nodes_of(pairs) == ["node1", "node2"]
    node_a, node_b, port, *minors, secret = disk["logical_id"]
    assert [node_a, node_b] == [uuid_of("node1"), uuid_of("node2")] == disk["nodes"]
    assert port == 11000
    assert minors == [0, 0]
    assert len(secret) == 40
    assert [child["nodes"] for child in disk["children"]] == [disk["nodes"]] * 2
    assert pairs.rpc.node("node1").running == {NAME: 0}
    assert not pairs.config.resources


def test_each_node_gets_its_own_side_over_the_network_for_copies(pairs: FakeCluster) -> None:
    pairs.execute(
        "OP_INSTANCE_CREATE",
        instance_name=NAME,
        mode="create",
        disk_template="drbd",
        disks=[{"size": 64}],
        nics=[],
        pnode="node3",
        snode="node2",
        no_install=True,
        name_check=False,
        ip_check=False,
    )
    made = {
        node: args[0]["dynamic_params"]
        for node, args in pairs.rpc.called("blockdev_create")
        if args[0]["dev_type"] == "drbd"
    }
    assert made["node3"]["local-ip"] == made["node2"]["remote-ip"] == "198.51.100.3"
    assert made["node2"]["local-ip"] == made["node3"]["remote-ip"] == "198.51.100.2"
    order = [(node, args[0]["dev_type"]) for node, args in pairs.rpc.called("blockdev_create")]
    assert order == [
        *(("node2", each) for each in ("plain", "plain", "drbd")),
        *(("node3", each) for each in ("plain", "plain", "drbd")),
    ]


def test_the_progress_is_told_at_a_sensible_pace(pairs: FakeCluster) -> None:
    pairs.rpc.sync_steps = 100
    pairs.execute("OP_INSTANCE_CREATE", **creation())
    told = [text for text in pairs.messages if text.startswith("- device disk/0")]
    assert "0.00% done, 10s left" in told[0]
    assert "MiB/s, 10s left" in told[-1]
    assert 5 < len(told) < 40
    assert pairs.said(f"Instance {NAME}'s disks are in sync")


def creation(**params: Any) -> dict[str, Any]:
    return {
        "instance_name": NAME,
        "mode": "create",
        "disk_template": "drbd",
        "disks": [{"size": 1024}, {"size": 64}],
        "nics": [{}],
        "os_type": "debian",
        "pnode": "node1",
        "snode": "node2",
        "name_check": False,
        "ip_check": False,
        **params,
    }


def calls_of(cluster: FakeCluster, op_id: str, **params: Any) -> list[tuple[str, str]]:
    """Carry an opcode out, and return the calls that it made."""
    cluster.rpc.calls.clear()
    cluster.execute(op_id, **params)
    return [(node.partition(".")[0], call) for node, call, _args in cluster.rpc.calls]


def fail_nth(cluster: FakeCluster, number: int, *, after: bool = False) -> None:
    """Let the call of that number fail, before or after its work."""
    seen = iter(range(10**6))

    def failure(_node: str, _call: str, _args: Any) -> str | None:
        return "it broke" if next(seen) == number else None

    if after:
        cluster.rpc.lost_answer = failure
    else:
        cluster.rpc.failure = failure


@pytest.mark.parametrize("after", [False, True])
def test_a_failed_creation_leaves_nothing(pairs: FakeCluster, *, after: bool) -> None:
    pairs.rpc.sync_steps = 2
    count = len(calls_of(pairs, "OP_INSTANCE_CREATE", **creation()))
    pairs.execute("OP_INSTANCE_REMOVE", instance_name=NAME)
    assert not pairs.leftovers()
    failed = 0
    for number in range(count):
        fail_nth(pairs, number, after=after)
        try:
            pairs.execute("OP_INSTANCE_CREATE", **creation())
        except GenericError:
            failed += 1
            assert not pairs.leftovers(), (number, pairs.rpc.calls[-1][:2])
            assert set(pairs.config.cluster["tcpudp_port_pool"]) <= {11000, 11001}
        else:
            fail_nth(pairs, -1, after=after)
            pairs.execute("OP_INSTANCE_REMOVE", instance_name=NAME)
            assert not pairs.leftovers()
    assert failed > count / 2


def test_a_canceled_creation_leaves_nothing(pairs: FakeCluster) -> None:
    pairs.rpc.sync_steps = 50
    for number in (0, 3, 8, 20):
        pairs.cancel_after = number
        with pytest.raises(JobCanceled):
            pairs.execute("OP_INSTANCE_CREATE", **creation())
        pairs.cancel_after = None
        assert not pairs.leftovers()


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"snode": None}, "keeps its disks on two nodes; give both with -n PRIMARY:SECONDARY"),
        ({"snode": "node1"}, "cannot be the primary node 'node1.example.com' itself"),
        ({"disks": [{"size": 1024, "vg": "other"}]}, "not enough space in volume group 'other'"),
        ({"disks": [{"size": 200000}]}, "node 'node1.example.com': 200128 MiB are needed"),
    ],
)
def test_pairs_that_cannot_be(pairs: FakeCluster, params: dict[str, Any], text: str) -> None:
    pairs.rpc.node("node2").room_mib = 150
    if "vg" not in str(params):
        pairs.rpc.node("node2").room_mib = 10**6
    given = {name: value for name, value in creation(**params).items() if value is not None}
    with pytest.raises(OpPrereqError, match=text):
        pairs.execute("OP_INSTANCE_CREATE", **given)
    assert not pairs.leftovers()


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("offline", True, "is marked offline"),
        ("drained", True, "is drained"),
        ("vm_capable", False, "is not vm_capable"),
    ],
)
def test_a_secondary_node_must_be_fit(
    pairs: FakeCluster, field: str, value: object, text: str
) -> None:
    pairs.config.node(2)[field] = value
    with pytest.raises(OpPrereqError, match=f"node 'node2.example.com': it {text}"):
        pairs.execute("OP_INSTANCE_CREATE", **creation())


def test_nodes_of_two_groups_are_told(pairs: FakeCluster) -> None:
    pairs.config.nodegroups["g2"] = make_group("far", "g2")
    pairs.config.node(2)["group"] = "g2"
    add = creation(no_install=True, os_type=None, start=False)
    pairs.execute("OP_INSTANCE_CREATE", **{k: v for k, v in add.items() if v is not None})
    assert pairs.said("are in different node groups")


def test_nobody_waits_if_not_asked_to(pairs: FakeCluster) -> None:
    pairs.rpc.sync_steps = 1000
    pairs.execute("OP_INSTANCE_CREATE", **creation(wait_for_sync=False, start=False))
    assert not pairs.said("% done")
    assert pairs.config.instance(NAME)["disks_active"]
    assert sides(pairs)["node2"] == ["Secondary connected incomplete"] * 2


def held_back(cluster: FakeCluster) -> list[str]:
    """Return the slow work on node1, and the changes of the copying around it."""
    words = {"instance_os_add": "install", "blockdev_wipe": "wipe"}
    made = [
        words.get(call) or ("pause" if args[1] else "resume")
        for node, call, args in cluster.rpc.calls
        if call in {*words, "blockdev_pause_resume_sync"} and node == "node1.example.com"
    ]
    return [word for word, _ in itertools.groupby(made)]


def test_the_copying_is_held_back_while_a_system_is_installed(pairs: FakeCluster) -> None:
    pairs.rpc.sync_steps = 1000
    pairs.execute("OP_INSTANCE_CREATE", **creation(wait_for_sync=False))
    assert held_back(pairs) == ["pause", "install", "resume"]
    assert not any(side.is_paused for side in pairs.rpc.node("node1").sides.values())
    assert pairs.said(f"* pausing the copying of disks of instance {NAME} while its system is")


def test_it_is_not_once_the_copies_are_complete(pairs: FakeCluster) -> None:
    pairs.execute("OP_INSTANCE_CREATE", **creation())
    assert held_back(pairs) == ["install"]


def test_it_is_held_back_while_disks_are_wiped_and_goes_on_after_a_failure(
    pairs: FakeCluster,
) -> None:
    pairs.config.cluster["prealloc_wipe_disks"] = True
    pairs.execute("OP_INSTANCE_CREATE", **creation())
    assert held_back(pairs) == [*["pause", "wipe", "resume"] * 2, "install"]
    pairs.execute("OP_INSTANCE_REMOVE", instance_name=NAME)
    pairs.rpc.calls.clear()
    pairs.rpc.failure = lambda _node, call, _args: "it broke" if call == "blockdev_wipe" else None
    with pytest.raises(OpExecError, match="cannot wipe disk 0"):
        pairs.execute("OP_INSTANCE_CREATE", **creation())
    assert held_back(pairs) == ["pause", "wipe", "resume"]


def test_copying_that_cannot_be_held_back_is_told(pairs: FakeCluster) -> None:
    pairs.rpc.failure = lambda _node, call, _args: (
        "it broke" if call == "blockdev_pause_resume_sync" else None
    )
    pairs.execute("OP_INSTANCE_CREATE", **creation(wait_for_sync=False))
    assert pairs.said("cannot pause the copying of disks of instance")


def test_a_copy_that_is_not_made_ends_the_creation(pairs: FakeCluster) -> None:
    real = pairs.rpc.failure

    def cut(node: str, call: str, args: Any) -> str | None:
        if call == "blockdev_getmirrorstatus_multi" and not pairs.rpc.node("node2").is_dead:
            pairs.rpc.node("node2").cut_power()
        return real(node, call, args)

    pairs.rpc.failure = cut
    with pytest.raises(OpExecError, match=r"degraded disks of instance .*activate-disks"):
        pairs.execute("OP_INSTANCE_CREATE", **creation())
    assert not pairs.config.instances
    assert pairs.said("remove it by hand on node node2.example.com: 'lvremove xenvg/")


def test_the_secondary_node_must_be_able_to_use_the_parameters_too(pairs: FakeCluster) -> None:
    """It starts the instance when it is failed over."""
    refuses = "node2.example.com' cannot use the hypervisor parameters: no such kernel"
    pairs.rpc.fail("hypervisor_validate_params", "node2", "no such kernel")
    with pytest.raises(OpPrereqError, match=refuses):
        pairs.execute("OP_INSTANCE_CREATE", **creation(hypervisor="kvm"))
    pairs.rpc.failure = lambda *_args: None
    add_pair(pairs, hypervisor="kvm", start=False)
    pairs.rpc.fail("hypervisor_validate_params", "node2", "no such kernel")
    change = {"instance_name": NAME, "hvparams": {"kernel_path": "/nix"}}
    with pytest.raises(OpPrereqError, match=refuses):
        pairs.execute("OP_INSTANCE_SET_PARAMS", **change)
    pairs.config.node(2)["offline"] = True
    pairs.execute("OP_INSTANCE_SET_PARAMS", **change)


def test_start_and_stop(pairs: FakeCluster) -> None:
    add_pair(pairs)
    pairs.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    assert sides(pairs) == {}
    pairs.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert sides(pairs) == UP
    pairs.execute("OP_INSTANCE_REBOOT", instance_name=NAME, reboot_type="full")
    assert sides(pairs) == UP


@pytest.mark.parametrize(
    ("op_id", "params"),
    [
        ("OP_INSTANCE_STARTUP", {"force": True}),
        ("OP_INSTANCE_REBOOT", {"reboot_type": "full"}),
        ("OP_INSTANCE_REMOVE", {}),
    ],
)
def test_what_runs_on_the_other_node_is_neither_started_twice_nor_left_behind(
    pairs: FakeCluster, op_id: str, params: dict[str, Any]
) -> None:
    """A migration was killed after the guest had arrived, and before the record said so."""
    add_pair(pairs)
    pairs.execute("OP_INSTANCE_MIGRATE", instance_name=NAME)
    [instance] = pairs.config.instances.values()
    instance["primary_node"] = next(
        node["uuid"] for node in pairs.config.nodes.values() if node["name"].startswith("node1")
    )
    with pytest.raises(OpPrereqError, match=f"runs on node 'node2.*migrate --cleanup {NAME}"):
        pairs.execute(op_id, instance_name=NAME, **params)
    assert NAME not in pairs.rpc.node("node1").running
    assert NAME in pairs.rpc.node("node2").running


def test_a_start_without_the_copy_must_be_forced(pairs: FakeCluster) -> None:
    add_pair(pairs)
    pairs.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    pairs.rpc.node("node2").cut_power()
    with pytest.raises(OpExecError, match=f"mark the node offline, or use .*--force {NAME}"):
        pairs.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert sides(pairs) == {}
    pairs.execute("OP_INSTANCE_STARTUP", instance_name=NAME, force=True)
    assert sides(pairs) == {
        "node1": [UP["node1"][0].replace("connected", "waiting for the other node")]
    }
    pairs.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    pairs.config.node(2)["offline"] = True
    pairs.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert pairs.rpc.node("node1").running == {NAME: 0}


@pytest.mark.parametrize(
    ("op_id", "params"),
    [
        ("OP_INSTANCE_REINSTALL", {}),
        (
            "OP_INSTANCE_RENAME",
            {"new_name": "web2.example.com", "name_check": False, "ip_check": False},
        ),
    ],
)
def test_scripts_of_the_operating_system_can_write_the_disks(
    pairs: FakeCluster, op_id: str, params: dict[str, Any]
) -> None:
    add_pair(pairs)
    pairs.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    pairs.execute(op_id, instance_name=NAME, **params)
    assert not pairs.said("Read-only file system")
    assert sides(pairs) == {}


def test_a_failed_start_closes_both_sides(pairs: FakeCluster) -> None:
    add_pair(pairs)
    pairs.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    pairs.rpc.fail("instance_start")
    with pytest.raises(OpExecError):
        pairs.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert sides(pairs) == {}


def test_active_copies_are_connected_again(pairs: FakeCluster) -> None:
    add_pair(pairs)
    pairs.rpc.node("node2").cut_power()
    pairs.rpc.write("newer")
    pairs.rpc.node("node2").boot()
    pairs.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME, wait_for_sync=True)
    assert sides(pairs) == UP
    [data] = [name for name in pairs.rpc.node("node2").disks if name.endswith("_data")]
    assert pairs.rpc.node("node2").data[data] == "newer"


@pytest.mark.parametrize("wait", [False, True])
def test_a_split_brain_is_told_with_the_command_that_decides(
    pairs: FakeCluster, *, wait: bool
) -> None:
    add_pair(pairs)
    text = "split brain: the data here is of generation 1, 'gnt-instance replace-disks -s INSTANCE'"
    real = pairs.rpc.failure

    def part(node: str, call: str, args: Any) -> str | None:
        if call == "blockdev_getmirrorstatus_multi":
            for side in pairs.rpc.node("node1").sides.values():
                side.part(Link.NONE)
        return text if call == "drbd_wait_sync" else real(node, call, args)

    pairs.rpc.failure = part
    activate = {"instance_name": NAME, "wait_for_sync": wait}
    told = f"degraded disks .* split brain: .* 'gnt-instance replace-disks -s {NAME}'"
    if wait:
        with pytest.raises(OpExecError, match=told):
            pairs.execute("OP_INSTANCE_ACTIVATE_DISKS", **activate)
    else:
        pairs.execute("OP_INSTANCE_ACTIVATE_DISKS", **activate)
        assert pairs.said("split brain")
        assert pairs.said(f"'gnt-instance replace-disks -s {NAME}'")
        assert not pairs.said("connect them again")


@pytest.mark.parametrize(
    ("op_id", "params"),
    [("OP_INSTANCE_STARTUP", {}), ("OP_INSTANCE_REBOOT", {"reboot_type": "full"})],
)
def test_a_start_tells_a_split_brain(
    pairs: FakeCluster, op_id: str, params: dict[str, object]
) -> None:
    add_pair(pairs, start=False)
    text = "split brain: generations 1 and 2, 'gnt-instance replace-disks -s INSTANCE'"
    real = pairs.rpc.failure

    def part(node: str, call: str, args: Any) -> str | None:
        if call == "blockdev_getmirrorstatus_multi":
            for side in pairs.rpc.node("node1").sides.values():
                side.part(Link.NONE)
        return text if call == "drbd_wait_sync" else real(node, call, args)

    pairs.rpc.failure = part
    pairs.execute(op_id, instance_name=NAME, **params)
    assert NAME in pairs.rpc.node("node1").running
    assert pairs.said("split brain: generations 1 and 2")
    assert pairs.said(f"'gnt-instance replace-disks -s {NAME}'")


def test_a_failed_activation_does_not_take_disks_from_a_guest(pairs: FakeCluster) -> None:
    add_pair(pairs)
    pairs.rpc.fail("blockdev_assemble", "node2")
    with pytest.raises(OpExecError, match="node 'node2"):
        pairs.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME)
    assert sides(pairs) == UP


def test_disks_are_closed_on_both_nodes(pairs: FakeCluster) -> None:
    add_pair(pairs, start=False)
    pairs.execute("OP_INSTANCE_ACTIVATE_DISKS", instance_name=NAME)
    assert sides(pairs) == UP
    pairs.execute("OP_INSTANCE_DEACTIVATE_DISKS", instance_name=NAME)
    assert sides(pairs) == {}


def test_an_offline_secondary_node_keeps_its_volumes_and_that_is_told(pairs: FakeCluster) -> None:
    add_pair(pairs)
    pairs.rpc.node("node2").cut_power()
    pairs.config.node(2)["offline"] = True
    pairs.execute("OP_INSTANCE_REMOVE", instance_name=NAME)
    assert not pairs.config.instances
    assert pairs.said("remove it by hand on node node2.example.com: 'lvremove xenvg/")


def test_minors_and_ports_of_removed_disks_are_given_out_again(pairs: FakeCluster) -> None:
    for _ in range(2):
        instance = add_pair(pairs)
        [uuid] = instance["disks"]
        assert pairs.config.disks[uuid]["logical_id"][2:5] == [11000, 0, 0]
        second = add_pair(pairs, name="web2.example.com", pnode="node2", snode="node3")
        [uuid] = second["disks"]
        assert pairs.config.disks[uuid]["logical_id"][2:5] == [11001, 1, 0]
        for name in (NAME, "web2.example.com"):
            pairs.execute("OP_INSTANCE_REMOVE", instance_name=name)
    assert not pairs.leftovers()


def test_a_planned_pair_is_made_as_planned(pairs: FakeCluster) -> None:
    pairs.execute("OP_INSTANCE_CREATE", **creation(forthcoming=True))
    planned = dict(pairs.config.disks)
    assert volumes(pairs) == {}
    pairs.execute(
        "OP_INSTANCE_CREATE",
        instance_name=NAME,
        mode="create",
        commit=True,
        disks=[],
        nics=[],
        name_check=False,
        ip_check=False,
    )
    assert sides(pairs)["node2"] == ["Secondary connected complete"] * 2
    assert {u: d["logical_id"] for u, d in pairs.config.disks.items()} == {
        uuid: disk["logical_id"] for uuid, disk in planned.items()
    }


def test_an_allocator_gives_both_nodes(pairs: FakeCluster) -> None:
    answer = '{"success": true, "info": "", "result": ["node3.example.com", "node4.example.com"]}'
    pairs.rpc.allocators["mine"] = lambda question, _options: answer
    given = {k: v for k, v in creation(iallocator="mine").items() if k not in ("pnode", "snode")}
    assert pairs.execute("OP_INSTANCE_CREATE", **given) == [
        "node3.example.com",
        "node4.example.com",
    ]
    assert sorted(sides(pairs)) == ["node3", "node4"]


def test_lost_disks_are_made_anew_on_both_nodes(pairs: FakeCluster) -> None:
    add_pair(pairs, start=False)
    with pytest.raises(OpPrereqError, match=r"exists on node 'node1.*gnt-instance replace-disks"):
        pairs.execute("OP_INSTANCE_RECREATE_DISKS", instance_name=NAME)
    for name in ("node1", "node2"):
        pairs.rpc.node(name).disks.clear()
        pairs.rpc.node(name).metadata.clear()
    pairs.rpc.node("node2").room_mib = 1100
    with pytest.raises(
        OpPrereqError, match=r"not enough space in volume group 'xenvg' of node 'nod"
    ):
        pairs.execute("OP_INSTANCE_RECREATE_DISKS", instance_name=NAME)
    assert volumes(pairs) == {}
    pairs.rpc.node("node2").room_mib = 1200
    pairs.execute("OP_INSTANCE_RECREATE_DISKS", instance_name=NAME)
    assert [len(names) for names in volumes(pairs).values()] == [2, 2]
    pairs.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert sides(pairs) == UP


def test_lost_disks_are_made_anew_with_another_size(pairs: FakeCluster) -> None:
    add_pair(pairs, start=False)
    for name in ("node1", "node2"):
        pairs.rpc.node(name).disks.clear()
        pairs.rpc.node(name).metadata.clear()
        pairs.rpc.node(name).room_mib = 1200
    larger = [[0, {"size": 2048}]]
    with pytest.raises(OpPrereqError, match="not enough space in volume group 'xenvg' of node"):
        pairs.execute("OP_INSTANCE_RECREATE_DISKS", instance_name=NAME, disks=larger)
    for name in ("node1", "node2"):
        pairs.rpc.node(name).room_mib = 2200
    pairs.execute("OP_INSTANCE_RECREATE_DISKS", instance_name=NAME, disks=larger)
    [disk] = pairs.config.disks.values()
    assert [disk["size"], *(child["size"] for child in disk["children"])] == [2048, 2048, 128]
    for name in ("node1", "node2"):
        node = pairs.rpc.node(name)
        assert sorted(node.sizes[volume] for volume in node.disks) == [128, 2048]


def test_lost_disks_are_made_on_a_new_pair(pairs: FakeCluster) -> None:
    add_pair(pairs, start=False)
    for number in (1, 2):
        pairs.rpc.node(f"node{number}").cut_power()
        pairs.config.node(number)["offline"] = True
    pairs.config.cluster["master_node"] = uuid_of("node4")
    with pytest.raises(OpPrereqError, match="has its disks on 2 nodes, 1 were given"):
        pairs.execute("OP_INSTANCE_RECREATE_DISKS", instance_name=NAME, nodes=["node3"])
    pairs.execute("OP_INSTANCE_RECREATE_DISKS", instance_name=NAME, nodes=["node3", "node4"])
    assert nodes_of(pairs) == ["node3", "node4"]
    pairs.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert sides(pairs) == {
        "node3": ["Primary connected complete"],
        "node4": ["Secondary connected complete"],
    }


def lost_pair(root: Path) -> FakeCluster:
    """An instance that has lost the disks on both of its nodes."""
    cluster = pair_cluster(str(root))
    add_pair(cluster, start=False, disks=[{"size": 1024}, {"size": 64}])
    for name in ("node1", "node2"):
        node = cluster.rpc.node(name)
        for table in (node.disks, node.data, node.metadata, node.sides):
            table.clear()  # type: ignore[attr-defined]
    return cluster


def recreate(cluster: FakeCluster, **params: Any) -> None:
    cluster.execute("OP_INSTANCE_RECREATE_DISKS", instance_name=NAME, **params)


@pytest.mark.usefixtures("pairs")
def test_a_new_pair_is_made_after_a_job_died_anywhere_in_that(tmp_path: Path) -> None:
    new = {"nodes": ["node3", "node4"]}
    for cluster in every_kill(
        lambda: lost_pair(tmp_path), lambda cluster: recreate(cluster, **new)
    ):
        if nodes_of(cluster) == ["node1", "node2"]:
            recreate(cluster, **new)
        assert nodes_of(cluster) == ["node3", "node4"]
        assert [len(names) for names in volumes(cluster).values()] == [4, 4]
        cluster.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
        assert sides(cluster)["node3"] == UP["node1"] * 2


@pytest.mark.usefixtures("pairs")
def test_a_recreation_that_was_cut_off_says_how_to_begin_anew(tmp_path: Path) -> None:
    """What is there may be all that is left of the data; so nothing is removed without a person."""
    ways = set()
    for cluster in every_kill(lambda: lost_pair(tmp_path), recreate):
        told = []
        for _ in range(3):  # each time about one disk
            before = volumes(cluster)
            try:
                recreate(cluster)
                break
            except OpPrereqError as err:
                told.append(err.message)
            assert volumes(cluster) == before
            assert f"'gnt-instance deactivate-disks {NAME}', then 'lvremove " in told[-1]
            cluster.execute("OP_INSTANCE_DEACTIVATE_DISKS", instance_name=NAME)
            for names, node in re.findall(r"'lvremove ([^']+)' on node (\w+)", told[-1]):
                lvremove(cluster, node, names.split())
        else:
            pytest.fail(f"no way on: {told}")
        ways.add(len(told))
        assert [len(names) for names in volumes(cluster).values()] == [4, 4]
        cluster.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
        assert sides(cluster) == {"node1": UP["node1"] * 2, "node2": UP["node2"] * 2}
    assert ways == {0, 1, 2}


def lvremove(cluster: FakeCluster, name: str, paths: list[str]) -> None:
    node = cluster.rpc.node(name)
    in_use = {path for side in node.sides.values() for path in (side.data, side.meta)}
    assert not in_use & set(paths)
    for path in paths:
        node.disks.remove(path)
        node.data.pop(path)
        node.metadata.pop(path, None)


def test_a_file_on_a_new_node_that_a_dead_job_has_left_is_made_anew(pairs: FakeCluster) -> None:
    pairs.add_instance(disk_template="file", start=False)
    [path] = pairs.rpc.node("node1").disks
    pairs.rpc.node("node1").disks.clear()
    recreated = pairs.rpc.node("node3")
    recreated.disks.add(path)
    recreated.data[path] = "remains"
    recreate(pairs, nodes=["node3"])
    assert nodes_of(pairs) == ["node3"]
    assert recreated.data[path] == ""


@pytest.mark.parametrize(
    ("template", "goal", "way"),
    [
        ("file", ["node3"], "gnt-instance move"),
        ("drbd", ["node3", "node4"], "gnt-instance failover"),
    ],
)
def test_a_disk_that_is_not_lost_is_not_left_behind(
    pairs: FakeCluster, template: str, goal: list[str], way: str
) -> None:
    """Later it would be taken for remains of the new disk."""
    if template == "drbd":
        add_pair(pairs, start=False)
    else:
        pairs.add_instance(disk_template=template, start=False)
    before = set(pairs.rpc.node("node1").disks)
    with pytest.raises(OpPrereqError, match=f"exists on node 'node1.*{way}"):
        recreate(pairs, nodes=goal)
    assert pairs.rpc.node("node1").disks == before
    pairs.config.node("node1")["offline"] = pairs.config.node("node2")["offline"] = True
    recreate(pairs, nodes=goal)
    assert nodes_of(pairs) == goal


def test_a_disk_that_all_nodes_see_is_never_taken_for_remains(pairs: FakeCluster) -> None:
    pairs.add_instance(disk_template="sharedfile", start=False)
    with pytest.raises(OpPrereqError, match="exists on node 'node3"):
        recreate(pairs, nodes=["node3"])
    assert len(pairs.rpc.shared) == 1


@pytest.mark.parametrize("is_known", [False, True])
def test_own_disks_are_kept_also_where_the_configuration_names_no_nodes(
    pairs: FakeCluster, *, is_known: bool
) -> None:
    pairs.add_instance(disk_template="plain", start=False)
    if not is_known:
        [disk] = pairs.config.disks.values()
        disk["nodes"] = []
    with pytest.raises(OpPrereqError, match="exists on node 'node1"):
        recreate(pairs)
    assert len(pairs.rpc.node("node1").disks) == 1


REFUSED = [
    ("OP_INSTANCE_CREATE", creation(instance_name="web2", snode="node1")),
    ("OP_INSTANCE_CREATE", creation(instance_name="web2", disks=[{"size": 1 << 30}])),
    ("OP_INSTANCE_FAILOVER", {"instance_name": NAME, "target_node": "node1"}),
    ("OP_INSTANCE_MIGRATE", {"instance_name": NAME, "target_node": "node3"}),
    ("OP_INSTANCE_MOVE", {"instance_name": NAME, "target_node": "node3"}),
    ("OP_INSTANCE_RECREATE_DISKS", {"instance_name": NAME}),
    ("OP_INSTANCE_REPLACE_DISKS", {"mode": "replace_new_secondary", "remote_node": "node1"}),
    ("OP_INSTANCE_GROW_DISK", {"disk": 7, "amount": 1}),
    ("OP_INSTANCE_GROW_DISK", {"disk": 0, "amount": 1 << 30}),
    ("OP_INSTANCE_SET_PARAMS", {"disk_template": "plain"}),
    ("OP_INSTANCE_RENAME", {"new_name": "web3"}),
    ("OP_NODE_REMOVE", {"node_name": "node2"}),
]


@pytest.mark.shows("2.0/lock-code/check-then-work")
@pytest.mark.parametrize(("op_id", "params"), REFUSED)
def test_what_is_refused_has_changed_neither_node_nor_configuration(
    pairs: FakeCluster, op_id: str, params: dict[str, Any]
) -> None:
    add_pair(pairs)
    config = pairs.config
    before = copy.deepcopy([config.cluster, config.nodes, config.instances, config.disks])
    state = (volumes(pairs), sides(pairs))
    pairs.rpc.calls.clear()
    named = {} if "node_name" in params else {"instance_name": NAME}
    with pytest.raises(OpPrereqError):
        pairs.execute(op_id, **{**named, **params})
    changing = [call for _, call, _ in pairs.rpc.calls if NodeCalls.calls[call].rules.changes]
    assert changing == []
    assert [config.cluster, config.nodes, config.instances, config.disks] == before
    assert (volumes(pairs), sides(pairs)) == state
