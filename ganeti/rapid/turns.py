"""Turns, for what the master does for anybody who asks, and so does one thing at a time of.

Source: rapi.json, "auth".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator

from ganeti.protocol.rapi.values import HttpProblem


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
