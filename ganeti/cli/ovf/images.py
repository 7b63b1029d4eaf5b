"""Disks of other programs: what they are, and their conversion by ``qemu-img``; disks of exports.

A file is opened as what its first bytes say.  Without any such bytes it is a raw disk, unless its
description says otherwise: every file can be read as a raw disk.  One that refers to other files of
this machine is refused, as whoever made it would get to read these.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base import json
from ganeti.base.errors import CommandError, OpExecError, OpPrereqError
from ganeti.storage.chains.layers import LayerFile, RootCounter, merged
from ganeti.storage.data import write_at
from ganeti.system import process

QEMU_IMG: Final = "qemu-img"
INFO_TIMEOUT_S: Final = 120.0
CONVERT_TIMEOUT_S: Final = 24 * 3600.0
_CHUNK_BYTES: Final = 1 << 20
_MAGIC: Final = {
    b"QFI\xfb": "qcow2",
    b"KDMV": "vmdk",
    b"vhdxfile": "vhdx",
    b"conectix": "vpc",
    b"<<< ": "vdi",
}
COMPRESSED: Final[Mapping[bytes, str]] = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
"""The first bytes of compressed files, and the programs for them."""
_SPARSE_OF_ESX: Final = b"COWD"  # VMDK in files of a kind that OVF does not name
# In the URIs of formats: one of these has a magic.  A flat VMDK is a raw disk.
_HAS_MAGIC: Final = re.compile(
    r"vmdk(?!.*flat)|qcow|vhd|vdi|virtualbox|bb676673|linkid=137171", re.IGNORECASE
)
_DESCRIPTOR: Final = b"# Disk DescriptorFile"
HEAD_BYTES: Final = len(_DESCRIPTOR)  # the longest of these
_FOOTER: Final = (b"conectix", 512)  # of a VHD, at its end
# By the words of commands: the format of QEMU, and its options.
_WRITTEN: Final[Mapping[str, tuple[str, ...]]] = {
    "vmdk": ("-O", "vmdk", "-o", "subformat=streamOptimized"),
    "cow": ("-O", "qcow2"),
    "raw": ("-O", "raw"),
}
ENDINGS: Final = {"vmdk": ".vmdk", "cow": ".qcow2", "raw": ".raw"}


def format_of(path: str, declared: str) -> str:
    """Return the format of an image, by its content.

    Args:
        declared: the URI of the format that its description names, or "".

    Raises:
        OpPrereqError: it is only the description of other files, is compressed, of a kind that is
            not taken, or not as it is declared.
    """
    name = os.path.basename(path)
    with open(path, "rb") as file:
        head = file.read(HEAD_BYTES)
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _FOOTER[1]))
        tail = file.read(len(_FOOTER[0]))
    if head.startswith(_DESCRIPTOR):
        raise OpPrereqError(
            f"{name} only describes other files; disks of VMware have to be stream-optimised"
        )
    if head.startswith(_SPARSE_OF_ESX):
        raise OpPrereqError(
            f"{name} is a sparse disk of ESX (COWD), which is not taken; disks of VMware have to be"
            " stream-optimised"
        )
    if program := begins_as(COMPRESSED, head):
        raise OpPrereqError(
            f"{name} is compressed by {program}, which its description does not say"
        )
    found = begins_as(_MAGIC, head) or ("vpc" if tail == _FOOTER[0] else "")
    if not found and _HAS_MAGIC.search(declared):
        raise OpPrereqError(
            f"{name} is damaged: it does not begin as a disk of the format that is declared for it,"
            f" {declared:.100}"
        )
    return found or "raw"


def begins_as(table: Mapping[bytes, str], head: bytes) -> str:
    """Return the row of a table of first bytes that fits, or ""."""
    return next((found for magic, found in table.items() if head.startswith(magic)), "")


def size_of(path: str, kind: str) -> int:
    """Return how many bytes a machine sees of an image.

    Raises:
        OpPrereqError: it is damaged, or refers to other files.
    """
    name = os.path.basename(path)
    try:
        argv = [QEMU_IMG, "info", "--output=json", "-f", kind, path]
        found = json.loads(process.run(argv, timeout_s=INFO_TIMEOUT_S).check().stdout)
    except CommandError as err:
        raise OpPrereqError(
            f"{name} cannot be read as {kind}: {err.output or err.message}"
        ) from err
    assert isinstance(found, dict)
    if others := sorted(_others(found, path)):
        raise OpPrereqError(f"{name} refers to other files, which is not taken: {others[0]!r}")
    size = found["virtual-size"]
    assert isinstance(size, int)
    return size


def _others(info: Mapping[str, Any], path: str) -> set[str]:
    """Return the files besides itself that an image has its data in."""
    found = {str(info[k]) for k in ("backing-filename", "full-backing-filename") if k in info}
    data = info.get("format-specific", {}).get("data", {})
    found |= {str(data[key]) for key in ("data-file",) if key in data}
    extents = data.get("extents", [])
    return found | {str(each.get("filename")) for each in extents} - {path}


def to_raw(path: str, kind: str, target: str) -> None:
    """Convert an image to a raw one; errors as of `_convert`."""
    _convert(["-f", kind, "-O", "raw", path, target])


def from_raw(path: str, kind: str, target: str) -> None:
    """Convert a raw image to a format that OVF names; errors as of `_convert`."""
    _convert(["-f", "raw", *_WRITTEN[kind], path, target])


def expand(paths: Sequence[str], root: str, target: str) -> int:
    """Write the disk that the streams of an export make as a raw image; returns its size.

    Args:
        paths: the whole disk, then what changed, if that is in files of its own.
        root: the checksum of its blocks; empty if there is none.

    Raises:
        StorageError: the export is damaged.
    """
    layers = [LayerFile(path).layer() for path in paths]
    size = layers[-1].size
    runs = merged(layers)
    if root:
        runs = RootCounter(size).compared(runs, root)
    with open(target, "xb") as file:
        file.truncate(size)
        for offset, length, data in runs:
            if data is not None and data != bytes(length):  # the file is full of zeroes
                write_at(file.fileno(), data, offset)
    return size


def _convert(words: list[str]) -> None:
    """Run ``qemu-img convert``.

    Raises:
        OpExecError: it failed; its last words are in the text.
    """
    try:
        process.run([QEMU_IMG, "convert", *words], timeout_s=CONVERT_TIMEOUT_S).check()
    except CommandError as err:
        raise OpExecError(f"cannot convert {os.path.basename(words[-2])}: {err.message}") from err


def unpack_gzip(path: str, target: str, *, bytes_max: int) -> None:
    """Decompress a file.

    Raises:
        OpPrereqError: it is damaged, or has more content than is possible.
    """
    name, left = os.path.basename(path), bytes_max
    with contextlib.ExitStack() as opened:
        source = opened.enter_context(gzip.open(path))
        out = opened.enter_context(open(target, "wb"))
        try:
            while chunk := source.read(_CHUNK_BYTES):
                left -= len(chunk)
                if left < 0:
                    raise OpPrereqError(f"{name} has more content than the disk that it is")
                out.write(chunk)
        except (EOFError, gzip.BadGzipFile, zlib.error) as err:
            raise OpPrereqError(f"{name} is damaged: {err}") from err


def digest_of(path: str, algorithm: str = "sha256") -> str:
    """Return the digest of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()
