"""Moving a running machine: the source's and the target's part.

The source sends with QEMU's own migration.  The target is started with ``-incoming defer``: it
takes the memory and then stands still, without locks on its disks, until it is told to run.  So
nothing that happens between leaves two copies running; see `ganeti.hypervisor.interface`.

Both sides compute the same TCP port from the instance's own, so that several instances can move
to one node at a time; where that port is taken on the target, it takes another and says so.

Source: QEMU's QMP reference, migrate; constants.json, "hypervisors".
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.interface import (
    AssembledDisk,
    Disks,
    Migration,
    MigrationState,
    MigrationStatus,
)
from ganeti.hypervisor.kvm import state
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.hypervisor.kvm.hardware.firmware import check_here
from ganeti.hypervisor.kvm.hardware.virtiofs import check_movable
from ganeti.hypervisor.kvm.launch import (
    abilities_for,
    bring_up,
    clean_up,
    connect_received,
    kill_now,
    stop,
)
from ganeti.hypervisor.kvm.machine import DiskDevice, Machine, NicDevice
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorError
from ganeti.hypervisor.kvm.params import KvmParams
from ganeti.hypervisor.kvm.qemu import KVM, choose_accelerator, find_qemu
from ganeti.hypervisor.kvm.snapshot import disks_alone
from ganeti.hypervisor.kvm.state import Machines
from ganeti.netdev.backends import choose_backends
from ganeti.objects.rpc_instance import RpcInstance, RpcNIC
from ganeti.system import clock

_PORT_SPREAD: Final = 2000
_PORT_MAX: Final = 65535
_FIRST_INSTANCE_PORT: Final = 11000  # constants.json: the range that instances get theirs from
_PORT_TRIES: Final = 20
_CANCEL_TIMEOUT_S: Final = 30.0
_SETTLE_TIMEOUT_S: Final = 10.0
_RECEIVED_TIMEOUT_S: Final = 30.0
_MIB: Final = 1 << 20

_SWITCHED_OFF: Final = "shutdown"  # QEMU lets a guest that has done that go on only after a reset
_CHANGED: Final = frozenset({"MIGRATION"})
_STOPPED: Final = frozenset({"STOP", "RESUME", "MIGRATION"})

# QEMU's MigrationStatus -> ours; with any other a migration has not begun
_STATES: Final[Mapping[str, MigrationState]] = {
    "setup": MigrationState.ACTIVE,
    "active": MigrationState.ACTIVE,
    "pre-switchover": MigrationState.ACTIVE,
    "device": MigrationState.ACTIVE,
    "wait-unplug": MigrationState.ACTIVE,
    "cancelling": MigrationState.ACTIVE,
    "postcopy-active": MigrationState.POSTCOPY_ACTIVE,
    "postcopy-paused": MigrationState.POSTCOPY_ACTIVE,
    "postcopy-recover": MigrationState.POSTCOPY_ACTIVE,
    "cancelled": MigrationState.CANCELLED,
    "completed": MigrationState.COMPLETED,
    "failed": MigrationState.FAILED,
}
_UNDER_WAY: Final = frozenset({MigrationState.ACTIVE, MigrationState.POSTCOPY_ACTIVE})
# Always wanted, where QEMU has them: check that the right machine comes in, leave the disks to the
# source until the guest is to run here, tell of changes, slow down a guest that changes memory
# faster than it can be sent, take along what was written since the last export.
_ALWAYS: Final = (
    "validate-uuid",
    "late-block-activate",
    "events",
    "auto-converge",
    "dirty-bitmaps",
)


def migration_port(instance: RpcInstance) -> int:
    """Return the port that a target listens on for an instance, if it is free."""
    base = KvmParams(instance.hvparams).number("migration_port")
    spread = min(_PORT_SPREAD, _PORT_MAX + 1 - base)
    if instance.network_port is None:
        return base + zlib.crc32(instance.name.encode()) % spread
    return base + (instance.network_port - _FIRST_INSTANCE_PORT) % spread


def split_target(target: str, default_port: int) -> tuple[str, int]:
    """Split "address", "address:port" or "[address]:port"."""
    host, separator, port = target.rpartition(":")
    if target.startswith("["):
        if not target.endswith("]") and port.isdigit():
            return host.strip("[]"), int(port)
        return target.strip("[]"), default_port
    if separator and port.isdigit() and ":" not in host:
        return host, int(port)
    return target, default_port


def join_target(address: str, port: int) -> str:
    """Return "address:port", with an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def set_capabilities(monitor: Monitor, wanted: Sequence[str]) -> None:
    """Switch on migration capabilities: those asked for, and ours where QEMU has them.

    Raises:
        HypervisorError: QEMU lacks one that was asked for.
    """
    known = {str(item["capability"]) for item in monitor.query_list("query-migrate-capabilities")}
    missing = [name for name in wanted if name not in known]
    if missing:
        raise HypervisorError(
            f"hypervisor parameter migration_caps: this QEMU does not have {', '.join(missing)};"
            f" it has {', '.join(sorted(known))}"
        )
    names = dict.fromkeys((*wanted, *(name for name in _ALWAYS if name in known)))
    states = [{"capability": name, "state": True} for name in names]
    monitor.execute("migrate-set-capabilities", {"capabilities": states})


