"""Serves requests on a Unix stream socket: LUXI and WConfD.

Theory of operation.  A connection is a splitter, a queue of requests not begun, and at most one
task that answers them in order; an idle connection has no task, so thousands of them cost little.
A request that a handler answers without waiting needs no task either, a few requests at a time.
Connections are served side by side.  A connection is READING until the peer half-closes it
(FINISHING: its requests are still answered) or breaks the rules (REFUSED: it gets one plain
text, its input is thrown away until it hangs up or the linger time is over); then it is CLOSED.

Bounds: size of a message, requests waiting on one connection (then it is not read from), bytes of
unfinished messages of all connections together, number of connections, and the time a peer may
leave an answer unread.

Source: luxi.json and wconfd.json, "transport".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from ganeti.base.errors import GenericError, ProtocolError, TransportError
from ganeti.base.paths import UNIX_SOCKET_PATH_BYTES_MAX
from ganeti.protocol.envelope import (
    ETX,
    MessageSplitter,
    MessageTooLargeError,
    Request,
    RequestError,
    decode_request,
    encode_failure,
    encode_refusal,
    encode_success,
)
from ganeti.system.files import give_to, remove_if_exists
from ganeti.transport.accepting import Listener
from ganeti.transport.flow import ServedConnection, StreamServer, canceled_by

logger = logging.getLogger(__name__)

_READ_BYTES: Final = 256 * 1024  # as much as asyncio itself reads at once
_BACKLOG: Final = 1024  # bursts of clients wait in the kernel, whose own limit is 4096
_PEER_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid
_AT_ONCE_MAX: Final = 16  # requests of one client in a row, before others get their turn

Handler = Callable[[Request, "Connection"], object]
"""Returns the answer, or a coroutine that does."""


@dataclass(frozen=True, slots=True)
class UnixLimits:
    """Bounds of one server."""

    message_bytes_max: int = 64 << 20  # ten times 10,000 jobs in one message
    held_bytes_max: int = 256 << 20  # requests not begun, of all connections together
    requests_waiting_max: int = 64  # per connection; beyond, it is not read from
    waiting_bytes_max: int = 1 << 20  # likewise
    connections_max: int = 16384  # three times the clients that one test lets hang
    unread_s_max: float = 60.0  # an answer of which the peer reads nothing for so long
    linger_s: float = 5.0  # for a refused peer to read why
    drain_s: float = 5.0  # for requests to end when the server stops
    strangers: frozenset[int] = frozenset()  # users, by number, who are told nothing


class UnixServer(StreamServer["Connection"]):
    """A listening socket and its connections; made by `serve_unix`."""

    def __init__(self, path: str, handler: Handler, limits: UnixLimits) -> None:
        super().__init__(path, limits.drain_s)
        self.handler = handler
        self.limits = limits
        self.read_buffer = memoryview(bytearray(_READ_BYTES))


class RunState(Enum):
    """Where a connection is in its life; see the top of this module."""

    READING = auto()
    FINISHING = auto()
    REFUSED = auto()
    CLOSED = auto()


_NEXT: Final = {
    RunState.READING: {RunState.FINISHING, RunState.REFUSED, RunState.CLOSED},
    RunState.FINISHING: {RunState.REFUSED, RunState.CLOSED},
    RunState.REFUSED: {RunState.CLOSED},
    RunState.CLOSED: set[RunState](),
}


class Connection(ServedConnection, asyncio.BufferedProtocol):
    """One client; handlers see its credentials and whether it went away."""

    def __init__(self, server: UnixServer) -> None:
        self.peer_pid = 0
        self.peer_uid = -1
        self._server = server
        self._state = RunState.READING
        self._splitter = MessageSplitter(server.limits.message_bytes_max)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._counted_bytes = 0
        self._refusal: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_gone = False
        self._has_eof = False
        self._gone: asyncio.Future[None] | None = None

    def __str__(self) -> str:
        return f"client with pid {self.peer_pid} on {self._server.name}"

    @property
    def is_closed(self) -> bool:
        """True once the client is gone: nobody will read the answer."""
        return self._is_gone

    async def wait_closed(self) -> None:
        """Return when the client is gone, so that a handler can stop waiting on its behalf."""
        if not self._is_gone:
            await asyncio.shield(self._gone_future())

    def canceled_when_gone(self) -> AbstractContextManager[None]:
        """Cancel the current task inside this context as soon as the client is gone."""
        return canceled_by(self._gone_future())

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new client, or refuse it: too many are there, or its user is a stranger."""
        self.begin(transport, self._server.limits.unread_s_max)
        sock = transport.get_extra_info("socket")
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
        self.peer_pid, self.peer_uid, _ = _PEER_CREDENTIALS.unpack(raw)
        self._server.connections.add(self)
        if len(self._server.connections) > self._server.limits.connections_max:
            self._refuse("too many connections, try again later")
        elif self.peer_uid in self._server.limits.strangers:
            self._refuse("your user has no business here")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Lend the server's one read buffer; it is emptied before the next read."""
        return self._server.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take bytes that the client sent."""
        if self._state is not RunState.READING:
            return  # a refused client may finish sending; nobody listens
        try:
            messages = self._splitter.feed(bytes(self._server.read_buffer[:nbytes]))
        except MessageTooLargeError as err:
            self._wait_for_turn(err.complete)
            self._refuse(err.message)
            return
        self._wait_for_turn(messages)
        if self._has_enough_waiting():
            self._io.pause_reading()
        self._start()

    def eof_received(self) -> bool:
        """Note that the client sends no more; tell a half-closed one from one that is gone."""
        self._has_eof = True
        poll = select.poll()
        poll.register(self._io.get_extra_info("socket").fileno(), select.POLLIN)
        if any(event & select.POLLHUP for _, event in poll.poll(0)):
            self._set_gone()
        if self._state is RunState.READING:
            self._set_state(RunState.FINISHING)
        # False: no answer is pending, or nobody is there to get it; asyncio flushes and closes
        return self._task is not None and not (self._is_gone and not self._waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client; a handler that runs for it goes on, unless it asked to know."""
        self._set_state(RunState.CLOSED)
        self._set_gone()
        self._drop_input()
        self._reading_watch.lost()
        self._server.connections.discard(self)

    # Answering.

    def _start(self) -> None:
        """Answer a few requests at once if they need not wait; the rest is left to a task."""
        if self._task is not None:
            return
        begun = None
        for _ in range(_AT_ONCE_MAX):
            if begun is not None or not self._waiting or not self._may_answer():
                break
            begun = self._begin(self._next_waiting())
        if self._task is None and (begun is not None or self._waiting):
            self._task = self._server.start(self, self._answer_all(begun))

    def _may_answer(self) -> bool:
        return not self._reading_watch.is_paused and self._state is not RunState.CLOSED

    async def _answer_all(self, begun: Coroutine[object, object, None] | None) -> None:
        try:
            if begun is not None:
                await begun
            await self._reading_watch.drain()
            count = 0
            while self._waiting and self._state is not RunState.CLOSED:
                begun = self._begin(self._next_waiting())
                if begun is not None:
                    await begun
                count += 1
                if count % _AT_ONCE_MAX == 0:
                    await asyncio.sleep(0)
                await self._reading_watch.drain()
        finally:
            self._task = None
        if self._state is RunState.REFUSED:
            self._send_refusal()
        elif self._state is RunState.FINISHING or self._server.is_closing:
            self._close()

    def _wait_for_turn(self, messages: list[bytes]) -> None:
        self._waiting.extend(messages)
        self._waiting_bytes += sum(map(len, messages))
        self._count_held()

    def _next_waiting(self) -> bytes:
        message = self._waiting.popleft()
        self._waiting_bytes -= len(message)
        self._count_held()
        if not self._has_enough_waiting():
            self._io.resume_reading()
        return message

    def _begin(self, message: bytes) -> Coroutine[object, object, None] | None:
        """Answer one request, or return the coroutine that will."""
        method = "not understood"
        try:
            request = decode_request(message)
            method = request.method
            answer = self._server.handler(request, self)
            if isinstance(answer, Coroutine):
                return self._answer_later(method, answer)
            self._send_success(answer)
        except Exception as err:  # noqa: BLE001 - told to the peer, and logged if it is our fault
            self._send_failure(method, err)
        return None

    async def _answer_later(self, method: str, answer: Coroutine[object, object, object]) -> None:
        try:
            self._send_success(await answer)
        except Exception as err:  # noqa: BLE001 - as above
            self._send_failure(method, err)

    def _send_success(self, answer: object) -> None:
        try:
            data = encode_success(answer)
        except ProtocolError as err:  # the answer is no JSON: our mistake, not the peer's
            raise GenericError(f"the answer cannot be sent: {err.message}") from err
        self._send(data)

    def _send_failure(self, method: str, error: Exception) -> None:
        match error:
            case RequestError():
                self._drop_input()
                self._refuse(error.message)
            case GenericError():
                logger.debug("Request %s of %s failed: %s", method, self, error)
                self._send(encode_failure(error))
            case _:
                logger.error("Internal error in request %s of %s", method, self, exc_info=error)
                text = f"internal error in {method}: {type(error).__name__}: {error}"
                self._send(encode_failure(GenericError(text)))

    def _send(self, answer: bytes) -> None:
        if not self._io.is_closing():
            self._io.write(answer + ETX)

    # Refusing and closing.

    def _refuse(self, text: str) -> None:
        """Answer the earlier requests, then this text, then close."""
        if self._state in (RunState.REFUSED, RunState.CLOSED):
            return
        logger.info("Refusing %s: %s", self, text)
        self._set_state(RunState.REFUSED)
        self._refusal = text
        self._splitter = MessageSplitter(0)
        self._start()
        if self._task is None:
            self._send_refusal()

    def _send_refusal(self) -> None:
        assert self._refusal is not None
        self._send(encode_refusal(self._refusal))
        if self._io.is_closing() or self._has_eof:
            self._close()
            return
        # Closing with unread input would reset the connection under a client that is still
        # sending, so only end our side, and let it come to reading the reason.
        self._reading_watch.end_writing()
        self._io.resume_reading()
        self._reading_watch.start_timer(self._server.limits.linger_s, self.abort)

    def _close(self) -> None:
        """Close once everything is written, or the client does not read on."""
        if self._state is not RunState.CLOSED:
            self._reading_watch.close()

    def close_if_idle(self) -> None:
        """As declared."""
        if self._task is None:
            self._close()

    # Bookkeeping.

    def _set_state(self, state: RunState) -> None:
        assert state in _NEXT[self._state], f"{self._state} -> {state}"
        self._state = state

    def _gone_future(self) -> asyncio.Future[None]:
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_future()
            if self._is_gone:
                self._gone.set_result(None)
        return self._gone

    def _set_gone(self) -> None:
        self._is_gone = True
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def _has_enough_waiting(self) -> bool:
        return (
            len(self._waiting) >= self._server.limits.requests_waiting_max
            or self._waiting_bytes >= self._server.limits.waiting_bytes_max
        )

    def _drop_input(self) -> None:
        self._splitter = MessageSplitter(0)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._count_held()

    def _count_held(self) -> None:
        held = self._splitter.pending_bytes + self._waiting_bytes
        self._server.held_bytes += held - self._counted_bytes
        is_more = held > self._counted_bytes
        self._counted_bytes = held
        if is_more and self._server.held_bytes > self._server.limits.held_bytes_max:
            self._drop_input()
            self._refuse("too many requests at once, try again later")


