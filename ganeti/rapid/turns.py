"""Turns, for what the master does for anybody who asks, and so does one thing at a time of.

Checks of passwords take turns, and so do jobs that need no right (`OpenJobs`): nobody fills the
queue with them.  A question that the server asks by a job is asked once: those who ask meanwhile
get the same answer, and the job is archived when it was read.  A job that the client reads itself
begins when the one before has ended; who wants the same as that one gets its id.

Source: rapi.json, "auth".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final

from msgspec import Raw

from ganeti.base.errors import GenericError
from ganeti.base.json import dumps, loads_as
from ganeti.protocol.rapi.jobs import Wire
from ganeti.protocol.rapi.values import HttpProblem

logger = logging.getLogger(__name__)

JOB_S_MAX: Final = 60.0  # that a client waits for one
TURN_S_MAX: Final = 30.0  # of a job that a client reads itself
_POLL_S: Final = 30
_FINAL: Final = frozenset({"success", "error", "canceled"})
_JOBS_WAITING_MAX: Final = 32  # of one origin

Ask = Callable[[str, list[Any]], Awaitable[Raw]]


class Waiting:
    """The requests that wait, so many of each origin.

    Args:
        what: is waited for.
    """

    def __init__(self, what: str, origin_max: int) -> None:
        self._what = what
        self._origin_max = origin_max
        self._of_origin: Counter[str] = Counter()

    @contextlib.contextmanager
    def one(self, origin: str) -> Iterator[None]:
        """Count a request in a block in which it waits.

        Raises:
            HttpProblem: 503: there are too many.
        """
        if self._of_origin[origin] >= self._origin_max:
            count, what = self._origin_max, self._what
            text = f"{count} requests from your address wait for {what} already; try again"
            raise HttpProblem(503, text)
        self._of_origin[origin] += 1
        try:
            yield
        finally:
            self._of_origin[origin] -= 1
            if not self._of_origin[origin]:
                del self._of_origin[origin]


class Turns:
    """One turn at a time; origins in a circle, and within one in the order in which they came.

    Args: as of `Waiting`.
    """

    def __init__(self, what: str, origin_max: int) -> None:
        self._is_taken = False
        self._count = Waiting(what, origin_max)
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, origin: str) -> AsyncIterator[None]:
        """Have the turn for a block.

        Raises:
            HttpProblem: 503: too many of the origin wait already.
        """
        await self.take(origin)
        try:
            yield
        finally:
            self.pass_on()

    async def take(self, origin: str) -> None:
        """Wait for the turn, and have it until it is passed on; errors as of `turn`."""
        if self._is_taken:
            with self._count.one(origin):
                await self._wait(origin)
        self._is_taken = True

    async def _wait(self, origin: str) -> None:
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(origin, deque()).append(called)
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():  # called in vain
                self.pass_on()
            else:
                self._leave(origin, called)
            raise

    def _leave(self, origin: str, called: asyncio.Future[None]) -> None:
        queue = self._waiting.get(origin, deque())
        if called in queue:  # else the turn has passed it by in this moment
            queue.remove(called)
            if not queue:
                del self._waiting[origin]

    def pass_on(self) -> None:
        """Wake the first request that still waits, of the origin that has waited for longest."""
        self._is_taken = False
        while self._waiting:
            origin = next(iter(self._waiting))
            queue = self._waiting.pop(origin)
            while queue:
                called = queue.popleft()
                if not called.done():
                    called.set_result(None)
                    self._is_taken = True
                    break
            if queue:
                self._waiting[origin] = queue  # behind all others
            if self._is_taken:
                return


class OpenJobs:
    """Jobs that anybody may have started, as they only read.

    Args:
        ask: calls LuxiD.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._waiting = Waiting("an answer", _JOBS_WAITING_MAX)
        self._turns = Turns("their jobs", _JOBS_WAITING_MAX)
        self._asked: dict[str, asyncio.Task[Raw]] = {}  # by the id of the opcode
        self._running: dict[bytes, bytes] = {}  # the id of the job whose turn it is, by its opcodes
        self._tasks: set[asyncio.Task[Any]] = set()

    async def result(self, opcode: Wire, origin: str) -> Raw:
        """Return the result of a job of one opcode, perhaps of one that runs already.

        Raises:
            HttpProblem: 500: it failed, says why; 503: too many of the origin wait for one;
                504: it took too long.
            GenericError: LuxiD's refusal, or that it cannot be reached.
        """
        kind = str(opcode["OP_ID"])
        with self._waiting.one(origin):
            task = self._asked.get(kind)
            if task is None:
                task = self._asked[kind] = self._start(self._find_out(opcode))
                task.add_done_callback(lambda _: self._asked.pop(kind))
            return await asyncio.shield(task)  # who goes away takes nothing from the others

    async def submit(self, opcodes: list[Wire], origin: str) -> bytes:
        """Submit a job when its turn has come; return its id, or that of the same one that runs.

        Raises:
            HttpProblem: 503: the turn does not come, or too many of the origin wait for theirs.
            GenericError: as of `result`.
        """
        key = dumps([{**opcode, "reason": None} for opcode in opcodes])
        if key in self._running:
            return self._running[key]
        try:
            async with asyncio.timeout(JOB_S_MAX):
                await self._turns.take(origin)
        except TimeoutError as err:
            text = "Other jobs of those without the right 'write' have not ended; try again"
            raise HttpProblem(503, text) from err
        return await asyncio.shield(self._start(self._submit(key, opcodes)))

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _submit(self, key: bytes, opcodes: list[Wire]) -> bytes:
        """Submit a job, and pass the turn on when it has ended, or takes long."""
        try:
            job_id = bytes(await self._ask("SubmitJob", [opcodes]))
        except BaseException:
            self._turns.pass_on()
            raise
        self._running[key] = job_id
        self._start(self._follow(key, int(job_id)))
        return job_id

    async def _follow(self, key: bytes, job_id: int) -> None:
        try:
            async with asyncio.timeout(TURN_S_MAX):
                await self._end_of(job_id)
        except TimeoutError:
            logger.debug("Job %d has not ended in %g s", job_id, TURN_S_MAX)
        except GenericError as err:
            logger.info("Cannot tell when job %d ends: %s; ignoring", job_id, err.message)
        finally:
            del self._running[key]
            self._turns.pass_on()

    async def _find_out(self, opcode: Wire) -> Raw:
        """Have a job of one opcode done, and return its result; errors as of `result`."""
        try:
            async with asyncio.timeout(JOB_S_MAX):
                job_id = int(bytes(await self._ask("SubmitJob", [[opcode]])))
                status = await self._end_of(job_id)
                rows = await self._ask("QueryJobs", [[job_id], ["opresult"]])
        except TimeoutError as err:
            raise HttpProblem(504, "The job that finds this out did not end in time") from err
        self._start(self._archive(job_id))
        [[[result]]] = loads_as(list[list[list[Raw]]], bytes(rows))
        if status != "success":
            raise HttpProblem(500, f"Job {job_id} ended in {status}: {bytes(result).decode()}")
        return result

    async def _archive(self, job_id: int) -> None:
        try:
            await self._ask("ArchiveJob", [job_id])
        except GenericError as err:
            logger.info("Cannot archive job %d: %s; ignoring", job_id, err.message)

    async def _end_of(self, job_id: int) -> str:
        """Wait for a job to end; returns its status."""
        seen: list[Any] | None = None
        while seen is None or seen[0] not in _FINAL:
            args = [job_id, ["status"], seen, None, _POLL_S]
            [seen, *_] = loads_as(list[Any], bytes(await self._ask("WaitForJobChange", args)))
        return str(seen[0])
