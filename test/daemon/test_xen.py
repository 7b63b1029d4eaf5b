"""The drivers of Xen with a played xl: all that the promises of every driver leave out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyinotify
import pytest
from fakes import xl_program
from guests.instances import make_instance

from ganeti.base.errors import HypervisorError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import ConsoleNode, InstanceState, MigrationState, NodeEnv
from ganeti.hypervisor.xen import migration
from ganeti.hypervisor.xen.driver import XenHypervisor
from ganeti.hypervisor.xen.tool import DomainFiles
from ganeti.objects.hypervisors import ConsoleKind, RebootType
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.system import process

NAME = "web1.example.com"
Nodes = tuple[NodeEnv, NodeEnv]


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    one, other = (
        NodeEnv(Paths(str(tmp_path / "nodes" / name)), f"{name}.example.com", "127.0.0.1")
        for name in ("node1", "node2")
    )
    xl_program.prepare([one.paths.root, other.paths.root])
    monkeypatch.setenv("PATH", xl_program.install(tmp_path / "bin"))
    return one, other


def pv(env: NodeEnv) -> XenHypervisor:
    return XenHypervisor("xen-pvm", env, {})


def hvm(env: NodeEnv) -> XenHypervisor:
    return XenHypervisor("xen-hvm", env, {})


def instance(name: str = NAME, hypervisor: str = "xen-pvm", **more: Any) -> RpcInstance:
    return make_instance(name, hypervisor, **more)


def number(env: NodeEnv, name: str = NAME) -> int:
    with xl_program.domains(Path(env.paths.root)) as found:
        return int(found[name]["id"])


def test_each_of_the_two_sees_its_own_kind(nodes: Nodes) -> None:
    pv(nodes[0]).start(instance(), [])
    hvm(nodes[0]).start(instance("win1.example.com", "xen-hvm"), [])
    assert pv(nodes[0]).list_instances() == [NAME]
    assert hvm(nodes[0]).list_instances() == ["win1.example.com"]
    assert "vncpasswd" in Path(nodes[0].paths.xen_config_dir, "win1.example.com").read_text()
    info = pv(nodes[0]).node_info()
    assert (info["memory_total"], info["memory_dom0"]) == (16384, 1024)
    assert info["memory_free"] == 16384 - 1024 - 32 - 64
    assert info["memory_hv"] == 64


def test_guests_are_asked_and_those_that_do_not_listen_are_removed(nodes: Nodes) -> None:
    driver = pv(nodes[0])
    driver.start(instance(), [])
    first = number(nodes[0])
    driver.reboot(instance(), [], kind=RebootType.SOFT, timeout_s=20)
    assert number(nodes[0]) != first
    driver.stop(NAME, timeout_s=20)
    driver.start(instance(kernel_args="stubborn"), [])
    driver.reboot(instance(kernel_args="stubborn"), [], kind=RebootType.SOFT, timeout_s=0.5)
    driver.stop(NAME, timeout_s=0.5)
    assert driver.all_instances_info() == []
    assert os.listdir(nodes[0].paths.xen_config_dir) == []


def test_who_shuts_down_from_inside_stays_known_if_that_is_wanted(nodes: Nodes) -> None:
    driver, paths = pv(nodes[0]), nodes[0].paths
    os.makedirs(paths.data_dir)
    Path(paths.ssconf_file("enabled_user_shutdown")).write_text("True\n")
    driver.start(instance(), [])
    driver._xl.change("", "shutdown", NAME)
    info = driver.instance_info(NAME)
    assert info is not None
    assert info.state is InstanceState.SHUTDOWN
    driver.stop(NAME)
    assert driver.instance_info(NAME) is None


def test_memory_of_a_running_guest(nodes: Nodes) -> None:
    driver = pv(nodes[0])
    driver.start(instance(memory_mib=64), [])
    driver.balloon(NAME, 32)
    info = driver.instance_info(NAME)
    assert info is not None
    assert info.memory_mib == 32
    with pytest.raises(HypervisorError, match=r"cannot be set to 128 MiB.*static maximum"):
        driver.balloon(NAME, 128)


def test_a_start_that_fails_leaves_nothing(nodes: Nodes) -> None:
    driver = pv(nodes[0])
    with pytest.raises(OpPrereqError, match="kernel_path: there is no file /boot/none"):
        driver.start(instance(kernel_path="/boot/none"), [])
    Path(nodes[0].paths.root, xl_program.STATE).write_text("broken")
    with pytest.raises(HypervisorError, match="cannot list the domains"):
        driver.start(instance(), [])
    os.unlink(Path(nodes[0].paths.root, xl_program.STATE))
    driver.start(instance(), [], paused=True)
    with pytest.raises(HypervisorError, match="is already here"):
        driver.start(instance(), [])
    assert driver.verify() is None


def test_a_node_without_xen_says_so(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "Xen does not answer: cannot run 'xl'" in str(pv(nodes[0]).verify())


def test_consoles(nodes: Nodes) -> None:
    node = ConsoleNode("node1", "192.0.2.1")
    [serial] = pv(nodes[0]).consoles(instance(), node)
    assert (serial.kind, serial.command) == (ConsoleKind.SSH, ["xl", "console", NAME])
    real = NodeEnv(Paths(""), "node1", "192.0.2.1")
    vnc, serial = hvm(real).consoles(instance(hypervisor="xen-hvm"), node)
    assert (vnc.kind, vnc.host, vnc.port) == (ConsoleKind.VNC, "192.0.2.1", 11000)
    assert serial.command == ["xl", "console", "-t", "serial", NAME]
    alone = instance(hypervisor="xen-hvm", vnc_bind_address="")
    assert [each.kind for each in hvm(real).consoles(alone, node)] == [ConsoleKind.SSH]


def send(nodes: Nodes, moved: RpcInstance, *, live: bool) -> tuple[str, MigrationState]:
    source, target = (pv(env).migration for env in nodes)
    info = source.describe(moved)
    target.accept(moved, info, "127.0.0.1", [])
    source.send(moved, "127.0.0.1", live=live)
    while (found := source.status(moved)).status is MigrationState.ACTIVE:
        pass
    return info if found.error is None else found.error, found.status


def test_not_live_a_guest_stands_still_at_both_nodes_until_it_is_decided(nodes: Nodes) -> None:
    source, target = (pv(env) for env in nodes)
    source.start(instance(), [])
    info, state = send(nodes, instance(), live=False)
    assert state is MigrationState.COMPLETED
    assert target.instance_info(NAME) is None
    sent = source.instance_info(NAME)
    assert sent is not None
    assert sent.state is InstanceState.SHUTDOWN
    assert target.migration.finish_target(instance(), info, success=False)
    source.migration.finish_source(instance(), success=False, live=False)
    found = source._xl.find(NAME)
    assert found is not None
    assert not found.is_paused
    info, state = send(nodes, instance(), live=False)
    target.migration.finish_target(instance(), info, success=True)
    source.migration.finish_source(instance(), success=True, live=False)
    assert target.list_instances() == [NAME]
    assert source.list_instances() == []
    assert Path(nodes[1].paths.xen_config_dir, NAME).read_text() == info
    assert os.listdir(nodes[0].paths.xen_config_dir) == []


def test_a_mark_that_its_hand_over_left_goes_when_the_guest_is_seen_to_run(nodes: Nodes) -> None:
    source, target = (pv(env) for env in nodes)
    source.start(instance(), [])
    info, _state = send(nodes, instance(), live=False)
    target.migration.finish_target(instance(), info, success=True)
    source.migration.finish_source(instance(), success=True, live=False)
    Path(DomainFiles(nodes[1].paths, NAME).incoming).touch()
    assert target.list_instances() == [NAME]
    target._xl.change("no", "pause", NAME)
    assert not target.migration.finish_target(instance(), "", success=False)
    assert target.list_instances() == [NAME]
    target.migration.finish_target(instance(), "", success=True)
    assert Path(nodes[1].paths.xen_config_dir, NAME).read_text() == info


def test_what_is_read_of_a_transfer_appears_whole(nodes: Nodes) -> None:
    source = pv(nodes[0])
    source.start(instance(), [])
    directory = os.path.dirname(DomainFiles(nodes[0].paths, NAME).transfer("pid"))
    os.makedirs(directory, exist_ok=True)
    appeared: list[tuple[str, str]] = []
    manager = pyinotify.WatchManager()
    notifier = pyinotify.Notifier(
        manager, lambda event: appeared.append((event.name, event.maskname)), timeout=0
    )
    manager.add_watch(directory, pyinotify.IN_CREATE | pyinotify.IN_MOVED_TO)
    send(nodes, instance(), live=True)
    while notifier.check_events():
        notifier.read_events()
        notifier.process_events()
    notifier.stop()
    ways = {(name.removeprefix(f"{NAME}."), way) for name, way in appeared}
    assert {("pid", "IN_MOVED_TO"), ("status", "IN_MOVED_TO")} <= ways
    assert not {("pid", "IN_CREATE"), ("status", "IN_CREATE")} & ways


def test_a_live_migration_that_fails_leaves_the_guest_where_it_was(nodes: Nodes) -> None:
    source, target = (pv(env) for env in nodes)
    stays = instance(kernel_args="moves=never")
    source.start(stays, [])
    said, state = send(nodes, stays, live=True)
    assert state is MigrationState.FAILED
    assert "Migration failed, resuming at sender" in said
    target.migration.finish_target(stays, "", success=False)
    source.migration.finish_source(stays, success=False, live=True)
    assert source.list_instances() == [NAME]
    assert target.list_instances() == []
    with pytest.raises(HypervisorError, match="still runs on node1"):
        source.migration.finish_source(stays, success=True, live=True)


def test_a_transfer_that_is_given_up_does_not_go_on(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its shell was ended; xl moved the guest all the same, when nobody expected it."""
    monkeypatch.setattr(migration, "_LIVE", "sleep 300; xl migrate -s {ssh} {name} {host}")
    source = pv(nodes[0])
    source.start(instance(), [])
    source.migration.send(instance(), "127.0.0.1", live=True)
    path = Path(DomainFiles(nodes[0].paths, NAME).transfer("pid"))
    shell = int(path.read_text())
    programs = Path(f"/proc/{shell}/task/{shell}/children")
    while not (found := programs.read_text().split()):
        os.sched_yield()
    source.migration.finish_source(instance(), success=False, live=True)
    assert process.wait_gone(int(found[0]), 0.0)
    assert source.list_instances() == [NAME]
    assert not path.exists()


def test_devices_are_refused_where_xen_has_no_iommu(nodes: Nodes) -> None:
    params = instance(hypervisor="xen-hvm", pci_pass="01:00.0").hvparams
    with pytest.raises(OpPrereqError, match=r"pci_pass: Xen on node \S+ has no IOMMU"):
        hvm(nodes[0]).check_on_node(params)
    hvm(nodes[0]).check_on_node({**params, "pci_pass": ""})
