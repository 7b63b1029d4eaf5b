"""Moving a running machine: the source's and the target's part.

The source sends with QEMU's own migration.  The target is started with ``-incoming defer``: it
takes the memory and then stands still, without locks on its disks, until it is told to run.  So
nothing that happens between leaves two copies running; see `ganeti.hypervisor.interface`.

Both sides compute the same TCP port from the instance's own, so that several instances can move
to one node at a time; where that port is taken on the target, it takes another and says so.

Source: QEMU's QMP reference, migrate; constants.json, "hypervisors".
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.interface import MigrationState, MigrationStatus
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorError
from ganeti.hypervisor.kvm.params import KvmParams
from ganeti.objects.rpc_instance import RpcInstance
from ganeti.system import clock

_PORT_SPREAD: Final = 2000
_PORT_MAX: Final = 65535
_FIRST_INSTANCE_PORT: Final = 11000  # constants.json: the range that instances get theirs from
_PORT_TRIES: Final = 20
_CANCEL_TIMEOUT_S: Final = 30.0
_SETTLE_TIMEOUT_S: Final = 10.0
_RECEIVED_TIMEOUT_S: Final = 30.0
_MIB: Final = 1 << 20

_CHANGED: Final = frozenset({"MIGRATION"})
_STOPPED: Final = frozenset({"STOP", "RESUME", "MIGRATION"})

# QEMU's MigrationStatus -> ours; what is not here has not begun
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
# faster than it can be sent.
_ALWAYS: Final = ("validate-uuid", "late-block-activate", "events", "auto-converge")


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
    if state(monitor).status in _UNDER_WAY:
        raise HypervisorError(f"instance {instance.name} is already being migrated")
    status = monitor.status()
    if status not in ("running", "paused"):
        raise HypervisorError(f"instance {instance.name} is {status} and cannot be migrated")
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


def state(monitor: Monitor, *, stopped: bool = False) -> MigrationStatus:
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
        found = state(monitor, stopped=stopped)
        left_s = deadline - clock.monotonic()
        if found.status not in _UNDER_WAY:
            _settle(monitor)
            return found
        if left_s <= 0:
            return found
        monitor.wait_event(_CHANGED, left_s)


def _settle(monitor: Monitor) -> str:
    """Wait until the machine is what the end of its migration makes it; returns its state.

    QEMU says that a migration is over a moment before it leaves the state of its last part.
    """
    deadline = clock.monotonic() + _SETTLE_TIMEOUT_S
    while (status := monitor.status()) == "finish-migrate" and clock.monotonic() < deadline:
        monitor.wait_event(_STOPPED, 0.01)
    return status


def take_back(monitor: Monitor, name: str) -> None:
    """Abort a migration on its source, at any moment, and let the guest run again.

    Raises:
        HypervisorError: it does not run; most likely another copy holds its disks.
    """
    if state(monitor).status in _UNDER_WAY:
        monitor.execute("migrate_cancel")
        if wait_for_end(monitor, _CANCEL_TIMEOUT_S).status in _UNDER_WAY:
            raise HypervisorError(f"instance {name}: the migration cannot be cancelled")
    _let_run(monitor, name, _settle(monitor))


def _let_run(monitor: Monitor, name: str, status: str) -> None:
    if status != "running":
        monitor.execute("cont")
    if (status := monitor.status()) != "running":
        raise HypervisorError(f"instance {name} does not run: it is {status}")


def run_received(monitor: Monitor, name: str, *, paused: bool = False) -> None:
    """Let a machine run that was received completely, or stand still as it did at its source.

    Raises:
        HypervisorError: it was not received, or cannot run.
    """
    deadline = clock.monotonic() + _RECEIVED_TIMEOUT_S
    while (status := monitor.status()) == "inmigrate":
        # The source has sent all when this is called; the last of it may still be being read.
        if clock.monotonic() > deadline:
            raise HypervisorError(f"instance {name} was not received completely; it does not run")
        monitor.wait_event(_STOPPED, 0.02)
    if not paused:
        _let_run(monitor, name, status)
