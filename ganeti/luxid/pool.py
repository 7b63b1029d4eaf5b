"""Keeps a few job processes ahead of need: lock file held, blocked on us, each for exactly one job.

Source: ARCHITECTURE, "The life of a job".
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.luxid.job_process import JobProcess, ProcessGoneError
from ganeti.luxid.tasks import Tasks
from ganeti.luxid.template import Template, launch_argv
from ganeti.protocol.job_start import WARM_LOCK_PREFIX
from ganeti.system import files
from ganeti.system.exits import ExitWatcher

logger = logging.getLogger(__name__)

WARM_DEFAULT: Final = 4  # enough for bursts of that many jobs to start at once
WARM_LOW: Final = 2
STARTING_MAX: Final = 8
FAILURES_TOLERATED: Final = 3  # in a row, before we say that none can be started
RETRY_DELAY_S_MAX: Final = 60.0
REFILL_DELAY_S: Final = 0.05  # leave the processor to the job that was just started


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
        self._warm: deque[JobProcess] = deque()
        self._starting = 0
        self._wanted: deque[asyncio.Future[JobProcess]] = deque()
        self._closed = False
        self._failures = 0
        self._log = os.open(
            f"{paths.log_dir}/jobs.log",
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC,
            0o640,
        )
        self._template = Template(launch_argv(), self._log, exits, self._on_exit, self._on_lost)

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
        self._drop_warm()
        if not self._closed:
            self._template.close()
            os.close(self._log)
        self._closed = True

    def _drop_warm(self) -> None:
        while self._warm:
            self._warm.popleft().drop()

    def _on_lost(self) -> None:
        """Nobody tells us any more when these end: have others from the next template."""
        self._drop_warm()
        self._refill_soon()

    def _on_exit(self, ended: JobProcess) -> None:
        if not ended.has_job:
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
            started = await self._start()
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

    async def _start(self) -> JobProcess:
        started = self._template.fork()
        try:
            await started.wait_ready()
        except BaseException:
            started.drop()
            raise
        return started

    def _on_failure(self, error: GenericError) -> None:
        """Try again, at first at once, then ever more rarely; tell all who wait by then."""
        logger.warning("A job process did not start: %s", error)
        self._failures += 1
        if self._failures < FAILURES_TOLERATED:
            self.fill()
            return
        self._template.close()  # perhaps another one does better
        while self._wanted:
            future = self._wanted.popleft()
            if not future.done():
                future.set_exception(ProcessGoneError(f"no job process can be started: {error}"))
        delay_s = min(RETRY_DELAY_S_MAX, 2.0 ** (self._failures - FAILURES_TOLERATED))
        asyncio.get_running_loop().call_later(delay_s, self.fill)
