"""Addresses: those of this node's interfaces, and whether anybody answers at one."""

from __future__ import annotations

import socket


def addresses_of(interface: str) -> list[str]:
    """Return the addresses of an interface, IPv4 first; none if there is no such interface."""
    import psutil  # takes longer to load than a command line may

    found = psutil.net_if_addrs().get(interface, [])
    families = (socket.AF_INET, socket.AF_INET6)
    return [each.address for family in families for each in found if each.family == family]


def answers(address: str, port: int, timeout_s: float) -> bool:
    """Tell whether a host is there: it takes a TCP connection, or refuses it itself."""
    error = _failure(address, port, timeout_s)
    return error is None or isinstance(error, ConnectionRefusedError)


def serves(address: str, port: int, timeout_s: float, *, source: str | None = None) -> bool:
    """Tell whether somebody takes a TCP connection.

    Args:
        source: the own address that the connection comes from.
    """
    return _failure(address, port, timeout_s, source) is None


def _failure(
    address: str, port: int, timeout_s: float, source: str | None = None
) -> OSError | None:
    own = None if source is None else (source, 0)
    try:
        socket.create_connection((address, port), timeout_s, own).close()
    except OSError as err:
        return err
    return None
