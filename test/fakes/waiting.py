"""Waiting in tests: for a condition that no event tells, and how long an answer may take.

Nothing is measured by tests (that is what `bench/` is for).  A bound only tells an answer at once
from waiting for an event that never comes, or that a test makes last for minutes.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

PROMPT_S = 60.0
_STEP_S = 0.01

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], what: str, *, timeout_s: float = PROMPT_S, step_s: float = _STEP_S
) -> T:
    """Look until a condition is true; returns its value."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(step_s)
    return value


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Look until a condition is true, while the event loop runs."""
    deadline = time.monotonic() + PROMPT_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PROMPT_S:g} s: {what or condition}"
        await asyncio.sleep(_STEP_S / 5)
