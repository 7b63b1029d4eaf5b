"""One job process as LuxiD sees it: the way to it, and what is said there.

Source: luxi.json, "job_process"; ARCHITECTURE, "The life of a job".
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from ganeti.base.errors import ProtocolError, TransportError
from ganeti.protocol import job_start
from ganeti.protocol.envelope import ETX, MessageSplitter

logger = logging.getLogger(__name__)

ANSWER_TIMEOUT_S: Final = 30.0  # luxi.json, "job_process": timeout_seconds
_READ_BYTES: Final = 65536

# Sends a version of a job file, waiting so long; answers (names of the other candidates, names of
# the candidates that have it now).
Bring = Callable[[bytes, float], Awaitable[tuple[tuple[str, ...], tuple[str, ...]]]]


class ProcessGoneError(TransportError):
    """A job process ended, or hangs, before it had its job."""

    wire_name = "GenericError"


class JobProcess:
    """One process; used up by one job.

    Attributes:
        pid: its number; 0 until it or the template has told.
        livelock: its lock file; empty until it is ready.
        has_job: whether it was told to run one.
        is_orphan: the template ended before it had one, perhaps before it was forked.
        is_gone: whether it has ended.
    """

    def __init__(self, stream: socket.socket) -> None:
        self.pid = 0
        self.livelock = ""
        self.has_job = False
        self.is_orphan = False
        self.is_gone = False
        self._line = _Line(stream)
        self._dialog = job_start.Dialog("luxid")

    async def wait_ready(self) -> None:
        """Return once it holds its lock file and waits for a job.

        Raises:
            ProcessGoneError: it ended, or hangs.
        """
        ready = await self._hear()
        assert isinstance(ready, job_start.Ready)
        self.pid = ready.process_id
        self.livelock = ready.livelock

    async def assign(self, job_id: int, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        """Give it its job; its lock file has its final name then.

        Raises:
            ProcessGoneError: it is not there any more, or hangs.
        """
        await self._say(job_start.Assign(job_id))
        named = await self._hear(timeout_s)
        assert isinstance(named, job_start.Named)
        self.livelock = named.livelock

    async def confirm(self, confirm: job_start.Confirm) -> None:
        """Let it run.

        Raises:
            ProcessGoneError: it is not there any more; it has not started.
        """
        self.has_job = True
        await self._say(confirm)

    async def serve_copies(self, bring: Bring, spread: Callable[[bytes], None]) -> None:
        """Bring versions of its job file to the candidates until it hangs up."""
        try:
            while True:
                copy = await self._hear(timeout_s=None)
                if isinstance(copy, job_start.Progress):
                    spread(copy.content.encode())
                    continue
                assert isinstance(copy, job_start.Copy)
                others, reached = await bring(copy.content.encode(), copy.wait_s)
                await self._say(job_start.Copied(others, reached))
        except ProcessGoneError:
            logger.debug("Job process %s hung up", self.pid)
        finally:
            self._line.close()  # if we are stopping, it goes on alone

    def drop(self) -> None:
        """Hang up: a process that was not confirmed ends by itself."""
        self._line.close()

    async def _say(self, message: job_start.Message) -> None:
        try:
            await self._line.send(self._dialog.send(message) + ETX)
        except (OSError, TimeoutError) as err:
            raise ProcessGoneError(f"job process {self.pid} is gone: {err}") from err

    async def _hear(self, timeout_s: float | None = ANSWER_TIMEOUT_S) -> job_start.Message:
        try:
            return self._dialog.receive(await self._line.receive(timeout_s))
        except EOFError as err:
            raise ProcessGoneError(f"job process {self.pid} ended") from err
        except TimeoutError as err:
            raise ProcessGoneError(f"job process {self.pid} does not answer") from err
        except (OSError, ProtocolError) as err:
            raise ProcessGoneError(f"job process {self.pid} is gone: {err}") from err


class _Line:
    """Our end of the stream to one process.

    What comes is taken as it comes: a wait for each message by itself would register the
    descriptor with the loop, and take it out again, each time.
    """

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._splitter = MessageSplitter(job_start.MESSAGE_BYTES_MAX)
        self._heard: deque[bytes] = deque()
        self._fault: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._loop.add_reader(stream, self._take)

    def close(self) -> None:
        """Hang up.  May be called again."""
        if self._stream.fileno() >= 0:
            self._end(EOFError())
            self._stream.close()

    async def send(self, data: bytes) -> None:
        """Send a message.

        Raises:
            OSError: the other side is gone.
            TimeoutError: it does not read.
        """
        try:
            sent = self._stream.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await self._loop.sock_sendall(self._stream, data[sent:])

    async def receive(self, timeout_s: float | None) -> bytes:
        """Return the next message, of which one is awaited at a time.

        Raises:
            TimeoutError: none came within that time.
            EOFError: the stream has ended, or was closed here.
            OSError, ProtocolError: it is broken.
        """
        if not self._heard and self._fault is None:
            await self._wait(timeout_s)
        if self._heard:
            return self._heard.popleft()
        raise self._fault or TimeoutError

    async def _wait(self, timeout_s: float | None) -> None:
        """Return as soon as there is a message or a fault, or the time is over."""
        waiter = self._waiter = self._loop.create_future()
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, self._wake)
        try:
            await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()

    def _take(self) -> None:
        try:
            chunk = self._stream.recv(_READ_BYTES)
            self._heard += self._splitter.feed(chunk)
        except BlockingIOError:
            return
        except (OSError, ProtocolError) as err:
            self._end(err)
        else:
            if not chunk:
                self._end(EOFError())
        if self._heard or self._fault is not None:
            self._wake()

    def _end(self, fault: Exception) -> None:
        self._loop.remove_reader(self._stream)
        self._fault = self._fault or fault
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
