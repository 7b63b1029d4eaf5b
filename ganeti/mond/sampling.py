"""When collectors work, and their last reports.

Theory of operation.  A request is answered at once, however long a collector takes: a collector
that reads a file or two runs for the request, all others run on their own, at their intervals, and
the request gets their last reports.  A collector that is WHEN_ASKED goes to sleep when nobody has
asked for a while; the first request after that waits for its report, but not for long.  A collector
works in a thread, one at a time; many clients that ask at once share one answer.  A report by a
command that is no longer the cluster's is dropped.

Source: mond.json, "intervals".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

from ganeti.base.errors import GenericError
from ganeti.collectors.cluster_facts import Need, Switch
from ganeti.collectors.collector import Collector, NodeView, Timing
from ganeti.collectors.report import Report, StatusCode, presentable
from ganeti.system import clock

logger = logging.getLogger(__name__)

INTERVAL_S_MIN: Final = 0.1  # a microsecond is possible in the configuration
IDLE_S: Final = 600.0  # after which a collector sleeps that nobody asks
FIRST_WAIT_S: Final = 2.0  # for a report that is not there yet
# An average needs two samples; the second comes soon, so that there is one soon.
WARM_UP_S: Final = 1.0

LookAround = Callable[[frozenset[Need]], Awaitable[NodeView]]
Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]


@dataclass(slots=True)
class Tally:
    """Counters of a collector; times in seconds since the epoch."""

    collected_s: float | None = None
    took_s: float = 0.0
    errors: int = 0
    failure: str | None = None


class Sampler:
    """One collector at work."""

    def __init__(
        self, row: type[Collector], look_around: LookAround, threads: Executor, spawn: Spawn
    ) -> None:
        self.row = row
        self.switch = Switch()
        self.tally = Tally()
        self._look_around = look_around
        self._threads = threads
        self._spawn = spawn
        self._collector: Collector | None = None
        self._last: Report | None = None
        self._samples = 0
        self._running: asyncio.Task[None] | None = None
        self._reported = asyncio.Event()
        self._wake = asyncio.Event()
        self._is_asleep = False
        self._asked_s = -IDLE_S
        self._began_s = 0.0

    @property
    def name(self) -> str:
        """Name of the collector."""
        return self.row.name

    def set_switch(self, switch: Switch) -> None:
        """Obey the configuration; a collector that is switched off forgets everything."""
        if switch == self.switch:
            return
        if not switch.is_active:
            self._collector, self._samples = None, 0
        if not switch.is_active or switch.command != self.switch.command:
            self._forget()
        self.switch = switch
        self._wake.set()

    async def report(self) -> Report:
        """Return a report, in any case and soon."""
        self._asked_s = clock.monotonic()
        if self.row.timing is Timing.AT_ONCE:
            await self._share()
        elif self._last is None:
            if self._is_asleep:
                self._wake.set()
            await self._wait_for_first()
        return self._last or self.row.failure(
            "there is no report yet; ask again soon", clock.now_ns(), StatusCode.TEMPORARILY_BAD
        )

    async def _wait_for_first(self) -> None:
        """Wait for a report; of many requests only the first ones wait for one that takes long."""
        is_working = self._running is not None
        passed_s = clock.monotonic() - self._began_s if is_working else 0.0
        try:
            await asyncio.wait_for(self._reported.wait(), max(FIRST_WAIT_S - passed_s, 0.0))
        except TimeoutError:
            logger.debug("Nothing from %s yet", self.name)

    async def run(self) -> None:
        """Work at the interval, for ever."""
        if self.row.timing is Timing.AT_ONCE:
            return
        while True:
            self._wake.clear()
            self._is_asleep = self._may_sleep()
            if self._is_asleep:
                self._forget()
                await self._wake.wait()
            else:
                await self._share()
                await self._pause()

    def _may_sleep(self) -> bool:
        if not self.switch.is_active:
            return True
        idle_s = clock.monotonic() - self._asked_s
        return self.row.timing is Timing.WHEN_ASKED and idle_s >= IDLE_S

    def _forget(self) -> None:
        self._last = None
        self._reported.clear()

    async def _pause(self) -> None:
        """Wait for the interval, or until something changes."""
        interval_s = max(min(self.switch.interval_s, self.row.interval_s_max), INTERVAL_S_MIN)
        if self.row.timing is Timing.STEADY and self._samples == 1:
            interval_s = min(interval_s, WARM_UP_S)
        try:
            await asyncio.wait_for(self._wake.wait(), interval_s)
        except TimeoutError:
            return

    async def _share(self) -> None:
        """Collect once for all requests of this moment."""
        if self._running is None:
            self._running = self._spawn(self._work(), f"collector {self.name}")
        await asyncio.shield(self._running)

    async def _work(self) -> None:
        began_s = self._began_s = clock.monotonic()
        command = self.switch.command
        try:
            report = await self._try()
        finally:
            self._running = None
        self.tally.collected_s = report.timestamp / clock.NANOSECONDS_PER_SECOND
        self.tally.took_s = clock.monotonic() - began_s
        self._samples += 1
        if self.switch.command != command:
            return  # it was changed meanwhile
        if self.row.timing is Timing.STEADY and self._samples == 1 and self.tally.failure is None:
            return  # no average yet
        self._last = report
        self._reported.set()

    async def _try(self) -> Report:
        try:
            view = await self._look_around(self.row.needs)
            if self._collector is None:
                self._collector = self.row()
            loop, collect = asyncio.get_running_loop(), self._collector.collect
            data = await loop.run_in_executor(self._threads, collect, view)
        except GenericError as err:
            return self._failed(err.message)
        except Exception as err:
            logger.exception("Internal error in collector %s", self.name)
            return self._failed(f"internal error: {type(err).__name__}: {err}")
        if self.tally.failure is not None:
            logger.info("Collector %s works again", self.name)
        self.tally.failure = None
        return self.row.report(data, clock.now_ns())

    def _failed(self, message: str) -> Report:
        """Say so once, not every five seconds."""
        message = presentable(message)
        if message != self.tally.failure:
            logger.warning("Collector %s: %s", self.name, message)
        self.tally.failure = message
        self.tally.errors += 1
        return self.row.failure(message, clock.now_ns())
