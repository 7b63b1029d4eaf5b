"""Serves HTTP requests, with or without TLS.  The one module that knows httptools.

Theory of operation.  A connection is IDLE until the first byte of a request, then in its HEAD, then
in its BODY; each of these has its own time limit, so a client that sends a byte now and then is
dropped.  While a request is ANSWERING nothing is read; requests sent ahead are taken up afterwards.
``authorize`` is asked when the head is complete, before a byte of the body is kept, for every
request anew.  A request that breaks the rules is answered once and the connection closed.  One to
speak another protocol has no body; it is agreed to by an answer that has ``speak`` (the connection
is SPEAKING until that ends), or answered like any other, and then refused.

Where there are too many clients, those are dropped that are waited for, of the address that most
of them come from (`accepting`); one that does not read its answer is waited for too.  A large
answer is kept until most of it is read, and what is kept for all clients is bounded
(`flow.Unread`); a hundred KiB of each may be left then in the buffers of transport and TLS.  The
log tells of refused clients once a minute for each address.  A new certificate is for new
connections.

Source: node_rpc.json, "transport"; RFC 9112.
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import contextlib
import logging
import os
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import httptools

from ganeti.base.complaints import Complaints
from ganeti.base.errors import TransportError
from ganeti.system import clock
from ganeti.transport.accepting import Listener, Newcomer, Reception, in_the_way, origin_of
from ganeti.transport.flow import ServedConnection, StreamServer, Unread
from ganeti.transport.http_message import HttpRequest, HttpResponse, HttpStream, encode_head
from ganeti.transport.tls import PeerCertificate, peer_certificate

logger = logging.getLogger(__name__)

_BACKLOG: Final = 1024  # a master asks all nodes at once, but each only a few times
_REASON_SHOWN_BYTES: Final = 500
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
# So much of a large answer is encrypted at once, and kept for the client beside the answer.
_PIECE_BYTES: Final = 1 << 16

# asyncio gives each TLS connection a read buffer of 256 KiB for its life; a TLS record has 16 KiB.
# With this, a hundred open connections cost the node daemon 5 MB instead of 29.
asyncio.sslproto.SSLProtocol.max_size = 16 * 1024

Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]
Authorizer = Callable[[HttpRequest], HttpResponse | None]
Refuser = Callable[[int, str], HttpResponse]
AnswerLog = Callable[[HttpRequest | None, str, HttpResponse], None]
"""Gets the request if it could be read at all, the client's address, and the answer."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of one server."""

    head_bytes_max: int = 16 * 1024  # ten times the longest of our clients
    body_bytes_max: int = 64 << 20  # config.data of 11,000 instances is 5 MB
    bodies_bytes_max: int = 1 << 30  # of all clients together, until they are answered
    origin_bytes_max: int = 1 << 30  # likewise, of those at one address
    answers_bytes_max: int = 256 << 20  # of all clients together, until they are read
    origin_answers_bytes_max: int = 64 << 20  # likewise, of those at one address
    head_s_max: float = 10.0
    body_s_max: float = 120.0
    idle_s_max: float = 600.0  # keep-alive; clients open a new connection without being told
    handshake_s_max: float = 60.0
    handshake_turn_s: float = 5.0  # while others wait for theirs
    handshakes_max: int = 128  # at the same time
    unread_s_max: float = 60.0  # an answer of which the client reads too little for so long
    read_rate_min: int = 1024  # bytes in a second, a hundredth of a slow link's
    linger_s: float = 2.0  # for a refused client that is still sending to read why
    connections_max: int = 2048
    origin_connections_max: int = 2048  # from one address
    drain_s: float = 5.0  # for requests to end when the server stops


