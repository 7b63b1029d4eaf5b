"""Real QEMU processes moved between two nodes, with cuts at every step."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.waiting import wait_until
from guests import images
from guests.instances import make_instance
from guests.nodes import QEMU, KvmNode, KvmNodes, kvm_nodes

from ganeti.base.errors import HypervisorError
from ganeti.base.json import dumps, loads
from ganeti.hypervisor.interface import AssembledDisk, InstanceState, MigrationState
from ganeti.hypervisor.kvm import state
from ganeti.hypervisor.kvm.launch import press_until_down
from ganeti.hypervisor.kvm.migration import migration_port, split_target
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.objects.rpc_instance import RpcInstance

pytestmark = [pytest.mark.qemu, pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64")]
INSTANCE = make_instance(
    kernel_path="", kvm_flag="disabled", nics=1, vnc_bind_address="127.0.0.1", network_port=11003
)
NAME = INSTANCE.name


@pytest.fixture
def nodes() -> Iterator[KvmNodes]:
    with kvm_nodes(2) as found:
        yield found


@pytest.fixture
def source(nodes: KvmNodes) -> KvmNode:
    return nodes.nodes[0]


@pytest.fixture
def target(nodes: KvmNodes) -> KvmNode:
    return nodes.nodes[1]


class Move:
    """The steps of a migration in their order, as the master takes them."""

    def __init__(
        self,
        source: KvmNode,
        target: KvmNode,
        disks: list[AssembledDisk],
        instance: RpcInstance = INSTANCE,
        live: bool = True,
    ) -> None:
        self.source, self.target, self.disks, self.instance = source, target, disks, instance
        self.live = live
        self.info = ""
        self.address = ""
        self.pause_ms = 0

    def describe(self) -> None:
        self.source.driver.migration.check(self.instance)
        self.info = self.source.driver.migration.describe(self.instance)

    def accept(self) -> None:
        self.address = self.target.driver.migration.accept(
            self.instance, self.info, self.target.env.address, self.disks
        )

    def send(self) -> None:
        self.source.driver.migration.send(self.instance, self.address, live=self.live)

    def wait(self) -> None:
        while True:
            status = self.source.driver.migration.status(self.instance)
            if status.status is not MigrationState.ACTIVE:
                break
        assert status.status is MigrationState.COMPLETED, status
        assert status.downtime_ms is not None
        self.pause_ms = status.downtime_ms

    def let_run(self) -> None:
        self.target.driver.migration.finish_target(self.instance, self.info, success=True)

    def forget(self) -> None:
        self.source.driver.migration.finish_source(self.instance, success=True, live=self.live)

    def steps(self) -> list[Callable[[], None]]:
        return [self.describe, self.accept, self.send, self.wait, self.let_run, self.forget]

    def run(self) -> None:
        for step in self.steps():
            step()


def last_beat(node: KvmNode, name: str = NAME) -> int:
    beats = re.findall(r"^beat (\d+)\s", node.serial(name), re.MULTILINE | re.IGNORECASE)
    return int(beats[-1]) if beats else 0


def runs(node: KvmNode) -> bool:
    info = node.driver.instance_info(NAME)
    return info is not None and info.state is InstanceState.RUNNING


def really_runs(node: KvmNode) -> bool:
    """Ask QEMU itself, whatever the driver says."""
    if node.process(NAME) is None:
        return False
    with Monitor.connect(NAME, node.files(NAME).socket_path("info")) as monitor:
        return monitor.status() == "running"


def clean_up(source: KvmNode, target: KvmNode) -> None:
    """Do what the interface tells to do after a cut."""
    if runs(target):
        source.driver.migration.finish_source(INSTANCE, success=True, live=True)
        return
    never_ran = target.driver.migration.finish_target(INSTANCE, "", success=False)
    has_left = source.process(NAME) is not None and not runs(source)
    success = has_left and not never_ran
    source.driver.migration.finish_source(INSTANCE, success=success, live=True)


@pytest.mark.parametrize("live", [True, False], ids=["live", "non-live"])
def test_guest_keeps_its_memory(
    nodes: KvmNodes, source: KvmNode, target: KvmNode, live: bool
) -> None:
    disk = nodes.boot_disk()
    source.driver.start(INSTANCE, [disk])
    source.wait_serial(NAME, "beat 2")
    move = Move(source, target, [disk], live=live)
    move.run()
    assert move.pause_ms >= 0
    assert source.driver.list_instances() == []
    assert source.process(NAME) is None
    assert target.driver.list_instances() == [NAME]
    before = last_beat(source)
    target.wait_serial(NAME, f"beat {before + 2}")
    assert "guest up" not in target.serial(NAME)
    target.driver.stop(NAME, timeout_s=60)
    assert "power off" in target.serial(NAME)


def test_there_and_back_again(nodes: KvmNodes, source: KvmNode, target: KvmNode) -> None:
    disk = nodes.boot_disk()
    source.driver.start(INSTANCE, [disk])
    source.wait_serial(NAME, "beat 1")
    Move(source, target, [disk]).run()
    Move(target, source, [disk]).run()
    beat = last_beat(target) or last_beat(source)
    source.wait_serial(NAME, f"beat {beat + 2}")
    assert source.serial(NAME).count("guest up") <= 1


@pytest.mark.parametrize("cut", range(6))
def test_cut_after_every_step(nodes: KvmNodes, source: KvmNode, target: KvmNode, cut: int) -> None:
    disk = nodes.boot_disk()
    source.driver.start(INSTANCE, [disk])
    source.wait_serial(NAME, "beat 1")
    move = Move(source, target, [disk])
    for step in move.steps()[:cut]:
        step()
        assert not (really_runs(source) and really_runs(target))
        assert runs(source) == (really_runs(source)) or not runs(target)
    clean_up(source, target)
    assert [really_runs(source), really_runs(target)] == [cut < 5, cut == 5]
    node, other = (target, source) if cut == 5 else (source, target)
    assert other.process(NAME) is None
    node.wait_serial(NAME, f"beat {last_beat(node) + 2}")


@pytest.mark.parametrize("victim", ["source", "target"])
@pytest.mark.parametrize("cut", [2, 3, 4])
def test_death_of_a_qemu_after_every_step(
    nodes: KvmNodes, source: KvmNode, target: KvmNode, cut: int, victim: str
) -> None:
    disk = nodes.boot_disk()
    source.driver.start(INSTANCE, [disk])
    source.wait_serial(NAME, "beat 1")
    move = Move(source, target, [disk])
    for step in move.steps()[:cut]:
        step()
    process = (source if victim == "source" else target).process(NAME)
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    if victim == "target":
        clean_up(source, target)
        assert [really_runs(source), really_runs(target)] == [True, False]
        assert target.process(NAME) is None
        source.wait_serial(NAME, f"beat {last_beat(source) + 2}")
    elif cut < 4:
        target.driver.migration.finish_target(INSTANCE, "", success=False)
        with pytest.raises(HypervisorError, match="does not run"):
            source.driver.migration.finish_source(INSTANCE, success=False, live=True)
        assert [runs(source), runs(target)] == [False, False]
    else:  # everything was received, so nothing is lost
        move.let_run()
        move.forget()
        assert [really_runs(source), really_runs(target)] == [False, True]
        target.wait_serial(NAME, f"beat {last_beat(target) + 2}")


def test_what_ran_on_the_target_and_ended_there_does_not_go_on_at_the_source(
    nodes: KvmNodes, source: KvmNode, target: KvmNode
) -> None:
    arrived(nodes, source, target).let_run()
    process = target.process(NAME)
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    clean_up(source, target)
    assert [source.process(NAME), target.process(NAME)] == [None, None]


def test_source_cannot_run_while_the_target_has_the_disks(
    nodes: KvmNodes, source: KvmNode, target: KvmNode
) -> None:
    """Even in the wrong order of steps."""
    disk = nodes.boot_disk()
    source.driver.start(INSTANCE, [disk])
    source.wait_serial(NAME, "beat 1")
    move = Move(source, target, [disk])
    for step in move.steps()[:5]:
        step()
    with pytest.raises(HypervisorError, match="lock"):
        source.driver.migration.finish_source(INSTANCE, success=False, live=True)
    assert [really_runs(source), really_runs(target)] == [False, True]


def test_target_that_waits_is_no_instance(
    nodes: KvmNodes, source: KvmNode, target: KvmNode
) -> None:
    disk = nodes.boot_disk()
    source.driver.start(INSTANCE, [disk])
    move = Move(source, target, [disk])
    move.describe()
    move.accept()
    assert target.driver.list_instances() == []
    assert target.driver.all_instances_info() == []
    with pytest.raises(HypervisorError, match="is being received"):
        target.driver.start(INSTANCE, [disk])
    move.accept()  # a second try replaces what waits
    move.send()
    move.wait()
    with pytest.raises(HypervisorError, match="already here, and postmigrate"):
        source.driver.start(INSTANCE, [disk])
    move.let_run()
    move.let_run()  # repeated by a master that got no answer
    with pytest.raises(HypervisorError, match="already on"):
        move.accept()
    target.driver.migration.finish_target(INSTANCE, "", success=False)  # too late to take it back
    assert really_runs(target)
    move.forget()
    move.forget()


def pause(node: KvmNode) -> None:
    with Monitor.connect(NAME, node.files(NAME).socket_path("control")) as monitor:
        monitor.execute("stop")


def arrived(nodes: KvmNodes, source: KvmNode, target: KvmNode) -> Move:
    """Migrate as far as all memory has left; the copy on the target waits."""
    disk = nodes.boot_disk()
    source.driver.start(INSTANCE, [disk])
    source.wait_serial(NAME, "beat 1")
    move = Move(source, target, [disk])
    for step in move.steps()[:4]:
        step()
    return move


def test_a_mark_that_its_hand_over_left_goes_when_the_guest_is_seen_to_run(
    nodes: KvmNodes, source: KvmNode, target: KvmNode
) -> None:
    move = arrived(nodes, source, target)
    move.let_run()
    move.forget()
    state.expect(target.files(NAME))
    assert runs(target)
    pause(target)
    assert runs(target)  # as any guest that somebody has paused
    target.driver.migration.finish_target(INSTANCE, "", success=False)
    assert target.driver.list_instances() == [NAME]


def test_a_hand_over_cut_off_is_completed_and_nobody_takes_it_for_waiting(
    nodes: KvmNodes, source: KvmNode, target: KvmNode
) -> None:
    move = arrived(nodes, source, target)
    state.hand_over(target.files(NAME))
    assert runs(target)  # perhaps
    target.driver.migration.finish_target(INSTANCE, "", success=False)
    assert target.driver.list_instances() == [NAME]
    target.driver.migration.finish_target(INSTANCE, "", success=True)
    assert really_runs(target)
    assert state.is_handed_over(target.files(NAME))
    pause(target)
    move.let_run()  # nothing is left of the hand-over: whoever has paused it wants that
    assert not really_runs(target)


def test_one_that_qemu_refuses_to_let_run_waits_again(
    nodes: KvmNodes, source: KvmNode, target: KvmNode
) -> None:
    move = arrived(nodes, source, target)
    source.driver.migration.finish_source(INSTANCE, success=False, live=True)
    with pytest.raises(HypervisorError, match="lock"):
        move.let_run()
    assert target.driver.instance_info(NAME) is None
    target.driver.migration.finish_target(INSTANCE, "", success=False)
    assert target.process(NAME) is None
    assert really_runs(source)


def test_running_source_is_never_forgotten(
    nodes: KvmNodes, source: KvmNode, target: KvmNode
) -> None:
    source.driver.start(INSTANCE, [nodes.boot_disk()])
    with pytest.raises(HypervisorError, match="still runs"):
        source.driver.migration.finish_source(INSTANCE, success=True, live=True)
    assert really_runs(source)
    with pytest.raises(HypervisorError, match="does not run on"):
        target.driver.migration.finish_target(INSTANCE, "", success=True)


def test_failed_transfer_says_why_and_the_guest_runs_on(nodes: KvmNodes, source: KvmNode) -> None:
    source.driver.start(INSTANCE, [nodes.boot_disk()])
    source.driver.migration.send(INSTANCE, "127.0.0.1:1", live=True)
    wait_until(
        lambda: source.driver.migration.status(INSTANCE).status is MigrationState.FAILED, "failure"
    )
    status = source.driver.migration.status(INSTANCE)
    assert "refused" in str(status.error)
    assert really_runs(source)


def test_failed_non_live_transfer_lets_the_guest_run_on(
    nodes: KvmNodes, source: KvmNode, target: KvmNode
) -> None:
    source.driver.start(INSTANCE, [nodes.boot_disk()])
    source.driver.migration.send(INSTANCE, "127.0.0.1:1", live=False)
    wait_until(
        lambda: source.driver.migration.status(INSTANCE).status is MigrationState.FAILED, "failure"
    )
    clean_up(source, target)
    assert really_runs(source)


def test_what_a_person_paused_stays_so_when_its_transfer_fails(
    nodes: KvmNodes, source: KvmNode
) -> None:
    """Also after an earlier one, for which it was stopped, and after which it went on."""
    source.driver.start(INSTANCE, [nodes.boot_disk()])
    for live, was_running in ((False, True), (True, False), (False, False)):
        source.driver.migration.send(INSTANCE, "127.0.0.1:1", live=live)
        wait_until(
            lambda: source.driver.migration.status(INSTANCE).status is MigrationState.FAILED,
            "failure",
        )
        source.driver.migration.finish_source(INSTANCE, success=False, live=True)
        assert really_runs(source) is was_running
        with Monitor.connect(NAME, source.files(NAME).socket_path("control")) as monitor:
            monitor.execute("stop")


def test_cleaning_up_leaves_a_guest_paused_that_was_started_so(
    nodes: KvmNodes, source: KvmNode
) -> None:
    source.driver.start(INSTANCE, [nodes.boot_disk()], paused=True)
    source.driver.migration.finish_source(INSTANCE, success=False, live=True)
    assert runs(source)
    assert not really_runs(source)


SHUTS_DOWN = make_instance(
    kernel_path="", kvm_flag="disabled", user_shutdown=True, migration_bandwidth=1
)


def switch_off(node: KvmNode) -> None:
    with Monitor.connect(NAME, node.files(NAME).socket_path("control")) as monitor:
        press_until_down(monitor, 60)
    wait_until(lambda: not runs(node), "the guest to be off")


def test_a_guest_that_has_switched_itself_off_is_not_let_go_on(
    nodes: KvmNodes, source: KvmNode
) -> None:
    source.driver.start(SHUTS_DOWN, [nodes.boot_disk()])
    source.wait_serial(NAME, "beat 1")
    switch_off(source)
    with pytest.raises(HypervisorError, match=r"switched itself off: it is stopped; 'gnt-instance"):
        source.driver.migration.finish_source(SHUTS_DOWN, success=False, live=True)
    info = source.driver.instance_info(NAME)
    assert info is not None
    assert info.state is InstanceState.SHUTDOWN


def test_a_guest_that_switches_itself_off_while_it_moves_arrives_so(
    nodes: KvmNodes, source: KvmNode, target: KvmNode
) -> None:
    disk = nodes.boot_disk()
    source.driver.start(SHUTS_DOWN, [disk])
    source.wait_serial(NAME, "beat 1")
    move = Move(source, target, [disk], SHUTS_DOWN)
    move.describe()
    move.accept()
    with Monitor.connect(NAME, source.files(NAME).socket_path("info")) as monitor:
        move.send()
        monitor.execute("migrate-set-parameters", {"max-bandwidth": 1000})
    switch_off(source)
    with Monitor.connect(NAME, source.files(NAME).socket_path("info")) as monitor:
        monitor.execute("migrate-set-parameters", {"max-bandwidth": 1 << 30})
    move.wait()
    move.let_run()
    move.forget()
    info = target.driver.instance_info(NAME)
    assert info is not None
    assert info.state is InstanceState.SHUTDOWN
    assert source.process(NAME) is None


def test_slow_transfer_is_aborted(nodes: KvmNodes, source: KvmNode, target: KvmNode) -> None:
    instance = make_instance(kernel_path="", kvm_flag="disabled", migration_bandwidth=1)
    disk = nodes.boot_disk()
    source.driver.start(instance, [disk])
    source.wait_serial(NAME, "beat 1")
    move = Move(source, target, [disk], instance)
    move.describe()
    move.accept()
    with Monitor.connect(NAME, source.files(NAME).socket_path("info")) as monitor:
        monitor.execute("object-add", {"qom-type": "memory-backend-ram", "id": "x", "size": 4096})
        move.send()
        monitor.execute("migrate-set-parameters", {"max-bandwidth": 1000})
        status = source.driver.migration.status(instance, wait_s=0.1)
        assert status.status is MigrationState.ACTIVE
        assert status.total_ram
    started = time.monotonic()
    clean_up(source, target)
    assert time.monotonic() - started < 60
    assert [really_runs(source), really_runs(target)] == [True, False]
    move.run()  # and then it works
    assert really_runs(target)


def test_taken_port_is_passed_over(nodes: KvmNodes, source: KvmNode, target: KvmNode) -> None:
    disk = nodes.boot_disk()
    source.driver.start(INSTANCE, [disk])
    move = Move(source, target, [disk])
    move.describe()
    with socket.create_server((target.env.address, migration_port(INSTANCE))):
        move.accept()
    address, port = split_target(move.address, 0)
    assert (address, port) == (target.env.address, migration_port(INSTANCE) + 1)
    move.send()
    move.wait()
    move.let_run()
    assert really_runs(target)


def test_paused_guest_arrives_paused(nodes: KvmNodes, source: KvmNode, target: KvmNode) -> None:
    disk = nodes.boot_disk()
    source.driver.start(INSTANCE, [disk])
    source.wait_serial(NAME, "beat 1")
    with Monitor.connect(NAME, source.files(NAME).socket_path("control")) as monitor:
        monitor.execute("stop")
    Move(source, target, [disk]).run()
    assert not really_runs(target)
    assert target.driver.list_instances() == [NAME]


def test_unfit_descriptions_are_refused(nodes: KvmNodes, source: KvmNode, target: KvmNode) -> None:
    disk = nodes.boot_disk()
    source.driver.start(INSTANCE, [disk])
    move = Move(source, target, [disk])
    move.describe()
    for info, disks, text in (
        ("nonsense", [disk], "no description of a machine"),
        (move.info, [], "restart it before migrating"),
        (move.info.replace('"format":1', '"format":99'), [disk], "unknown format"),
        (move.info.replace(NAME, "other"), [disk], "is of other"),
    ):
        with pytest.raises(HypervisorError, match=text):
            target.driver.migration.accept(INSTANCE, info, target.env.address, disks)
        assert target.process(NAME) is None
    changed = make_instance(kernel_path="", kvm_flag="disabled", nics=2)
    with pytest.raises(HypervisorError, match=r"network interfaces .*restart it before"):
        target.driver.migration.accept(changed, move.info, target.env.address, [disk])
    missing = make_instance(kernel_path="", kvm_flag="disabled", nics=1, migration_caps="teleport")
    with pytest.raises(HypervisorError, match=r"migration_caps.*teleport"):
        target.driver.migration.accept(missing, move.info, target.env.address, [disk])
    assert target.process(NAME) is None
    assert not Path(target.files(NAME).incoming).exists()


def test_exact_machine_type_travels(nodes: KvmNodes, source: KvmNode) -> None:
    source.driver.start(INSTANCE, [nodes.boot_disk()])
    described = loads(source.driver.migration.describe(INSTANCE))
    assert re.search(rb'"machine_type":"pc-i440fx-[0-9.]+"', dumps(described))


def test_linux_keeps_its_uptime(nodes: KvmNodes, source: KvmNode, target: KvmNode) -> None:
    found = images.tiny_linux()
    if found is None:
        pytest.skip(f"the Linux guest cannot be had: {images.why_no_linux}")
    instance = make_instance(
        kernel_path=found[0],
        initrd_path=found[1],
        root_path=None,
        kernel_args="quiet panic=1",
        kvm_flag="disabled",
        memory_mib=images.LINUX_MEMORY_MIB,
        nics=1,
        migration_bandwidth=1000,
        migration_downtime=300,
    )
    disk = nodes.boot_disk()
    # QEMU's emulation now and then loses a guest that moves while it runs, never one that stands
    # still meanwhile (see test/cluster/test_linux_guest.py).
    for live in (True, True, False):
        source.driver.start(instance, [disk])
        source.wait_serial(NAME, "BEAT 3 ", 180)
        assert re.search(r"disks=.*vda.* nics=.*eth0", source.serial(NAME))
        Move(source, target, [disk], instance, live).run()
        wanted = f"BEAT {last_beat(source) + 4} "
        try:
            output = target.wait_serial(NAME, wanted, 60)
            break
        except AssertionError:
            assert live, "a guest that stood still was lost"
            assert really_runs(target)
            target.driver.stop(NAME, force=True)
            for node in (source, target):
                Path(node.files(NAME).serial_log).unlink()
    uptimes = [float(text) for text in re.findall(r"uptime=([0-9.]+) ", source.serial(NAME))]
    later = [float(text) for text in re.findall(r"uptime=([0-9.]+) ", output)]
    assert later[-1] > uptimes[-1]
    assert "TINY-UP" not in output
    target.driver.stop(NAME, timeout_s=60)
    assert "TINY-OFF" in target.serial(NAME)
    assert target.process(NAME) is None
