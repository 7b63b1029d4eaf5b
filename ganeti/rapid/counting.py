"""Has a process count how many more instances fit: that takes seconds of a processor.

One process counts at a time.  Those who ask the same at the same time, as every dashboard does when
it opens, get the same answer.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base.json import dumps, loads_as
from ganeti.daemon.context import run_aside
from ganeti.protocol.luxi import Week
from ganeti.protocol.rapi.questions import WEEKS_DEFAULT, Wanted
from ganeti.protocol.rapi.values import HttpProblem
from ganeti.rapid.luxi_pool import LuxiPool

TIMEOUT_S: Final = 60.0
_PROGRAM: Final = "ganeti.rapid.capacity"
_ANSWER_BYTES_MAX: Final = 1 << 16

_Question = frozenset[tuple[str, Any]]


class RoomCounts:
    """The counts that are under way."""

    def __init__(self, luxi: LuxiPool, root: str) -> None:
        self._luxi = luxi
        self._root = root
        self._turn = asyncio.Lock()
        self._under_way: dict[_Question, asyncio.Task[bytes]] = {}

    async def count(self, query: Mapping[str, Any]) -> bytes:
        """Return the answer of `ganeti.rapid.capacity` to a query of the remote API.

        Raises:
            HttpProblem: 504: it took too long.
            GenericError: it failed; says why.
        """
        question = frozenset(query.items())
        task = self._under_way.get(question)
        if task is None:
            task = asyncio.create_task(self._count(dict(query)))
            self._under_way[question] = task
            task.add_done_callback(lambda _: self._under_way.pop(question))
        return await asyncio.shield(task)  # who goes away takes nothing from the others

    async def _count(self, given: dict[str, Any]) -> bytes:
        weeks = await self._luxi.ask("QueryGrowth", [given.pop("weeks", None) or WEEKS_DEFAULT])
        wanted = Wanted(**given, weeks=loads_as(list[Week], bytes(weeks)))
        argv = [sys.executable, "-m", _PROGRAM, self._root]
        try:
            async with asyncio.timeout(TIMEOUT_S), self._turn:
                found = await run_aside(
                    argv,
                    timeout_s=TIMEOUT_S,
                    stdin=dumps(wanted),
                    output_bytes_max=_ANSWER_BYTES_MAX,
                )
        except TimeoutError as err:
            raise HttpProblem(504, "The search for room did not end in time") from err
        return found.check().stdout
