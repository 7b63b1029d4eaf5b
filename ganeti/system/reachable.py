"""Does anybody answer at an address?"""

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
