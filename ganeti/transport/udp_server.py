"""Serving datagrams: one comes, at most one goes back to where it came from.

The socket is emptied whenever it is readable, without a task, a protocol object or a queue in
between, which would cost three times as much as most answers do.  It counts as empty once nothing
has come for a millisecond: a client often asks again as soon as it has an answer, and waiting in
the kernel costs less than a turn of the event loop.  The rest of the program is kept waiting for
that long, and for a bounded number of datagrams.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Final

from ganeti.base.errors import TransportError
from ganeti.system import clock

logger = logging.getLogger(__name__)

Handler = Callable[[bytes, str, int], bytes | None]
"""Takes a datagram, the address that it came from and the time; returns the answer."""

# Datagrams taken before the rest of the program gets its turn, some ten milliseconds' worth; a turn
# costs as much as some answers, and with fewer of them one answer in a hundred would show it.
ROUND_MAX: Final = 1024
_LINGER_US: Final = 1000
_RECEIVE_BUFFER_BYTES: Final = 4 << 20  # bursts; the kernel gives less where it is told to
_ANY_V6: Final = "::"


class UdpServer:
    """One socket and the handler of its datagrams."""

    def __init__(self, sock: socket.socket, handle: Handler, size_bytes_max: int) -> None:
        self._sock = sock
        self._handle = handle
        self._size_bytes = size_bytes_max + 1  # so that a datagram that is too long is noticed

    @property
    def port(self) -> int:
        """The port that is listened on."""
        port: int = self._sock.getsockname()[1]
        return port

    def on_readable(self) -> None:
        """Receive the datagrams that have come, and answer them."""
        receive, send, handle = self._sock.recvfrom, self._sock.sendto, self._handle
        size_bytes, now = self._size_bytes, clock.now
        for _ in range(ROUND_MAX):
            try:
                data, peer = receive(size_bytes)
            except BlockingIOError:
                return
            except OSError as err:
                logger.debug("Cannot receive: %s", err)
                return
            reply = handle(data, peer[0], int(now()))
            if reply is None:
                continue
            try:
                send(reply, peer)
            except OSError as err:  # full, or the way there is gone: it is lost, as datagrams are
                logger.debug("Cannot answer %s: %s", peer[0], err)


@contextlib.contextmanager
def serve_udp(
    address: str | None, port: int, handle: Handler, *, size_bytes_max: int
) -> Iterator[UdpServer]:
    """Serve datagrams inside; the event loop must run.

    Args:
        address: to listen on, IPv4 or IPv6; None for all of both kinds.
        size_bytes_max: of a datagram; of longer ones the handler gets one byte more than that.

    Raises:
        TransportError: nothing can be received there.
    """
    loop = asyncio.get_running_loop()
    sock = _bind(address, port)
    with sock:
        server = UdpServer(sock, handle, size_bytes_max)
        loop.add_reader(sock, server.on_readable)
        try:
            yield server
        finally:
            loop.remove_reader(sock)


def _bind(address: str | None, port: int) -> socket.socket:
    if address is None:
        try:
            return _bind_one(_ANY_V6, port)
        except TransportError as err:
            if not isinstance(err.__cause__, OSError) or err.__cause__.errno == errno.EADDRINUSE:
                raise
            address = "0.0.0.0"  # noqa: S104 - a machine without IPv6; all addresses are wanted
    return _bind_one(address, port)


def _bind_one(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    where = f"[{address}]:{port}" if family == socket.AF_INET6 else f"{address}:{port}"
    try:
        with contextlib.ExitStack() as undo:
            sock = undo.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
            linger = struct.pack("@ll", 0, _LINGER_US)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, linger)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, linger)
            if address == _ANY_V6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind((address, port))
            undo.pop_all()
            return sock
    except (OSError, OverflowError) as err:
        reason = err.strerror if isinstance(err, OSError) else str(err)
        raise TransportError(f"cannot listen on {where}: {reason}") from err
