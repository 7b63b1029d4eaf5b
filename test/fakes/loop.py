"""Event loops for tests: a test in one, with a deadline, and waiting for what others do in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

DEADLINE_S = 30.0


def run(test: Coroutine[Any, Any, None], deadline_s: float = DEADLINE_S) -> None:
    """Run a test in an event loop of its own."""

    async def within_deadline() -> None:
        async with asyncio.timeout(deadline_s):
            await test

    asyncio.run(within_deadline())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that other tasks of this loop do; the test's deadline ends it."""
    while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
        await asyncio.sleep(0.002)
