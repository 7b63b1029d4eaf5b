"""Starting, stopping, rebooting and removing instances."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster

from ganeti.base.errors import OpExecError, OpPrereqError

NAME = "web1.example.com"


@pytest.fixture
def stopped(cluster: FakeCluster) -> FakeCluster:
    """A cluster with one instance that is down."""
    cluster.add_instance(start=False)
    return cluster


@pytest.fixture
def running(cluster: FakeCluster) -> FakeCluster:
    """A cluster with one instance that runs."""
    cluster.add_instance()
    return cluster


def instance(cluster: FakeCluster) -> dict[str, Any]:
    return cluster.config.instance(NAME)


@pytest.mark.shows("backend/primary/primary", "2.0/lock-code/expand")
@pytest.mark.parametrize("name", [NAME, "web1"])
def test_start_by_full_or_short_name(stopped: FakeCluster, name: str) -> None:
    stopped.execute("OP_INSTANCE_STARTUP", instance_name=name)
    assert stopped.rpc.node("node1").running == {NAME: 0}
    assert instance(stopped)["admin_state"] == "up"
    assert instance(stopped)["disks_active"] is True


@pytest.mark.shows("2.0/lock-code/expand")
def test_start_by_uuid(stopped: FakeCluster) -> None:
    stopped.execute("OP_INSTANCE_STARTUP", instance_name=instance(stopped)["uuid"])
    assert stopped.rpc.node("node1").running


@pytest.mark.shows("2.0/defaults/units")
def test_start_passes_parameters_on_without_storing_them(stopped: FakeCluster) -> None:
    stopped.execute(
        "OP_INSTANCE_STARTUP",
        instance_name=NAME,
        beparams={"maxmem": 512},
        startup_paused=True,
        reason=[["gnt:user", "test", 1]],
    )
    ((_, args),) = stopped.rpc.called("instance_start")
    assert args[0]["beparams"]["maxmem"] == 512
    assert args[1:] == [True, [["gnt:user", "test", 1]]]
    assert instance(stopped)["beparams"] == {}


def test_no_remember_keeps_the_admin_state(stopped: FakeCluster) -> None:
    stopped.execute("OP_INSTANCE_STARTUP", instance_name=NAME, no_remember=True)
    assert instance(stopped)["admin_state"] == "down"
    assert stopped.rpc.node("node1").running


def test_a_running_instance_is_not_started_again(running: FakeCluster) -> None:
    running.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert not running.rpc.called("instance_start")
    assert running.said("is running already")
    assert "modifyObjects" not in running.config.calls


def test_one_that_powered_itself_off_is_started(running: FakeCluster) -> None:
    running.rpc.node("node1").running[NAME] = 1
    running.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert running.rpc.node("node1").running == {NAME: 0}


def test_a_failed_start_names_node_call_and_text(stopped: FakeCluster) -> None:
    stopped.rpc.fail("instance_start", text="qemu: no such machine")
    with pytest.raises(OpExecError) as caught:
        stopped.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert str(caught.value) == (
        f"cannot start instance '{NAME}': node 'node1.example.com', call instance_start:"
        " qemu: no such machine"
    )
    assert stopped.rpc.called("blockdev_shutdown")


@pytest.mark.shows("2.0/defaults/units")
def test_start_needs_memory(stopped: FakeCluster) -> None:
    instance(stopped)["beparams"] = {"minmem": 9999, "maxmem": 9999}
    with pytest.raises(OpPrereqError, match="needed 9999 MiB, available 4096 MiB") as caught:
        stopped.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert caught.value.ecode == "insufficient_resources"


def test_parameters_for_one_start_must_make_sense(stopped: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match=r"minmem .* must not be larger than maxmem"):
        stopped.execute("OP_INSTANCE_STARTUP", instance_name=NAME, beparams={"minmem": 4096})
    with pytest.raises(OpPrereqError, match="'vcpus': 0 is less than 1"):
        stopped.execute("OP_INSTANCE_STARTUP", instance_name=NAME, beparams={"vcpus": 0})


@pytest.mark.shows("backend/roles/offline-no-instances", "2.0/offline/fails-fast")
@pytest.mark.parametrize("op", ["OP_INSTANCE_STARTUP", "OP_INSTANCE_SHUTDOWN"])
def test_an_offline_node_is_named_with_the_way_out(running: FakeCluster, op: str) -> None:
    running.config.node(1)["offline"] = True
    with pytest.raises(OpPrereqError, match=r"node1.example.com.*--ignore-offline"):
        running.execute(op, instance_name=NAME)
    running.execute(op, instance_name=NAME, ignore_offline_nodes=True)
    wanted = "up" if op == "OP_INSTANCE_STARTUP" else "down"
    assert instance(running)["admin_state"] == wanted
    assert running.said("primary node offline, marked instance as")


@pytest.mark.shows("backend/roles/drained-works", "2.0/drained/works")
def test_on_a_drained_node_instances_start_and_stop(running: FakeCluster) -> None:
    running.config.node(1)["drained"] = True
    running.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    assert not running.rpc.node("node1").running
    running.execute("OP_INSTANCE_STARTUP", instance_name=NAME)
    assert running.rpc.node("node1").running == {NAME: 0}
    running.execute("OP_INSTANCE_REBOOT", instance_name=NAME, reboot_type="hard")
    assert running.rpc.node("node1").running == {NAME: 0}


@pytest.mark.parametrize("op", ["STARTUP", "SHUTDOWN", "REBOOT"])
def test_an_instance_marked_offline_is_left_alone(stopped: FakeCluster, op: str) -> None:
    instance(stopped)["admin_state"] = "offline"
    params = {"reboot_type": "hard"} if op == "REBOOT" else {}
    with pytest.raises(OpPrereqError, match="modify --online"):
        stopped.execute(f"OP_INSTANCE_{op}", instance_name=NAME, **params)


def test_shutdown_stops_and_remembers(running: FakeCluster) -> None:
    running.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME, timeout=5)
    assert not running.rpc.node("node1").running
    assert instance(running)["admin_state"] == "down"
    assert instance(running)["disks_active"] is False
    ((_, args),) = running.rpc.called("instance_shutdown")
    assert args[1] == 5


def test_a_shutdown_from_inside_is_remembered_as_such(running: FakeCluster) -> None:
    running.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME, admin_state_source="user")
    assert instance(running)["admin_state_source"] == "user"


def test_shutdown_without_remembering(running: FakeCluster) -> None:
    running.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME, no_remember=True)
    assert instance(running)["admin_state"] == "up"
    assert not running.rpc.node("node1").running


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_a_running_instance_is_rebooted_inside(running: FakeCluster, kind: str) -> None:
    running.execute("OP_INSTANCE_REBOOT", instance_name=NAME, reboot_type=kind)
    ((_, args),) = running.rpc.called("instance_reboot")
    assert args[1] == kind
    assert "modifyObjects" not in running.config.calls


def test_a_full_reboot_stops_and_starts(running: FakeCluster) -> None:
    running.execute("OP_INSTANCE_REBOOT", instance_name=NAME, reboot_type="full")
    calls = [name for name in running.rpc.names() if name.startswith("instance_s")]
    assert calls == ["instance_shutdown", "instance_start"]


def test_reboot_starts_a_stopped_instance(stopped: FakeCluster) -> None:
    stopped.execute("OP_INSTANCE_REBOOT", instance_name=NAME, reboot_type="hard")
    assert stopped.rpc.node("node1").running
    assert instance(stopped)["admin_state"] == "up"
    assert stopped.said("already stopped, starting now")


@pytest.mark.parametrize("template", ["file", "sharedfile", "diskless"])
def test_remove_leaves_nothing(cluster: FakeCluster, template: str) -> None:
    disks = [] if template == "diskless" else [{"size": 10}]
    cluster.add_instance(disk_template=template, disks=disks, hypervisor="kvm")
    cluster.execute("OP_INSTANCE_REMOVE", instance_name=NAME)
    assert cluster.leftovers() == []
    assert cluster.config.cluster["tcpudp_port_pool"] == [11000]


@pytest.mark.parametrize("call", ["instance_shutdown", "blockdev_remove"])
def test_a_failed_remove_keeps_the_instance_unless_told(running: FakeCluster, call: str) -> None:
    running.rpc.fail(call)
    with pytest.raises(OpExecError, match="--ignore-failures"):
        running.execute("OP_INSTANCE_REMOVE", instance_name=NAME)
    assert instance(running)
    running.execute("OP_INSTANCE_REMOVE", instance_name=NAME, ignore_failures=True)
    assert not running.config.instances
    assert running.said("ignoring")


def test_remove_hooks_run_on_the_node_only_afterwards(running: FakeCluster) -> None:
    running.execute("OP_INSTANCE_REMOVE", instance_name=NAME)
    nodes = [(node, args[1]) for node, args in running.rpc.called("hooks_runner")]
    assert ("node1", "pre") not in nodes or len(nodes) > 2


def test_unknown_instances_are_named(cluster: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match=r"'nix' is not known; see 'gnt-instance list'"):
        cluster.execute("OP_INSTANCE_STARTUP", instance_name="nix")


@pytest.mark.shows(
    "backend/granularity/by-unit", "2.0/background/parallel", "2.0/core/object-locks"
)
def test_different_instances_share_only_shared_locks(running: FakeCluster) -> None:
    running.execute("OP_INSTANCE_SHUTDOWN", instance_name=NAME)
    (request,) = running.config.lock_history
    assert [name for name, mode in request if mode == "exclusive"] == [f"instance/{NAME}"]
