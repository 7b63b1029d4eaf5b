"""Images of QEMU's formats shown as something that other programs can read: files and NBD servers.

Programs that want the bytes of the disk in an image get a file that `qemu-storage-daemon` shows by
FUSE.  A server ends with the process that wanted it, however that ends.  While one process has an
image open for writing, no other can: QEMU's locks keep them apart.

Source: QEMU, qemu-storage-daemon(1); setpriv(1).
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Final

import msgspec

from ganeti.base.errors import BlockDeviceError, failing_as
from ganeti.base.json import dumps
from ganeti.system import clock, process
from ganeti.system.files import ensure_directory, remove_if_exists

_ENV: Final = {"LC_ALL": "C", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
_SHOWN_S: Final = 30.0
_UNMOUNT_S: Final = 10.0
_EARLIER_S: Final = 5.0
_LOOK_S: Final = 0.01
_END_S: Final = 120.0  # what is in its memory goes to the disk
_OUTPUT_BYTES: Final = 4096


class RawView(msgspec.Struct, frozen=True):
    """The bytes of the disk in a qcow2 image, shown at a path as long as they are wanted."""

    image: str
    path: str

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
            with server_running(self._command(), self._pid_file, f"the disk in {self.image}"):
                yield
        finally:
            self._clear()

    @property
    def _pid_file(self) -> str:
        return f"{self.path}.pid"

    def _command(self) -> list[str]:
        file = {"driver": "file", "filename": self.image}
        image = {"driver": "qcow2", "node-name": "disk", "backing": None, "file": file}
        place = {"mountpoint": self.path, "writable": True}
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
def server_running(argv: Sequence[str], pid_file: str, what: str) -> Iterator[None]:
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
