"""The table of disk templates; each driver is imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, cast

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError
from ganeti.storage.interface import BlockDevice, DiskLike, StorageEnv

# template -> "module:class", taking a disk and the node; None where there is no driver yet
_DRIVERS: Final[Mapping[str, str | None]] = {
    "blockdev": "ganeti.storage.block_device:AdoptedDisk",
    "diskless": None,  # has no disks, so there is nothing to drive
    "drbd": None,
    "ext": "ganeti.storage.external:ExternalDisk",
    "file": "ganeti.storage.file:FileDisk",
    "gluster": None,
    "plain": None,
    "rbd": None,
    "sharedfile": "ganeti.storage.file:SharedFileDisk",
}


def driver_modules() -> list[str]:
    """Return the modules of all drivers, for a process that wants them imported beforehand."""
    return sorted({target.partition(":")[0] for target in _DRIVERS.values() if target})


def supported_templates() -> list[str]:
    """Return the disk templates that an instance can have here."""
    return [name for name, target in _DRIVERS.items() if target or name == "diskless"]


def get_driver(disk: DiskLike, env: StorageEnv) -> BlockDevice:
    """Return the driver for one disk on a node.

    Raises:
        OpPrereqError: the disk's template is unknown, or has no disks at all.
        NotSupportedError: the template has no driver.
    """
    template = str(disk.dev_type)
    if template == "diskless":
        raise OpPrereqError(f"disk {disk.uuid}: a diskless instance has no disks", ErrorCode.INVAL)
    if template not in _DRIVERS:
        raise OpPrereqError(f"disk {disk.uuid}: unknown template {template!r}", ErrorCode.INVAL)
    target = _DRIVERS[template]
    if target is None:
        raise NotSupportedError(
            f"disk template {template!r} is not supported; "
            f"use one of {', '.join(supported_templates())}"
        )
    module, _, attribute = target.partition(":")
    factory = cast(
        "Callable[[DiskLike, StorageEnv], BlockDevice]", getattr(import_module(module), attribute)
    )
    return factory(disk, env)
