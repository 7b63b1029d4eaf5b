"""What every hypervisor driver offers to the node daemon, and the values that pass between them.

A driver is stateless: what runs is read from processes and files below the node's run directory
each time, so instances survive restarts of the node daemon.  All calls are synchronous; they run in
a single-threaded child.  Failures raise `HypervisorError`; impossible requests raise
`OpPrereqError`, and what is not built raises `NotSupportedError`.

Live migration, as seen by a driver.  The steps are ordered by the caller:

    source: migration_info                    describes the running guest
    target: accept_instance                   a guest that waits for its memory, then stands still
    source: migrate                           starts the transfer and returns
    source: migration_status                  again and again, until it is no longer "active"
    target: finalize_migration_dst(success)   True: the guest runs from now on; False: it is gone
    source: finalize_migration_src(success)   True: the old process is gone; False: it runs again

At most one copy runs at any cut: the source stops before the last page is sent and starts again
only in ``finalize_migration_src(success=False)`` (or by itself when the transfer failed), the
target starts only in ``finalize_migration_dst(success=True)``.  So after a cut, ask both nodes for
``instance_info``:

- the target does not know the instance: call finalize_migration_dst(False) on the target, which
  removes what waits there, then finalize_migration_src(False) on the source;
- the target says "running" and the source does not: finalize_migration_src(True) on the source.

A source whose memory has left completely says "shutdown" (it is stopped, and still listed).

Source: node_rpc.json, "result_objects" and calls instance_*, migration_*; constants.json,
"hypervisors".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Protocol

from ganeti.base.paths import Paths
from ganeti.objects.console import InstanceConsole
from ganeti.objects.disk_templates import DiskMode
from ganeti.objects.hypervisors import RebootType
from ganeti.objects.rpc_instance import RpcInstance, RpcNIC


@dataclass(frozen=True, slots=True)
class NodeEnv:
    """The node a driver works for.

    ``address`` is the node's primary address; ``hostname`` its full name.
    """

    paths: Paths
    hostname: str
    address: str

    @property
    def is_virtual(self) -> bool:
        """Whether this node shares its machine with other nodes of the cluster."""
        return bool(self.paths.root)


class InstanceState(IntEnum):
    """State of an instance that its hypervisor knows."""

    RUNNING = 0
    SHUTDOWN = 1  # the guest powered itself off, or its memory has moved to another node


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """One instance as its hypervisor sees it; ``cpu_time_s`` is what it has used so far."""

    name: str
    memory_mib: int
    vcpus: int
    state: InstanceState
    cpu_time_s: float

    def to_wire(self) -> dict[str, object]:
        """Return the answer of instance_info."""
        return {
            "memory": self.memory_mib,
            "vcpus": self.vcpus,
            "state": int(self.state),
            "time": self.cpu_time_s,
        }


@dataclass(frozen=True, slots=True)
class AssembledDisk:
    """A disk of the instance, ready for use on this node.

    ``dev_path`` is local (below the node's root); ``uri`` is set where the hypervisor is to reach
    the disk without a device of this node.
    """

    index: int
    uuid: str
    dev_path: str
    size_mib: int
    mode: DiskMode = DiskMode.RW
    uri: str | None = None
    dev_type: str = "file"


@dataclass(frozen=True, slots=True)
class SnapshotAddress:
    """Where the snapshot of a disk is read: an export of an NBD server of this node."""

    socket_path: str
    export: str


class MigrationState(StrEnum):
    """State of a migration, seen from its source."""

    ACTIVE = "active"
    CANCELLED = "cancelled"
    COMPLETED = "completed"
    FAILED = "failed"
    POSTCOPY_ACTIVE = "postcopy-active"


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """Progress of a migration; sizes in bytes.

    ``downtime_ms`` is how long the guest stood still, as far as the hypervisor knows, at the end;
    ``error`` says why it failed.
    """

    status: MigrationState
    transferred_ram: int | None = None
    total_ram: int | None = None
    postcopy_status: str | None = None
    downtime_ms: int | None = None
    error: str | None = None

    def to_wire(self) -> dict[str, object]:
        """Return the MigrationStatus object, without what is not set."""
        values: dict[str, object] = {"status": str(self.status)}
        for name in ("transferred_ram", "total_ram", "postcopy_status", "downtime_ms", "error"):
            value = getattr(self, name)
            if value is not None:
                values[name] = value
        return values


@dataclass(frozen=True, slots=True)
class HypervisorInfo:
    """What a hypervisor can do; callers ask this, never the type of the driver."""

    name: str
    can_migrate: bool
    can_migrate_live: bool
    can_hotplug: bool
    needs_network_port: bool  # each instance gets a port of its own, for its console


class Hypervisor(Protocol):
    """One hypervisor on one node."""

    @property
    def info(self) -> HypervisorInfo:
        """Say what this hypervisor can do."""

    def list_instances(self) -> list[str]:
        """Return the names of the instances here, in order; not those still being received."""

    def instance_info(self, name: str) -> InstanceInfo | None:
        """Look at one instance; None when it is not here."""

    def all_instances_info(self) -> list[InstanceInfo]:
        """Look at all instances here, in order of their names."""

    def start(
        self, instance: RpcInstance, disks: Sequence[AssembledDisk], *, paused: bool = False
    ) -> None:
        """Start an instance; returns when its guest runs (or stands still, if ``paused``)."""

    def stop(self, name: str, *, force: bool = False, timeout_s: float = 120) -> None:
        """Stop an instance; does nothing when it is not here.

        The guest is asked and has ``timeout_s`` seconds; then, or at once with ``force``, it is
        stopped without asking.  Leaves nothing of it behind.
        """

    def reboot(
        self,
        instance: RpcInstance,
        disks: Sequence[AssembledDisk],
        *,
        kind: RebootType,
        timeout_s: float = 120,
    ) -> None:
        """Reboot an instance: ``soft`` keeps the machine, ``hard`` stops it and starts it anew."""

    def balloon(self, name: str, memory_mib: int) -> None:
        """Set the memory that a running guest may use."""

    def node_info(self) -> dict[str, object]:
        """Return memory (MiB) and processors of the node, with the keys of the node RPC."""

    def verify(self) -> str | None:
        """Say what keeps this hypervisor from working here, or None."""

    def check_params(self, hvparams: Mapping[str, object]) -> None:
        """Check filled parameters against each other; looks at nothing but them.

        Raises:
            OpPrereqError: naming the parameter and what would be right.
        """

    def validate_params(self, hvparams: Mapping[str, object]) -> None:
        """Check filled parameters against this node: files, programs, features.

        Raises:
            OpPrereqError: naming the parameter and what is missing.
        """

    def consoles(
        self, instance: RpcInstance, *, node_name: str, node_address: str
    ) -> list[InstanceConsole]:
        """Return every way to the instance's console, the preferred one first; never empty."""

    def migratable(self, instance: RpcInstance) -> None:
        """Check that a running instance can be migrated; raises HypervisorError if not."""

    def migration_info(self, instance: RpcInstance) -> str:
        """Describe a running instance for the node that will accept it."""

    def accept_instance(
        self,
        instance: RpcInstance,
        info: str,
        target_address: str,
        disks: Sequence[AssembledDisk],
    ) -> str:
        """Make ready to receive an instance; returns "address:port", which ``migrate`` accepts."""

    def migrate(self, instance: RpcInstance, target_address: str, *, live: bool) -> None:
        """Start to move an instance; returns once the transfer began.

        ``target_address`` is the other node's address, or what its ``accept_instance`` returned.
        Not ``live``: the guest stands still while its memory moves.
        """

    def migration_status(self, instance: RpcInstance, *, wait_s: float = 1.0) -> MigrationStatus:
        """Look at a migration from its source; waits up to ``wait_s`` for its end."""

    def finalize_migration_src(self, instance: RpcInstance, *, success: bool, live: bool) -> None:
        """End a migration on its source: forget the instance, or abort and let it run again."""

    def finalize_migration_dst(self, instance: RpcInstance, info: str, *, success: bool) -> None:
        """End a migration on its target: let the instance run, or remove what was accepted."""

    def hotplug_supported(self, instance: RpcInstance) -> None:
        """Check that devices of a running instance can change; raises HotplugError if not."""

    def plug_disk(self, instance: RpcInstance, disk: AssembledDisk) -> str:
        """Add a disk to a running instance; returns where it is on its bus.

        Raises:
            HotplugError: it was not added.
        """

    def unplug_disk(self, instance: RpcInstance, uuid: str) -> None:
        """Take a disk away from a running instance, once its guest lets it go.

        Does nothing when the instance does not have it.

        Raises:
            HotplugError: the guest keeps it.
        """

    def plug_nic(self, instance: RpcInstance, nic: RpcNIC, index: int) -> str:
        """Add a network interface to a running instance; returns where it is on its bus.

        Raises:
            HotplugError, OpPrereqError: it was not added.
        """

    def unplug_nic(self, instance: RpcInstance, uuid: str) -> None:
        """Take a network interface away from a running instance, as `unplug_disk`."""

    def resize_disk(self, instance: RpcInstance, disk: AssembledDisk) -> None:
        """Tell a running instance that a disk has grown to its size."""

    def snapshot_supported(self, instance: RpcInstance) -> None:
        """Check that snapshots of a running instance's disks can be made.

        Raises:
            HypervisorError: says why not.
        """

    def snapshot_disks(self, instance: RpcInstance, directory: str) -> None:
        """Keep what all disks of a running instance hold at one instant, while it goes on.

        Snapshots that an earlier job left are removed first.

        Args:
            directory: of this node, where what the guest overwrites is kept; it has no name there.

        Raises:
            HypervisorError: it cannot be done; nothing is left of it, and the guest goes on.
        """

    def snapshot_address(self, name: str, uuid: str) -> SnapshotAddress:
        """Return where the snapshot of a disk is read."""

    def drop_snapshots(self, name: str) -> None:
        """Remove the snapshots of an instance's disks; does nothing when there are none."""

    def powercycle(self) -> None:
        """Restart the node at once, without stopping anything."""
