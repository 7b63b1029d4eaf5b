"""The state of one mirrored disk, in the terms of the family, and the next command for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import BlockDeviceError
from ganeti.objects.disk_templates import LocalDiskStatus
from ganeti.storage.drbd.plan import Found, Owner, Wanted, owner_of
from ganeti.storage.drbd.status import Device
from ganeti.storage.interface import BlockDevStatus, Link, Look, MirrorState

MAJOR: Final = 147  # of all DRBD devices
_KIB: Final = 1024

Partings = Mapping[int, str]  # why a minor was parted from its copy, by the minor


def state(
    path: str, wanted: Wanted, found: Found, size_bytes: int | None, partings: Partings
) -> Look:
    """Return the state of a disk whose minor was found like that.

    Args:
        path: of the device.
        size_bytes: of the device, None if it does not exist.
    """
    match owner_of(wanted, found):
        case Owner.NOBODY:
            return None
        case Owner.STRANGER:
            return BlockDeviceError(f"{path} is in use by another: {found}; nothing was done to it")
        case Owner.OURS:
            assert found.device is not None
            return status(path, found.device, size_bytes, partings)


def status(path: str, device: Device, size_bytes: int | None, partings: Partings) -> BlockDevStatus:
    """Return the state of a device that is ours."""
    if device.is_up_to_date:
        local = LocalDiskStatus.OKAY
    elif device.is_syncing:
        local = LocalDiskStatus.SYNC
    else:
        local = LocalDiskStatus.FAULTY
    link = Link.NONE if device.is_alone else Link.WAITING
    return BlockDevStatus(
        dev_path=path,
        major=MAJOR,
        minor=device.minor,
        sync_percent=_percent(device, size_bytes),
        estimated_time_s=None if device.sync is None else device.sync.left_s,
        is_degraded=device.is_degraded,
        ldisk_status=local,
        mirror=MirrorState(
            Link.CONNECTED if device.is_connected else link,
            not device.is_diskless,
            text(device, partings),
            is_open=device.is_primary,
            is_open_there=device.is_writable_there,
        ),
    )


def _percent(device: Device, size_bytes: int | None) -> float | None:
    """Return how much is in sync, None when all is.

    While a synchronization is prepared or held back, DRBD tells only what differs.
    """
    if not device.is_syncing:
        return None
    if device.sync is not None:
        return device.sync.percent
    left_kib = device.counters.get("oos")
    if not size_bytes or not isinstance(left_kib, int):
        return 0.0
    return round(max(0.0, 100 - 100 * left_kib * _KIB / size_bytes), 2)


def text(device: Device, partings: Partings) -> str:
    """Tell the state of a device, and what to do about it."""
    if device.is_alone and device.minor in partings:
        return partings[device.minor]
    if device.is_diskless:
        side = "-p" if device.is_primary else "-s"
        return (
            f"{device}: the local half is gone, after an I/O error or for lack of its volumes;"
            f" type: gnt-instance replace-disks {side} INSTANCE"
        )
    if device.is_alone:
        return f"{device}: not connected; type: gnt-instance activate-disks INSTANCE"
    return str(device)
