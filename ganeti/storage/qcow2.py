"""Images in QEMU's format qcow2: made, enlarged, looked into, and their snapshots.

An image holds its disk's snapshots, and takes room only for the parts that were ever written.  Only
its recorded format says that a file is one; of the file itself just the head is read, for the size
of the disk and to refuse what would lead QEMU to other files.

Source: QEMU, docs/interop/qcow2.txt, qemu-img(1), qemu-nbd(8).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ganeti.base.errors import BlockDeviceError
from ganeti.base.json import loads
from ganeti.storage.interface import KeptSnapshot
from ganeti.storage.raw_view import server_running
from ganeti.system import process
from ganeti.system.files import remove_if_exists

_MIB: Final = 1 << 20
_HEAD: Final = struct.Struct(">4sIQIIQ")  # magic, version, backing file and its length, ..., size
_MAGIC: Final = b"QFI\xfb"
_FEATURES: Final = struct.Struct(">Q")  # incompatible ones, from version 3 on
_FEATURES_AT: Final = 72
_EXTERNAL_DATA: Final = 1 << 2
_MODE: Final = 0o660
_ENV: Final = {"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
_COMMAND_S: Final = 600.0  # an image of terabytes has tables of gigabytes


def size_of_image(path: str) -> int | None:
    """Return the size of the disk in an image, in bytes; None when there is no file.

    Raises:
        BlockDeviceError: it is no such image, or one that leads to other files.
        OSError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(_FEATURES_AT + _FEATURES.size)
    except FileNotFoundError:
        return None
    if len(head) < _FEATURES_AT + _FEATURES.size or not head.startswith(_MAGIC):
        raise BlockDeviceError(f"{path} is not an image of format qcow2, as its disk is recorded")
    _magic, version, backing, _length, _bits, size = _HEAD.unpack_from(head)
    features = _FEATURES.unpack_from(head, _FEATURES_AT)[0] if version > 2 else 0
    if backing or features & _EXTERNAL_DATA:
        raise BlockDeviceError(f"{path} leads to another file, which disks of Ganeti never do")
    return int(size)


def make_image(path: str, size_bytes: int) -> None:
    """Make an empty image, which takes no room for its disk yet."""
    _qemu_img("create", "-q", "-f", "qcow2", "-o", "preallocation=off", path, str(size_bytes))
    os.chmod(path, _MODE)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def enlarge_image(path: str, size_bytes: int) -> None:
    """Give the disk of an image that nobody has open another, larger size."""
    _qemu_img("resize", "-q", "-f", "qcow2", path, str(size_bytes))


def snapshots_of_image(path: str) -> list[KeptSnapshot]:
    """Return the snapshots in an image that nobody has open, the oldest first."""
    found = loads(_qemu_img("info", "--output=json", "-f", "qcow2", path))
    rows = found.get("snapshots", []) if isinstance(found, dict) else []
    return kept_snapshots(rows if isinstance(rows, list) else [], size_of_image(path) or 0)


def kept_snapshots(rows: Sequence[object], size_bytes: int) -> list[KeptSnapshot]:
    """Return the snapshots that QEMU tells of (SnapshotInfo), the oldest first."""
    found = [
        KeptSnapshot(
            name=str(row["name"]),
            ctime=row["date-sec"] + row["date-nsec"] / 1e9,
            size_mib=size_bytes // _MIB,
        )
        for row in rows
        if isinstance(row, dict)
    ]
    return sorted(found, key=lambda each: each.ctime)


def change_snapshot(flag: str, path: str, name: str) -> None:
    """Take (-c), restore (-a) or remove (-d) a snapshot of an image that nobody has open."""
    options = f"driver=qcow2,file.driver=file,file.filename={path.replace(',', ',,')}"
    _qemu_img("snapshot", "-q", flag, name, "--image-opts", options)


def _qemu_img(*words: str) -> bytes:
    """Run ``qemu-img`` and return its output.

    Raises:
        CommandError: it failed.
    """
    result = process.run(["qemu-img", *words], timeout_s=_COMMAND_S, env=_ENV, cwd="/").check()
    return result.stdout


@contextmanager
def snapshot_served(image: str, name: str, socket_path: str) -> Iterator[None]:
    """Serve the contents of a snapshot as an NBD server, under its name; QEMU may run meanwhile.

    Nothing of a snapshot changes while it is there, so it is read beside a QEMU that has the image
    open for writing.

    Raises:
        BlockDeviceError: it cannot be served.
    """
    pid_file = f"{socket_path}.pid"
    options = "driver=qcow2,read-only=on,force-share=on,file.driver=file,file.filename="
    argv = ["qemu-nbd", "--read-only", "--persistent", "--shared=1", f"--socket={socket_path}"]
    argv += [f"--pid-file={pid_file}", f"--export-name={name}", "--image-opts"]
    argv += [f"--load-snapshot=snapshot.name={name}", options + image.replace(",", ",,")]
    try:
        with server_running(argv, pid_file, f"snapshot {name!r} in {image}"):
            yield
    finally:
        for path in (pid_file, socket_path):
            remove_if_exists(path)