def listen(monitor: Monitor, address: str, port: int) -> int:
    """Let a waiting QEMU listen at an address; returns the port, the first free one from ``port``.

    Raises:
        MonitorError: it cannot listen there at all.
    """
    last = min(port + _PORT_TRIES, _PORT_MAX)
    while True:
        try:
            monitor.execute("migrate-incoming", {"uri": f"tcp:{join_target(address, port)}"})
        except MonitorError:
            if port >= last:
                raise
            port += 1
        else:
            return port


def send(monitor: Monitor, instance: RpcInstance, target: str, *, live: bool) -> None:
    """Begin to send a machine; returns at once.

    Raises:
        HypervisorError: it is not in a state to be sent, or the target cannot be reached.
    """
    params = KvmParams(instance.hvparams)
    if look_from_source(monitor).status in _UNDER_WAY:
        raise _error(instance.name, "is already being migrated")
    status = monitor.status()
    if status not in ("running", "paused"):
        raise _error(instance.name, f"is {status} and cannot be migrated")
    set_capabilities(monitor, params.migration_capabilities())
    monitor.execute(
        "migrate-set-parameters",
        {
            "max-bandwidth": params.number("migration_bandwidth") * _MIB,
            "downtime-limit": params.number("migration_downtime"),
        },
    )
    if not live and status == "running":
        monitor.execute("stop")
    try:
        address, port = split_target(target, migration_port(instance))
        monitor.execute("migrate", {"uri": f"tcp:{join_target(address, port)}"})
    except HypervisorError:
        if not live and status == "running":
            monitor.execute("cont")
        raise


