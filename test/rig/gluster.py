"""A Gluster volume of one brick, served by daemons in name spaces of their own on this machine.

Gluster wants an address that is not of the loopback: it gets a free /30 network and a pair of
virtual interfaces.  Needs root.  ``python3 test/rig/gluster.py DIRECTORY`` makes one for a person,
until it is interrupted.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

VOLUME = "gv0"
PROGRAMS = ("glusterd", "gluster", "mount.glusterfs", "unshare", "nsenter", "ip")
QEMU_MODULES = "/usr/lib/x86_64-linux-gnu/qemu"
_TIMEOUT_S = 60.0
_PAUSE_S = 0.1
# Own network, mounts and processes: all of it is gone with the first process.
_START = """
mkdir -p /var/lib/glusterd /var/log/glusterfs /run/gluster
mount --bind "$1/lib" /var/lib/glusterd
mount --bind "$1/log" /var/log/glusterfs
mount --bind "$1/run" /run/gluster
test -z "$3" || mount -t tmpfs -o "size=$3" tmpfs "$1/brick"
mkdir -p "$1/brick/data"
echo > "$1/started"
while ! ip -o address show | grep -q "$2"; do sleep 0.05; done
ip link set lo up
exec glusterd --no-daemon --log-level WARNING
"""


def missing() -> str:
    """Return why there can be no Gluster here, "" if there can."""
    if os.geteuid() != 0:
        return "Gluster in name spaces needs root"
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if not os.path.exists(f"{QEMU_MODULES}/block-gluster.so"):
        lacking.append("QEMU's driver gluster")
    return f"this machine has no {', '.join(lacking)}" if lacking else ""


def free_network() -> str:
    """Return the first three numbers of a network that nothing here uses, as ``10.97.3``."""
    known = subprocess.run(
        ["ip", "-o", "address", "show"], capture_output=True, text=True, check=True
    ).stdout
    start = os.getpid() % 250
    for offset in range(250):
        network = f"10.97.{(start + offset) % 250 + 1}"
        if f" {network}." not in known:
            return network
    raise AssertionError("no free network")


class Gluster:
    """A running volume `VOLUME`; ``size`` limits its brick, as in ``64m``."""

    template, driver = "gluster", "loop"

    def __init__(self, base: Path, size: str = "") -> None:
        self.base = base
        self._size = size
        self._network = free_network()
        self._device = f"gl-{self._network.replace('.', '-')}"[:15]
        self._process: subprocess.Popen[bytes] | None = None
        self.host = f"{self._network}.1"

    def up(self) -> None:
        """Make it and start it."""
        for name in ("lib", "log", "run", "brick"):
            (self.base / name).mkdir(parents=True)
        argv = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        argv += ["sh", "-ec", _START, "sh", str(self.base), self.host, self._size]
        with open(self.base / "log" / "start.out", "wb") as output:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self._wait(lambda: (self.base / "started").exists())
        inner = ["nsenter", "--net", "--target", str(self._inner())]
        _run("ip", "link", "add", self._device, "type", "veth", "peer", "name", "eth0",
             "netns", str(self._inner()))  # fmt: skip
        _run("ip", "address", "add", f"{self._network}.2/30", "dev", self._device)
        _run("ip", "link", "set", self._device, "up")
        _run(*inner, "ip", "link", "set", "eth0", "up")
        _run(*inner, "ip", "address", "add", f"{self.host}/30", "dev", "eth0")
        self._wait(lambda: self._tried("peer", "status"))
        brick = f"{self.host}:{self.base}/brick/data"
        self.run("volume", "create", VOLUME, brick, "force")
        self.run("volume", "start", VOLUME)

    def _inner(self) -> int:
        """Return the first process inside."""
        assert self._process is not None
        pid = self._process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def _wait(self, is_so: object) -> None:
        deadline = time.monotonic() + _TIMEOUT_S
        while not is_so():  # type: ignore[operator]
            said = (self.base / "log" / "start.out").read_text()
            assert self._process is not None
            assert self._process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(_PAUSE_S)

    def _tried(self, *words: str) -> bool:
        return self._gluster(*words).returncode == 0

    def run(self, *words: str) -> str:
        """Run ``gluster``, which must succeed; returns its output."""
        done = self._gluster(*words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout.decode()

    def _gluster(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        argv = ["nsenter", "--net", "--mount", "--pid", "--target", str(self._inner())]
        argv += ["gluster", "--mode=script", *words]
        return subprocess.run(argv, capture_output=True, timeout=_TIMEOUT_S, check=False)

    @property
    def _brick(self) -> Path:
        return Path(f"/proc/{self._inner()}/root{self.base}/brick/data")

    def contents(self, path: str) -> bytes:
        """Return the bytes of a file of the volume, which may be in use."""
        return (self._brick / path).read_bytes()

    def fill(self, path: str, data: bytes) -> None:
        """Overwrite a file of the volume that nobody uses."""
        with (self._brick / path).open("r+b") as file:
            file.write(data)

    def names(self) -> list[str]:
        """Return the files of the volume, hidden ones of Gluster left out."""
        brick = self._brick
        found = (path.relative_to(brick) for path in brick.rglob("*") if path.is_file())
        return sorted(str(path) for path in found if not str(path).startswith("."))

    def down(self) -> None:
        """Stop it; its files stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_TIMEOUT_S)
        subprocess.run(["ip", "link", "delete", self._device], capture_output=True, check=False)


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 0, (argv, done.stderr.decode())


def main(argv: Sequence[str]) -> int:
    """Make one, say how it is reached, and wait."""
    gluster = Gluster(Path(argv[0]).resolve())
    try:
        started = time.monotonic()
        gluster.up()
        print(f"up after {time.monotonic() - started:.0f} s: mount -t glusterfs"
              f" {gluster.host}:/{VOLUME} ...", flush=True)  # fmt: skip
        signal.pause()
    except KeyboardInterrupt:
        return 0
    finally:
        gluster.down()
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.exit(main(sys.argv[1:]))
