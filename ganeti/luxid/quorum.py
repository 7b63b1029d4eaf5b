"""Whether enough master candidates answer; without them nothing counts, so nothing may begin.

What is sent to the candidates anyway tells who answers.  Once they are too few they are asked again
and again, and when there are enough, all nodes are asked whether this one is still the master
before anything begins.

Source: ARCHITECTURE, invariant 9.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.clients import mastership as clients
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.node_rpc import Target
from ganeti.jobs.copies import copies_needed, describe_shortage
from ganeti.luxid.tasks import Tasks

logger = logging.getLogger(__name__)

LOOK_S_MAX: Final = 2.0  # what a client waits that submits a job while there are too few
_DELAY_S_MIN: Final = 0.5
_DELAY_S_MAX: Final = 5.0


class Quorum:
    """Knows which candidates answer.

    Attributes:
        is_lost: they are too few.
        on_changed: hears of every change of `is_lost`.
        on_back: hears of a candidate that answers again.
        confirm: tells whether this node is still the master.
        news: counts the reasons to think that what failed for want of candidates works now.
    """

    def __init__(
        self, others: Callable[[], list[Target]], rpc: AsyncNodeRpcClient, tasks: Tasks
    ) -> None:
        self.is_lost = False
        self.news = 0
        self.on_changed: Callable[[bool], None] | None = None
        self.on_back: Callable[[str], None] | None = None
        self.confirm: Callable[[], Awaitable[bool]] | None = None
        self._others = others
        self._rpc = rpc
        self._tasks = tasks
        self._missing: set[str] = set()
        self._looking: asyncio.Task[None] | None = None
        self._listeners: set[asyncio.Future[None]] = set()

    @contextlib.contextmanager
    def listen(self) -> Iterator[asyncio.Future[None]]:
        """Give a future that is done when there is news."""
        listener: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            listener.cancel()

    def tell_news(self) -> None:
        """Wake those who wait for news: a candidate is back, or others are candidates now."""
        self.news += 1
        for listener in self._listeners:
            if not listener.done():
                listener.set_result(None)

    def is_missing(self, name: str) -> bool:
        """Tell whether a candidate did not answer last."""
        return name in self._missing

    def reached(self, name: str) -> None:
        """Note that a candidate answers."""
        if name not in self._missing:
            return
        self._missing.discard(name)
        self.tell_news()
        if self.on_back is not None:
            self.on_back(name)

    def missed(self, name: str) -> None:
        """Note that a candidate does not answer, or does not do what it is told."""
        self._missing.add(name)
        self.evaluate()

    def evaluate(self) -> None:
        """Find out whether there are enough, of those who are candidates now."""
        if self._are_enough():
            if self.is_lost:
                self._look_now()
        elif not self.is_lost:
            self.is_lost = True
            logger.error("%s. No jobs are started.", self.shortage("The job queue"))
            self._tell()
            self._tasks.create_task(self._look_until_enough(), name="look for candidates")

    def shortage(self, what: str) -> str:
        """Say who is missing and what to type."""
        names = {target.name for target in self._others()}
        missing = names & self._missing
        copies = 1 + len(names) - len(missing)
        return describe_shortage(what, copies, copies_needed(len(names) + 1), missing)

    async def look(self) -> bool:
        """Ask those that are missing once more; returns whether there are enough."""
        await asyncio.wait([self._look_now()], timeout=LOOK_S_MAX)
        return not self.is_lost

    def _look_now(self) -> asyncio.Task[None]:
        if self._looking is None or self._looking.done():
            self._looking = self._tasks.create_task(self._look(), name="ask candidates")
        return self._looking

    def _are_enough(self) -> bool:
        names = {target.name for target in self._others()}
        return 1 + len(names - self._missing) >= copies_needed(len(names) + 1)

    def _tell(self) -> None:
        if self.on_changed is not None:
            self.on_changed(self.is_lost)

    async def _look_until_enough(self) -> None:
        delay_s = _DELAY_S_MIN
        while not await self.look():
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _DELAY_S_MAX)

    async def _look(self) -> None:
        missing = [target for target in self._others() if target.name in self._missing]
        found = await asyncio.gather(*(clients.ask_one(self._rpc, each) for each in missing))
        for target, answer in zip(missing, found, strict=True):
            if not isinstance(answer, str):
                self.reached(target.name)
        if self.is_lost and self._are_enough() and await self._is_master():
            self.is_lost = False
            logger.info("Enough master candidates answer again")
            self._tell()

    async def _is_master(self) -> bool:
        if self.confirm is None:
            return True
        try:
            return await self.confirm()
        except GenericError as err:
            logger.warning("Cannot ask who is master: %s; trying again", err.message)
            return False
