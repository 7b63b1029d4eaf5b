"""A job process as LuxiD knows it, from its being ready to the end of their talk.

Source: `ganeti.protocol.job_start` for what is said.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from ganeti.base.errors import ProtocolError, TransportError
from ganeti.protocol.framing import ETX, MessageSplitter
from ganeti.protocol.job_start import (
    MESSAGE_BYTES_MAX,
    Assign,
    Confirm,
    Copied,
    Copy,
    Dialog,
    Message,
    Named,
    Ready,
)

logger = logging.getLogger(__name__)

ANSWER_TIMEOUT_S: Final = 30.0  # luxi.json, "job_process": timeout_seconds
_READ_BYTES: Final = 65536

# Sends a version of a job file, perhaps after a while; answers (names of the other candidates, who
# has it now).
Carry = Callable[[bytes, float], Awaitable[tuple[tuple[str, ...], tuple[str, ...]]]]


class ProcessGoneError(TransportError):
    """A job process ended, or hangs, before it had its job."""

    wire_name = "GenericError"


class JobProcess:
    """One process; used up by one job.

    Attributes:
        pid: its number; 0 until it or the template has told.
        livelock: its lock file; empty until it is ready.
        has_job: whether it was told to run one.
        is_gone: whether it has ended.
    """

    def __init__(self, stream: socket.socket) -> None:
        self.pid = 0
        self.livelock = ""
        self.has_job = False
        self.is_gone = False
        self._stream = stream
        self._dialog = Dialog("luxid")
        self._splitter = MessageSplitter(MESSAGE_BYTES_MAX)

    async def wait_ready(self) -> None:
        """Return once it holds its lock file and waits for a job.

        Raises:
            ProcessGoneError: it ended, or hangs.
        """
        ready = await self._hear()
        assert isinstance(ready, Ready)
        self.pid = ready.process_id
        self.livelock = ready.livelock

    async def assign(self, job_id: int) -> str:
        """Give it its job; returns the name of its lock file.

        Raises:
            ProcessGoneError: it is not there any more.
        """
        await self._say(Assign(job_id))
        named = await self._hear()
        assert isinstance(named, Named)
        self.livelock = named.livelock
        return named.livelock

    async def confirm(self, confirm: Confirm) -> None:
        """Let it run.

        Raises:
            ProcessGoneError: it is not there any more; it has not started.
        """
        self.has_job = True
        await self._say(confirm)

    async def serve_copies(self, carry: Carry) -> None:
        """Carry versions of its job file to the candidates until it hangs up."""
        try:
            while True:
                copy = await self._hear(timeout_s=None)
                assert isinstance(copy, Copy)
                others, reached = await carry(copy.content.encode(), copy.wait_s)
                await self._say(Copied(others, reached))
        except ProcessGoneError:
            logger.debug("Job process %s hung up", self.pid)
        finally:
            self._stream.close()  # if it is us who stop, it goes on alone

    def drop(self) -> None:
        """Hang up: a process that was not confirmed ends by itself."""
        self._stream.close()

    async def _say(self, message: Message) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await loop.sock_sendall(self._stream, self._dialog.send(message) + ETX)
        except (OSError, TimeoutError) as err:
            raise ProcessGoneError(f"job process {self.pid} is gone: {err}") from err

    async def _hear(self, timeout_s: float | None = ANSWER_TIMEOUT_S) -> Message:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    chunk = await loop.sock_recv(self._stream, _READ_BYTES)
                    if not chunk:
                        raise ProcessGoneError(f"job process {self.pid} ended")
                    for data in self._splitter.feed(chunk):
                        return self._dialog.receive(data)
        except TimeoutError as err:
            raise ProcessGoneError(f"job process {self.pid} does not answer") from err
        except (OSError, ProtocolError) as err:
            raise ProcessGoneError(f"job process {self.pid} is gone: {err}") from err