@contextlib.asynccontextmanager
async def serve_unix(
    path: str, mode: int, handler: Handler, limits: UnixLimits = UnixLimits()
) -> AsyncIterator[UnixServer]:
    """Serve requests on a Unix socket while the context is entered.

    Leaving it stops listening, lets running handlers end for the drain time, then cancels them.

    Raises:
        TransportError: the socket cannot be made; the text names it.
    """
    sock = _listen(path, mode)
    inode = os.stat(path).st_ino
    server = UnixServer(path, handler, limits)
    async with server.serving():
        listener = Listener(
            sock, f"on {path}", lambda client: server.adopt(client, lambda: Connection(server))
        )
        try:
            yield server
        finally:
            listener.close()
            _unlink_own(path, inode)


def _listen(path: str, mode: int) -> socket.socket:
    """Make the socket under another name of the same length, then rename it into place.

    So nobody connects before the mode is set, and a stale one is replaced in one step.
    """
    if len(os.fsencode(path)) > UNIX_SOCKET_PATH_BYTES_MAX:
        raise TransportError(
            f"socket path {path} is longer than {UNIX_SOCKET_PATH_BYTES_MAX} bytes"
        )
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, "~" + name[1:])
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        remove_if_exists(temporary)
        sock.bind(temporary)
        give_to(temporary, os.geteuid(), os.stat(directory).st_gid)
        os.chmod(temporary, mode)
        sock.listen(_BACKLOG)
        os.rename(temporary, path)
    except OSError as err:
        sock.close()
        raise TransportError(f"cannot listen on {path}: {err.strerror}") from err
    return sock


def _unlink_own(path: str, inode: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        if os.stat(path).st_ino == inode:
            os.unlink(path)


logger = logging.getLogger(__name__)
