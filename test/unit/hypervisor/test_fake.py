"""The hypervisor that only keeps books; its promises are in test/daemon/test_hypervisor_contract.py."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from guests.instances import make_instance

from ganeti.base.errors import HypervisorError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.hypervisor.interface import (
    ConsoleNode,
    Hypervisor,
    InstanceState,
    NodeEnv,
    get_hypervisor,
)
from ganeti.objects.hypervisors import RebootType

INSTANCE = make_instance("inst1.example.com", "fake", memory_mib=64, vcpus=2)
NAME = INSTANCE.name


def node(root: Path, name: str) -> Hypervisor:
    env = NodeEnv(Paths(str(root / name)), name, "127.0.0.1")
    return get_hypervisor("fake", env, {})


@pytest.fixture
def source(tmp_path: Path) -> Hypervisor:
    return node(tmp_path, "node1")


@pytest.fixture
def target(tmp_path: Path) -> Hypervisor:
    return node(tmp_path, "node2")


def test_life_of_an_instance(source: Hypervisor, tmp_path: Path) -> None:
    assert source.list_instances() == []
    source.start(INSTANCE, [])
    with pytest.raises(HypervisorError, match="already there"):
        source.start(INSTANCE, [])
    again = node(tmp_path, "node1")  # nothing is remembered in the driver
    assert again.list_instances() == [NAME]
    info = again.instance_info(NAME)
    assert info is not None
    assert (info.memory_mib, info.vcpus, info.state) == (64, 2, InstanceState.RUNNING)
    assert info.to_wire()["state"] == 0
    again.reboot(INSTANCE, [], kind=RebootType.HARD)
    again.balloon(NAME, 32)
    assert [entry.memory_mib for entry in again.all_instances_info()] == [32]
    again.stop(NAME)
    again.stop(NAME)
    assert source.instance_info(NAME) is None


@pytest.mark.parametrize("content", ["0\n256\n3\n", "256\n3\n", "0\n256\n3"])
def test_instances_of_3_0_run_on(source: Hypervisor, tmp_path: Path, content: str) -> None:
    path = Path(Paths(str(tmp_path / "node1")).fake_dir) / NAME
    path.parent.mkdir(parents=True)
    path.write_text(content)
    os.utime(path, (0, time.time() - 1000))
    (info,) = source.all_instances_info()
    assert (info.name, info.memory_mib, info.vcpus) == (NAME, 256, 3)
    assert info.state is InstanceState.RUNNING
    assert info.cpu_time_s >= 999
    source.balloon(NAME, 128)
    assert path.read_text().splitlines()[:3] == ["0", "128", "3"], "3.0 reads it, too"
    source.stop(NAME)
    assert source.list_instances() == []


@pytest.mark.parametrize("content", ["", "what", "0\nx\ny\n", '{"memory_mib": "x"}'])
def test_a_book_that_is_none_is_named(source: Hypervisor, tmp_path: Path, content: str) -> None:
    path = Path(Paths(str(tmp_path / "node1")).fake_dir) / NAME
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(HypervisorError, match=f"{path}: no record of a running instance"):
        source.instance_info(NAME)
    assert source.list_instances() == [NAME], "it is not taken for stopped"
    found = source.verify()
    assert found is not None
    assert f"{path}: no record of a running instance" in found


def test_migration_keeps_the_time_of_the_start(source: Hypervisor, target: Hypervisor) -> None:
    source.start(INSTANCE, [])
    info = source.migration.describe(INSTANCE)
    address = target.migration.accept(INSTANCE, info, "127.0.0.2", [])
    assert target.list_instances() == []
    source.migration.send(INSTANCE, address, live=True)
    assert source.migration.status(INSTANCE).to_wire()["status"] == "completed"
    state = source.instance_info(NAME)
    assert state is not None
    assert state.state is InstanceState.SHUTDOWN
    target.migration.finish_target(INSTANCE, info, success=True)
    source.migration.finish_source(INSTANCE, success=True, live=True)
    assert (source.list_instances(), target.list_instances()) == ([], [NAME])
    assert target.migration.describe(INSTANCE) == info


def test_running_instance_is_never_forgotten_as_moved(source: Hypervisor) -> None:
    source.start(INSTANCE, [])
    with pytest.raises(HypervisorError, match="still runs"):
        source.migration.finish_source(INSTANCE, success=True, live=True)
    assert source.list_instances() == [NAME]


def test_wrong_requests_are_answered(source: Hypervisor) -> None:
    for name in ("", "../x", ".hidden"):
        with pytest.raises(HypervisorError, match="cannot be the name"):
            source.instance_info(name)
    with pytest.raises(OpPrereqError, match="migration_mode"):
        source.check_params({"migration_mode": "teleport"})
    with pytest.raises(HypervisorError, match="does not run"):
        source.migration.send(INSTANCE, "127.0.0.2", live=True)
    assert source.hotplug is None
    assert source.snapshots is None
    source.check_on_node({"migration_mode": "live"})


def test_node_info_has_the_keys_of_the_wire(source: Hypervisor) -> None:
    before = source.node_info()
    assert set(before) == {
        "memory_total",
        "memory_free",
        "memory_dom0",
        "cpu_total",
        "cpu_dom0",
        "cpu_nodes",
        "cpu_sockets",
    }
    source.start(make_instance("big", "fake", memory_mib=1 << 30), [])
    assert source.node_info()["memory_free"] == 0
    assert source.verify() is None


def test_console_is_a_message(source: Hypervisor) -> None:
    consoles = source.consoles(INSTANCE, ConsoleNode("n", "a"))
    assert [str(console.kind) for console in consoles] == ["msg"]


def test_registry(tmp_path: Path) -> None:
    env = NodeEnv(Paths(str(tmp_path)), "n", "a")
    assert isinstance(get_hypervisor("fake", env, {}), FakeHypervisor)
    with pytest.raises(OpPrereqError, match="unknown hypervisor"):
        get_hypervisor("vmware", env, {})
