"""Does anybody answer at an address, and does anybody serve a port there?"""

from __future__ import annotations

import socket


def answers(address: str, port: int, timeout_s: float) -> bool:
    """Tell whether a host is there: it takes a TCP connection, or refuses it itself."""
    try:
        socket.create_connection((address, port), timeout_s).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def serves(address: str, port: int, timeout_s: float, *, source: str | None = None) -> bool:
    """Tell whether somebody takes a TCP connection.

    Args:
        source: the own address that the connection comes from.
    """
    own = None if source is None else (source, 0)
    try:
        socket.create_connection((address, port), timeout_s, own).close()
    except OSError:
        return False
    return True
