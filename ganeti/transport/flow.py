"""The parts that the servers on stream sockets share: `unix_server` and `http_server`.

A `ReadingWatch` waits for a peer that does not read, with a bound on the data kept for it and on
the time; `Unread` bounds what is kept for all peers together.  `ServedConnection` and
`StreamServer` are the base classes: an error in the work of one connection drops that connection
and no other, and a server that stops lets running requests end.  `pump` carries bytes both ways
between two ends of a stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Final, Generic, Protocol, TypeVar

from ganeti.transport.accepting import WaitingT

logger = logging.getLogger(__name__)

PIECE_BYTES: Final = 1 << 16  # carried at once


class ReadingWatch:
    """Pauses the writer to a slow peer, and drops a peer that reads too little for too long.

    Args:
        read_bytes_min: so much it has to read in this time, of what is kept for it.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        unread_s_max: float,
        peer: object,
        *,
        read_bytes_min: int = 1,
    ) -> None:
        self._transport = transport
        self._unread_s_max = unread_s_max
        self._read_bytes_min = read_bytes_min
        self._peer = peer
        self._writable: asyncio.Future[None] | None = None
        # Most timers are put off again and again: the loop hears only of one that rings sooner.
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._callback: Callable[[], None] | None = None
        self._unread_bytes = 0

    @property
    def is_paused(self) -> bool:
        """True while `drain` would wait."""
        return self._writable is not None

    def pause(self) -> None:
        """Make `drain` wait: the transport's buffer is full."""
        self._writable = asyncio.get_running_loop().create_future()
        if not self._transport.is_closing():
            self._watch()

    def resume(self) -> None:
        """Let `drain` return: the peer has read."""
        if self._writable is None:
            return
        if not self._transport.is_closing():
            self.stop()
        if not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    async def drain(self) -> None:
        """Return once more may be written, or the peer is gone."""
        if self._writable is not None:
            await self._writable

    def close(self) -> None:
        """Close the transport once all is written, or the peer does not read on.

        To be called after `drain`, so that little is left to be written.  A closed TLS transport
        answers no questions any more, but ends by itself within asyncio's limit for its farewell.
        """
        if not self._transport.is_closing():
            self._transport.close()
            self.start_timer(self._unread_s_max, self._transport.abort)

    def end_writing(self) -> None:
        """Tell the peer that nothing more comes, while it may go on sending; TLS cannot do that."""
        if self._transport.can_write_eof():
            try:
                self._transport.write_eof()
            except OSError:  # the peer was gone before the last bytes
                self._transport.abort()

    def lost(self) -> None:
        """Stop waiting: the connection is gone."""
        self.stop()
        self._drop_timer()
        self.resume()

    def start_timer(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back after so long, instead of anything set before."""
        loop = asyncio.get_running_loop()
        self._due = loop.time() + seconds
        self._callback = callback
        if self._timer is None or self._timer.when() > self._due:
            self._drop_timer()
            self._timer = loop.call_at(self._due, self._ring)

    def stop(self) -> None:
        """Stop the clock."""
        self._callback = None

    def _ring(self) -> None:
        """Call back, unless that was put off since the loop was asked: then ask it again."""
        self._timer = None
        loop = asyncio.get_running_loop()
        if self._callback is not None and loop.time() < self._due:
            self._timer = loop.call_at(self._due, self._ring)
        elif self._callback is not None:
            callback, self._callback = self._callback, None
            callback()

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        self._unread_bytes = self._transport.get_write_buffer_size()
        self.start_timer(self._unread_s_max, self._check)

    def _check(self) -> None:
        read_bytes = self._unread_bytes - self._transport.get_write_buffer_size()
        if read_bytes >= self._read_bytes_min:
            self._watch()
            return
        logger.warning(
            "Dropping %s: it has not read its answer for %g s", self._peer, self._unread_s_max
        )
        self._transport.abort()


class Unread(Generic[WaitingT]):
    """The large answers on their way to clients; equal ones are kept once.

    Where they are too large together, the client that has taken nothing for longest is to go, of
    the origin that has most.  A single answer may have any size.

    Args:
        bytes_max: of all together.
        origin_bytes_max: of those to one origin.
    """

    def __init__(self, bytes_max: int, origin_bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._origin_bytes_max = origin_bytes_max
        self._answers: dict[WaitingT, bytes] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def add(self, client: WaitingT, answer: bytes) -> bytes:
        """Keep the answer to a client; returns an equal one that is kept already, if there is."""
        kept = next((each for each in self._answers.values() if each == answer), answer)
        self._answers[client] = kept
        return kept

    def discard(self, client: WaitingT) -> None:
        """Forget the answer to a client: it is read, or the client is gone."""
        self._answers.pop(client, None)

    def one_too_many(self, origin: str) -> WaitingT | None:
        """Return the client that is to go next after one of this origin came; None if none is."""
        of_each: dict[str, dict[int, bytes]] = {}
        for client, answer in self._answers.items():
            of_each.setdefault(client.origin, {})[id(answer)] = answer
        of_all = {key: answer for found in of_each.values() for key, answer in found.items()}
        if _are_too_large(of_all, self._bytes_max):
            origin = max(of_each, key=lambda each: sum(map(len, of_each[each].values())))
        elif not _are_too_large(of_each.get(origin, {}), self._origin_bytes_max):
            return None
        clients = (client for client in self._answers if client.origin == origin)
        return min(clients, key=lambda client: client.since)


def _are_too_large(answers: Mapping[int, bytes], bytes_max: int) -> bool:
    return len(answers) > 1 and sum(map(len, answers.values())) > bytes_max


@contextlib.contextmanager
def canceled_by(event: asyncio.Future[None]) -> Iterator[None]:
    """Cancel the current task inside this block once something has happened."""
    task = asyncio.current_task()
    assert task is not None

    def cancel(_event: asyncio.Future[None]) -> None:
        task.cancel()

    event.add_done_callback(cancel)
    try:
        yield
    finally:
        event.remove_done_callback(cancel)


class ServedConnection(asyncio.BaseProtocol):
    """A connection of a server, from `begin`, which its ``connection_made`` calls first."""

    _io: asyncio.Transport
    _reading_watch: ReadingWatch

    def begin(
        self, transport: asyncio.BaseTransport, unread_s_max: float, *, read_bytes_min: int = 1
    ) -> None:
        """Take the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._io = transport
        self._reading_watch = ReadingWatch(
            transport, unread_s_max, self, read_bytes_min=read_bytes_min
        )

    def pause_writing(self) -> None:
        """Stop answering: the client does not read."""
        self._reading_watch.pause()

    def resume_writing(self) -> None:
        """Go on answering."""
        self._reading_watch.resume()

    def abort(self) -> None:
        """Drop the client at once."""
        self._io.abort()

    @abstractmethod
    def close_if_idle(self) -> None:
        """Close the connection, unless a request of it is being answered."""

    async def contained(self, work: Coroutine[object, object, None]) -> None:
        """Do the work of this connection; an error in it drops this connection and no other."""
        try:
            await work
        except Exception:
            logger.exception("Internal error, dropping %s", self)
            self.abort()


ConnectionT = TypeVar("ConnectionT", bound=ServedConnection)


class StreamServer(Generic[ConnectionT]):
    """The connections of a listening socket, and the tasks that answer them."""

    def __init__(self, name: str, drain_s: float) -> None:
        self.name = name
        self.connections: set[ConnectionT] = set()
        self.held_bytes = 0  # of requests that are not answered yet
        self.is_closing = False
        self._drain_s = drain_s
        self._tasks: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()

    @property
    def requests_running(self) -> int:
        """How many requests are being answered."""
        return len(self._running)

    def start(
        self, connection: ConnectionT, work: Coroutine[object, object, None]
    ) -> asyncio.Task[None]:
        """Start the task that answers one connection."""
        assert self._tasks is not None, "nothing is served outside of serving()"
        task = self._tasks.create_task(connection.contained(work), name=f"answer {self.name}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def adopt(self, sock: socket.socket, connection: Callable[[], ConnectionT]) -> None:
        """Serve a client that was accepted."""
        assert self._tasks is not None, "nothing is served outside of serving()"
        self._tasks.create_task(self._adopt(sock, connection), name=f"client {self.name}")

    async def _adopt(self, sock: socket.socket, connection: Callable[[], ConnectionT]) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(connection, sock)
        except Exception:
            logger.exception("Internal error with a new client %s", self.name)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve while entered; an error of the block leaves as it is, not wrapped into a group.

        At the end running requests may go on for the drain time, then they are cancelled, and
        everything is closed.
        """
        failure: Exception | None = None
        async with asyncio.TaskGroup() as self._tasks:
            try:
                yield
            except Exception as err:  # noqa: BLE001 - raised below
                failure = err
            finally:
                await self._finish()
        if failure is not None:
            raise failure

    async def _finish(self) -> None:
        self.is_closing = True
        for connection in list(self.connections):
            connection.close_if_idle()
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=self._drain_s)
            for task in late:
                task.cancel()
        for connection in list(self.connections):
            connection.abort()


# Carrying bytes.  Nothing is read from one end before the other has taken what came before.


class End(Protocol):
    """One end."""

    async def read(self) -> bytes:
        """Return some bytes; none at the end."""

    async def write(self, data: bytes) -> None:
        """Write bytes, and wait until they are taken."""


class StreamEnd:
    """An end made of a reader and the functions that write."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        write: Callable[[bytes], None],
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        self._reader = reader
        self._write = write
        self._drain = drain

    async def read(self) -> bytes:
        """As declared."""
        try:
            return await self._reader.read(PIECE_BYTES)
        except OSError:  # reset by the peer
            return b""

    async def write(self, data: bytes) -> None:
        """As declared."""
        self._write(data)
        await self._drain()


async def pump(one: End, other: End) -> None:
    """Carry bytes until one end is over; what it sent before has been written then."""
    tasks = [
        asyncio.ensure_future(_carry(source, target))
        for source, target in ((one, other), (other, one))
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for each in ended:
        if isinstance(each, Exception) and not isinstance(each, OSError):
            raise each


async def _carry(source: End, target: End) -> None:
    while data := await source.read():
        await target.write(data)
