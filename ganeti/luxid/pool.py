"""Keeps a few job processes ahead of need: exec'd, imported, lock file held, blocked on us.

Each is for exactly one job.  A process is an exec of its own interpreter; it leads its own session,
so that it outlives us, and has nothing of ours but one socket.

Source: ARCHITECTURE, "The life of a job".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec

import ganeti
from ganeti.base.errors import GenericError, ProtocolError, TransportError
from ganeti.base.paths import Paths
from ganeti.luxid.bundle import Bundle
from ganeti.luxid.tasks import Tasks
from ganeti.protocol.framing import ETX, MessageSplitter
from ganeti.protocol.job_start import (
    MESSAGE_BYTES_MAX,
    WARM_LOCK_PREFIX,
    Assign,
    Confirm,
    Copied,
    Copy,
    Dialog,
    Message,
    Named,
    Ready,
)
from ganeti.system import files, process
from ganeti.system.exits import ExitWatcher

logger = logging.getLogger(__name__)

WARM_DEFAULT: Final = 4  # enough for bursts of that many jobs to start at once
WARM_LOW: Final = 2
ANSWER_TIMEOUT_S: Final = 30.0  # luxi.json, "job_process": timeout_seconds
STARTING_MAX: Final = 4  # processes that import at the same time
FAILURES_TOLERATED: Final = 3  # in a row, before we say that none can be started
RETRY_DELAY_S_MAX: Final = 60.0
REFILL_DELAY_S: Final = 0.05  # leave the processor to the job that was just started
_READ_BYTES: Final = 65536


# Sends a version of a job file, perhaps after a while; answers (names of the other candidates, who
# has it now).
Carry = Callable[[bytes, float], Awaitable[tuple[tuple[str, ...], tuple[str, ...]]]]


class ProcessGoneError(TransportError):
    """A job process ended, or hangs, before it had its job."""

    wire_name = "GenericError"


class Child(Protocol):
    """What is needed of a child process."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit status if it has ended, and collect it."""


def launch_argv() -> list[str]:
    """Return the command line of a job process."""
    return _job_python("launch.py")


def pack_argv() -> list[str]:
    """Return the command line that makes the bundle of modules for job processes."""
    return _job_python("pack.py")


def _job_python(script: str) -> list[str]:
    package = os.path.dirname(os.path.abspath(ganeti.__file__))
    libraries = os.path.dirname(os.path.dirname(os.path.abspath(msgspec.__file__)))
    directories = dict.fromkeys([os.path.dirname(package), libraries, *_library_directories()])
    path = os.path.join(package, "jobexec", script)
    return [sys.executable, "-I", "-S", path, ":".join(directories)]


def _library_directories() -> list[str]:
    """Return the directories of installed packages: what ``-S`` leaves out."""
    return [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]


class JobProcess:
    """One process; used up by one job."""

    def __init__(self, child: Child, stream: socket.socket) -> None:
        self.pid = child.pid
        self.livelock = ""
        self.is_gone = False
        self._child = child
        self._stream = stream
        self._dialog = Dialog("luxid")
        self._splitter = MessageSplitter(MESSAGE_BYTES_MAX)

    async def wait_ready(self) -> None:
        """Return once it holds its lock file and waits for a job."""
        ready = await self._hear()
        assert isinstance(ready, Ready)
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

    def kill(self) -> None:
        """End it by force."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> int | None:
        """Collect its exit status if it has ended."""
        return self._child.poll()

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


class Pool:
    """The warm processes.

    Args:
        size: how many to keep.
        tasks: the processes are started there.
        exits: tells when processes end.
    """

    def __init__(self, paths: Paths, size: int, tasks: Tasks, exits: ExitWatcher) -> None:
        self._paths = paths
        self._size = size
        self._tasks = tasks
        self._exits = exits
        self._warm: deque[JobProcess] = deque()
        self._starting = 0
        self._wanted: deque[asyncio.Future[JobProcess]] = deque()
        self._closed = False
        self._failures = 0
        self.argv = launch_argv()
        self._log = os.open(
            f"{paths.log_dir}/jobs.log",
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC,
            0o640,
        )
        self._bundle = Bundle(pack_argv(), self._log, exits)
        self._bundle.make()

    async def take(self) -> JobProcess:
        """Return a process that waits for its job.

        Raises:
            ProcessGoneError: none can be started.
        """
        while self._warm:
            candidate = self._warm.popleft()
            self._refill_soon()
            if not candidate.is_gone:
                return candidate
        future: asyncio.Future[JobProcess] = asyncio.get_running_loop().create_future()
        self._wanted.append(future)
        self.fill()
        try:
            return await future
        finally:
            if future in self._wanted:
                self._wanted.remove(future)

    def fill(self) -> None:
        """Start as many processes as are missing, a few at a time."""
        missing = self._size + len(self._wanted) - len(self._warm) - self._starting
        for _ in range(min(missing, STARTING_MAX - self._starting)):
            if not self._closed:
                self._starting += 1
                self._tasks.create_task(self._start_one(), name="start a job process")

    def close(self) -> None:
        """Let the warm processes go.  May be called again."""
        while self._warm:
            self._warm.popleft().drop()
        if not self._closed:
            self._bundle.close()
            os.close(self._log)
        self._closed = True

    def _on_exit(self, ended: JobProcess) -> None:
        ended.reap()
        ended.is_gone = True
        self._remove_lock_of(ended.pid)
        if ended in self._warm:
            logger.warning("Warm job process %s ended", ended.pid)
            self._warm.remove(ended)
            ended.drop()
            self._refill_soon()

    def _remove_lock_of(self, pid: int) -> None:
        """Remove the lock file of a process that ended before it had a job."""
        for name in os.listdir(self._paths.livelock_dir):
            if name.lstrip(".").startswith(f"{WARM_LOCK_PREFIX}_{pid}_"):
                files.remove_if_exists(os.path.join(self._paths.livelock_dir, name))

    def _refill_soon(self) -> None:
        """Make up for a process taken: at once if few are left, else when that job had its turn."""
        if len(self._warm) < WARM_LOW:
            self.fill()
        else:
            asyncio.get_running_loop().call_later(REFILL_DELAY_S, self.fill)

    async def _start_one(self) -> None:
        try:
            started = await self._exec()
            await started.wait_ready()
        except GenericError as err:
            self._starting -= 1
            self._on_failure(err)
            return
        self._starting -= 1
        self._failures = 0
        if self._closed:
            started.drop()
            return
        while self._wanted:
            future = self._wanted.popleft()
            if not future.done():
                future.set_result(started)
                break
        else:
            self._warm.append(started)
        self.fill()

    def _on_failure(self, error: GenericError) -> None:
        """Try again, at first at once, then ever more rarely; tell all who wait by then."""
        logger.warning("A job process did not start: %s", error)
        self._failures += 1
        if self._failures < FAILURES_TOLERATED:
            self.fill()
            return
        while self._wanted:
            future = self._wanted.popleft()
            if not future.done():
                future.set_exception(ProcessGoneError(f"no job process can be started: {error}"))
        delay_s = min(RETRY_DELAY_S_MAX, 2.0 ** (self._failures - FAILURES_TOLERATED))
        asyncio.get_running_loop().call_later(delay_s, self.fill)

    async def _exec(self) -> JobProcess:
        arguments, passed = self._bundle.for_process()
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            try:
                child = process.spawn(
                    [*self.argv, *arguments],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    stderr=self._log,
                    pass_fds=passed,
                )
            except BaseException:
                ours.close()
                raise
        started = JobProcess(child, ours)
        self._exits.watch(child.pid, lambda: self._on_exit(started))
        return started
