"""A network of their own for virtual nodes, which can be cut in two.

Each node has a network namespace, with its loopback address on a cable to a switch; so its daemons
reach those of other nodes only through that, and a cut leaves their connections hanging, as a real
one does.  Whoever makes it sits at the switch from then on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping
from typing import Final

_CLONE_NEWNET: Final = 0x40000000
_HERE: Final = "/proc/thread-self/ns/net"
_LOCALNET: Final = "/proc/sys/net/ipv4/conf/all/route_localnet"
_OWN_LOOPBACK: Final = "addr del 127.0.0.1/8 dev lo\naddr add 127.0.0.1/32 dev lo\n"
_NEAR: Final = "switch0"
_FAR: Final = "switch1"
_DESK: Final = "127.255.255.254"
_libc: Final = ctypes.CDLL(None, use_errno=True)


def is_possible() -> bool:
    """Tell whether we may make networks here."""
    if os.geteuid() or shutil.which("ip") is None or shutil.which("unshare") is None:
        return False
    trial = "ip link add name try0 type bridge && ip link add try1 type veth peer name try2"
    return subprocess.run(["unshare", "--net", "sh", "-c", trial], check=False).returncode == 0


def _check(status: int) -> None:
    if status:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _here() -> int:
    return os.open(_HERE, os.O_RDONLY | os.O_CLOEXEC)


def _enter(namespace: int) -> None:
    _check(_libc.setns(namespace, _CLONE_NEWNET))


def _leave_all() -> int:
    _check(_libc.unshare(_CLONE_NEWNET))
    return _here()


def _ip(text: str, *passed: int) -> None:
    subprocess.run(["ip", "-batch", "-"], input=text, text=True, check=True, pass_fds=passed)


def _route_loopback() -> None:
    with open(_LOCALNET, "w", encoding="ascii") as file:
        file.write("1")


class Lan:
    """The namespaces of nodes, and the switch."""

    def __init__(self) -> None:
        self._desk = _here()
        self._nodes: dict[str, int] = {}
        self._ports: dict[str, str] = {}

    def connect(self, addresses: Mapping[str, str]) -> None:
        """Give each node its cable; what runs already stays at the switch, and reaches nobody."""
        _ip(
            f"link add name {_NEAR} type bridge\nlink add name {_FAR} type bridge\nlink set {_NEAR} up\nlink set {_FAR} up\n"
        )
        for number, (name, address) in enumerate(addresses.items()):
            namespace = self._nodes[name] = _leave_all()
            port = self._ports[name] = f"port{number}"
            _route_loopback()
            _enter(self._desk)
            cable = f"link add {port} type veth peer name eth0 netns /proc/self/fd/{namespace}\n"
            _ip(f"{cable}link set {port} master {_NEAR}\nlink set {port} up\n", namespace)
            with self.inside(name):
                up = f"link set eth0 up\naddr add {address}/8 dev eth0 scope global\n"
                _ip(f"link set lo up\n{_OWN_LOOPBACK}{up}")
        _route_loopback()
        _ip(f"{_OWN_LOOPBACK}addr add {_DESK}/8 dev {_NEAR} scope global\n")

    @contextlib.contextmanager
    def inside(self, node: str) -> Iterator[None]:
        """Start processes on a node."""
        _enter(self._nodes[node])
        try:
            yield
        finally:
            _enter(self._desk)

    def cut(self, nodes: Collection[str]) -> None:
        """Let these nodes reach each other only."""
        _ip("".join(f"link set {self._ports[name]} master {_FAR}\n" for name in nodes))

    def isolate(self, nodes: Collection[str]) -> None:
        """Let each of these nodes reach nobody."""
        _ip("".join(f"link set {self._ports[name]} nomaster\n" for name in nodes))

    def mend(self) -> None:
        """Let all nodes reach each other again."""
        _ip("".join(f"link set {port} master {_NEAR}\n" for port in self._ports.values()))

    def close(self) -> None:
        """Give the namespaces back."""
        for namespace in (*self._nodes.values(), self._desk):
            os.close(namespace)


@contextlib.contextmanager
def lan() -> Iterator[Lan]:
    """Leave the network of this machine, with the calling thread, for a while."""
    home = _here()
    try:
        _leave_all_and_close()
        _ip("link set lo up\n")
        made = Lan()
        try:
            yield made
        finally:
            made.close()
    finally:
        _enter(home)
        os.close(home)


def _leave_all_and_close() -> None:
    os.close(_leave_all())
