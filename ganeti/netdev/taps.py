"""Bridges and taps of this node, by sysfs and ``ip``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

from ganeti.base.errors import CommandError, HypervisorError
from ganeti.netdev.backends import NetworkAbilities, NicBackend
from ganeti.system import process

_INTERFACES: Final = "/sys/class/net"
_INTERFACE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,15}")
_TUN_DEVICE: Final = "/dev/net/tun"
_CAP_NET_ADMIN: Final = 12
_IP_TIMEOUT_S: Final = 30.0


def is_bridge(name: str) -> bool:
    """Tell whether the node has a bridge of that name."""
    return bool(_INTERFACE_NAME.fullmatch(name)) and os.path.isdir(f"{_INTERFACES}/{name}/bridge")


def missing_bridges(names: Iterable[str]) -> list[str]:
    """Return those of the names that are no bridges of this node."""
    return [name for name in names if not is_bridge(name)]


def can_make_taps() -> bool:
    """Tell whether this process has the device and the right to make taps."""
    if not os.access(_TUN_DEVICE, os.R_OK | os.W_OK):
        return False
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        found = re.search(r"^CapEff:\s*([0-9a-f]+)$", file.read(), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> _CAP_NET_ADMIN & 1)


def abilities(links: Iterable[str], *, is_virtual: bool) -> NetworkAbilities:
    """Look at what the node can do about some links."""
    return NetworkAbilities(
        can_make_taps=can_make_taps(),
        bridges=frozenset(link for link in links if is_bridge(link)),
        is_virtual=is_virtual,
    )


def _ip(*words: str) -> None:
    try:
        process.run(["ip", *words], timeout_s=_IP_TIMEOUT_S).check()
    except CommandError as err:
        raise HypervisorError(err.message) from err


def create_tap(backend: NicBackend, *, vnet_hdr: bool, queues: int = 1) -> None:
    """Make a tap, switch it on and connect it to its bridge; one left over is replaced."""
    remove_tap(backend.tap)
    options = (["vnet_hdr"] if vnet_hdr else []) + (["multi_queue"] if queues > 1 else [])
    _ip("tuntap", "add", "dev", backend.tap, "mode", "tap", *options)
    try:
        _ip("link", "set", "dev", backend.tap, "master", backend.bridge, "up")
    except HypervisorError:
        remove_tap(backend.tap)
        raise


def remove_tap(name: str) -> None:
    """Remove a tap, if it is there."""
    if os.path.isdir(f"{_INTERFACES}/{name}"):
        _ip("link", "delete", "dev", name)
