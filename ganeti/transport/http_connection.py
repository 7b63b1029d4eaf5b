"""One connection of an HTTP server, from byte to byte.  The one module that knows httptools.

Theory of operation.  A connection is IDLE until the first byte of a request, then in its HEAD, then
in its BODY; each of these has its own time limit, so a client that sends a byte now and then is
dropped.  While a request is ANSWERING nothing is read; what was sent ahead is taken up afterwards.
``authorize`` is asked when the head is complete, before a byte of the body is kept, for every
request anew.  Whatever breaks the rules is answered once and the connection closed.

Source: node_rpc.json, "transport"; RFC 9112.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import httptools

from ganeti.system import clock
from ganeti.transport.flow import ReadingWatch, contained
from ganeti.transport.http_message import HttpRequest, HttpResponse, encode_head
from ganeti.transport.tls import PeerCertificate, peer_certificate

if TYPE_CHECKING:
    from ganeti.transport.http_server import HttpServer

logger = logging.getLogger(__name__)

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
# So much of a large answer is encrypted at once, and kept for the client.
_PIECE_BYTES: Final = 1 << 18


class _Phase(Enum):
    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    ANSWERING = auto()
    CLOSED = auto()


class _Rejected(Exception):
    """Raised inside parser callbacks; carries the answer after which the connection closes."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(response.status)
        self.response = response