def look_from_source(monitor: Monitor, *, stopped: bool = False) -> MigrationStatus:
    """Look at a migration from its source; one that never began has failed.

    Args:
        stopped: the guest stood still from the beginning on.
    """
    info = monitor.query("query-migrate")
    found = _STATES.get(str(info.get("status")))
    if found is None:
        return MigrationStatus(MigrationState.FAILED, error="no migration was begun")
    memory = info.get("ram")
    ram: Mapping[str, object] = memory if isinstance(memory, dict) else {}
    error = info.get("error-desc")
    return MigrationStatus(
        status=found,
        transferred_ram=_number(ram.get("transferred")),
        total_ram=_number(ram.get("total")),
        downtime_ms=_number(info.get("total-time" if stopped else "downtime")),
        error=None if error is None else str(error),
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def wait_for_end(monitor: Monitor, wait_s: float, *, stopped: bool = False) -> MigrationStatus:
    """Look at a migration from its source, waiting up to ``wait_s`` for its end."""
    deadline = clock.monotonic() + wait_s
    while True:
        found = look_from_source(monitor, stopped=stopped)
        left_s = deadline - clock.monotonic()
        if found.status not in _UNDER_WAY:
            _settle(monitor)
            return found
        if left_s <= 0:
            return found
        monitor.wait_event(_CHANGED, left_s)


def _settle(monitor: Monitor) -> str:
    """Wait until the machine has the state that follows its migration; returns it.

    QEMU says that a migration is over a moment before it leaves the state of its last part.
    """
    deadline = clock.monotonic() + _SETTLE_TIMEOUT_S
    while (status := monitor.status()) == "finish-migrate" and clock.monotonic() < deadline:
        monitor.wait_event(_STOPPED, 0.01)
    return status


def take_back(monitor: Monitor, name: str, *, paused: bool) -> None:
    """Abort a migration on its source, at any moment, and let the guest run again.

    Args:
        paused: it stood still before, and goes on standing still.

    Raises:
        HypervisorError: it does not run; most likely another copy holds its disks, or it has
            switched itself off.
    """
    if look_from_source(monitor).status in _UNDER_WAY:
        monitor.execute("migrate_cancel")
        if wait_for_end(monitor, _CANCEL_TIMEOUT_S).status in _UNDER_WAY:
            raise HypervisorError(f"instance {name}: the migration cannot be cancelled")
    status = _settle(monitor)
    if status == _SWITCHED_OFF:
        text = f"has switched itself off: it is stopped; 'gnt-instance startup {name}' boots it"
        raise _error(name, text)
    if not paused:
        _let_run(monitor, name, status)


def _let_run(monitor: Monitor, name: str, status: str) -> None:
    if status != "running":
        monitor.execute("cont")
    if (status := monitor.status()) != "running":
        raise _error(name, f"does not run: it is {status}")


def wait_received(monitor: Monitor, name: str) -> str:
    """Wait until a machine was received completely; returns its status.

    Raises:
        HypervisorError: it was not received.
    """
    deadline = clock.monotonic() + _RECEIVED_TIMEOUT_S
    while (status := monitor.status()) == "inmigrate":
        # The source has sent all when this is called; the last of it may still be being read.
        if clock.monotonic() > deadline:
            raise _error(name, "was not received completely; it does not run")
        monitor.wait_event(_STOPPED, 0.02)
    return status


def run_received(monitor: Monitor, files: MachineFiles, status: str, *, paused: bool) -> None:
    """Let a machine run that was received completely, or stand still as it did at its source.

    Whatever happens on the way, it is not taken for waiting once QEMU may have let it run.  One
    that has switched itself off while it was moved has come as well, and stays so.

    Raises:
        HypervisorError: it cannot run; one that QEMU refuses to let run waits again.
    """
    state.hand_over(files)
    if not paused and status != _SWITCHED_OFF:
        try:
            _let_run(monitor, files.name, status)
        except MonitorError:
            state.expect(files)
            raise
    state.end_hand_over(files)


class KvmMigration(Migration):
    """Moving machines between nodes; QEMU sends the memory by itself."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._hostname = machines.env.hostname

    def check(self, instance: RpcInstance) -> None:
        """Check that the machine runs, or stands still, and nothing moves it already."""
        self._machines.check_movable(instance.name)
        if KvmParams(instance.hvparams).pci_devices():
            text = "has PCI devices of this node (hypervisor parameter pci_pass); use failover"
            raise _error(instance.name, text)
        runtime = state.load_runtime(self._machines.files(instance.name))
        if runtime is not None and runtime.machine.params.shares():
            with self._machines.control(instance.name) as monitor:
                check_movable(monitor, instance.name, self._hostname)

    def describe(self, instance: RpcInstance) -> str:
        """Describe the running machine for the node that will accept it."""
        with self._machines.control(instance.name) as monitor:
            status = monitor.status()
        runtime = self._machines.runtime(instance.name)
        return state.runtime_for_migration(runtime, paused=status == "paused")

    def accept(self, instance: RpcInstance, info: str, address: str, disks: Disks) -> str:
        """Start a machine that waits for its memory; returns "address:port"."""
        env, files = self._machines.env, self._machines.files(instance.name)
        runtime = state.decode_runtime(info, f"migration of instance {instance.name}")
        machine = runtime.machine
        if (machine.name, machine.uuid) != (instance.name, instance.uuid):
            raise HypervisorError(f"instance {instance.name}: the description is of {machine.name}")
        _check_devices(machine, "disks", machine.disks, disks)
        _check_devices(machine, "network interfaces", machine.nics, instance.nics)
        if state.look(files) is not None:
            raise _error(files.name, f"is already on {self._hostname}; not accepted")
        kill_now(files)  # a machine that waits from an earlier try
        if machine.firmware is not None:
            check_here(machine.firmware, machine.name, self._hostname)
        if machine.accelerator == KVM:
            choose_accelerator("enabled", find_qemu(machine.params.text("kvm_path")), env.paths)
        with contextlib.ExitStack() as undo:
            files.make_directories()
            state.expect(files)
            undo.callback(state.end_hand_over, files)
            backends = choose_backends(instance, abilities_for(env, instance.nics))
            with bring_up(env, runtime, disks, backends, incoming=True) as monitor:
                undo.callback(kill_now, files)
                set_capabilities(monitor, KvmParams(instance.hvparams).migration_capabilities())
                port = listen(monitor, address, migration_port(instance))
            undo.pop_all()
        return join_target(address, port)

    def send(self, instance: RpcInstance, target_address: str, *, live: bool) -> None:
        """Begin to send the machine; returns at once."""
        files = self._machines.files(instance.name)
        with disks_alone(self._machines, instance.name) as monitor:
            runtime = state.load_runtime(files)
            if runtime is not None:
                stops = not live and monitor.status() == "running"
                state.save_runtime(files, replace(runtime, stopped=stops))
            send(monitor, instance, target_address, live=live)

    def status(self, instance: RpcInstance, *, wait_s: float = 1.0) -> MigrationStatus:
        """Look at a migration from its source, waiting a moment for its end."""
        with self._machines.control(instance.name) as monitor:
            runtime = state.load_runtime(self._machines.files(instance.name))
            stopped = runtime is not None and runtime.stopped
            return wait_for_end(monitor, wait_s, stopped=stopped)

    def finish_source(self, instance: RpcInstance, *, success: bool, live: bool) -> None:
        """Remove the machine after its memory has left, or let it run again."""
        files = self._machines.files(instance.name)
        if state.find_process(files) is None:
            if not success:
                raise _error(instance.name, f"does not run on {self._hostname} any more")
            clean_up(files)
            return
        with self._machines.control(instance.name) as monitor:
            if not success:
                runtime = state.load_runtime(files)
                was_stopped = runtime is None or runtime.stopped
                status = monitor.status()  # none is moved that was never let run
                paused = status == "prelaunch" or (status == "paused" and not was_stopped)
                take_back(monitor, instance.name, paused=paused)
                if runtime is not None and runtime.stopped:
                    state.save_runtime(files, replace(runtime, stopped=False))
                return
            status = monitor.status()
        if status == "running":
            raise _error(instance.name, f"still runs on {self._hostname}; not removed")
        # Killed, it would hold its locks on images of Ceph until these have forgotten it.
        stop(files, force=True, timeout_s=0)

    def finish_target(self, instance: RpcInstance, info: str, *, success: bool) -> bool:
        """Let the received machine run, or remove the one that waits for memory."""
        files = self._machines.files(instance.name)
        if success:
            with self._machines.control(instance.name) as monitor:
                if state.is_handed_over(files):
                    return False  # asked once more: whoever has paused it since wants that
                sent = state.decode_runtime(info, "migration") if info else None
                runtime = sent or state.load_runtime(files)
                paused = runtime is not None and runtime.paused
                status = wait_received(monitor, instance.name)
                connect_received(self._machines.env, instance)
                run_received(monitor, files, status, paused=paused)
        elif state.is_incoming(files) and state.look(files) is None:
            kill_now(files)
            return True
        return False


def _error(name: str, text: str) -> HypervisorError:
    return HypervisorError(f"instance {name} {text}")


_Devices = Sequence[DiskDevice | NicDevice | AssembledDisk | RpcNIC]


def _check_devices(machine: Machine, kind: str, running: _Devices, configured: _Devices) -> None:
    """Check that a running machine has the devices that the configuration says.

    Raises:
        HypervisorError: it was changed since; the machine cannot be built again as it runs.
    """
    have, want = {device.uuid for device in running}, {device.uuid for device in configured}
    if have != want:
        raise HypervisorError(
            f"instance {machine.name}: the running machine has {kind}"
            f" {', '.join(sorted(have)) or 'none'}, the configuration"
            f" {', '.join(sorted(want)) or 'none'}; restart it before migrating it"
        )
