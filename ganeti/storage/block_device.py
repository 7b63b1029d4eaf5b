"""Disks of template ``blockdev``: devices that exist already and are adopted as they are.

Ganeti neither makes nor removes them, so their data outlives the instance.

Source: constants.json, ADOPTABLE_BLOCKDEV_ROOT, BLOCKDEV_DRIVER_MANUAL; config.json,
"disk_logical_id".
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Never

from ganeti.base.errors import BlockDeviceError, NotSupportedError, failing_as
from ganeti.objects.disk_templates import ADOPTABLE_BLOCKDEV_ROOT, BLOCKDEV_DRIVER
from ganeti.storage.data import size_of
from ganeti.storage.holders import holders
from ganeti.storage.interface import Assembled, BlockDevStatus, Dimensions, Storage, Volume


class AdoptedVolume(Volume):
    """A block device of this node that was there before the instance."""

    def _locate(self, logical_id: list[object]) -> None:
        match logical_id:
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
        with failing_as(BlockDeviceError, f"cannot look at {self._path}"):
            try:
                found = os.stat(self._path)
            except FileNotFoundError:
                return None
        if not stat.S_ISBLK(found.st_mode):
            raise BlockDeviceError(f"{self._path} is not a block device")
        return os.major(found.st_rdev), os.minor(found.st_rdev)

    def _refuse(self, action: str) -> Never:
        raise NotSupportedError(f"device {self._path} was adopted, so it cannot be {action}")

    def create(self, size_mib: int, *, exclusive_storage: bool = False) -> list[object] | None:
        """Check that the device is there, and that nothing uses it: Ganeti does not make it."""
        numbers = self._numbers()
        if numbers is not None and (held_by := ", ".join(holders(*numbers))):
            raise BlockDeviceError(
                f"device {self._path} is in use by {held_by}; end that, then try again"
            )
        self.assemble()
        self._check_claimable()
        return None

    def _check_claimable(self) -> None:
        """Refuse a device in use by the kernel that has no holder: swap space, a part in use."""
        with failing_as(BlockDeviceError, f"cannot open {self._path}"):
            try:
                os.close(os.open(self._path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
            except OSError as err:
                if err.errno != errno.EBUSY:
                    raise
                raise BlockDeviceError(
                    f"device {self._path} is in use by the kernel, as swap space or by a part of"
                    f" it; see 'lsblk {self._path}', end that, then try again"
                ) from err

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
        with failing_as(BlockDeviceError, f"cannot look at {self._path}"):
            return Dimensions(size_of(self._path))


class AdoptedStorage(Storage):
    """Devices of this node; nobody knows how much space is left for more of them."""

    volume = AdoptedVolume