class HttpConnection(asyncio.Protocol):
    """One client of a server."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._limits = server.limits
        self._phase = _Phase.IDLE
        self._transport: asyncio.Transport | None = None
        self._watch: ReadingWatch | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._peer: PeerCertificate | None = None
        self._address = "?"
        self._unfinished_head_bytes = 0
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._held_bytes = 0
        self._idle_since = 0.0
        self._sent_ahead = bytearray()
        self._request: HttpRequest | None = None
        self._keep_alive = True
        self._rejection: HttpResponse | None = None

    def __str__(self) -> str:
        name = f" ({self._peer.common_name})" if self._peer is not None else ""
        return f"client {self._address}{name} of port {self._server.port}"

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new client, unless there are too many."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._watch = ReadingWatch(transport, self._limits.unread_s_max, self)
        address = transport.get_extra_info("peername")
        self._address = str(address[0]) if address else "?"
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self._peer = peer_certificate(tls)
        self._server.connections.add(self)
        is_full = len(self._server.connections) > self._limits.connections_max
        if is_full and not self._server.drop_idle():
            logger.warning("Too many connections, dropping %s", self)
            transport.abort()
            return
        self._wait_for(_Phase.IDLE, self._limits.idle_s_max)

    def data_received(self, data: bytes) -> None:
        """Take bytes that the client sent."""
        if self._phase is _Phase.ANSWERING:
            # Little comes here: reading is paused, this was under way.
            self._sent_ahead += data
        elif self._phase is not _Phase.CLOSED:
            self._feed(data)
            if self._phase is _Phase.HEAD:
                self._count_head(len(data))

    def eof_received(self) -> bool:
        """Tell whether the answer under way can still be sent to a client that sends no more."""
        return self._phase is _Phase.ANSWERING and self._server.has_half_close

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client; a handler that runs for it goes on."""
        if exc is not None:
            logger.debug("Lost %s: %s", self, exc)
        self._phase = _Phase.CLOSED
        if self._request is not None:
            self._release_body()  # it did not come to an answer
        self._reading_watch.lost()
        self._server.connections.discard(self)

    def pause_writing(self) -> None:
        """Stop answering: the client does not read."""
        self._reading_watch.pause()

    def resume_writing(self) -> None:
        """Go on answering."""
        self._reading_watch.resume()

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Begin to read a request."""
        if self._phase is _Phase.ANSWERING:
            raise _Rejected(self._server.refuse(400, "one request at a time, please"))
        self._request = None
        self._unfinished_head_bytes = 0
        self._target = b""
        self._headers = {}
        self._body = bytearray()
        self._wait_for(_Phase.HEAD, self._limits.head_s_max)

    def on_url(self, url: bytes) -> None:
        """Take a piece of its target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one of its headers."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Ask whether the request is allowed, before any of its body is kept."""
        request = HttpRequest(
            self._parser.get_method().decode("latin-1"),
            self._target.decode("latin-1"),
            self._headers,
            b"",
            self._peer,
            self._address,
            self._parser.get_http_version(),
        )
        self._request = request
        refusal = self._server.authorize(request)
        if refusal is not None:
            raise _Rejected(refusal)
        length = self._headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._limits.body_bytes_max:
            raise _Rejected(self._body_too_large())
        if self._headers.get("expect", "").lower() == "100-continue":
            self._io.write(_CONTINUE)
        self._wait_for(_Phase.BODY, self._limits.body_s_max)

    def on_body(self, body: bytes) -> None:
        """Take a piece of its body."""
        self._body += body
        self._held_bytes += len(body)
        self._server.held_bytes += len(body)
        if len(self._body) > self._limits.body_bytes_max:
            raise _Rejected(self._body_too_large())
        if self._server.held_bytes > self._limits.bodies_bytes_max:
            text = "too much is being sent to this server at the moment; try again"
            raise _Rejected(self._server.refuse(503, text))

    def on_message_complete(self) -> None:
        """Begin to answer; nothing more is read meanwhile."""
        assert self._request is not None, "the parser calls on_headers_complete first"
        request, self._request = self._request, None
        request.body = bytes(self._body)
        self._body = bytearray()
        self._keep_alive = self._parser.should_keep_alive()
        self._phase = _Phase.ANSWERING
        self._reading_watch.stop()
        self._io.pause_reading()
        self._server.start(contained(self._answer(request), self.abort, self))

    # Reading.

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._reject(self._server.refuse(501, "no other protocol is spoken here"))
        except httptools.HttpParserCallbackError as err:
            rejected = err.__context__
            if not isinstance(rejected, _Rejected):
                raise
            self._reject(rejected.response)
        except httptools.HttpParserError as err:
            self._reject(self._server.refuse(400, f"not an HTTP request: {err}"))

    def _count_head(self, size_bytes: int) -> None:
        """Bound what the parser keeps: a head that is complete within one read may be larger."""
        self._unfinished_head_bytes += size_bytes
        if self._unfinished_head_bytes > self._limits.head_bytes_max:
            limit = self._limits.head_bytes_max
            self._reject(self._server.refuse(431, f"the head is larger than {limit} bytes"))

    def _body_too_large(self) -> HttpResponse:
        limit = self._limits.body_bytes_max
        return self._server.refuse(413, f"the body is larger than {limit} bytes")

    def _release_body(self) -> None:
        self._server.held_bytes -= self._held_bytes
        self._held_bytes = 0

    def _wait_for(self, phase: _Phase, seconds: float) -> None:
        self._phase = phase
        self._idle_since = clock.monotonic()
        self._reading_watch.start_timer(seconds, self._on_late)

    def _on_late(self) -> None:
        if self._phase is _Phase.IDLE:
            self._close()
            return
        part = self._phase.name.lower()
        self._reject(self._server.refuse(408, f"the {part} of the request did not come in time"))

    # Answering.

    async def _answer(self, request: HttpRequest) -> None:
        try:
            response = await self._server.handler(request)
        except Exception as err:
            logger.exception("Internal error in %s %s of %s", request.method, request.path, self)
            text = f"internal error: {type(err).__name__}: {err}"
            response = self._server.refuse(500, text)
        request.body = b""  # it may be large, the client slow
        self._release_body()
        if self._is_closed:
            return
        if response.close or self._server.is_closing:
            self._keep_alive = False
        self._server.on_answered(request, self._address, response)
        await self._send(response, response.body if request.method != "HEAD" else b"")
        if not self._is_closed:
            self._next_request()

    def _next_request(self) -> None:
        """Go on after an answer."""
        self._wait_for(_Phase.IDLE, self._limits.idle_s_max)
        if self._rejection is not None and self._keep_alive:
            self._reject(self._rejection)
        elif not self._keep_alive:
            self._close()
        else:
            self._io.resume_reading()
            data = bytes(self._sent_ahead)
            self._sent_ahead.clear()
            if data:
                self.data_received(data)

    async def _send(self, response: HttpResponse, body: bytes) -> None:
        """Send an answer as fast as the client reads it."""
        self._begin_answer(response, body[:_PIECE_BYTES])
        for start in range(_PIECE_BYTES, len(body), _PIECE_BYTES):
            await self._reading_watch.drain()
            if self._is_closed:
                return
            self._io.write(memoryview(body)[start : start + _PIECE_BYTES])
        await self._reading_watch.drain()

    def _begin_answer(self, response: HttpResponse, piece: bytes) -> None:
        head = encode_head(response, keep_alive=self._keep_alive, now=clock.now())
        if not self._io.is_closing():
            self._io.write(head + piece)

    def _reject(self, response: HttpResponse) -> None:
        """Answer and close; what is being answered goes first."""
        if self._phase is _Phase.CLOSED:
            return
        if self._phase is _Phase.ANSWERING:
            self._rejection = response
            return
        text = response.body[:200].decode("utf-8", "replace").strip()
        logger.warning("Refusing %s: status %d, %s", self, response.status, text)
        self._keep_alive = False
        self._server.on_answered(self._request, self._address, response)
        self._begin_answer(response, response.body)
        self._body = bytearray()
        self._release_body()
        # Closing with unread input would reset the connection before the answer is read.
        self._phase = _Phase.CLOSED
        self._reading_watch.end_writing()
        self._reading_watch.start_timer(self._limits.linger_s, self._close)

    def _close(self) -> None:
        self._phase = _Phase.CLOSED
        self._reading_watch.close()

    @property
    def idle_since(self) -> float | None:
        """When the last answer was sent or the client came; None if a request is under way."""
        return self._idle_since if self._phase is _Phase.IDLE else None

    def close_if_idle(self) -> None:
        """Close the connection, unless a request of it is being answered."""
        if self._phase is not _Phase.ANSWERING:
            self._close()

    def abort(self) -> None:
        """Drop the client at once."""
        self._io.abort()

    @property
    def _is_closed(self) -> bool:
        return self._phase is _Phase.CLOSED

    @property
    def _io(self) -> asyncio.Transport:
        assert self._transport is not None, "the event loop calls connection_made first"
        return self._transport

    @property
    def _reading_watch(self) -> ReadingWatch:
        assert self._watch is not None, "the event loop calls connection_made first"
        return self._watch
