"""Serves requests on a Unix stream socket: LUXI and WConfD.

What happens on a connection is told in `unix_connection`.  Bounds: size of a message, requests
waiting on one connection (then it is not read from), bytes of unfinished messages of all
connections together, number of connections, and the time a peer may leave an answer unread.

Source: luxi.json and wconfd.json, "transport".
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import TransportError
from ganeti.base.paths import UNIX_SOCKET_PATH_BYTES_MAX
from ganeti.protocol.envelope import Request
from ganeti.transport.unix_connection import Connection

_READ_BYTES: Final = 256 * 1024  # as much as asyncio itself reads at once
_BACKLOG: Final = 1024  # bursts of clients wait in the kernel, whose own limit is 4096

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


class UnixServer:
    """A listening socket and its connections; made by `serve_unix`."""

    def __init__(
        self, path: str, handler: Handler, limits: UnixLimits, tasks: asyncio.TaskGroup
    ) -> None:
        self.path = path
        self.handler = handler
        self.limits = limits
        self.connections: set[Connection] = set()
        self.read_buffer = memoryview(bytearray(_READ_BYTES))
        self.held_bytes = 0
        self.is_closing = False
        self._tasks = tasks
        self._running: set[asyncio.Task[None]] = set()

    @property
    def is_busy(self) -> bool:
        """True while a request is being answered."""
        return bool(self._running)

    def add(self, connection: Connection) -> None:
        """Count a new connection."""
        self.connections.add(connection)

    def remove(self, connection: Connection) -> None:
        """Forget a connection."""
        self.connections.discard(connection)

    def start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Start the task that answers one connection."""
        task = self._tasks.create_task(work, name=f"answer {self.path}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def finish(self) -> None:
        """Let running requests end within the drain time, then cancel them; close everything."""
        self.is_closing = True
        for connection in list(self.connections):
            connection.close_if_idle()
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=self.limits.drain_s)
            for task in late:
                task.cancel()
        for connection in list(self.connections):
            connection.abort()


@contextlib.asynccontextmanager
async def serve_unix(
    path: str, mode: int, handler: Handler, limits: UnixLimits = UnixLimits()
) -> AsyncIterator[UnixServer]:
    """Serve requests on a Unix socket while the context is entered.

    Leaving it stops listening, lets running handlers end for the drain time, then cancels them.

    Raises:
        TransportError: the socket cannot be made; the text names it.
    """
    loop = asyncio.get_running_loop()
    sock = _listen(path, mode)
    inode = os.stat(path).st_ino
    failure: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        server = UnixServer(path, handler, limits, tasks)
        listener = await loop.create_unix_server(
            lambda: Connection(server), sock=sock, backlog=_BACKLOG
        )
        try:
            yield server
        except Exception as err:  # noqa: BLE001 - raised below, not wrapped into a group
            failure = err
        finally:
            listener.close()
            _unlink_own(path, inode)
            await server.finish()
    if failure is not None:
        raise failure


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
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        sock.bind(temporary)
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
