"""Asks a server on a Unix socket from an event loop, one request at a time.

Source: luxi.json and wconfd.json, "transport".
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.protocol.envelope import ETX, MessageSplitter
from ganeti.transport.unix_client import (
    MESSAGE_BYTES_MAX,
    AnswerTimeoutError,
    ConnectionLostError,
    cannot_connect,
)

_BACKLOG_RETRY_S: Final = 0.02


class _Connection(asyncio.Protocol):
    """One connection; it closes at the first error."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._splitter = MessageSplitter(MESSAGE_BYTES_MAX)
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self.is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        try:
            messages = self._splitter.feed(data)
        except ProtocolError as err:
            self.fail(err)
            return
        for message in messages:
            if self._answer is None or self._answer.done():
                self.fail(ProtocolError(f"{self._path} answered what was not asked"))
                return
            self._answer.set_result(message)

    def eof_received(self) -> bool:
        self.fail(ConnectionLostError(f"{self._path} closed the connection before it answered"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        reason = exc or "closed"
        self.fail(ConnectionLostError(f"lost connection to {self._path}: {reason}"))

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        """Send a request; the future gets its answer."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request + ETX)
        return self._answer

    def fail(self, error: GenericError) -> None:
        """Give this error to the caller that waits, and close."""
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        if self._transport is not None:
            self._transport.abort()


class AsyncUnixClient:
    """A connection that is opened on first use, and again after it broke.

    Answers carry no mark of their request, so requests of several tasks wait for their turn.
    """

    def __init__(self, path: str, *, connect_timeout_s: float, timeout_s: float) -> None:
        self.path = path
        self._connect_timeout_s = connect_timeout_s
        self._timeout_s = timeout_s
        self._connection: _Connection | None = None
        self._turn = asyncio.Lock()

    def close(self) -> None:
        """Close the connection; a request under way fails, the next one opens a new one."""
        if self._connection is not None:
            self._connection.fail(ConnectionLostError(f"connection to {self.path} was closed"))
            self._connection = None

    async def exchange(self, request: bytes) -> bytes:
        """Send an encoded request and return the encoded answer; errors as of `UnixClient.call`."""
        async with self._turn:
            try:
                return await self._exchange(request)
            except BaseException:  # a cancellation, too: the answer may still come
                self.close()
                raise

    async def _exchange(self, request: bytes) -> bytes:
        if self._connection is None or not self._connection.is_open:
            self._connection = await self._connect()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._connection.ask(request)
        except TimeoutError as err:
            raise AnswerTimeoutError(f"no answer from {self.path} in time") from err

    async def _connect(self) -> _Connection:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._connect_socket(sock)
            loop = asyncio.get_running_loop()
            return (await loop.create_unix_connection(lambda: _Connection(self.path), sock=sock))[1]
        except OSError as err:
            sock.close()
            cause = BlockingIOError() if isinstance(err, TimeoutError) else err
            raise cannot_connect(self.path, cause) from err
        except BaseException:
            sock.close()
            raise

    async def _connect_socket(self, sock: socket.socket) -> None:
        while True:
            try:
                sock.connect(self.path)
            except BlockingIOError:  # unix(7): the backlog is full; nothing tells of room in it
                await asyncio.sleep(_BACKLOG_RETRY_S)
            else:
                return
