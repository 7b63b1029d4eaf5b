"""Serves HTTP requests, with or without TLS: the listening socket, and all of its connections.

What happens on a connection is told in `http_connection`.  A new certificate is for new
connections: the listening socket passes to a listener with the new TLS context, no client is
turned away meanwhile.

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
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from ganeti.base.errors import TransportError
from ganeti.transport.http_connection import HttpConnection
from ganeti.transport.http_message import HttpRequest, HttpResponse

logger = logging.getLogger(__name__)

_BACKLOG: Final = 1024  # a master asks all nodes at once, but each only a few times

# asyncio gives each TLS connection a read buffer of 256 KiB for its life; a TLS record has 16 KiB.
# With this, a hundred open connections cost the node daemon 5 MB instead of 29.
asyncio.sslproto.SSLProtocol.max_size = 16 * 1024

Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]
Authorizer = Callable[[HttpRequest], HttpResponse | None]
Refuser = Callable[[int, str], HttpResponse]
AnswerLog = Callable[[HttpRequest | None, str, HttpResponse], None]
"""Gets the request if it could be read at all, the client's address, and what it was answered."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of one server."""

    head_bytes_max: int = 16 * 1024  # ten times what any client of ours sends
    body_bytes_max: int = 64 << 20  # config.data of 11,000 instances is 5 MB
    bodies_bytes_max: int = 1 << 30  # of all clients together, until they are answered
    head_s_max: float = 10.0
    body_s_max: float = 120.0
    idle_s_max: float = 600.0  # keep-alive; clients open a new connection without being told
    handshake_s_max: float = 10.0
    unread_s_max: float = 60.0  # an answer of which the client reads nothing for so long
    linger_s: float = 2.0  # for a refused client that is still sending to read why
    connections_max: int = 2048
    drain_s: float = 5.0  # for requests to end when the server stops


class HttpServer:
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
        self.handler = handler
        self.authorize = authorize
        self.limits = limits
        self.refuse = refuse
        self.on_answered = on_answered
        self.has_half_close = has_half_close
        self.port = 0
        self.is_closing = False
        self.connections: set[HttpConnection] = set()
        self.held_bytes = 0
        self._listener: asyncio.Server | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()

    def drop_idle(self) -> bool:
        """Close the connection that has been idle for longest; false if all are busy."""
        idle = [(each.idle_since, each) for each in self.connections if each.idle_since]
        if not idle:
            return False
        _, oldest = min(idle, key=lambda pair: pair[0] or 0.0)
        logger.debug("Too many connections, closing the idle one of %s", oldest)
        oldest.close_if_idle()
        return True

    @property
    def requests_running(self) -> int:
        """How many requests are being answered."""
        return len(self._running)

    async def listen(self, address: str, port: int, tls: ssl.SSLContext | None) -> None:
        """Take the address; nothing is accepted yet.

        Raises:
            OSError: it cannot be had.
        """
        self._listener = await self._make_listener(tls, host=address, port=port)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def enter(self, tasks: asyncio.TaskGroup) -> None:
        """Begin to serve; all tasks of this server belong to this group."""
        assert self._listener is not None, "listen() comes first"
        self._tasks = tasks
        await self._listener.start_serving()

    async def renew_tls(self, tls: ssl.SSLContext) -> None:
        """Serve connections from now on with another context, as after a change of certificate."""
        old = self._listener
        assert old is not None, "listen() comes first"
        sock = socket.fromfd(old.sockets[0].fileno(), old.sockets[0].family, socket.SOCK_STREAM)
        self._listener = await self._make_listener(tls, sock=sock)
        await self._listener.start_serving()
        old.close()

    async def _make_listener(self, tls: ssl.SSLContext | None, **where: Any) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(
            lambda: HttpConnection(self),
            ssl=tls,
            backlog=_BACKLOG,
            ssl_handshake_timeout=self.limits.handshake_s_max if tls is not None else None,
            start_serving=False,
            **where,
        )

    def start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Start the task that answers one request."""
        assert self._tasks is not None, "nothing is served before enter()"
        task = self._tasks.create_task(work, name=f"answer on port {self.port}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def finish(self) -> None:
        """Let running requests end within the drain time, then cancel them; close everything."""
        self.is_closing = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.connections):
            connection.close_if_idle()
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=self.limits.drain_s)
            for task in late:
                task.cancel()
        for connection in list(self.connections):
            connection.abort()


def _allow_all(_request: HttpRequest) -> HttpResponse | None:
    return None


def _log_nothing(_request: HttpRequest | None, _address: str, _response: HttpResponse) -> None:
    return None


@contextlib.asynccontextmanager
async def serve_http(
    address: str,
    port: int,
    handler: Handler,
    *,
    tls: ssl.SSLContext | None,
    authorize: Authorizer = _allow_all,
    refuse: Refuser = HttpResponse.text,
    on_answered: AnswerLog = _log_nothing,
    limits: HttpLimits = HttpLimits(),
) -> AsyncIterator[HttpServer]:
    """Serve requests on a TCP port while the context is entered; port 0 takes a free one.

    Args:
        tls: the server's context, or None to serve without TLS.
        authorize: asked for each request before its body is read (which is empty then); returns
            the refusal, or None.
        refuse: makes the answer to what breaks the rules, from status and reason.
        on_answered: told of every answer before it is sent.

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
    try:
        await server.listen(address, port, tls)
    except OSError as err:
        raise TransportError(f"cannot listen on {address} port {port}: {_reason(err)}") from err
    failure: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        await server.enter(tasks)
        try:
            yield server
        except Exception as err:  # noqa: BLE001 - raised below, not wrapped into a group
            failure = err
        finally:
            await server.finish()
    if failure is not None:
        raise failure


def _reason(err: OSError) -> str:
    # asyncio wraps the system's words into its own; the number still tells.
    return os.strerror(err.errno) if err.errno else str(err)
