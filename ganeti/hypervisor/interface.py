"""The interface of hypervisor drivers to the node daemon, and the values that pass there.

A driver is stateless: it reads the running instances from processes and files below the node's run
directory each time, so instances survive restarts of the node daemon.  All calls are synchronous;
they run in a single-threaded child.  Failures raise `HypervisorError`; impossible requests raise
`OpPrereqError`, missing features raise `NotSupportedError`.

Migration, as seen by a driver.  The steps are ordered by the caller:

    source: describe                 describes the running guest
    target: accept                   a guest that waits for its memory, then stands still
    source: send                     moves the memory; a driver may return before that is done
    source: status                   again and again, until it is no longer "active"
    target: finish_target(success)   True: the guest runs from now on; False: it is gone
    source: finish_source(success)   True: the old process is gone; False: it runs again

At most one copy runs at any cut: the source stops before the last page is sent and starts again
only in ``finish_source(success=False)`` (or by itself when the transfer failed), the target starts
only in ``finish_target(success=True)``.  So after a cut, ask both nodes for
``instance_info``:

- the target says "running" and the source does not: finish_source(True) on the source;
- the target does not know the instance: call finish_target(False) on the target, which removes
  the waiting guest.  A source that says "running" has not sent all: finish_source(False).  One that
  says "shutdown" may go on, by the same call, only if the target has answered True.  Otherwise its
  guest may have run on the target and ended there, and the memory at the source be older than the
  disks: finish_source(True).

A source that has sent all its memory says "shutdown" (it is stopped, and still listed).  A driver
that hands over (`Hypervisor.migration_hands_over`) leaves all this to its hypervisor in a live
migration: once it is completed the target says "running" and the source knows no such instance.

Source: node_rpc.json, "result_objects" and calls instance_*, migration_*; constants.json,
"hypervisors".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum, StrEnum
from functools import cache
from pkgutil import resolve_name
from typing import Final, Protocol, cast

import msgspec

from ganeti.base.errors import GenericError, HypervisorError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.hypervisor import node
from ganeti.objects import hypervisors as objects
from ganeti.objects import parameters
from ganeti.objects.disk_templates import DiskFormat, DiskMode
from ganeti.objects.hypervisors import HVPARAMS, ConsoleKind, RebootType
from ganeti.objects.model import Guest, InstanceConsole
from ganeti.objects.rpc_instance import RpcInstance, RpcNIC
from ganeti.protocol.node_rpc_values import KeptSnapshot


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


class ConsoleNode(msgspec.Struct, frozen=True):
    """The primary node of an instance, as users of its console reach it."""

    name: str
    primary_ip: str


class InstanceState(IntEnum):
    """State of an instance that its hypervisor knows."""

    RUNNING = 0
    SHUTDOWN = 1  # the guest powered itself off, or its memory has moved to another node


@dataclass(frozen=True, slots=True)
class InstanceInfo:
    """One instance as its hypervisor sees it; ``cpu_time_s`` is all that it has used so far."""

    name: str
    memory_mib: int
    vcpus: int
    state: InstanceState
    cpu_time_s: float

    def to_wire(self) -> dict[str, object]:
        """Return the answer of instance_info."""
        size = {"memory": self.memory_mib, "vcpus": self.vcpus}
        return {**size, "state": int(self.state), "time": self.cpu_time_s}


@dataclass(frozen=True, slots=True)
class AssembledDisk:
    """A disk of the instance, ready for use on this node.

    ``dev_path`` is local (below the node's root); ``uri`` is set where the hypervisor is to reach
    the disk without a device of this node; ``format`` is that of the file; ``name`` is the disk's
    own, if it has one.
    """

    index: int
    uuid: str
    dev_path: str
    size_mib: int
    mode: DiskMode = DiskMode.RW
    uri: str | None = None
    dev_type: str = "file"
    format: DiskFormat = DiskFormat.RAW
    name: str = ""


def check_name(name: str) -> None:
    """Refuse a name that cannot be that of a file.

    Raises:
        HypervisorError: it is empty or leads elsewhere.
    """
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise HypervisorError(f"{name!r} cannot be the name of an instance")


Disks = Sequence[AssembledDisk]  # of one instance
GUEST_WAIT_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class SnapshotAddress:
    """Where the snapshot of a disk is read: an export of an NBD server of this node.

    ``written`` is the name there of the record of what was written until then, if there is one.
    """

    socket_path: str
    export: str
    written: str = ""


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
    downtime_ms: int | None = None
    error: str | None = None

    def to_wire(self) -> dict[str, object]:
        """Return the MigrationStatus object, without empty fields."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class Migration(Protocol):
    """Moving instances of a hypervisor between nodes; its steps are described above."""

    def check(self, instance: RpcInstance) -> None:
        """Check that a running instance can be migrated.

        Raises:
            HypervisorError: it cannot; the text says why.
        """

    def describe(self, instance: RpcInstance) -> str:
        """Describe a running instance for the node that will accept it."""

    def accept(self, instance: RpcInstance, info: str, address: str, disks: Disks) -> str:
        """Make ready to receive an instance; returns "address:port", which ``send`` takes."""

    def send(self, instance: RpcInstance, target_address: str, *, live: bool) -> None:
        """Move an instance's memory; may block until all of it has left.

        ``target_address`` is the other node's address, or the result of its ``accept``.
        Not ``live``: the guest stands still while its memory moves.
        """

    def status(self, instance: RpcInstance, *, wait_s: float = 1.0) -> MigrationStatus:
        """Look at a migration from its source; waits up to ``wait_s`` for its end."""

    def finish_source(self, instance: RpcInstance, *, success: bool, live: bool) -> None:
        """End a migration on its source: forget the instance, or abort and let it run again."""

    def finish_target(self, instance: RpcInstance, info: str, *, success: bool) -> bool:
        """End a migration on its target: let the instance run, or remove its waiting copy.

        Returns:
            Whether a copy was removed, or what is left of one, that had never been told to run.
        """


class Hotplug(Protocol):
    """Changing devices of running instances of a hypervisor."""

    def check(self, instance: RpcInstance) -> None:
        """Check that devices of a running instance can change.

        Raises:
            HotplugError: they cannot; the text says why.
        """

    def add_disk(self, instance: RpcInstance, disk: AssembledDisk) -> str:
        """Add a disk to a running instance; returns where it is on its bus.

        Raises:
            HotplugError: it was not added.
        """

    def remove_disk(self, instance: RpcInstance, uuid: str) -> None:
        """Take a disk away from a running instance, once its guest lets it go.

        Does nothing when the instance does not have it.

        Raises:
            HotplugError: the guest keeps it.
        """

    def add_nic(self, instance: RpcInstance, nic: RpcNIC, index: int) -> str:
        """Add a network interface to a running instance; returns where it is on its bus.

        Raises:
            HotplugError, OpPrereqError: it was not added.
        """

    def remove_nic(self, instance: RpcInstance, uuid: str) -> None:
        """Take a network interface away from a running instance, as `remove_disk`."""

    def grow(self, instance: RpcInstance, *, vcpus: int, memory_mib: int) -> None:
        """Give a running instance processors and memory until it has so much of them.

        Raises:
            HotplugError: its start reserved no room for them, or it has more already; nothing has
                changed, or a part of what was asked for was given.
        """


@dataclass(frozen=True, slots=True)
class Instant:
    """The instant that a snapshot keeps.

    Attributes:
        since: the name of an earlier instant, from which on what was written is wanted.
        point: the name of this one; empty if nothing is to be recorded from it on.
        quiesce: fail if no agent in the guest can hold its file systems still meanwhile.
    """

    since: str = ""
    point: str = ""
    quiesce: bool = False


class Snapshots(Protocol):
    """Keeping the contents of the disks of running instances at one instant."""

    def check(self, instance: RpcInstance) -> None:
        """Check that snapshots of a running instance's disks can be made.

        Raises:
            HypervisorError: they cannot; the text says why.
        """

    def take(self, instance: RpcInstance, directory: str, instant: Instant) -> Collection[str]:
        """Keep the contents of all disks of a running instance at one instant, while it goes on.

        Snapshots that an earlier job left are removed first.  What the guest writes can be recorded
        from that instant on; earlier records go on.

        Args:
            directory: of this node, for files without names with the old contents of blocks.

        Returns:
            The UUIDs of the disks of which it is known what was written since that earlier instant;
            the snapshot tells (`SnapshotAddress.written`).

        Raises:
            HypervisorError: it cannot be done; nothing is left of it, and the guest goes on.
        """

    def address(self, name: str, uuid: str) -> SnapshotAddress:
        """Return where the snapshot of a disk is read."""

    def record_since(self, name: str, point: str) -> None:
        """Keep only the record that began at one instant; does nothing if it does not run."""

    def drop(self, name: str) -> None:
        """Remove the snapshots of an instance's disks; does nothing when there are none."""

    def kept(self, instance: RpcInstance) -> list[list[KeptSnapshot]]:
        """Return the snapshots that each disk of a running instance keeps within itself."""

    def keep(
        self,
        instance: RpcInstance,
        name: str,
        *,
        quiesce: bool,
        beside: Callable[[], None] | None = None,
    ) -> bool:
        """Let each disk of a running instance keep its contents, all as of one instant.

        Args:
            beside: takes the snapshots of disks that do not keep them in their files; the guest
                stands still for so long.
            quiesce: fail if no agent in the guest can hold its file systems still meanwhile;
                otherwise one that answers does so.

        Returns:
            Whether it held them still.

        Raises:
            HypervisorError: it cannot be done; no disk keeps anything new, and the guest goes on.
        """

    def forget(self, instance: RpcInstance, name: str) -> None:
        """Remove what the disks of a running instance keep under a name."""


class Hypervisor(ABC):
    """One hypervisor on one node; a driver fills in the abstract methods, and parts that it has.

    Attributes:
        migration, hotplug, snapshots: None where the hypervisor cannot do it.
        migration_hands_over: after a live migration is completed the guest runs on the target, not
            only after its `finish_target`.
    """

    migration: Migration | None = None
    migration_hands_over: bool = False
    hotplug: Hotplug | None = None
    snapshots: Snapshots | None = None

    def __init__(self, name: str, env: NodeEnv, hvparams: Mapping[str, object]) -> None:
        """Make a driver.

        Args:
            hvparams: filled parameters: those of the instance that a call is about, or of the
                cluster.
        """
        self.name = name
        self.env = env
        self.hvparams = hvparams

    @classmethod  # noqa: B027 - most hypervisors leave nothing
    def mend(cls, env: NodeEnv) -> None:
        """Put right what processes that died have left of their work; failures are logged."""

    @abstractmethod
    def all_instances_info(self) -> list[InstanceInfo]:
        """Look at all instances here, in order of their names; not those still being received."""

    @abstractmethod
    def instance_info(self, name: str) -> InstanceInfo | None:
        """Look at one instance; None when it is not here."""

    def list_instances(self) -> list[str]:
        """Return the names of the instances here, in order; not those still being received."""
        return [info.name for info in self.all_instances_info()]

    @abstractmethod
    def start(self, instance: RpcInstance, disks: Disks, *, paused: bool = False) -> None:
        """Start an instance; returns when its guest runs (or stands still, if ``paused``)."""

    @abstractmethod
    def stop(self, name: str, *, force: bool = False, timeout_s: float = 120) -> None:
        """Stop an instance; does nothing when it is not here.

        The guest is asked and has ``timeout_s`` seconds; then, or at once with ``force``, it is
        stopped without asking.  Leaves nothing of it behind.
        """

    def reboot(
        self, instance: RpcInstance, disks: Disks, *, kind: RebootType, timeout_s: float = 120
    ) -> None:
        """Reboot an instance: ``soft`` keeps the machine, ``hard`` stops it and starts it anew."""
        self.stop(instance.name, timeout_s=timeout_s)
        self.start(instance, disks)

    def balloon(self, name: str, memory_mib: int) -> None:
        """Set the memory that a running guest may use."""
        raise HypervisorError(f"instance {name!r}: hypervisor {self.name} does not limit memory")

    def resize_disk(  # noqa: B027 - most hypervisors need not be told
        self, instance: RpcInstance, disk: AssembledDisk
    ) -> None:
        """Tell a running instance that a disk has grown to its size, if it must be told."""

    def node_info(self) -> dict[str, object]:
        """Return memory (MiB) and processors of the node, with the keys of the node RPC."""
        return node.resources(0)

    def verify(self) -> str | None:
        """Return the reason why this hypervisor cannot work here, or None."""
        return None

    def problems(self, hvparams: Mapping[str, object]) -> Iterator[GenericError]:
        """Find mistakes in filled parameters by themselves, as errors to be raised."""
        what = f"{self.name} hypervisor parameter"
        for text in parameters.problems(hvparams, HVPARAMS[self.name], what=what):
            yield OpPrereqError(text)

    def check_params(self, hvparams: Mapping[str, object]) -> None:
        """Check filled parameters against each other; looks at nothing but them.

        Raises:
            OpPrereqError: names the parameter and the values that are possible.
        """
        for problem in self.problems(hvparams):
            raise problem

    def check_all(self, hvparams: Mapping[str, object]) -> None:
        """Check filled parameters against each other and against this node; errors as of both."""
        self.check_params(hvparams)
        self.check_on_node(hvparams)

    def check_on_node(  # noqa: B027 - most hypervisors have nothing to check there
        self, hvparams: Mapping[str, object]
    ) -> None:
        """Check right parameters against this node: files, programs, features.

        Raises:
            OpPrereqError: naming the parameter and the missing thing.
        """

    def consoles(self, instance: RpcInstance, node: ConsoleNode) -> list[InstanceConsole]:
        """Return every way to the instance's console, the preferred one first; never empty."""
        text = f"Console not available for {self.name} hypervisor"
        return [InstanceConsole(instance=instance.name, kind=ConsoleKind.MESSAGE, message=text)]

    def vnc_socket(self, _instance: RpcInstance) -> str:
        """Return the path of the socket that VNC listens on, "" if it does not."""
        return ""

    def guest(self, instance: RpcInstance, wait_s: float = GUEST_WAIT_S) -> Guest:
        """Return the signs of life of a running instance's guest.

        Args:
            wait_s: how long it has for each answer.
        """
        return Guest()


def driver_modules() -> list[str]:
    """Return the modules of all drivers, for a process that wants them imported beforehand."""
    return sorted({each.traits.driver.partition(":")[0] for each in objects.Hypervisor})


def mend(env: NodeEnv) -> None:
    """Put right what processes that died have left of their work, for all hypervisors."""
    for each in objects.Hypervisor:
        _driver(str(each))[0].mend(env)


def get_hypervisor(name: str, env: NodeEnv, hvparams: Mapping[str, object]) -> Hypervisor:
    """Return the driver of a hypervisor on a node.

    Args:
        hvparams: of the instance or of the cluster; missing ones get their defaults.

    Raises:
        OpPrereqError: there is no hypervisor of that name.
    """
    factory, defaults = _driver(name)
    return factory(name, env, {**defaults, **hvparams})


@cache
def _driver(name: str) -> tuple[type[Hypervisor], dict[str, object]]:
    """Return the class of a driver, and the defaults of its parameters."""
    if name not in HVPARAMS:
        raise OpPrereqError(f"unknown hypervisor {name!r}; known are {', '.join(HVPARAMS)}")
    factory = cast("type[Hypervisor]", resolve_name(objects.Hypervisor(name).traits.driver))
    return factory, parameters.defaults_of(HVPARAMS[name])