class HttpServer(StreamServer["HttpConnection"]):
    """A listening socket and its connections; made by `serve_http`."""

    def __init__(
        self,
        handler: Handler,
        authorize: Authorizer,
        limits: HttpLimits,
        *,
        refuse: Refuser,
        on_answered: AnswerLog,
        has_half_close: bool,
    ) -> None:
        super().__init__("HTTP", limits.drain_s)
        self.handler = handler
        self.authorize = authorize
        self.limits = limits
        self.refuse = refuse
        self.on_answered = on_answered
        self.has_half_close = has_half_close
        self.port = 0
        self.held_by: Counter[str] = Counter()
        self.unread: Unread[HttpConnection] = Unread(
            limits.answers_bytes_max, limits.origin_answers_bytes_max
        )
        self._complaints = Complaints()
        self._listener: Listener | None = None
        self._tls: ssl.SSLContext | None = None
        self._reception = Reception(
            self._shake,
            new_s_max=limits.handshake_s_max,
            turn_s=limits.handshake_turn_s,
            at_once_max=limits.handshakes_max,
        )

    def hold(self, origin: str, size_bytes: int) -> bool:
        """Count the bytes kept of bodies; tells whether they are too many now."""
        self.held_bytes += size_bytes
        self.held_by[origin] += size_bytes
        if not self.held_by[origin]:
            del self.held_by[origin]
        return (
            self.held_bytes > self.limits.bodies_bytes_max
            or self.held_by[origin] > self.limits.origin_bytes_max
        )

    def keep(self, client: HttpConnection, body: bytes) -> bytes:
        """Keep a large answer for a client, at the expense of those that read slowest."""
        kept = self.unread.add(client, body)
        while (slowest := self.unread.one_too_many(client.origin)) is not None:
            self.complain(slowest.origin, f"Too many answers are not read, dropping {slowest}")
            self.unread.discard(slowest)
            slowest.abort()
        return kept

    def complain(self, origin: str, text: str) -> None:
        """Log what a client did, unless that was just done for another one of this origin."""
        ending = self._complaints.ending(origin, clock.monotonic())
        if ending is not None:
            logger.warning("%s%s", text, ending)

    def add(self, client: HttpConnection) -> None:
        """Take in a client, in the place of another one where too many come from its address."""
        others = [each for each in self.connections if each.origin == client.origin]
        self.connections.add(client)
        if len(others) >= self.limits.origin_connections_max:
            waiting = [each for each in others if each.is_waited_for]
            for each in in_the_way(waiting or [client]):
                logger.debug("Too many connections from one address, dropping %s", each)
                self.connections.discard(each)
                each.abort()

    def listen(
        self, address: str, port: int, tls: ssl.SSLContext | None, opened: socket.socket | None
    ) -> None:
        """Take clients at this address, or of a socket that listens already, from now on.

        Raises:
            OSError: it cannot be had.
        """
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = opened or socket.create_server((address, port), family=family, backlog=_BACKLOG)
        # Clients' sockets get it from this one; asyncio sets it only where the protocol is named.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls = tls
        self.port = sock.getsockname()[1]
        self.name = f"on port {self.port}"
        self._listener = Listener(sock, self.name, self._take, self._drop_some)

    def stop_accepting(self) -> None:
        """Take no more clients."""
        assert self._listener is not None, "listen() comes first"
        self._listener.close()
        self._reception.close()

    async def renew_tls(self, tls: ssl.SSLContext) -> None:
        """Serve connections from now on with another context, as after a change of certificate."""
        self._tls = tls

    def _take(self, sock: socket.socket) -> None:
        newcomer = Newcomer(sock)
        if not self._has_room() and not self._drop_some():
            text = f"Too many connections, dropping client {newcomer.address}"
            self.complain(newcomer.origin, text)
            sock.close()
        elif self._tls is None:
            self.adopt(sock, lambda: HttpConnection(self))
        else:
            self._reception.take(newcomer)

    def _has_room(self) -> bool:
        return len(self.connections) + len(self._reception) < self.limits.connections_max

    def _drop_some(self) -> bool:
        """Make room at the expense of clients that are waited for; false if there are none."""
        waiting: list[HttpConnection | Newcomer] = [*self._reception.waiting()]
        waiting += [each for each in self.connections if each.is_waited_for]
        dropped = in_the_way(waiting)
        for each in dropped:
            if isinstance(each, Newcomer):
                self._reception.drop(each)
            else:
                logger.debug("Too many connections, dropping the waiting one of %s", each)
                each.abort()
        return bool(dropped)

    async def _shake(self, newcomer: Newcomer) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: HttpConnection(self),
                newcomer.sock,
                ssl=self._tls,
                ssl_handshake_timeout=self.limits.handshake_s_max,
            )
        except ssl.SSLCertVerificationError as err:  # the client reads that we have hung up
            text = f"client {newcomer.address}: its certificate is not one of ours"
            self.complain(newcomer.origin, f"Refusing {text}: {err.verify_message}")
            raise


