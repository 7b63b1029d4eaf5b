"""What every storage driver offers to the node daemon, and the values that pass between them.

A driver object stands for one disk on one node, whether it exists or not.  Paths in a disk's
logical id are without the node's root; a driver localizes them.  All calls are synchronous.
Failures raise `BlockDeviceError`, a path that is not allowed `FileStoragePathError`, and what a
kind of disk cannot do `NotSupportedError`.

Source: node_rpc.json, "result_objects" and calls blockdev_*; constants.json, "disk_templates".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ganeti.base.paths import Paths
from ganeti.objects.disk_templates import LocalDiskStatus


class StorageEnv(Protocol):
    """The node a driver works for; only its paths matter here."""

    @property
    def paths(self) -> Paths:
        """Return the well-known paths of the node."""


class DiskLike(Protocol):
    """What a driver needs to know of a disk; disks of the configuration and of the wire fit."""

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
    def params(self) -> Mapping[str, object] | None:
        """Return parameters of its kind, filled, and those for its provider."""


@dataclass(frozen=True, slots=True)
class BlockDevStatus:
    """One disk as it stands on this node."""

    dev_path: str
    major: int | None = None
    minor: int | None = None
    sync_percent: float | None = None
    estimated_time_s: float | None = None
    is_degraded: bool = False
    ldisk_status: int = LocalDiskStatus.OKAY

    def to_wire(self) -> dict[str, object]:
        """Return the BlockDevStatus object."""
        return {
            "dev_path": self.dev_path,
            "major": self.major,
            "minor": self.minor,
            "sync_percent": self.sync_percent,
            "estimated_time": self.estimated_time_s,
            "is_degraded": self.is_degraded,
            "ldisk_status": self.ldisk_status,
        }


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

    def to_wire(self) -> list[object]:
        """Return one element of the answer of blockdev_getdimensions."""
        return [self.size_bytes, self.spindles]


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """What a kind of disk can do; callers ask this, never the type of the driver."""

    template: str
    storage_type: str  # kind of storage unit that it takes its space from
    internally_mirrored: bool = False  # keeps a copy on a second node by itself
    externally_mirrored: bool = False  # the same storage is seen by all nodes
    file_based: bool = False
    has_children: bool = False
    can_grow: bool = False
    can_snapshot: bool = False
    can_adopt: bool = False
    can_rename: bool = False
    params: Mapping[str, object] | None = None


class BlockDevice(Protocol):
    """One disk on one node."""

    @property
    def info(self) -> DriverInfo:
        """Say what this kind of disk can do."""

    def create(self, size_mib: int, *, exclusive_storage: bool = False) -> list[object] | None:
        """Make the disk, of exactly that size and full of zeroes; it must not exist.

        Returns:
            The final logical id where creation decides it, else None.
        """

    def remove(self) -> None:
        """Remove the disk and all its data; does nothing when it is gone already."""

    def find(self) -> BlockDevStatus | None:
        """Look at the disk; None when it does not exist."""

    def assemble(self) -> Assembled:
        """Make the disk usable on this node; may be repeated."""

    def shutdown(self) -> None:
        """Undo ``assemble``; may be repeated."""

    def open(self, *, exclusive: bool = True) -> None:
        """Make an assembled disk writable here; ``exclusive`` means nowhere else."""

    def close(self) -> None:
        """Undo ``open``."""

    def grow(self, amount_mib: int, *, dryrun: bool = False, backingstore: bool = True) -> None:
        """Add to the size; ``dryrun`` only checks that it could be done."""

    def snapshot(self, name: str, size_mib: int) -> list[object]:
        """Take a snapshot and return its logical id."""

    def rename(self, new_logical_id: Sequence[object]) -> None:
        """Move the disk to another logical id, which must not exist."""

    def set_info(self, text: str) -> None:
        """Note on the disk what it is for, where its kind has room for it."""

    def wipe(self, offset_mib: int, size_mib: int) -> None:
        """Write zeroes over a part of the disk."""

    def dimensions(self) -> Dimensions | None:
        """Return the real size; None when the disk does not exist."""
