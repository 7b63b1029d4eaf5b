"""Disks of template ``ext``: volumes of an external storage provider.

What the provider's ``attach`` prints says how a volume is reached: a local device or file, and
addresses for hypervisors that reach it without one.  Each script is run anew; nothing is kept.

Source: hooks_os_ext.json, "ext_storage"; config.json, "disk_logical_id".
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import BlockDeviceError
from ganeti.objects.disk_templates import DiskAccess
from ganeti.storage.data import wipe
from ganeti.storage.external_provider import ScriptVolume, find_provider, run_script
from ganeti.storage.interface import (
    Assembled,
    BlockDevStatus,
    Dimensions,
    DiskLike,
    Storage,
    StorageEnv,
    Volume,
)

MIB: Final = 1 << 20
_ACCESS: Final = "access"
_KVM: Final = "kvm:"


def parse_attached(output: str) -> tuple[str, list[str]]:
    """Return (device or file, addresses) from what ``attach`` printed."""
    first, *rest = output.splitlines() or [""]
    return first.strip(), [line.strip() for line in rest if line.strip()]


class ExternalVolume(Volume):
    """A volume of an external storage provider."""

    def __init__(self, disk: DiskLike, env: StorageEnv, children: Sequence[Volume] = ()) -> None:
        super().__init__(disk, env, children)
        match list(disk.logical_id):
            case [str(provider), str(name)]:
                self._name = name
            case _:
                raise self._malformed()
        self._provider = find_provider(provider, env.paths)
        self._params = dict(disk.params or {})
        own = {key: value for key, value in self._params.items() if key != _ACCESS}
        self._volume = ScriptVolume(name, str(disk.uuid), disk.name, own)

    def _run(self, action: str, **values: object) -> str:
        return run_script(self._provider, action, self._volume, self._env.paths, **values)

    def _run_if_there(self, action: str, **values: object) -> None:
        if self._provider.has_script(action):
            self._run(action, **values)

    def create(self, size_mib: int, *, exclusive_storage: bool = False) -> list[object] | None:
        """Let the provider check the parameters, then make the volume."""
        self._run("verify")
        self._run("create", VOL_SIZE=size_mib)
        return None

    def remove(self) -> None:
        """Let the provider remove the volume."""
        self._run("remove")

    def find(self) -> BlockDevStatus | None:
        """Attach the volume; None when that cannot be, most likely because there is none."""
        try:
            return BlockDevStatus(self.assemble().dev_path)
        except BlockDeviceError:
            return None

    def assemble(self) -> Assembled:
        """Attach the volume, and choose how the hypervisor is to reach it."""
        path, addresses = parse_attached(self._run("attach"))
        if path and not os.path.exists(path):
            raise BlockDeviceError(
                f"external storage provider {self._provider.name!r} attached volume {self._name} at"
                f" {path}, which does not exist"
            )
        if self._params.get(_ACCESS) != DiskAccess.USERSPACE:
            if not path:
                raise BlockDeviceError(
                    f"external storage provider {self._provider.name!r} has no device for volume"
                    f" {self._name}; its disks need access=userspace"
                )
            return Assembled(path)
        for address in addresses:
            if address.startswith(_KVM):
                return Assembled(path, address.removeprefix(_KVM))
        raise BlockDeviceError(
            f"external storage provider {self._provider.name!r} has no address for KVM for volume"
            f" {self._name}; its disks need access=kernelspace"
        )

    def shutdown(self) -> None:
        """Detach the volume."""
        self._run("detach")

    def open(self, *, exclusive: bool = True) -> None:
        """Tell the provider that the volume is about to be written here, if it wants to know."""
        self._run_if_there("open", VOL_OPEN_EXCLUSIVE=exclusive)

    def close(self) -> None:
        """Tell the provider that the volume is not written here any more."""
        self._run_if_there("close")

    def grow(self, amount_mib: int, *, dryrun: bool = False, backingstore: bool = True) -> None:
        """Let the provider make the volume larger."""
        if amount_mib <= 0:
            raise BlockDeviceError(f"volume {self._name} cannot grow by {amount_mib} MiB")
        if dryrun or not backingstore:
            return
        old_mib = self._disk.size
        self._run("grow", VOL_SIZE=old_mib, VOL_NEW_SIZE=old_mib + amount_mib)

    def snapshot(self, name: str, size_mib: int) -> list[object]:
        """Let the provider take a snapshot, if it can."""
        self._run("snapshot", VOL_SNAPSHOT_NAME=name, VOL_SNAPSHOT_SIZE=size_mib)
        return [self._provider.name, name]

    def set_info(self, text: str) -> None:
        """Note on the volume what it is for."""
        self._run("setinfo", VOL_METADATA=text)

    def _device(self) -> str:
        path = parse_attached(self._run("attach"))[0]
        if not path:
            raise BlockDeviceError(
                f"volume {self._name} of external storage provider {self._provider.name!r} has no"
                " device on this node"
            )
        return path

    def wipe(self, offset_mib: int, size_mib: int) -> None:
        """Write zeroes over a part of the volume."""
        path = self._device()
        try:
            wipe(path, offset_mib * MIB, size_mib * MIB)
        except OSError as err:
            raise BlockDeviceError(f"cannot wipe {path}: {err.strerror}") from err

    def dimensions(self) -> Dimensions | None:
        """Return the size of the attached device; what has none is believed to be as recorded."""
        try:
            path = parse_attached(self._run("attach"))[0]
        except BlockDeviceError:
            return None
        if not path:
            return Dimensions(self._disk.size * MIB)
        try:
            with open(path, "rb") as device:
                return Dimensions(device.seek(0, os.SEEK_END))
        except OSError as err:
            raise BlockDeviceError(f"cannot look at {path}: {err.strerror}") from err


class ExternalStorage(Storage):
    """Volumes of external storage providers; these do not tell how much space is left."""

    volume = ExternalVolume
