"""Tells systemd how a daemon is: the datagrams of sd_notify(3)."""

from __future__ import annotations

import logging
import os
import socket
from typing import Final

logger = logging.getLogger(__name__)

READY: Final = "READY=1"
RELOADING: Final = "RELOADING=1"
STOPPING: Final = "STOPPING=1"
STATUS: Final = "STATUS"  # shown by systemctl status


def notify(state: str) -> None:
    """Send a state to whoever started us and wants to know; a failure is logged only."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # Linux's abstract names begin with a zero byte
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.sendto(state.encode(), address)
    except OSError as err:
        logger.warning("Cannot tell %r to %s: %s; ignoring", state, address, err)
