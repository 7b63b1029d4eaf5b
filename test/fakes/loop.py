"""Event loops for tests: a test in one, with a deadline, and waiting for what others do in it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any
from unittest import mock

from ganeti.system import clock

DEADLINE_S = 60.0


def run(test: Coroutine[Any, Any, None], deadline_s: float = DEADLINE_S) -> None:
    """Run a test in an event loop of its own."""

    async def within_deadline() -> None:
        async with asyncio.timeout(deadline_s):
            await test

    asyncio.run(within_deadline())


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop in which waiting takes no time: its clock jumps to the next timer.

    A hiccup of the machine then never comes between two timers.  Only for tests in which all that
    is waited for happens in the loop itself.
    """

    def __init__(self) -> None:
        self._skipped_s = 0.0
        selector = selectors.DefaultSelector()
        ready_at_once = selector.select

        def select(timeout: float | None = None) -> list[Any]:
            assert timeout is not None, "all tasks wait, and nothing will wake them"
            self._skipped_s += max(timeout, 0.0)
            return ready_at_once(0)

        selector.select = select  # type: ignore[method-assign]
        super().__init__(selector)

    def time(self) -> float:
        return self._skipped_s


def run_in_virtual_time(test: Coroutine[Any, Any, None]) -> None:
    """Run a test in a loop whose clock, and the product's with it, jumps over all waiting."""
    loop = VirtualTimeLoop()
    with (
        mock.patch.object(clock, "monotonic", loop.time),
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        runner.run(test)
