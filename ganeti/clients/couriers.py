"""Brings files to nodes: one courier per node sends the versions that the node lacks.

The decisions are those of `ganeti.copies.node`; here are the calls, the timers and the waiting.
Which files there are, and how one is sent, is the business of the daemon, by `Cargo`.  A slow or
dead node delays nobody else.

Source: ARCHITECTURE, invariants 8 and 9.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from ganeti.base.errors import GenericError
from ganeti.base.pace import Pace
from ganeti.clients.node_rpc import Target
from ganeti.copies.node import OVERDUE_S, PATIENCE_S, NodeCopies, Trip, Versions, Wanted
from ganeti.system import clock

logger = logging.getLogger(__name__)

GREETING_S_MAX: Final = 2.0  # a node that comes back is found within that time
_GREETING_BESIDE_S_MAX: Final = 1.0
_GREET_AGAIN_S: Final = 0.5

Spawn = Callable[[Coroutine[Any, Any, None], str], object]


@dataclass(frozen=True, slots=True)
class Delivery:
    """The answer of a node: the versions that it has taken, and the files that it has refused."""

    taken: Versions
    refused: Mapping[str, str] = field(default_factory=dict)


class NodeSilentError(Exception):
    """A node did not answer; the text says why."""


class _CutError(Exception):
    """A trip did not end although its node is there."""


class Cargo(Protocol):
    """The files of one daemon."""

    def may_send(self, file: str) -> bool:
        """Tell whether the newest version of a file can be had now."""

    async def greet(self, courier: Courier) -> str | None:
        """Ask a node that was away whether it is there; returns why it gets nothing, or None."""

    async def deliver(self, courier: Courier, versions: Versions) -> Delivery:
        """Send files, newer versions perhaps; or only some of them, where they are many.

        Raises:
            NodeSilentError: the node did not answer.
            GenericError: no node can be called now.
        """

    def on_result(self, courier: Courier, *, was_missing: bool, error_before: str | None) -> None:
        """Hear that a node has answered, or has failed to."""


class Courier:
    """One node: how it is reached, and its copies.

    Attributes:
        takes_many: the node takes several files in one call; nodes with Ganeti 3.0 do not.
        is_known: the node has told its abilities; before that it is asked.
        is_urgent: others wait for its copies; one that is not waits for its turn where many are
            to begin.
    """

    def __init__(self, target: Target, copies: NodeCopies) -> None:
        self.target = target
        self.copies = copies
        self.takes_many = False
        self.is_known = False
        self.is_urgent = True
        self.timer: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.target.name


class _Watch:
    """A trip under way: whether it is over, and whether its node has answered something else."""

    def __init__(self) -> None:
        self.limit = asyncio.timeout(None)
        self.is_over = asyncio.Event()
        self.is_answering = False

    def end_within(self, seconds: float) -> None:
        """Leave the trip so much more time, unless it has less, or none."""
        ends_at = self.limit.when()
        if self.is_over.is_set() or self.limit.expired() or ends_at is None:
            return
        soon = asyncio.get_running_loop().time() + seconds
        if soon < ends_at:
            self.is_answering = True
            self.limit.reschedule(soon)


class Couriers:
    """The couriers of one daemon, by the names of the nodes.

    Args:
        files_max: how many files one trip may have; to a node that takes one at a time, one.
        trip_s_max: the longest time for one trip.
    """

    def __init__(self, cargo: Cargo, spawn: Spawn, *, files_max: int, trip_s_max: float) -> None:
        self._cargo = cargo
        self._spawn = spawn
        self._files_max = files_max
        self._trip_s_max = trip_s_max
        self._by_name: dict[str, Courier] = {}
        self._waiters: dict[str, list[asyncio.Future[None]]] = defaultdict(list)
        self._is_starting = False
        self._pace = Pace()
        self._late: dict[str, None] = {}  # names of those that wait for their turn
        self._late_timer: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[Courier]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Courier | None:
        """Return the courier of a node, or None."""
        return self._by_name.get(name)

    def add(self, target: Target, copies: NodeCopies) -> Courier:
        """Take another node."""
        made = self._by_name[target.name] = Courier(target, copies)
        return made

    def remove(self, name: str) -> None:
        """Bring a node nothing any more; a call under way ends by itself."""
        courier = self._by_name.pop(name)
        if courier.timer is not None:
            courier.timer.cancel()
        self.wake()

    def wanted(self) -> Wanted:
        """Return the versions that nodes should have and have not."""
        return {courier.name: dict(courier.copies.wanted) for courier in self}

    def lacking(self, wanted: Wanted) -> list[str]:
        """Return the nodes that do not answer, or still lack some of these versions."""
        return [
            courier.name
            for courier in self
            if courier.target.offline
            or courier.copies.is_missing
            or courier.copies.lacks_any(wanted.get(courier.name, {}))
        ]

    # Sending.

    def start_soon(self) -> None:
        """Start the couriers that have something to send, with all that is wanted in this turn."""
        if not self._is_starting:
            self._is_starting = True
            asyncio.get_running_loop().call_soon(self._start_all)

    def hurry(self) -> None:
        """Try all nodes again at once that have failed."""
        for courier in self:
            courier.copies.hurry()
        self.start_soon()

    def _start_all(self) -> None:
        self._is_starting = False
        for courier in self:
            self._start(courier)

    def _start(self, courier: Courier) -> None:
        if courier.timer is not None:
            courier.timer.cancel()
            courier.timer = None
        if courier.target.offline or self._by_name.get(courier.name) is not courier:
            return
        now = clock.monotonic()
        files_max = self._files_max if courier.takes_many else 1
        may_send = self._cargo.may_send
        while True:
            place = object()
            if not courier.is_urgent and not self._pace.try_begin(place, now):
                self._wait_for_turn(courier, now)
                break
            trip = courier.copies.next_trip(now, may_send=may_send, files_max=files_max)
            if trip is None:
                self._pace.end(place)
                break
            self._spawn(self._travel(courier, trip, place), f"courier to {courier.name}")
        retry_s = courier.copies.retry_s()
        if retry_s is not None:
            delay_s = max(0.0, retry_s - now)
            loop = asyncio.get_running_loop()
            courier.timer = loop.call_later(delay_s, self._start, courier)

    def _wait_for_turn(self, courier: Courier, now_s: float) -> None:
        self._late[courier.name] = None
        if self._late_timer is None:
            delay_s = max(0.0, self._pace.free_at_s() - now_s)
            self._late_timer = asyncio.get_running_loop().call_later(delay_s, self._start_late)

    def _start_late(self) -> None:
        """Start couriers that wait for their turn, until one has to wait again."""
        if self._late_timer is not None:
            self._late_timer.cancel()
            self._late_timer = None
        while self._late and self._late_timer is None:
            name = next(iter(self._late))
            del self._late[name]
            if name in self._by_name:
                self._start(self._by_name[name])

    async def _travel(self, courier: Courier, trip: Trip, place: object) -> None:
        copies = courier.copies
        was_missing, error_before = copies.is_missing, copies.error
        was_sent = False
        try:
            if was_missing or not courier.is_known:
                await self._greet(courier)
            was_sent = True
            delivery = await self._deliver(courier, trip) if trip.versions else Delivery({})
            copies.arrived(trip, delivery.taken, delivery.refused, clock.monotonic())
        except _CutError:
            copies.cut(trip, clock.monotonic())
        except TimeoutError:
            copies.lost(trip, "no answer in time", clock.monotonic(), was_sent=was_sent)
        except (NodeSilentError, GenericError) as err:
            copies.lost(trip, str(err), clock.monotonic(), was_sent=was_sent)
        except BaseException:
            copies.lost(trip, "stopped", clock.monotonic())
            raise
        finally:
            self._pace.end(place)
            if self._late:
                self._start_late()
        if self._by_name.get(courier.name) is not courier:
            return
        self._cargo.on_result(courier, was_missing=was_missing, error_before=error_before)
        if copies.is_missing or was_missing:
            self.wake()
        else:
            for file in trip.versions:
                self._wake_for(file)
        self._start(courier)

    async def _deliver(self, courier: Courier, trip: Trip) -> Delivery:
        """Have files sent, for as long as the node may be slow.

        Raises:
            TimeoutError: for longer than that.
            _CutError: the node answers meanwhile, as if nothing had been sent.
        """
        loop = asyncio.get_running_loop()
        watch = _Watch()
        timer = loop.call_later(OVERDUE_S, self._look_after_soon, courier, watch)
        try:
            async with asyncio.timeout(self._trip_s_max) as watch.limit:
                return await self._cargo.deliver(courier, trip.versions)
        except TimeoutError:
            if watch.is_answering:
                raise _CutError from None
            raise
        finally:
            timer.cancel()
            watch.is_over.set()

    def _look_after_soon(self, courier: Courier, watch: _Watch) -> None:
        self._spawn(self._look_after(courier, watch), f"question to {courier.name}")

    async def _look_after(self, courier: Courier, watch: _Watch) -> None:
        """Ask a node whether it is there, beside a trip that takes long."""
        while not watch.is_over.is_set():
            try:
                async with asyncio.timeout(_GREETING_BESIDE_S_MAX):
                    refusal = await self._cargo.greet(courier)
            except (TimeoutError, GenericError):
                refusal = "no answer"
            if refusal is None:
                watch.end_within(courier.copies.time_beside_s())
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(watch.is_over.wait(), _GREET_AGAIN_S)

    async def _greet(self, courier: Courier) -> None:
        async with asyncio.timeout(GREETING_S_MAX):
            refusal = await self._cargo.greet(courier)
        if refusal is not None:
            raise NodeSilentError(refusal)
        courier.is_known = True

    # Waiting.

    def wake(self) -> None:
        """Let all waiting tasks look again: other nodes count, or a node is back or missing."""
        for file in list(self._waiters):
            self._wake_for(file)

    def _wake_for(self, file: str) -> None:
        for waiter in self._waiters.pop(file, ()):
            if not waiter.done():
                waiter.set_result(None)

    async def next_change(self, file: str, timeout_s: float | None) -> None:
        """Wait until a node has taken a file or refused it, or is missing or back; not longer."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[file].append(waiter)
        try:
            await asyncio.wait([waiter], timeout=timeout_s)
        finally:
            waiters = self._waiters.get(file, [])
            if waiter in waiters:
                waiters.remove(waiter)
                if not waiters:
                    del self._waiters[file]

    async def wait_until(
        self, file: str, is_done: Callable[[], bool], timeout_s: float, look_s: float | None = None
    ) -> bool:
        """Wait until something is true of the copies of a file; returns whether it is.

        Args:
            look_s: look so often even if nothing is known to have changed.
        """
        deadline = clock.monotonic() + timeout_s
        while not is_done():
            left_s = deadline - clock.monotonic()
            if left_s <= 0:
                return False
            await self.next_change(file, left_s if look_s is None else min(left_s, look_s))
        return True

    async def wait_for_all(self, file: str, lacking: Callable[[], Iterable[Courier]]) -> None:
        """Wait a little for nodes that lack a file, but for none that is set aside."""
        deadline = clock.monotonic() + PATIENCE_S
        while True:
            now = clock.monotonic()
            left_s = max((each.copies.patience_left_s(now) for each in lacking()), default=0.0)
            left_s = min(left_s, deadline - now)
            if left_s <= 0:
                return
            await self.next_change(file, left_s)
