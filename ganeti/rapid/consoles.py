"""Consoles of instances for browsers, by WebSocket.

A browser cannot send a password or token with a WebSocket.  So an ordinary request, with all checks
of the remote API, gets a ticket: for one user, one console, one use, within seconds.  It comes back
as a subprotocol of the handshake, which no log shows.  The server keeps digests only.

The console is opened once WebSocket is spoken, and let go by the same function: a browser may leave
at any time.  An error is said in the frame that closes the WebSocket, for a page is not told why a
handshake failed; an empty message says that the console is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import Raw

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.json import loads_as
from ganeti.protocol.luxi import ConsoleWay
from ganeti.protocol.node_rpc import CONSOLES_MAX
from ganeti.protocol.rapi.pages import CONSOLE_PROTOCOL, TICKET_PREFIX
from ganeti.protocol.rapi.values import HttpProblem
from ganeti.system import clock
from ganeti.transport import websocket
from ganeti.transport.flow import PIECE_BYTES, StreamEnd, pump
from ganeti.transport.http_message import HttpRequest, HttpResponse, HttpStream
from ganeti.transport.websocket import Close, Frame, Frames, Op

logger = logging.getLogger(__name__)

TICKET_S: Final = 10.0
_TICKETS_MAX: Final = 1000
_TICKET_BYTES: Final = 32
_PING_S: Final = 30.0

Ask = Callable[[str, list[object]], Awaitable[Raw]]


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a ticket is good for."""

    user: str
    instance: str
    way: ConsoleWay
    until: float


class Tickets:
    """Tickets that were given out and not used yet."""

    def __init__(self, now: Callable[[], float] = clock.monotonic) -> None:
        self._now = now
        self._given: dict[bytes, Ticket] = {}

    def give(self, user: str, instance: str, way: ConsoleWay) -> str:
        """Return a new ticket.

        Raises:
            HttpProblem: 503: there are too many.
        """
        now = self._now()
        self._given = {key: each for key, each in self._given.items() if each.until > now}
        if len(self._given) >= _TICKETS_MAX:
            raise HttpProblem(503, "Too many consoles are being opened")
        word = secrets.token_hex(_TICKET_BYTES)
        self._given[_digest(word)] = Ticket(user, instance, way, now + TICKET_S)
        return word

    def take(self, word: str) -> Ticket | None:
        """Return what a ticket is good for, once; None if it is for nothing."""
        found = self._given.pop(_digest(word), None)
        return found if found is not None and found.until > self._now() else None


def _digest(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()


class Consoles:
    """The consoles that are open, and the tickets for more.

    Args:
        ask: calls LuxiD.
    """

    def __init__(self, ask: Ask) -> None:
        self.tickets = Tickets()
        self._ask = ask
        self._count = 0

    def open(self, request: HttpRequest) -> HttpResponse:
        """Agree to a WebSocket that carries a console, or says why it cannot.

        Raises:
            HttpProblem: the ticket is no good, or the page is another server's.
        """
        check_origin(request.headers)
        words = websocket.offered_protocols(request.headers)
        given = [word.removeprefix(TICKET_PREFIX) for word in words if TICKET_PREFIX in word]
        ticket = self.tickets.take(given[0]) if len(given) == 1 else None
        if ticket is None:
            raise HttpProblem(403, "This needs a ticket, which is good for seconds and once")
        request.user = ticket.user
        try:
            headers = websocket.accept_headers(request.headers, CONSOLE_PROTOCOL)
        except ProtocolError as err:
            raise HttpProblem(400, err.message) from err
        return HttpResponse.switch(
            websocket.PROTOCOL, lambda stream: self._speak(ticket, stream), headers
        )

    async def _speak(self, ticket: Ticket, stream: HttpStream) -> None:
        """Open a console, carry it and let it go."""
        if self._count >= CONSOLES_MAX:
            await _fail(stream, f"{CONSOLES_MAX} consoles are open already")
            return
        self._count += 1
        try:
            await self._carry(ticket, stream)
        finally:
            self._count -= 1

    async def _carry(self, ticket: Ticket, stream: HttpStream) -> None:
        way = str(ticket.way)
        try:
            path = loads_as(str, bytes(await self._ask("OpenConsole", [ticket.instance, way])))
            # A browser that left meanwhile goes this way too: it is let go at once, not in time.
            reader, writer = await asyncio.open_unix_connection(path)
        except (GenericError, OSError) as err:
            await _fail(stream, str(err))
            return
        logger.info("%s opens the %s console of %s", ticket.user, way, ticket.instance)
        try:
            await _Browser(stream).carry(StreamEnd(reader, writer.write, writer.drain))
        finally:
            writer.close()
            logger.info("%s leaves the console of %s", ticket.user, ticket.instance)


async def _fail(stream: HttpStream, text: str) -> None:
    stream.write(websocket.encode_close(Close.FAILED, text))
    await stream.drain()


def check_origin(headers: Mapping[str, str]) -> None:
    """Refuse the page of another server.

    Raises:
        HttpProblem: 403.
    """
    origin = headers.get("origin", "")
    if origin and origin.partition("://")[2] != headers.get("host", ""):
        raise HttpProblem(403, "A page of another server may open no console")


class _Browser:
    """The browser's end: messages are bytes of the console."""

    def __init__(self, stream: HttpStream) -> None:
        self._stream = stream
        self._frames = Frames()
        self._is_closing = False

    async def carry(self, console: StreamEnd) -> None:
        """Carry bytes until the browser or the console ends it."""
        self._send(websocket.encode(Op.BINARY))
        pinging = asyncio.ensure_future(self._ping())
        try:
            await pump(self, console)
            self._close(websocket.encode_close(Close.NORMAL, "the console has ended"))
        except ProtocolError as err:
            self._close(websocket.encode_close(Close.BROKEN, err.message))
        finally:
            pinging.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pinging

    async def read(self) -> bytes:
        """Return the next bytes that were typed; none at the end."""
        while not self._is_closing:
            data = await self._stream.reader.read(PIECE_BYTES)
            if not data:
                return b""
            typed = b"".join(self._take(frame) for frame in self._frames.feed(data))
            await self._stream.drain()  # who sends pings has to read the answers
            if typed:
                return typed
        return b""

    def _take(self, frame: Frame) -> bytes:
        if frame.op is Op.PING:
            self._send(websocket.encode(Op.PONG, frame.data))
        elif frame.op is Op.CLOSE:
            self._close(websocket.encode(Op.CLOSE, frame.data[:2]))
        return frame.data if frame.op in (Op.TEXT, Op.BINARY) else b""

    async def write(self, data: bytes) -> None:
        """Send bytes of the console."""
        self._send(websocket.encode(Op.BINARY, data))
        await self._stream.drain()

    async def _ping(self) -> None:
        """Notice a browser that is gone without a word."""
        while True:
            await asyncio.sleep(_PING_S)
            self._send(websocket.encode(Op.PING))

    def _send(self, frame: bytes) -> None:
        """Send a frame; nothing may follow the closing one (RFC 6455, section 5.5.1)."""
        if not self._is_closing:
            self._stream.write(frame)

    def _close(self, frame: bytes) -> None:
        """Send the closing frame, once."""
        self._send(frame)
        self._is_closing = True
