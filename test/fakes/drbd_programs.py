"""Programs of DRBD for the nodes of a virtual cluster, whose drivers are in the memory of the test.

The programs hand their words to a socket that `Drivers` serves; each node has a `Kernel` of its own, and
files below its root in the place of /proc/drbd, /sys and the devices.  A device is the volume with
the data of its node.  A synchronization ends at once.  What is written goes to the copy when the
next program runs, or the test says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("drbdsetup", "drbdmeta")
HELPER = "/bin/true"
_SECTOR_BYTES = 512


def main(address: str, *words: str) -> int:
    """Be one of the programs."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendall(json.dumps([os.environ["GANETI_ROOTDIR"], words]).encode())
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as answer:
            status, out, err = json.loads(answer.read())
    sys.stdout.write(out)
    sys.stderr.write(err)
    return int(status)


if __name__ == "__main__":  # without the packages that the rest needs
    sys.exit(main(*sys.argv[1:]))


from fakes.drbd_kernel import Kernel  # noqa: E402
from fakes.lvm_programs import _copy  # noqa: E402


class Drivers:
    """The drivers of all nodes, by the roots of these."""

    def __init__(self, roots: Sequence[str]) -> None:
        wire: list[Kernel] = []
        self.kernels: Mapping[str, Kernel] = {root: _installed(root, wire) for root in roots}
        self._turn = threading.Lock()

    def run(self, root: str, words: Sequence[str]) -> tuple[int, str, str]:
        """Run a program on a node; returns its status and what it prints."""
        with self._turn:
            kernel = self.kernels[root]
            self._replicate()
            result = kernel.run(words)
            self._replicate()
            for each_root, each in self.kernels.items():
                _show_devices(each_root, each)
        return result.status, result.stdout.decode(), result.stderr.decode()

    def replicate(self) -> None:
        """Bring all data that was written to the copies that are connected."""
        with self._turn:
            self._replicate()

    def _replicate(self) -> None:
        for kernel in self.kernels.values():
            for resource in kernel.resources.values():
                peer = kernel._peer(resource)
                if peer is None or not (resource.data and peer[1].data):
                    continue
                if resource.meta in kernel.syncing:
                    _overwrite(peer[1].data, resource.data)
                elif peer[1].meta not in peer[0].syncing:
                    _even(resource.data, peer[1].data)
            if kernel.syncing:
                kernel.finish_sync()

    def switch_off(self, root: str) -> None:
        """Let a node lose its devices, as if it had lost its power."""
        with self._turn:
            self.kernels[root].resources.clear()
            for each_root, each in self.kernels.items():
                each.tell()
                _show_devices(each_root, each)

    def devices(self, root: str) -> dict[int, str]:
        """Return {minor: state of its data} of a node."""
        kernel = self.kernels[root]
        found = kernel.resources.values()
        return {each.minor: kernel.state(each) for each in found if each.minor is not None}


def _installed(root: str, wire: list[Kernel]) -> Kernel:
    """Load the driver on a node."""
    parameter = Path(root, "sys/module/drbd/parameters/usermode_helper")
    for directory in (Path(root, "proc"), Path(root, "sys/class/block"), parameter.parent):
        directory.mkdir(parents=True, exist_ok=True)
    parameter.write_text(f"{HELPER}\n")
    return Kernel(Path(root, "proc"), wire)


def _even(*paths: str) -> None:
    """Bring what was written to one of two volumes to the other."""
    (old_ns, old), (new_ns, new) = sorted((os.stat(path).st_mtime_ns, path) for path in paths)
    if old_ns != new_ns:
        _overwrite(new, old)


def _overwrite(source: str, target: str) -> None:
    for size in (0, os.path.getsize(target)):
        os.truncate(target, size)
    _copy(source, target)
    times = os.stat(source)
    os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))


def _show_devices(root: str, kernel: Kernel) -> None:
    """Make the files of the devices that there are; remove others."""
    wanted = {}
    for resource in kernel.resources.values():
        peer = kernel._peer(resource)
        data = resource.data or (peer[1].data if peer is not None else "")
        if resource.minor is not None and data:
            wanted[f"drbd{resource.minor}"] = data
    devices, sizes = Path(root, "dev"), Path(root, "sys/class/block")
    for device in devices.glob("drbd*"):
        if os.readlink(device) != wanted.get(device.name):
            device.unlink()
    for entry in sizes.glob("drbd*/size"):
        if entry.parent.name not in wanted:
            entry.unlink()
    for name, data in wanted.items():
        if not os.path.islink(devices / name):
            (devices / name).symlink_to(data)
        (sizes / name).mkdir(exist_ok=True)
        (sizes / name / "size").write_text(f"{os.path.getsize(data) // _SECTOR_BYTES}\n")


def _serve(server: socket.socket, drivers: Drivers) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:  # it is closed
            return
        # A program may be killed or stopped anywhere: that is its own loss, and nobody else's.
        threading.Thread(target=_answer, args=(connection, drivers), daemon=True).start()


def _answer(connection: socket.socket, drivers: Drivers) -> None:
    with contextlib.suppress(ConnectionError), connection, connection.makefile("rwb") as stream:
        request = stream.read()
        if request:  # else it was killed before it had said anything
            root, words = json.loads(request)
            stream.write(json.dumps(drivers.run(root, words)).encode())


@contextmanager
def installed(directory: Path, roots: Sequence[str]) -> Iterator[Drivers]:
    """Put the programs into a directory of PATH, and serve them for the nodes with these roots."""
    address = os.path.join(directory, "drbd.socket")
    words = f"{sys.executable} -I -S {os.path.abspath(__file__)} {address}"
    for name in PROGRAMS:
        path = directory / name
        path.write_text(f'#!/bin/sh\nexec {words} {name} "$@"\n')
        path.chmod(stat.S_IRWXU)
    drivers = Drivers(roots)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        thread = threading.Thread(target=_serve, args=(server, drivers), daemon=True)
        thread.start()
        try:
            yield drivers
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
