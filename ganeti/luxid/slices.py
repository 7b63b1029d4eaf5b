"""Long answers are worked out in slices, so that short ones come in between.

Source: ARCHITECTURE, invariant 12: the cost of a question is bounded.
"""

from __future__ import annotations

import asyncio
from typing import Final, Generic, TypeVar

from ganeti.base.errors import ParameterError
from ganeti.query.engine import Steps
from ganeti.system import clock

T = TypeVar("T")

SLICE_S: Final = 0.002
# Processor time for one question: fifty times that of a list of the largest cluster.
EFFORT_S_MAX: Final = 5.0
_AT_ONCE_MAX: Final = 4  # each of them delays all others by a slice

TOO_LONG_TEXT: Final = (
    f"this question takes more than {EFFORT_S_MAX:g} s: ask for fewer things, or use a simpler"
    " filter"
)


class Sliced(Generic[T]):
    """One piece of work."""

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._used_s = 0.0
        self.result: list[T] = []

    def go_on(self) -> bool:
        """Do one slice; returns whether all is done, and the result is there.

        Raises:
            ParameterError: it has taken too long already.
        """
        begun_s = clock.processor_time()
        deadline = clock.monotonic() + SLICE_S
        try:
            while True:
                next(self._steps)
                if clock.monotonic() >= deadline:
                    break
        except StopIteration as end:
            self.result.append(end.value)
            return True
        self._used_s += clock.processor_time() - begun_s
        if self._used_s > EFFORT_S_MAX:
            raise ParameterError(TOO_LONG_TEXT)
        return False


class Slicer:
    """Does such work beside everything else."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_AT_ONCE_MAX)

    async def finish(self, work: Sliced[T]) -> T:
        """Do the rest of some work.

        Raises:
            ParameterError: it takes too long.
        """
        async with self._turns:
            while True:
                if work.go_on():
                    return work.result[0]
                await asyncio.sleep(0)

    async def do(self, steps: Steps[T]) -> T:
        """Do some work; short work waits for nobody. Errors as of `finish`."""
        work = Sliced(steps)
        return work.result[0] if work.go_on() else await self.finish(work)
