"""Storage in memory: a driver like the real ones, whose disks are mirrored and have children.

It counts the questions that looks take, and keeps everything in `disks`, so a test can see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ganeti.base.errors import BlockDeviceError
from ganeti.protocol.node_rpc_values import CopySide
from ganeti.storage.interface import (
    Assembled,
    BlockDevStatus,
    Dimensions,
    Link,
    Look,
    MirrorState,
    Storage,
    StorageUnit,
    Volume,
)

MIB = 1 << 20


@dataclass
class Stored:
    """One disk in memory."""

    data: bytearray
    info: str = ""
    is_assembled: bool = False
    is_open: bool = False
    is_connected: bool = False
    is_attached: bool = True
    is_syncing: bool = True
    is_outdated: bool = False


@dataclass
class Memory:
    """All disks of the node by name, and how often somebody asked for their state."""

    disks: dict[str, Stored] = field(default_factory=dict)
    questions: int = 0
    allocatable: bool = True


class MemoryVolume(Volume):
    """A disk in memory, perhaps with a copy on another node."""

    memory: ClassVar[Memory] = Memory()

    def _locate(self, logical_id: list[object]) -> None:
        match logical_id:
            case [str(), str(name)] if name:
                self._name = name
            case _:
                raise self._malformed()

    @property
    def mirror(self) -> MemoryVolume | None:
        return self if self.traits.mirrored else None

    def _stored(self) -> Stored:
        found = self.memory.disks.get(self._name)
        if found is None:
            raise BlockDeviceError(f"disk {self._disk.uuid}: {self._name} does not exist")
        return found

    def create(self, size_mib: int, *, exclusive_storage: bool = False) -> list[object] | None:
        if size_mib <= 0 or self._name in self.memory.disks:
            raise BlockDeviceError(f"cannot create {self._name}")
        self.memory.disks[self._name] = Stored(bytearray(size_mib * MIB))
        return None

    def remove(self) -> None:
        self.memory.disks.pop(self._name, None)

    def find(self) -> BlockDevStatus | None:
        self.memory.questions += 1
        return self.status()

    def status(self) -> BlockDevStatus | None:
        found = self.memory.disks.get(self._name)
        if found is None:
            return None
        path = f"/memory/{self._name}"
        if not self.traits.mirrored:
            return BlockDevStatus(path)
        link = Link.CONNECTED if found.is_connected else Link.NONE
        state = MirrorState(
            link, found.is_attached, f"{link}, attached: {found.is_attached}", found.is_open
        )
        return BlockDevStatus(path, is_degraded=not found.is_connected, mirror=state)

    def assemble(self) -> Assembled:
        self._stored().is_assembled = True
        return Assembled(f"/memory/{self._name}")

    def shutdown(self) -> None:
        if self._name in self.memory.disks:
            self._stored().is_assembled = False

    def open(self, *, exclusive: bool = True) -> None:
        self._stored().is_open = True

    def open_new(self) -> None:
        self._stored().is_outdated = False
        self.open()

    def close(self) -> None:
        if self._name in self.memory.disks:
            self._stored().is_open = False

    def set_info(self, text: str) -> None:
        self._stored().info = text

    def grow(self, amount_mib: int, *, dryrun: bool = False, backingstore: bool = True) -> None:
        if amount_mib <= 0:
            raise BlockDeviceError(f"{self._name} cannot grow by {amount_mib} MiB")
        data = self._stored().data
        if not dryrun and backingstore:
            data.extend(bytes(amount_mib * MIB))

    def snapshot(self, name: str, size_mib: int) -> list[object]:
        self.memory.disks[name] = Stored(bytearray(self._stored().data[: size_mib * MIB]))
        return [self._disk.logical_id[0], name]

    def rename(self, new_logical_id: Sequence[object]) -> None:
        new = str(new_logical_id[1])
        if new in self.memory.disks:
            raise BlockDeviceError(f"{new} exists")
        self.memory.disks[new] = self.memory.disks.pop(self._name)
        self._name = new

    def wipe(self, offset_mib: int, size_mib: int) -> None:
        data = self._stored().data
        if offset_mib < 0 or (offset_mib + size_mib) * MIB > len(data):
            raise BlockDeviceError(f"cannot wipe {size_mib} MiB from {offset_mib}")
        data[offset_mib * MIB : (offset_mib + size_mib) * MIB] = bytes(size_mib * MIB)

    def dimensions(self) -> Dimensions | None:
        found = self.memory.disks.get(self._name)
        return None if found is None else Dimensions(len(found.data))

    def connect(self, *, dual_primary: bool) -> None:
        self._stored().is_connected = True

    def wait_connected(self, timeout_s: float) -> None:
        if timeout_s <= 0 or not self._stored().is_connected:
            raise BlockDeviceError(f"{self._name} is not connected")

    def disconnect(self) -> None:
        self._stored().is_connected = False

    def attach(self, children: Sequence[Volume]) -> None:
        self._stored().is_attached = len(children) == 2

    def detach(self, children: Sequence[Volume]) -> None:
        self._stored().is_attached = False

    def pause_sync(self, *, pause: bool) -> None:
        self._stored().is_syncing = not pause

    def side(self) -> CopySide | None:
        found = self.memory.disks.get(self._name)
        if found is None or not found.is_assembled:
            return None
        return CopySide(
            found.is_connected, found.is_open, False, found.is_outdated, ["1"], None, ""
        )

    def outdate(self) -> None:
        if self._stored().is_connected:
            raise BlockDeviceError(f"{self._name} is connected")
        self._stored().is_outdated = True


class MemoryStorage(Storage):
    """Disks in memory; one question is enough for the state of all of them."""

    volume = MemoryVolume

    def look(self, volumes: Sequence[Volume]) -> list[Look]:
        MemoryVolume.memory.questions += 1
        return [each.status() for each in volumes if isinstance(each, MemoryVolume)]

    def space(self, name: str) -> StorageUnit:
        taken = sum(len(each.data) for each in MemoryVolume.memory.disks.values()) // MIB
        return StorageUnit(self.kind, name, 1024 - taken, 1024, taken)

    def units(self, names: Sequence[str]) -> list[StorageUnit]:
        return [self.space(name) for name in names]

    def modify_unit(self, name: str, changes: object) -> None:
        MemoryVolume.memory.allocatable = changes == {"allocatable": True}

    def repair_unit(self, name: str) -> None:
        MemoryVolume.memory.allocatable = True
