"""The family of storage drivers on a node, and the values that pass between it and the node daemon.

Each disk template has a `Storage`, which answers for many disks at once and for the storage units
that they take space from.  One disk, whether it exists or not, is a `Volume`.  Both base classes do
nothing or refuse, by the traits of the template; a driver overrides only its own behaviour.

Paths in a disk's logical id are without the node's root; a driver localizes them.  All calls are
synchronous.  Failures raise `BlockDeviceError`, a path that is not allowed `FileStoragePathError`,
and an operation that a kind of disk does not have `NotSupportedError`.

Source: node_rpc.json, "result_objects" and calls blockdev_*; constants.json, "disk_templates".
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import ClassVar, Final, Never, Protocol

from ganeti.base.errors import BlockDeviceError, GenericError, NotSupportedError
from ganeti.base.paths import Paths
from ganeti.objects.disk_templates import LocalDiskStatus, StorageType, Traits, traits_of
from ganeti.protocol.node_rpc_values import CopySide, KeptSnapshot
from ganeti.storage.qcow2 import RawView


class StorageEnv(Protocol):
    """The node a driver works for; only its paths matter here."""

    @property
    def paths(self) -> Paths:
        """Return the well-known paths of the node."""


class DiskLike(Protocol):
    """A disk, as far as drivers need it; disks of the configuration and of the wire fit."""

    @property
    def uuid(self) -> str:
        """Identify the disk."""

    @property
    def dev_type(self) -> str:
        """Return the disk template."""

    @property
    def logical_id(self) -> Sequence[object]:
        """Say where the disk lies; its shape depends on the template."""

    @property
    def size(self) -> int:
        """Return the size in MiB."""

    @property
    def name(self) -> str | None:
        """Return the name that the operator gave it."""

    @property
    def children(self) -> Sequence[DiskLike]:
        """Return the disks that it is put together from."""

    @property
    def params(self) -> Mapping[str, object] | None:
        """Return parameters of its kind, filled, and those for its provider."""


class Link(StrEnum):
    """The connection of a disk with its copy."""

    CONNECTED = "connected"
    WAITING = "waiting for the other node"
    NONE = "not connected"


@dataclass(frozen=True, slots=True)
class MirrorState:
    """What is known on this node of a disk and its copy, beside its status.

    Attributes:
        link: the connection.
        is_attached: this node has its half of the mirror.
        text: both in words, for messages.
        is_open: it can be written here; ``is_open_there``: on the other node, while it is reached.
    """

    link: Link
    is_attached: bool
    text: str
    is_open: bool = False
    is_open_there: bool = False

    @property
    def needs_activation(self) -> bool:
        """Whether nothing happens any more unless the disk is assembled again."""
        return not self.is_attached or self.link is Link.NONE


@dataclass(frozen=True, slots=True)
class BlockDevStatus:
    """One disk as it stands on this node; ``mirror`` stays on this node."""

    dev_path: str
    major: int | None = None
    minor: int | None = None
    sync_percent: float | None = None
    estimated_time_s: float | None = None
    is_degraded: bool = False
    ldisk_status: int = LocalDiskStatus.OKAY
    mirror: MirrorState | None = None

    def to_wire(self) -> dict[str, object]:
        """Return the BlockDevStatus object."""
        wire = asdict(self)
        del wire["mirror"]
        return {"estimated_time": wire.pop("estimated_time_s"), **wire}


@dataclass(frozen=True, slots=True)
class Assembled:
    """Where an assembled disk is: a local path, and perhaps an address for the hypervisor."""

    dev_path: str
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class Dimensions:
    """The real size of a disk."""

    size_bytes: int
    spindles: int | None = None


UNIT_FIELDS: Final = ("allocatable", "free", "name", "size", "status", "used")  # of storage_list
UNIT_OK: Final = "ok"
Params = Mapping[str, object]  # of the disks of a template, filled
NO_PARAMS: Final[Params] = {}


@dataclass(frozen=True, slots=True)
class StorageUnit:
    """A storage unit with its space in MiB; None where its kind cannot tell.

    Attributes:
        status: `UNIT_OK`, or what is wrong with it; one that is missing is still a unit.
    """

    kind: str
    name: str
    free_mib: int | None = None
    size_mib: int | None = None
    used_mib: int | None = None
    is_allocatable: bool = True
    status: str = UNIT_OK

    def to_wire(self) -> dict[str, object]:
        """Return one storage info of the answer of node_info."""
        space = {"storage_free": self.free_mib, "storage_size": self.size_mib}
        return {"type": self.kind, "name": self.name, **space}

    def fields(self) -> dict[str, object]:
        """Return the fields that storage_list can be asked for."""
        space = {"free": self.free_mib, "size": self.size_mib, "used": self.used_mib}
        return {
            "allocatable": self.is_allocatable,
            "name": self.name,
            "status": self.status,
            **space,
        }


class Mirror(Protocol):
    """The connection of a disk with its copy on another node."""

    def connect(self, *, dual_primary: bool) -> None:
        """Connect with the copy; ``dual_primary`` allows both nodes to write, for a migration."""

    def wait_connected(self, timeout_s: float) -> None:
        """Wait until the copy is connected.

        Raises:
            BlockDeviceError: it is not in time, or refused; the text says why.
        """

    def disconnect(self) -> None:
        """Go on without the copy."""

    def attach(self, children: Sequence[Volume]) -> None:
        """Put new local storage under the disk, which has none; its data comes from the copy."""

    def detach(self, children: Sequence[Volume]) -> None:
        """Take this local storage from the disk; may be repeated."""

    def pause_sync(self, *, pause: bool) -> None:
        """Interrupt the resynchronization, or let it go on."""

    def side(self) -> CopySide | None:
        """Return all that tells which side has newer data; None if the disk is not active."""

    def outdate(self) -> None:
        """Note that the other side was written alone; refused while it is connected."""


class Volume(ABC):
    """One disk on this node.

    Attributes:
        children: the volumes that it is put together from.
        owner: its instance, where the caller says so; a new disk is put near that one's others.
        exclusive_storage: it may not grow onto physical volumes that it does not have.
    """

    owner: str = ""
    exclusive_storage: bool = False

    def __init__(self, disk: DiskLike, env: StorageEnv, children: Sequence[Volume] = ()) -> None:
        self._disk = disk
        self._env = env
        self.children = tuple(children)
        self.traits: Traits = traits_of(disk.dev_type)
        self._locate(list(disk.logical_id))

    @abstractmethod
    def _locate(self, logical_id: list[object]) -> None:
        """Keep the parts of the logical id, or raise `_malformed`."""

    @property
    def device(self) -> str:
        """Path of the disk once it is assembled; "" where only that tells it."""
        return ""

    @property
    def mirror(self) -> Mirror | None:
        """The connection with a copy on another node; None for a disk that has none by itself."""
        return None

    @property
    def raw_view(self) -> RawView | None:
        """How the bytes of the disk are shown; None if they are what `assemble` returns."""
        return None

    @abstractmethod
    def create(self, size_mib: int, *, exclusive_storage: bool = False) -> list[object] | None:
        """Make the disk, of at least that size; it must not exist.

        Only files are full of zeroes then: a device has what was in its place before.

        Returns:
            The final logical id where creation decides it, else None.
        """

    @abstractmethod
    def remove(self) -> None:
        """Remove the disk and all its data; does nothing when it is gone already."""

    @abstractmethod
    def find(self) -> BlockDevStatus | None:
        """Look at the disk; None when it does not exist."""

    @abstractmethod
    def assemble(self) -> Assembled:
        """Make the disk usable on this node, its children are already; may be repeated."""

    @abstractmethod
    def dimensions(self) -> Dimensions | None:
        """Return the real size; None when the disk does not exist."""

    def shutdown(self) -> None:
        """Undo ``assemble``; may be repeated."""

    def open(self, *, exclusive: bool = True) -> None:
        """Make an assembled disk writable here; ``exclusive`` means nowhere else."""

    def open_new(self) -> None:
        """Make a disk that was just created writable: where it has a copy, this one counts."""
        self.open()

    def close(self) -> None:
        """Undo ``open``."""

    def set_info(self, text: str) -> None:
        """Note the disk's purpose on it, where its kind has room for that."""

    def grow(self, amount_mib: int, *, dryrun: bool = False, backingstore: bool = True) -> None:
        """Add to the size; ``dryrun`` only checks that it could be done."""
        self._refuse("resized")

    def snapshot(self, name: str, size_mib: int) -> list[object]:
        """Take a snapshot and return its logical id."""
        self._refuse("kept as a snapshot")

    def rename(self, new_logical_id: Sequence[object]) -> None:
        """Move the disk to another logical id, which must not exist."""
        self._refuse("renamed")

    def wipe(self, offset_mib: int, size_mib: int) -> None:
        """Write zeroes over a part of the disk."""
        self._refuse("wiped")

    def snapshots(self) -> list[KeptSnapshot]:
        """Return the snapshots that the disk keeps, the oldest first."""
        return []

    def as_kept(self, name: str) -> Volume | None:
        """Return the disk that a snapshot is, which is only read; None if it lies in our file."""
        return None

    def keep(self, name: str) -> None:
        """Keep the contents as they are under a name, which no other snapshot has."""
        self._refuse("kept as snapshots of their own")

    def restore(self, name: str) -> None:
        """Give the disk the contents of a snapshot, which stays."""
        self._refuse("restored from a snapshot")

    def forget(self, name: str) -> None:
        """Remove a snapshot; does nothing when there is none of that name."""

    def _refuse(self, action: str) -> Never:
        raise NotSupportedError(f"disks of template {self._disk.dev_type} cannot be {action}")

    def _malformed(self) -> BlockDeviceError:
        names = list(self.traits.logical_id)
        shown = names.index("secret") if "secret" in names else None
        found, parts = list(self._disk.logical_id)[:shown], ", ".join(names)
        return BlockDeviceError(
            f"disk {self._disk.uuid}: the logical id {found!r} is not [{parts}]"
        )


