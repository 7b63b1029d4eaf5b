"""Asks a server on a Unix socket from an event loop; calls on one connection are pipelined.

Answers come in the order of the requests, so a call that waits for something on the other side
delays those behind it: give such calls a client of their own.

Source: luxi.json and wconfd.json, "transport".
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Sequence
from typing import Final, Self

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.protocol.envelope import RefusedError, decode_response, encode_request
from ganeti.protocol.framing import ETX, MessageSplitter
from ganeti.transport.unix_client import (
    MESSAGE_BYTES_MAX,
    AnswerTimeoutError,
    ConnectionLostError,
    cannot_connect,
)

_BACKLOG_RETRY_S: Final = 0.02


class _Connection(asyncio.Protocol):
    """Matches answers to requests by their order."""

    def __init__(self, path: str, message_bytes_max: int) -> None:
        self._path = path
        self._splitter = MessageSplitter(message_bytes_max)
        self._asked: deque[asyncio.Future[bytes]] = deque()
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
            if not self._asked:
                self.fail(ProtocolError(f"{self._path} answered what was not asked"))
                return
            future = self._asked.popleft()
            if not future.done():  # else the caller gave up
                future.set_result(message)

    def eof_received(self) -> bool:
        self.fail(ConnectionLostError(f"{self._path} closed the connection before it answered"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        reason = exc or "closed"
        self.fail(ConnectionLostError(f"lost connection to {self._path}: {reason}"))

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        """Send a request; the future gets its answer."""
        assert self._transport is not None
        future = asyncio.get_running_loop().create_future()
        self._asked.append(future)
        self._transport.write(request + ETX)
        return future

    def fail(self, error: GenericError) -> None:
        """Give this error to all who wait, and close."""
        self.is_open = False
        while self._asked:
            future = self._asked.popleft()
            if not future.done():
                future.set_exception(error)
        if self._transport is not None:
            self._transport.abort()


class AsyncUnixClient:
    """A connection that is opened on first use, and again after it broke."""

    def __init__(
        self,
        path: str,
        *,
        connect_timeout_s: float = 30.0,
        timeout_s: float = 180.0,
        version: int | None = None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self.path = path
        self._connect_timeout_s = connect_timeout_s
        self._timeout_s = timeout_s
        self._version = version
        self._message_bytes_max = message_bytes_max
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; calls under way fail, the next one opens a new one."""
        if self._connection is not None:
            self._connection.fail(ConnectionLostError(f"connection to {self.path} was closed"))
            self._connection = None

    async def call(
        self, method: str, args: Sequence[object], *, timeout_s: float | None = None
    ) -> object:
        """Ask and return the result; errors as of `UnixClient.call`.

        A call that times out takes the connection, and so the calls behind it, with it.
        """
        request = encode_request(method, args, self._version)
        answer = await self.exchange(request, timeout_s=timeout_s)
        try:
            return decode_response(answer, self._version)
        except RefusedError:
            self.close()  # as the server does
            raise

    async def exchange(self, request: bytes, *, timeout_s: float | None = None) -> bytes:
        """Send an encoded request and return the encoded answer; errors as of `call`."""
        connection = await self._connected()
        try:
            async with asyncio.timeout(self._timeout_s if timeout_s is None else timeout_s):
                return await connection.ask(request)
        except TimeoutError as err:
            error = AnswerTimeoutError(f"no answer from {self.path} in time")
            connection.fail(error)
            raise error from err

    async def _connected(self) -> _Connection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        async with self._connecting:
            if self._connection is None or not self._connection.is_open:
                self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> _Connection:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._connect_socket(sock)
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_unix_connection(
                lambda: _Connection(self.path, self._message_bytes_max), sock=sock
            )
        except TimeoutError as err:
            sock.close()
            raise cannot_connect(self.path, BlockingIOError()) from err
        except OSError as err:
            sock.close()
            raise cannot_connect(self.path, err) from err
        except BaseException:
            sock.close()
            raise
        return connection

    async def _connect_socket(self, sock: socket.socket) -> None:
        while True:
            try:
                sock.connect(self.path)
            except BlockingIOError:  # unix(7): the backlog is full; nothing tells of room in it
                await asyncio.sleep(_BACKLOG_RETRY_S)
            else:
                return
