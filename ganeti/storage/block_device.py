"""Disks of template ``blockdev``: devices that exist already and are adopted as they are.

Ganeti neither makes nor removes them, so their data outlives the instance.

Source: constants.json, ADOPTABLE_BLOCKDEV_ROOT, BLOCKDEV_DRIVER_MANUAL; config.json,
"disk_logical_id".
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Never

from ganeti.base.errors import BlockDeviceError, NotSupportedError
from ganeti.objects.disk_templates import ADOPTABLE_BLOCKDEV_ROOT, BLOCKDEV_DRIVER
from ganeti.storage.interface import (
    Assembled,
    BlockDevStatus,
    Dimensions,
    DiskLike,
    Storage,
    StorageEnv,
    Volume,
)


class AdoptedVolume(Volume):
    """A block device of this node that was there before the instance."""

    def __init__(self, disk: DiskLike, env: StorageEnv, children: Sequence[Volume] = ()) -> None:
        super().__init__(disk, env, children)
        match list(disk.logical_id):
            case [driver, str(path)] if driver == BLOCKDEV_DRIVER:
                self._path = path
            case _:
                raise self._malformed()
        if not os.path.normpath(self._path).startswith(ADOPTABLE_BLOCKDEV_ROOT):
            raise BlockDeviceError(
                f"device {self._path} cannot be adopted: it does not lie below"
                f" {ADOPTABLE_BLOCKDEV_ROOT}"
            )

    def _numbers(self) -> tuple[int, int] | None:
        """Return the device's numbers; None when it does not exist."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        except OSError as err:
            raise BlockDeviceError(f"cannot look at {self._path}: {err.strerror}") from err
        if not stat.S_ISBLK(found.st_mode):
            raise BlockDeviceError(f"{self._path} is not a block device")
        return os.major(found.st_rdev), os.minor(found.st_rdev)

    def _refuse(self, action: str) -> Never:
        raise NotSupportedError(f"device {self._path} was adopted, so it cannot be {action}")

    def create(self, size_mib: int, *, exclusive_storage: bool = False) -> list[object] | None:
        """Check that the device is there: it is not Ganeti that makes it."""
        if self._numbers() is None:
            raise BlockDeviceError(f"device {self._path} does not exist")
        return None

    def remove(self) -> None:
        """Do nothing: the device and its data stay."""

    def find(self) -> BlockDevStatus | None:
        """Look at the device; None when there is none."""
        numbers = self._numbers()
        return None if numbers is None else BlockDevStatus(self._path, *numbers)

    def assemble(self) -> Assembled:
        """Check that the device is there: nothing else is needed to use it."""
        if self._numbers() is None:
            raise BlockDeviceError(f"device {self._path} does not exist")
        return Assembled(self._path)

    def dimensions(self) -> Dimensions | None:
        """Return the size of the device; None when there is none."""
        if self._numbers() is None:
            return None
        try:
            with open(self._path, "rb") as device:
                return Dimensions(device.seek(0, os.SEEK_END))
        except OSError as err:
            raise BlockDeviceError(f"cannot look at {self._path}: {err.strerror}") from err


class AdoptedStorage(Storage):
    """Devices of this node; nobody knows how much space is left for more of them."""

    volume = AdoptedVolume