def bottom_up(volume: Volume) -> Iterator[Volume]:
    """Yield the children of a volume, then itself: the order in which they are made usable."""
    for child in volume.children:
        yield from bottom_up(child)
    yield volume


def top_down(volume: Volume) -> Iterator[Volume]:
    """Yield a volume, then its children: the order in which they are taken apart."""
    yield volume
    for child in volume.children:
        yield from top_down(child)


@contextmanager
def contents(volume: Volume) -> Iterator[str]:
    """Give the path of a device or file of this node with the bytes of a disk, for a while.

    Nobody else may use the disk meanwhile.
    """
    path, view = volume.assemble().dev_path, volume.raw_view
    with contextlib.nullcontext() if view is None else view.shown():
        yield path if view is None else view.path


Look = BlockDevStatus | GenericError | None  # the state of a disk; None if it does not exist


class Storage:
    """The disks of one kind on this node, and the storage units that they take space from.

    Attributes:
        exclusive: instances have parts of a unit, such as physical volumes, for themselves.
        params: the parameters of disks of the template, which may say where units are reached.
    """

    volume: ClassVar[type[Volume]]
    exclusive: bool = False

    def __init__(self, kind: StorageType, env: StorageEnv, params: Params = NO_PARAMS) -> None:
        self.kind = kind
        self.env = env
        self.params = params

    def volume_of(self, disk: DiskLike, children: Sequence[Volume]) -> Volume:
        """Return one disk."""
        return self.volume(disk, self.env, children)

    def look(self, volumes: Sequence[Volume]) -> list[Look]:
        """Look at many disks by as few questions as possible; a failure stands for its disk."""
        return [_look_at(volume) for volume in volumes]

    def dimensions(self, volumes: Sequence[Volume]) -> list[Dimensions | None]:
        """Return the real sizes of many disks; None for one that does not exist."""
        return [volume.dimensions() for volume in volumes]

    def snapshots(self, volumes: Sequence[Volume]) -> list[list[KeptSnapshot]]:
        """Return the snapshots that each of many disks keeps, the oldest first."""
        return [volume.snapshots() for volume in volumes]

    def space(self, name: str) -> StorageUnit:
        """Return the space of a storage unit."""
        return StorageUnit(self.kind, name)

    def units(self, names: Sequence[str]) -> list[StorageUnit]:
        """Return the storage units of those names, with their status and all that is known."""
        raise NotSupportedError(f"storage units of type {self.kind!s} are not supported")

    def modify_unit(self, name: str, changes: Mapping[str, object]) -> None:
        """Change a storage unit."""
        wanted = ", ".join(changes) or "nothing"
        raise NotSupportedError(f"{wanted} of {self.kind} storage unit {name!r} cannot be changed")

    def repair_unit(self, name: str) -> None:
        """Make a storage unit consistent again."""
        raise NotSupportedError(f"{self.kind} storage unit {name!r} cannot be repaired")


def _look_at(volume: Volume) -> Look:
    try:
        return volume.find()
    except GenericError as err:
        return err
