"""Disk templates and the storage types behind them.

Source: constants.json, "disk_templates".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final


class DiskTemplate(StrEnum):
    """How the disks of an instance are made; also the device type of a disk."""

    BLOCKDEV = "blockdev"
    DISKLESS = "diskless"
    DRBD = "drbd"
    EXT = "ext"
    FILE = "file"
    GLUSTER = "gluster"
    PLAIN = "plain"
    RBD = "rbd"
    SHAREDFILE = "sharedfile"


MIXED: Final = "mixed"  # shown for an instance whose disks are of several templates


class StorageType(StrEnum):
    """Kinds of storage a node can report on."""

    BLOCKDEV = "blockdev"
    DISKLESS = "diskless"
    EXT = "ext"
    FILE = "file"
    GLUSTER = "gluster"
    LVM_PV = "lvm-pv"
    LVM_VG = "lvm-vg"
    RADOS = "rados"
    SHAREDFILE = "sharedfile"


class FileDriver(StrEnum):
    """How a hypervisor opens the file behind a disk."""

    BLKTAP = "blktap"
    BLKTAP2 = "blktap2"
    LOOP = "loop"


class DiskMode(StrEnum):
    """Whether the instance may write."""

    RW = "rw"
    RO = "ro"


class DiskAccess(StrEnum):
    """Whether a disk goes through a kernel block device or straight to the hypervisor."""

    KERNELSPACE = "kernelspace"
    USERSPACE = "userspace"


class DeviceAction(StrEnum):
    """What to do with a disk or NIC of an instance."""

    ADD = "add"
    ATTACH = "attach"
    DETACH = "detach"
    MODIFY = "modify"
    REMOVE = "remove"


class LocalDiskStatus:
    """State of a mirrored disk's local half, as numbers on the wire."""

    OKAY: Final = 1
    SYNC: Final = 2
    UNKNOWN: Final = 3
    FAULTY: Final = 4


_T = DiskTemplate

FILE_BASED: Final = frozenset({_T.FILE, _T.SHAREDFILE, _T.GLUSTER})
INTERNALLY_MIRRORED: Final = frozenset({_T.DRBD})
EXTERNALLY_MIRRORED: Final = frozenset(
    {_T.BLOCKDEV, _T.DISKLESS, _T.EXT, _T.GLUSTER, _T.RBD, _T.SHAREDFILE}
)
MIRRORED: Final = INTERNALLY_MIRRORED | EXTERNALLY_MIRRORED
LVM_BASED: Final = frozenset({_T.DRBD, _T.PLAIN})
GROWABLE: Final = frozenset({_T.DRBD, _T.EXT, _T.FILE, _T.GLUSTER, _T.PLAIN, _T.RBD, _T.SHAREDFILE})
COPYABLE: Final = frozenset({_T.FILE, _T.PLAIN})
MAY_ADOPT: Final = frozenset({_T.BLOCKDEV, _T.PLAIN})
MUST_ADOPT: Final = frozenset({_T.BLOCKDEV})
HAVE_ACCESS: Final = frozenset({_T.EXT, _T.GLUSTER, _T.RBD})
EXCLUSIVE_STORAGE: Final = frozenset({_T.PLAIN})
INSTANCE_DEPENDENT_PATH: Final = frozenset({_T.FILE, _T.SHAREDFILE})
NOT_CONVERTIBLE_FROM: Final = frozenset({_T.DISKLESS})
NOT_CONVERTIBLE_TO: Final = frozenset({_T.BLOCKDEV, _T.DISKLESS})
NO_FREE_SPACE_CHECK: Final = frozenset({_T.EXT, _T.FILE, _T.GLUSTER, _T.RBD, _T.SHAREDFILE})
SNAPSHOT_CAPABLE: Final = frozenset({_T.DRBD, _T.EXT, _T.PLAIN})

STORAGE_TYPE: Final[Mapping[DiskTemplate, StorageType]] = {
    _T.BLOCKDEV: StorageType.BLOCKDEV,
    _T.DISKLESS: StorageType.DISKLESS,
    _T.DRBD: StorageType.LVM_VG,
    _T.EXT: StorageType.EXT,
    _T.FILE: StorageType.FILE,
    _T.GLUSTER: StorageType.GLUSTER,
    _T.PLAIN: StorageType.LVM_VG,
    _T.RBD: StorageType.RADOS,
    _T.SHAREDFILE: StorageType.SHAREDFILE,
}
REPORTING_STORAGE: Final = frozenset(
    {
        StorageType.FILE,
        StorageType.GLUSTER,
        StorageType.LVM_PV,
        StorageType.LVM_VG,
        StorageType.SHAREDFILE,
    }
)
"""Storage types whose free space a node can report."""

DISKS_MAX: Final = 16
DRBD_META_SIZE_MIB: Final = 128
DRBD_SECRET_LENGTH: Final = 20  # bytes, before hexadecimal encoding
DRBD_PORTS: Final = range(11000, 15000)
DEFAULT_VOLUME_GROUP: Final = "xenvg"
BLOCKDEV_DRIVER: Final = "manual"
ADOPTABLE_BLOCKDEV_ROOT: Final = "/dev/disk/"

DISK_PARAM_NAMES: Final = frozenset(
    {
        "access",
        "adopt",
        "dev_type",
        "metavg",
        "mode",
        "name",
        "provider",
        "size",
        "spindles",
        "vg",
    }
)
"""Keys of one disk in an opcode; disks of template ext take others besides (for the provider)."""


def disk_space_mib(template: str, sizes_mib: Iterable[int]) -> int:
    """Return how much space disks take, with what their template needs besides."""
    extra_mib = DRBD_META_SIZE_MIB if template == DiskTemplate.DRBD else 0
    return sum(size_mib + extra_mib for size_mib in sizes_mib)
