"""Images in QEMU's format qcow2: made, enlarged, looked into, their snapshots, and their bytes.

An image holds its disk's snapshots, and takes room only for the parts that were ever written.  Only
its recorded format says that a file is one; of the file itself just the head is read, for the size
of the disk and to refuse what would lead QEMU to other files.

Programs that want the bytes of the disk in an image get a file that `qemu-storage-daemon` shows by
FUSE.  A server ends with the process that wanted it, however that ends.  While one process has an
image open for writing, no other can: QEMU's locks keep them apart.

Source: QEMU, docs/interop/qcow2.txt, qemu-img(1), qemu-nbd(8), qemu-storage-daemon(1); setpriv(1).
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final

import msgspec

from ganeti.base.errors import BlockDeviceError, failing_as
from ganeti.base.json import dumps, loads
from ganeti.base.paths import Paths
from ganeti.protocol.node_rpc_values import KeptSnapshot
from ganeti.protocol.qmp import kept_snapshots
from ganeti.system import clock, process
from ganeti.system.files import ensure_directory, remove_if_exists

_HEAD: Final = struct.Struct(">4sIQIIQ")  # magic, version, backing file and its length, ..., size
_MAGIC: Final = b"QFI\xfb"
_FEATURES: Final = struct.Struct(">Q")  # incompatible ones, from version 3 on
_FEATURES_AT: Final = 72
_EXTERNAL_DATA: Final = 1 << 2
_MODE: Final = 0o660
_OF_IMAGE_LENGTH: Final = 12
_ENV: Final = {"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
_COMMAND_S: Final = 600.0  # an image of terabytes has tables of gigabytes
_SHOWN_S: Final = 30.0
_UNMOUNT_S: Final = 10.0
_EARLIER_S: Final = 5.0
_LOOK_S: Final = 0.01
_END_S: Final = 120.0  # what is in its memory goes to the disk
_OUTPUT_BYTES: Final = 4096
_SECTOR_BYTES: Final = 512


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
    return kept_snapshots(_info(path))


def drop_bitmaps(path: str) -> None:
    """Forget where a disk was written: with other contents that says nothing about its changes."""
    match _info(path):
        case {"format-specific": {"data": {"bitmaps": [*rows]}}}:
            for row in rows:
                _qemu_img("bitmap", "--remove", "-f", "qcow2", path, str(row["name"]))


def _info(path: str) -> dict[str, object]:
    found = loads(_qemu_img("info", "--output=json", "-f", "qcow2", path))
    return found if isinstance(found, dict) else {}


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
    ensure_directory(os.path.dirname(socket_path), 0o750)
    for path in (pid_file, socket_path):  # of a server that was killed
        remove_if_exists(path)
    options = "driver=qcow2,read-only=on,force-share=on,file.driver=file,file.filename="
    argv = ["qemu-nbd", "--read-only", "--persistent", "--shared=1", f"--socket={socket_path}"]
    argv += [f"--pid-file={pid_file}", f"--export-name={name}", "--image-opts"]
    argv += [f"--load-snapshot=snapshot.name={name}", options + image.replace(",", ",,")]
    try:
        with _running(argv, pid_file, f"snapshot {name!r} in {image}"):
            yield
    finally:
        for path in (pid_file, socket_path):
            remove_if_exists(path)


def place_of_view(paths: Paths, uuid: object, image: str) -> str:
    """Return where the bytes of a disk are shown.

    The image belongs to it: a disk that is converted has two for a while.
    """
    of_image = hashlib.sha256(image.encode("utf-8", "surrogateescape")).hexdigest()
    return os.path.join(paths.run_dir, "raw-disks", f"{uuid}-{of_image[:_OF_IMAGE_LENGTH]}")


class RawView(msgspec.Struct, frozen=True):
    """The bytes of a disk that has no device, shown at a path as long as they are wanted.

    Attributes:
        image: the name of the disk: the path of a qcow2 image, or an address.
        blockdev: QEMU's description of what has the bytes; of no image if it is empty.
        read_only: nobody can write to them.
    """

    image: str
    path: str
    blockdev: dict[str, Any] = {}
    read_only: bool = False

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show them.

        Raises:
            BlockDeviceError: they cannot be shown, or were not all written back.
        """
        with failing_as(BlockDeviceError, f"cannot show the disk in {self.image}"):
            self._wait_for_earlier()
            self._clear()
            ensure_directory(os.path.dirname(self.path), 0o750)
            with open(self.path, "xb"):
                pass
        try:
            with _running(self._command(), self._pid_file, f"the disk in {self.image}"):
                if self.blockdev and not self.read_only:
                    self._allow_write_back()
                yield
        finally:
            self._clear()

    @property
    def _pid_file(self) -> str:
        return f"{self.path}.pid"

    def _allow_write_back(self) -> None:
        """Write something, what is there, and flush: Ceph caches nothing before the first flush."""
        with open(self.path, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), os.pread(file.fileno(), _SECTOR_BYTES, 0), 0)
            os.fsync(file.fileno())

    def _command(self) -> list[str]:
        file = {"driver": "file", "filename": self.image}
        image: dict[str, object] = {"driver": "qcow2", "backing": None, "file": file}
        image = {**(self.blockdev or image), "node-name": "disk", "read-only": self.read_only}
        place: dict[str, object] = {"mountpoint": self.path, "writable": not self.read_only}
        export = {"type": "fuse", "id": "raw", "node-name": "disk", **place}
        options = ("--blockdev", dumps(image).decode(), "--export", dumps(export).decode())
        return ["qemu-storage-daemon", *options, "--pidfile", self._pid_file]

    def _wait_for_earlier(self) -> None:
        """Wait for the end of an earlier view, whose user may have been killed just now."""
        deadline = clock.monotonic() + _EARLIER_S
        while not self._is_broken() and os.path.exists(self._pid_file):
            if clock.monotonic() > deadline:
                raise BlockDeviceError(f"another program works on the disk in {self.image}")
            clock.pause(_LOOK_S)

    def _is_broken(self) -> bool:
        """Tell whether the file is there, but its daemon was killed."""
        try:
            os.stat(self.path)
        except OSError as err:
            return err.errno == errno.ENOTCONN
        return False

    def _clear(self) -> None:
        """Remove the file, and the remains of a daemon that was killed."""
        if self._is_broken():
            process.run(["umount", "--lazy", self.path], timeout_s=_UNMOUNT_S, env=_ENV)
        for path in (self._pid_file, self.path):
            remove_if_exists(path)


