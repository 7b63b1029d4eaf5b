"""Waiting for the peer of a transfer at a port where anybody may connect.

All who connect are greeted side by side, so that nobody holds the others up: a peer shows its
certificate within a few seconds, then it says the agreed word.  The first that has done both is the
right one, and all others are sent away.  Who has the certificate gets more time for the word: a
sender of 3.0 that compresses may keep it back until more of the disk has been read.
"""

from __future__ import annotations

import functools
import selectors
import socket
import ssl
import zlib
from collections.abc import Callable, Generator
from typing import Final, Self, TypeVar

from ganeti.base.errors import TransportError
from ganeti.node_ops.transfers.connection import (
    CONNECT_TIMEOUT_S,
    GREETING_TIMEOUT_S,
    RESET_AT_CLOSE,
    Unpacked,
    be_patient,
    greeting,
)
from ganeti.node_ops.transfers.status import Request
from ganeti.protocol.node_rpc_values import StreamForm
from ganeti.storage.stream import FrameReader, Incoming
from ganeti.system import clock
from ganeti.transport.tls import server_context

HANDSHAKE_S: Final = 10.0  # a busy node may need some seconds
GUESTS_MAX: Final = 64  # greeted at the same time; then the oldest has to go

T = TypeVar("T")


def accept(request: Request) -> tuple[ssl.SSLSocket, Incoming]:
    """Wait for the peer; returns the connection, and the disk that comes over it.

    Raises:
        TransportError: it did not come in time; names who came instead.
    """
    timeout_s = request.options.connect_timeout or CONNECT_TIMEOUT_S
    with _Door(request, clock.monotonic() + timeout_s) as door:
        while door.is_open:
            found = door.look()
            if found is not None:
                return found.connection, found.settle()
        raise TransportError(f"nobody connected in time{door.refused}")


class _Guest:
    """Somebody who has connected, and may be the peer.

    Attributes:
        is_known: has shown the right certificate.
        deadline_s: of the certificate, then of the word.
    """

    def __init__(
        self, context: ssl.SSLContext, plain: socket.socket, address: str, request: Request
    ) -> None:
        self.address, self.is_known = address, False
        self.deadline_s = clock.monotonic() + HANDSHAKE_S
        self._request = request
        # The end of a plain stream is that of the connection, so it has to be a proper one.
        self._is_plain = request.options.form is StreamForm.PLAIN
        plain.setblocking(False)
        self.connection = context.wrap_socket(
            plain,
            server_side=True,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=not self._is_plain,
        )
        self._incoming = Unpacked(self.connection, request.options.compress)
        self._steps = self._greet()

    def go_on(self) -> int:
        """Go on as far as possible; returns the event to wait for, 0 when it is the peer.

        Raises:
            OSError, TransportError, zlib.error: it is not.
        """
        return next(self._steps, 0)

    def _greet(self) -> Generator[int, None, None]:
        yield from _when_ready(self.connection.do_handshake)
        self.is_known, self.deadline_s = True, clock.monotonic() + GREETING_TIMEOUT_S
        spoken = self._incoming if self._is_plain else Unpacked(self.connection, "none")
        said, expected = b"", greeting(self._request)
        while len(said) < len(expected):  # and nothing beyond the word
            read = functools.partial(spoken.read, len(expected) - len(said))
            data = yield from _when_ready(read)
            if not data:
                raise TransportError("the peer did not say the word that was agreed")
            said += data
            if not expected.startswith(said):
                raise TransportError("the peer said another word than was agreed")

    def settle(self) -> Incoming:
        """Begin to read from the peer; returns its disk."""
        be_patient(self.connection)
        if not self._is_plain:
            return FrameReader(self._incoming)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
        return self._incoming


def _when_ready(step: Callable[[], T]) -> Generator[int, None, T]:
    """Take a step of a connection that never blocks; yields the event to wait for before it."""
    while True:
        try:
            return step()
        except ssl.SSLWantReadError:
            yield selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            yield selectors.EVENT_WRITE


class _Door:
    """The port, and all who have connected.

    Attributes:
        refused: the last one who was sent away, and why.
    """

    def __init__(self, request: Request, deadline_s: float) -> None:
        self._request, self._deadline_s = request, deadline_s
        self._context = server_context(request.certificate, request.authority)
        self._listener = socket.socket(fileno=request.listener)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._guests: list[_Guest] = []  # the oldest first
        self.refused = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._selector.close()
        self._listener.close()
        for guest in self._guests:
            guest.connection.close()

    @property
    def is_open(self) -> bool:
        """Whether somebody may still come, or one who has the certificate may say the word."""
        is_early = clock.monotonic() < self._deadline_s
        return is_early or any(guest.is_known for guest in self._guests)

    def look(self) -> _Guest | None:
        """Wait for something to happen; returns the peer once it is known."""
        now = clock.monotonic()
        until = [guest.deadline_s for guest in self._guests]
        if now < self._deadline_s:
            until.append(self._deadline_s)
        for key, _events in self._selector.select(max(min(until, default=now) - now, 0)):
            guest: _Guest | None = key.data
            if guest is None:
                self._take()
            elif guest in self._guests and self._goes_on(guest):
                self._guests.remove(guest)
                return guest
        for guest in [each for each in self._guests if each.deadline_s <= clock.monotonic()]:
            self._send_away(guest, "nothing came in time")
        return None

    def _take(self) -> None:
        try:
            plain, address = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # gone again
            return
        if len(self._guests) >= GUESTS_MAX:
            oldest = next((each for each in self._guests if not each.is_known), self._guests[0])
            self._send_away(oldest, "too many others came")
        try:
            guest = _Guest(self._context, plain, address[0], self._request)
        except OSError as err:
            plain.close()
            self._note(address[0], err)
            return
        self._guests.append(guest)
        self._selector.register(guest.connection, selectors.EVENT_READ, guest)

    def _goes_on(self, guest: _Guest) -> bool:
        """Greet somebody further; returns whether it is the peer."""
        try:
            event = guest.go_on()
        except (OSError, TransportError, zlib.error) as err:
            self._send_away(guest, err)
            return False
        if event:
            self._selector.modify(guest.connection, event, guest)
        return not event

    def _send_away(self, guest: _Guest, why: object) -> None:
        self._selector.unregister(guest.connection)
        self._guests.remove(guest)
        guest.connection.close()
        self._note(guest.address, why)

    def _note(self, address: str, why: object) -> None:
        self.refused = f"; {address} tried, and was refused: {why}"
