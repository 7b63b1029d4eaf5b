"""The root file system of a container is the whole disk, or a partition of it."""

from __future__ import annotations

import struct
import uuid
from pathlib import Path

import pytest

from ganeti.base.errors import HypervisorError
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.hypervisor.lxc.root import HEAD_BYTES, Part, find_root, mount, mount_options, unmount
from ganeti.objects.disk_templates import DiskMode

EFI = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
LINUX = "0fc63daf-8483-4772-8e79-3d69d8477de4"


def mbr(*parts: tuple[int, int, int], status: int = 0x80) -> bytearray:
    head = bytearray(HEAD_BYTES)
    for index, (kind, first, count) in enumerate(parts):
        struct.pack_into("<B3xB3xII", head, 446 + 16 * index, status, kind, first, count)
    head[510:512] = b"\x55\xaa"
    return head


def gpt(*parts: tuple[str, int, int]) -> bytearray:
    head = mbr((0xEE, 1, 99), status=0)
    head[512:520] = b"EFI PART"
    struct.pack_into("<QII", head, 512 + 72, 2, 128, 128)
    for index, (kind, first, last) in enumerate(parts):
        at = 1024 + 128 * index
        head[at : at + 16] = uuid.UUID(kind).bytes_le
        struct.pack_into("<QQ", head, at + 32, first, last)
    return head


def ext4() -> bytearray:
    head = mbr((0x83, 1, 2))  # a boot loader in front of a file system
    head[1080:1082] = b"\x53\xef"
    return head


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (b"", None),
        (bytes(HEAD_BYTES), None),
        (ext4(), None),
        (mbr((0x83, 2048, 10)), Part(2048 * 512, 10 * 512)),
        (mbr((0x0C, 63, 5), (0x83, 2048, 10)), Part(2048 * 512, 10 * 512)),
        (mbr((0x0C, 63, 5)), Part(63 * 512, 5 * 512)),
        (mbr(), None),
        (mbr((0x83, 2048, 10), status=0x12), None),
        (gpt((EFI, 2048, 4095), (LINUX, 4096, 4103)), Part(4096 * 512, 8 * 512)),
        (gpt((EFI, 2048, 4095)), Part(2048 * 512, 2048 * 512)),
        (gpt(), None),
        (gpt((LINUX, 1, 2))[:600], None),
    ],
)
def test_the_partition_is_found(head: bytes, part: Part | None) -> None:
    assert find_root(bytes(head)) == part


def test_how_it_is_mounted(tmp_path: Path) -> None:
    device, file = AssembledDisk(0, "u", "/dev/null", 1), tmp_path / "disk"
    file.write_bytes(b"")
    assert mount_options(device, None) == "rw"
    assert mount_options(AssembledDisk(0, "u", str(file), 1, DiskMode.RO), None) == "ro,loop"
    assert mount_options(device, Part(512, 1024)) == "rw,loop,offset=512,sizelimit=1024"
    with pytest.raises(HypervisorError, match="'web1' cannot be mounted"):
        mount("web1", AssembledDisk(0, "u", str(tmp_path / "none"), 1), str(tmp_path))
    unmount("web1", str(tmp_path / "none"))
