"""The addresses of this node's network interfaces."""

from __future__ import annotations

import socket

import psutil


def addresses_of(interface: str) -> list[str]:
    """Return the addresses of an interface, IPv4 first; none if there is no such interface."""
    found = psutil.net_if_addrs().get(interface, [])
    families = (socket.AF_INET, socket.AF_INET6)
    return [each.address for family in families for each in found if each.family == family]
