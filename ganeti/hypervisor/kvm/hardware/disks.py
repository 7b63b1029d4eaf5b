"""Disks with which a machine keeps state of its own; its guest does not see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.objects.disk_templates import DiskFormat, DiskMode

PFLASH: Final = "pflash"  # the driver of a disk that is flash memory of the machine
TPM: Final = "tpm"  # that of a disk with the state of a TPM, which another program writes
KEPT: Final = frozenset({PFLASH, TPM})
_MIB: Final = 1 << 20


def kept_disk(
    owner: str, name: str, wish: str, disks: Iterable[AssembledDisk], needed_bytes: int
) -> AssembledDisk:
    """Return the disk of an instance with which its machine keeps so much state.

    Args:
        wish: the hypervisor parameter that needs it, and what for, as words for a person.

    Raises:
        OpPrereqError: the instance has no such disk, or one that does not fit.
    """
    disk = next((disk for disk in disks if disk.name == name), None)
    if disk is None:
        raise OpPrereqError(
            f"instance {owner}: hypervisor parameter {wish}:"
            f" 'gnt-instance modify --disk add:size=4m,name={name} {owner}'",
            ErrorCode.STATE,
        )
    problem = _unfit(disk, needed_bytes)
    if problem:
        raise OpPrereqError(f"instance {owner}: disk {name} {problem}", ErrorCode.STATE)
    return disk


def _unfit(disk: AssembledDisk, needed_bytes: int) -> str:
    """Return why a disk cannot keep so much state, "" if it can."""
    if disk.uri is not None or disk.format is not DiskFormat.RAW:
        return "must be raw, and a device or file of the node (format=raw, access=kernelspace)"
    if disk.mode is not DiskMode.RW:
        return "is read-only; make it writable with mode=rw"
    if disk.size_mib * _MIB < needed_bytes:
        return f"is too small: {needed_bytes} bytes are kept on it"
    return ""