class _Phase(Enum):
    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    ANSWERING = auto()
    SPEAKING = auto()
    CLOSED = auto()


class _Rejected(Exception):
    """Raised inside parser callbacks; carries the answer after which the connection closes."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(response.status)
        self.response = response


class HttpConnection(ServedConnection, asyncio.Protocol):
    """One client of a server."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._limits = server.limits
        self._phase = _Phase.IDLE
        self._parser = httptools.HttpRequestParser(self)
        self._peer: PeerCertificate | None = None
        self._address = "?"
        self._unfinished_head_bytes = 0
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._held_bytes = 0
        self.origin = "?"
        self.since = 0.0
        self._framing_bytes = 0
        self._sent_ahead = bytearray()
        self._request: HttpRequest | None = None
        self._keep_alive = True
        self._is_reading = False  # a large answer
        self._rejection: HttpResponse | None = None
        self._gone: asyncio.Future[None] | None = None
        self._spoken: asyncio.StreamReader | None = None

    def __str__(self) -> str:
        name = f" ({self._peer.common_name})" if self._peer is not None else ""
        return f"client {self._address}{name} of port {self._server.port}"

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new client, unless there are too many."""
        limits = self._limits
        self.begin(
            transport,
            limits.unread_s_max,
            read_bytes_min=max(1, int(limits.unread_s_max * limits.read_rate_min)),
        )
        self._io.set_write_buffer_limits(_PIECE_BYTES)  # of TLS it would be half a MiB
        address = transport.get_extra_info("peername")
        self._address = str(address[0]) if address else "?"
        self.origin = origin_of(self._address)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self._peer = peer_certificate(tls)
        self._wait_for(_Phase.IDLE, limits.idle_s_max)
        self._server.add(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes that the client sent."""
        if self._spoken is not None:
            self._spoken.feed_data(data)
        elif self._phase is _Phase.ANSWERING:
            # Little comes here: reading is paused, or a client that says no more is watched.
            self._sent_ahead += data
            if len(self._sent_ahead) > self._limits.head_bytes_max:
                self._io.pause_reading()
        elif self._phase is not _Phase.CLOSED:
            body_bytes = len(self._body)
            self._feed(data)
            if self._phase is _Phase.HEAD:
                self._count_head(len(data))
            elif self._phase is _Phase.BODY:
                self._count_framing(len(data) if len(self._body) == body_bytes else 0)

    def eof_received(self) -> bool:
        """Tell whether the answer under way can still be sent to a client that sends no more."""
        if self._spoken is not None:
            self._spoken.feed_eof()
        return self._phase is _Phase.ANSWERING and self._server.has_half_close

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client; a handler that runs for it goes on, unless it asked to know."""
        if exc is not None:
            logger.debug("Lost %s: %s", self, exc)
        self._phase = _Phase.CLOSED
        if self._spoken is not None:
            self._spoken.feed_eof()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
        if self._request is not None:
            self._release_body()  # it did not come to an answer
        self._reading_watch.lost()
        self._server.connections.discard(self)

    # Called by the parser.

    def on_message_begin(self) -> None:
        """Begin to read a request."""
        if self._phase is _Phase.ANSWERING:
            raise _Rejected(self._server.refuse(400, "one request at a time, please"))
        self._request = None
        self._unfinished_head_bytes = 0
        self._framing_bytes = 0
        self._target = b""
        self._headers = {}
        self._body = bytearray()
        self._wait_for(_Phase.HEAD, self._limits.head_s_max)

    def on_url(self, url: bytes) -> None:
        """Take a piece of its target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one of its headers; those after the body say nothing that anybody asks for."""
        if self._phase is _Phase.HEAD:
            word = name.decode("latin-1").lower()
            if word == "authorization" and word in self._headers:
                raise _Rejected(self._server.refuse(400, "who asks may be said once only"))
            self._headers[word] = value.decode("latin-1")

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
            watch_client=self._watch_client,
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
        is_too_much = self._server.hold(self.origin, len(body))
        if len(self._body) > self._limits.body_bytes_max:
            raise _Rejected(self._body_too_large())
        if is_too_much:
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
        self._server.start(self, self._answer(request))

    # Reading.

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as err:
            self._sent_ahead += data[err.args[0] :]  # perhaps the first words of that protocol
            self._reject(self._server.refuse(501, "no other protocol is spoken here"))
        except httptools.HttpParserCallbackError as err:
            rejected = err.__context__
            if not isinstance(rejected, _Rejected):
                raise
            self._reject(rejected.response)
        except httptools.HttpParserError as err:
            self._reject(self._server.refuse(400, f"not an HTTP request: {err}"))

    def _count_head(self, size_bytes: int) -> None:
        """Bound the bytes that the parser keeps: a head complete within one read may be larger."""
        self._unfinished_head_bytes += size_bytes
        if self._unfinished_head_bytes > self._limits.head_bytes_max:
            limit = self._limits.head_bytes_max
            self._reject(self._server.refuse(431, f"the head is larger than {limit} bytes"))

    def _count_framing(self, size_bytes: int) -> None:
        """Bound the bytes that the parser keeps after a piece of a body; 0 after another piece."""
        self._framing_bytes = self._framing_bytes + size_bytes if size_bytes else 0
        limit = self._limits.head_bytes_max
        if self._framing_bytes > limit:
            text = f"more than {limit} bytes came after a piece of the body"
            self._reject(self._server.refuse(431, text))

    def _body_too_large(self) -> HttpResponse:
        limit = self._limits.body_bytes_max
        return self._server.refuse(413, f"the body is larger than {limit} bytes")

    def _release_body(self) -> None:
        self._server.hold(self.origin, -self._held_bytes)
        self._held_bytes = 0

    def _wait_for(self, phase: _Phase, seconds: float) -> None:
        self._phase = phase
        self.since = clock.monotonic()
        self._reading_watch.start_timer(seconds, self._on_late)

    def _on_late(self) -> None:
        if self._phase is _Phase.IDLE:
            self._close()
            return
        part = self._phase.name.lower()
        self._reject(self._server.refuse(408, f"the {part} of the request did not come in time"))

    # Answering.

    def _watch_client(self) -> asyncio.Future[None]:
        """Read on while an answer is worked out: that is how a hang-up is seen."""
        if self._gone is None or self._gone.done():
            self._gone = asyncio.get_running_loop().create_future()
        if self._is_closed:
            self._gone.set_result(None)
        else:
            self._io.resume_reading()
        return self._gone

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
        if response.speak is not None:
            await self._speak(response, response.speak)
            return
        if request.method == "HEAD":
            self._begin_answer(response, b"")
        else:
            await self._send(response)
        if not self._is_closed and not self._io.is_closing():
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

    async def _speak(
        self, response: HttpResponse, speak: Callable[[HttpStream], Awaitable[None]]
    ) -> None:
        """Change the protocol, and talk until that is over."""
        self._phase = _Phase.SPEAKING
        self._spoken = asyncio.StreamReader(_PIECE_BYTES)
        self._spoken.set_transport(self._io)
        self._begin_answer(response, b"")
        self._spoken.feed_data(bytes(self._sent_ahead))
        self._sent_ahead.clear()
        self._io.resume_reading()
        try:
            await speak(HttpStream(self._spoken, self._write, self._reading_watch.drain))
        finally:
            if not self._is_closed:
                self._close()

    def _write(self, data: bytes) -> None:
        if not self._io.is_closing():
            self._io.write(data)

    async def _send(self, response: HttpResponse) -> None:
        """Send an answer as fast as the client reads it."""
        if len(response.body) <= _PIECE_BYTES:
            self._begin_answer(response, response.body)
            await self._reading_watch.drain()
            return
        self.since = clock.monotonic()
        response.body = self._server.keep(self, response.body)
        self._is_reading = True
        try:
            await self._send_pieces(response, response.body)
        finally:
            self._is_reading = False
            self._server.unread.discard(self)

    async def _send_pieces(self, response: HttpResponse, body: bytes) -> None:
        self._begin_answer(response, body[:_PIECE_BYTES])
        for start in range(_PIECE_BYTES, len(body), _PIECE_BYTES):
            await self._reading_watch.drain()
            if self._io.is_closing():
                return
            self.since = clock.monotonic()
            self._io.write(body[start : start + _PIECE_BYTES])  # a view would keep all of it
        await self._reading_watch.drain()

    def _begin_answer(self, response: HttpResponse, piece: bytes) -> None:
        head = encode_head(response, keep_alive=self._keep_alive, now=clock.now())
        if not self._io.is_closing():
            self._io.write(head + piece)

    def _reject(self, response: HttpResponse) -> None:
        """Answer and close; an answer begun earlier goes first."""
        if self._phase is _Phase.CLOSED:
            return
        if self._phase is _Phase.ANSWERING:
            self._rejection = response
            return
        text = response.body[:_REASON_SHOWN_BYTES].decode("utf-8", "replace").strip()
        self._server.complain(self.origin, f"Refusing {self}: status {response.status}, {text}")
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
    def is_waited_for(self) -> bool:
        """True while it is the client that is waited for: to send a request, or to read on."""
        return self._is_reading or self._has_no_request

    @property
    def _has_no_request(self) -> bool:
        return self._phase not in (_Phase.ANSWERING, _Phase.SPEAKING)

    def close_if_idle(self) -> None:
        """As declared."""
        if self._has_no_request:
            self._close()

    @property
    def _is_closed(self) -> bool:
        return self._phase is _Phase.CLOSED


@contextlib.asynccontextmanager
async def serve_http(
    address: str,
    port: int,
    handler: Handler,
    *,
    tls: ssl.SSLContext | None,
    authorize: Authorizer = lambda _request: None,
    refuse: Refuser = HttpResponse.text,
    on_answered: AnswerLog = lambda *_answer: None,
    limits: HttpLimits = HttpLimits(),
    opened: socket.socket | None = None,
) -> AsyncIterator[HttpServer]:
    """Serve requests on a TCP port while the context is entered; port 0 takes a free one.

    Args:
        tls: the server's context, or None to serve without TLS.
        authorize: asked for each request before its body is read (which is empty then); returns
            the refusal, or None.
        refuse: makes the answer to a request that breaks the rules, from status and reason.
        on_answered: told of every answer before it is sent.
        opened: a socket that listens already, instead of address and port.

    Raises:
        TransportError: the address cannot be listened on; the text names it.
    """
    server = HttpServer(
        handler,
        authorize,
        limits,
        refuse=refuse,
        on_answered=on_answered,
        has_half_close=tls is None,
    )
    async with server.serving():
        try:
            server.listen(address, port, tls, opened)
        except OSError as err:
            # asyncio wraps the system's words into its own; the number still tells.
            reason = os.strerror(err.errno) if err.errno else str(err)
            raise TransportError(f"cannot listen on {address} port {port}: {reason}") from err
        try:
            yield server
        finally:
            server.stop_accepting()