@contextmanager
def _running(argv: Sequence[str], pid_file: str, what: str) -> Iterator[None]:
    """Run a server that writes its pid file once it serves; it does not outlive this process.

    Raises:
        BlockDeviceError: it did not begin to serve, or it did not end well.
    """
    with tempfile.TemporaryFile() as output:
        ends = output.fileno()
        tied = ["setpriv", "--pdeathsig", "TERM", *argv]
        with failing_as(BlockDeviceError, f"cannot show {what}"):
            child = process.spawn(tied, env=_ENV, stdout=ends, stderr=ends, cwd="/")
        try:
            deadline = clock.monotonic() + _SHOWN_S
            while not os.path.exists(pid_file):
                if child.poll() is not None or clock.monotonic() > deadline:
                    raise BlockDeviceError(f"cannot show {what}: {_said(output)}")
                clock.pause(_LOOK_S)
            yield
        finally:
            if child.poll() is None:
                process.terminate(child.pid, _END_S)
            status = child.wait()
        if status != 0:
            raise BlockDeviceError(f"{what} was not written back: {_said(output)}")


def _said(output: IO[bytes]) -> str:
    output.seek(0)
    text = output.read(_OUTPUT_BYTES).decode("utf-8", "replace").strip()
    return text or "qemu-storage-daemon or qemu-nbd did not say why"
