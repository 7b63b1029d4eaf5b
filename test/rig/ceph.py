"""A Ceph cluster of one monitor, one manager and one OSD, in processes of this machine.

Everything lies below one directory and on free ports of a loopback address; nothing is kept.
``python3 test/rig/ceph.py DIRECTORY`` makes one for a person, until it is interrupted.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

POOL = "rbd"
USER = "ganeti"  # a CephX user that may do with images what it likes, and nothing else
PROGRAMS = ("ceph-mon", "ceph-osd", "ceph-mgr", "rbd")
QEMU_MODULES = "/usr/lib/x86_64-linux-gnu/qemu"
_TIMEOUT_S = 60.0
_SIZE_BYTES = 2 << 30  # of the OSD, in a sparse file

_CONF = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{port}]
mon initial members = a
public addr = 127.0.0.1
ms bind port min = {low}
ms bind port max = {high}
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = {base}/keyring
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd crush update on start = true
mon allow pool size one = true
mon warn on pool no redundancy = false
mon allow pool delete = true
mgr initial modules =
osd objectstore = bluestore
bluestore block size = {size}
bluestore cache size = 67108864
osd memory target = 939524096
mon data = {base}/mon
osd data = {base}/osd
mgr data = {base}/mgr
run dir = {base}/run
admin socket = {base}/run/$name.asok
log file = {base}/run/$name.log
mon cluster log file = {base}/run/cluster.log
crash dir = {base}/run
"""
_USERS = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "osd": "allow *", "mgr": "allow *"},
    "osd.0": {"mon": "allow profile osd", "osd": "allow *", "mgr": "allow profile osd"},
    "mgr.x": {"mon": "allow profile mgr", "osd": "allow *", "mds": "allow *"},
    f"client.{USER}": {"mon": "profile rbd", "osd": "profile rbd", "mgr": "profile rbd"},
}


def missing() -> str:
    """Return why there can be no Ceph here, "" if there can."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if not os.path.exists(f"{QEMU_MODULES}/block-rbd.so"):
        lacking.append("QEMU's driver rbd")
    return f"this machine has no {', '.join(lacking)}" if lacking else ""


def free_ports(count: int) -> int:
    """Return the first of so many free ports in a row."""
    for _ in range(100):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first = int(probe.getsockname()[1])
        if first + count < 65536 and all(map(_is_free, range(first, first + count))):
            return first
    raise AssertionError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Ceph:
    """A running cluster with the pool `POOL` and the user `USER`."""

    template = driver = "rbd"

    def __init__(self, base: Path) -> None:
        self.base = base
        self.conf = base / "ceph.conf"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, *argv: str) -> str:
        """Run a program of Ceph that must succeed; returns its output."""
        program, *words = argv
        done = subprocess.run(
            [program, "--conf", str(self.conf), *words],
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, (argv, done.stderr.decode())
        return done.stdout.decode()

    def up(self) -> None:
        """Make it and start it."""
        for name in ("mon", "osd", "mgr", "run"):
            (self.base / name).mkdir(parents=True)
        port, fsid = free_ports(40), str(uuid.uuid4())
        ports = {"port": port, "low": port + 1, "high": port + 39}
        self.conf.write_text(_CONF.format(base=self.base, fsid=fsid, size=_SIZE_BYTES, **ports))
        keyring, monmap = str(self.base / "keyring"), str(self.base / "monmap")
        _quiet("ceph-authtool", "--create-keyring", keyring)
        for user, caps in _USERS.items():
            words = [word for what, cap in caps.items() for word in ("--cap", what, cap)]
            _quiet("ceph-authtool", keyring, "--gen-key", "--name", user, *words)
        address = f"[v2:127.0.0.1:{port}]"
        _quiet("monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, monmap)
        self.run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring)
        self.start("mon", "a")
        osd = str(uuid.uuid4())
        self.run("ceph", "osd", "new", osd)
        self.start("mgr", "x")
        self.run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.start("osd", "0")
        self.run("ceph", "osd", "pool", "create", POOL, "8")
        self.run("rbd", "pool", "init", POOL)

    def start(self, kind: str, name: str) -> None:
        """Start a daemon."""
        with open(self.base / "run" / f"{kind}.out", "ab") as output:
            argv = [f"ceph-{kind}", "--conf", str(self.conf), "-i", name, "--foreground"]
            self._daemons[kind] = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def pause(self, kind: str) -> None:
        """Let a daemon hang, as a machine that is overloaded does."""
        self._daemons[kind].send_signal(signal.SIGSTOP)

    def resume(self, kind: str) -> None:
        """Let it go on."""
        self._daemons[kind].send_signal(signal.SIGCONT)

    def names(self) -> list[str]:
        """Return the names of all images of the pool."""
        return self.run("rbd", "ls", POOL).split()

    def contents(self, name: str) -> bytes:
        """Return the bytes of an image, which may be in use."""
        argv = ["rbd", "--conf", str(self.conf), "export", f"{POOL}/{name}", "-"]
        return subprocess.run(argv, capture_output=True, check=True, timeout=_TIMEOUT_S).stdout

    def fill(self, name: str, data: bytes) -> None:
        """Overwrite an image that nobody uses."""
        source, target = self.base / "fill", f"rbd:{POOL}/{name}:conf={self.conf}"
        source.write_bytes(data)
        _quiet("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", str(source), target)

    def down(self) -> None:
        """Stop it; its files stay."""
        for daemon in self._daemons.values():
            daemon.kill()
        for daemon in self._daemons.values():
            daemon.wait(_TIMEOUT_S)


def _quiet(*argv: str) -> None:
    subprocess.run(argv, check=True, timeout=_TIMEOUT_S, capture_output=True)


def main(argv: Sequence[str]) -> int:
    """Make one, say how it is reached, and wait."""
    ceph = Ceph(Path(argv[0]).resolve())
    try:
        started = time.monotonic()
        ceph.up()
        print(f"up after {time.monotonic() - started:.0f} s: ceph --conf {ceph.conf} -s")
        signal.pause()
    except KeyboardInterrupt:
        return 0
    finally:
        ceph.down()
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.exit(main(sys.argv[1:]))
