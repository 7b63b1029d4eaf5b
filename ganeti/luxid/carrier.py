"""Carries versions of one job's file to the candidates, for the process that the job belongs to.

What a candidate has of a version counts once it has acknowledged it, however many tries that took,
and what is under way to it is not sent twice.  Who is waited for follows the list of candidates:
when it shrinks, so does the number of copies that is enough.

Source: ARCHITECTURE, invariant 9.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ganeti.base.errors import ConfigurationError
from ganeti.jobs.copies import copies_needed
from ganeti.luxid.replication import Replicator
from ganeti.system import clock

logger = logging.getLogger(__name__)

# How long candidates are waited for before the process is told who has it; it hears of us within
# `jobexec.hand.COPY_TIMEOUT_S`.
CARRY_S_MAX: Final = 3.0

Copies = tuple[tuple[str, ...], tuple[str, ...]]


class Carrier:
    """Carries the file of one job."""

    def __init__(self, replicator: Replicator, path: str) -> None:
        self._replicator = replicator
        self._path = path
        self._data = b""
        self._sends: dict[str, asyncio.Task[bool]] = {}
        self._news_seen = 0

    async def __call__(self, data: bytes, wait_s: float = 0.0) -> Copies:
        """Send a version to all candidates that have not acknowledged it.

        Args:
            wait_s: how long to wait before that for a reason to think that it helps: a candidate
                that is back or takes what is under way, or another list of candidates.

        Returns:
            Once enough have it, all have answered, or some time went by: the names of the
            candidates, and of those that have it.
        """
        if data != self._data:
            self._data, self._sends = data, {}
        elif wait_s and not self._is_enough():
            await self._next_event(wait_s)
        self._news_seen = self._replicator.quorum.news
        self._send()
        deadline = clock.monotonic() + CARRY_S_MAX
        while not self._is_enough() and self._under_way():
            left_s = deadline - clock.monotonic()
            if left_s <= 0:
                break
            await self._next_event(left_s)
        names = self._names()
        return tuple(names), self._reached(names)

    def _send(self) -> None:
        """Send to whoever refused it or was never sent it."""
        try:
            others = self._replicator.others()
        except ConfigurationError as err:
            logger.warning("The master candidates are not known: %s; ignoring", err)
            return
        for target in others:
            before = self._sends.get(target.name)
            if before is None or (before.done() and not _has_it(before)):
                self._sends[target.name] = self._replicator.send(target, self._path, self._data)

    def _names(self) -> list[str]:
        """Return who the other candidates are now."""
        try:
            return [target.name for target in self._replicator.others()]
        except ConfigurationError:
            return []

    def _reached(self, names: list[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name in self._sends and _has_it(self._sends[name]))

    def _is_enough(self) -> bool:
        names = self._names()
        return 1 + len(self._reached(names)) >= copies_needed(len(names) + 1)

    def _under_way(self) -> list[asyncio.Task[bool]]:
        sends = [self._sends.get(name) for name in self._names()]
        return [task for task in sends if task is not None and not task.done()]

    async def _next_event(self, timeout_s: float) -> None:
        """Wait until a send under way ends, or there is news of the candidates."""
        quorum = self._replicator.quorum
        if quorum.news != self._news_seen:
            self._news_seen = quorum.news
            return
        with quorum.listen() as news:
            events: list[asyncio.Future[None] | asyncio.Task[bool]] = [news, *self._under_way()]
            await asyncio.wait(events, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        self._news_seen = quorum.news


def _has_it(task: asyncio.Task[bool]) -> bool:
    return task.done() and not task.cancelled() and task.result()
