"""Sees to it that candidates get what they missed, as soon as they answer again.

Theory of operation.  As long as every candidate has everything, nothing happens here.  Whoever
fails to send something to a candidate says so, and from then on a task looks after that candidate:
it tries again, less and less often, and ends once nothing is owed any more.  A file that the
candidate takes meanwhile ends the pause; new debts do not, as they may be of those that it refuses
(its disk is full, it follows another master).  A candidate that is marked offline, or is none any
more, is left alone; it is compared when it becomes one again.

Source: ARCHITECTURE, invariant 9.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Collection, Iterable
from typing import Final, Protocol

from ganeti.clients.node_rpc import Target
from ganeti.luxid.tasks import Tasks
from ganeti.system import clock

OWED_FILES_MAX: Final = 20000  # per candidate; beyond that it needs `gnt-cluster redist-conf`
_PAUSE_S_MIN: Final = 0.5
_PAUSE_S_MAX: Final = 15.0  # a candidate that is down for hours costs one attempt in that time
_REFUSALS_MAX: Final = 10  # of files in one go: the reason is the candidate rather than the files


class Creditors(Protocol):
    """The candidates, as `Debts` needs them."""

    def candidate(self, name: str) -> Target | None:
        """Return a candidate that is not offline."""

    def is_missing(self, name: str) -> bool:
        """Tell whether a candidate did not answer, or not do what it was told, last."""

    def is_ours(self, path: str) -> bool:
        """Tell whether we are the writer of a file."""

    def ask(self, target: Target) -> Awaitable[bool]:
        """Ask whether a candidate is there; it is not missing then."""

    def send_again(self, target: Target, path: str) -> Awaitable[bool]:
        """Send a file as it is now; returns whether the candidate has it, or needs it no more.

        What it has not got is owed to it again.
        """


class Debts:
    """What candidates miss, and the tasks that send it."""

    def __init__(self, creditors: Creditors, tasks: Tasks) -> None:
        self._creditors = creditors
        self._tasks = tasks
        self._owed: dict[str, set[str]] = defaultdict(set)
        self._looking: dict[str, asyncio.Event] = {}  # who is looked after; set: do not pause
        self._pauses: dict[str, tuple[float, float]] = {}  # the last one, and when it was

    def add(self, name: str, paths: Iterable[str]) -> None:
        """Note that a candidate may have old versions of files, or none."""
        owed = self._owed[name]
        owed.update(path for path in paths if len(owed) < OWED_FILES_MAX)

    def paid(self, name: str, path: str) -> None:
        """Note that a candidate has taken a file."""
        self._owed[name].discard(path)
        if name in self._looking:
            self._looking[name].set()
        else:
            self.pay(name)

    def drop(self, name: str, paths: Collection[str]) -> None:
        """Note that a candidate needs these files no more."""
        self._owed[name].difference_update(paths)

    def pay(self, name: str) -> None:
        """Send a candidate what is owed to it: now, unless there was trouble with it just now."""
        if name not in self._looking and any(map(self._creditors.is_ours, self._owed[name])):
            self.look_after(name)
            if name in self._looking:
                self._looking[name].set()

    def pay_file(self, path: str) -> None:
        """Send a file, of which we are the writer by now, to whoever it is owed to."""
        for name in [name for name, owed in self._owed.items() if path in owed]:
            self.pay(name)

    def look_after(self, name: str) -> None:
        """Take note that something went wrong with a candidate: it is tried again."""
        if name not in self._looking and self._creditors.candidate(name) is not None:
            self._looking[name] = asyncio.Event()
            self._tasks.create_task(self._look_until_paid(name), name=f"look after {name}")

    async def _look_until_paid(self, name: str) -> None:
        prompt = self._looking[name]
        try:
            while True:
                await self._pause(name, prompt)
                prompt.clear()
                if await self._is_paid(name):
                    return
        finally:
            del self._looking[name]

    async def _pause(self, name: str, prompt: asyncio.Event) -> None:
        """Wait a while, longer each time as long as there is trouble, or until prompted."""
        if prompt.is_set():
            return
        now = clock.monotonic()
        last_s, since = self._pauses.get(name, (0.0, now))
        is_over = now - since > 4 * _PAUSE_S_MAX
        pause_s = _PAUSE_S_MIN if is_over else min(max(_PAUSE_S_MIN, 2 * last_s), _PAUSE_S_MAX)
        self._pauses[name] = (pause_s, now)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await prompt.wait()

    async def _is_paid(self, name: str) -> bool:
        """Try to send what is owed; returns whether there is nothing left that could be done."""
        target = self._creditors.candidate(name)
        if target is None:
            return True
        if self._creditors.is_missing(name) and not await self._creditors.ask(target):
            return False
        owed, refused = self._owed[name], set[str]()
        while payable := [path for path in sorted(owed - refused) if self._creditors.is_ours(path)]:
            for path in payable:
                owed.discard(path)
                if await self._creditors.send_again(target, path):
                    continue
                refused.add(path)
                if len(refused) >= _REFUSALS_MAX or not await self._creditors.ask(target):
                    return False
        return not refused and not self._creditors.is_missing(name)
