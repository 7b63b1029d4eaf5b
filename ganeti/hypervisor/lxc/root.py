"""The root file system of a container on its disk: the whole disk, or a partition of it.

A disk with a partition table (MBR or GPT) is mounted from its first partition for Linux, or from
its first one at all; by offset, so no device-mapper and no partition devices are needed.

Source: UEFI specification, chapter 5 (GPT); the layouts of file systems; mount(8).
"""

from __future__ import annotations

import os
import struct
import uuid
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import HypervisorError, failing_as
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.objects.disk_templates import DiskMode
from ganeti.system import process

_SECTOR_BYTES: Final = 512
HEAD_BYTES: Final = 68 * _SECTOR_BYTES  # MBR, GPT header, 128 entries of 128 bytes, and some
_MBR_TABLE: Final = 446
_MBR_ENTRIES: Final = 4
_GPT_PROTECTIVE: Final = 0xEE
_GPT_ENTRIES_MAX: Final = 128
_MBR_LINUX: Final = frozenset({0x83})
_GPT_LINUX: Final = frozenset(
    map(
        uuid.UUID,
        (
            "0fc63daf-8483-4772-8e79-3d69d8477de4",  # Linux file system data
            "4f68bce3-e8cd-4db1-96e7-fbcaf984b709",  # root for x86-64
            "b921b045-1df0-41c3-af44-4c6f280d3fae",  # root for 64-bit ARM
            "44479540-f297-41b2-9af7-d131d5f0458a",  # root for x86
        ),
    )
)
# (offset, bytes) of file systems that may fill a disk
_FILE_SYSTEMS: Final = ((1080, b"\x53\xef"), (0, b"XFSB"), (0, b"hsqs"))
_MOUNT_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a disk."""

    offset_bytes: int
    size_bytes: int


def find_root(head: bytes) -> Part | None:
    """Find the partition with the root file system; None if it is the whole disk.

    Args:
        head: the first bytes of the disk.
    """
    if any(head[at : at + len(magic)] == magic for at, magic in _FILE_SYSTEMS):
        return None
    if len(head) < _SECTOR_BYTES or head[510:512] != b"\x55\xaa":
        return None
    entries = [
        struct.unpack_from("<B3xB3xII", head, _MBR_TABLE + 16 * index)
        for index in range(_MBR_ENTRIES)
    ]
    if any(status not in (0, 0x80) for status, *_rest in entries):
        return None  # the boot sector of a file system
    if any(kind == _GPT_PROTECTIVE for _status, kind, _first, _count in entries):
        return _chosen(list(_gpt(head)))
    return _chosen([(kind in _MBR_LINUX, at, count) for _s, kind, at, count in entries if kind])


def _gpt(head: bytes) -> list[tuple[bool, int, int]]:
    """Return (is for Linux, first sector, sectors) of the partitions of a GPT."""
    if head[512:520] != b"EFI PART":
        return []
    start, count, size = struct.unpack_from("<QII", head, 512 + 72)
    found = []
    for index in range(min(count, _GPT_ENTRIES_MAX)):
        entry = head[start * _SECTOR_BYTES + index * size :][:size]
        if len(entry) < 48 or not any(entry[:16]):
            continue
        first, last = struct.unpack_from("<QQ", entry, 32)
        found.append((uuid.UUID(bytes_le=entry[:16]) in _GPT_LINUX, first, last + 1 - first))
    return found


def _chosen(parts: list[tuple[bool, int, int]]) -> Part | None:
    for _is_linux, first, count in sorted(parts, key=lambda part: not part[0]):
        return Part(first * _SECTOR_BYTES, count * _SECTOR_BYTES)
    return None


def mount_options(disk: AssembledDisk, part: Part | None) -> str:
    """Return the options by which the root file system of a disk is mounted."""
    options = ["ro" if disk.mode is DiskMode.RO else "rw"]
    if part is not None:
        options += ["loop", f"offset={part.offset_bytes}", f"sizelimit={part.size_bytes}"]
    elif os.path.isfile(disk.dev_path):
        options.append("loop")
    return ",".join(options)


def mount(name: str, disk: AssembledDisk, place: str) -> None:
    """Mount the root file system of an instance.

    Raises:
        HypervisorError: the disk has none that can be mounted.
    """
    with failing_as(HypervisorError, f"the disk of instance {name!r} cannot be mounted"):
        with open(disk.dev_path, "rb") as file:
            part = find_root(file.read(HEAD_BYTES))
        argv = ["mount", "-o", mount_options(disk, part), disk.dev_path, place]
        process.run(argv, timeout_s=_MOUNT_TIMEOUT_S).check()


def unmount(name: str, place: str) -> None:
    """Unmount the root file system of an instance, if it is mounted.

    Raises:
        HypervisorError: it is in use.
    """
    with failing_as(HypervisorError, f"the disk of instance {name!r} cannot be unmounted"):
        if os.path.ismount(place):
            process.run(["umount", "--recursive", place], timeout_s=_MOUNT_TIMEOUT_S).check()
