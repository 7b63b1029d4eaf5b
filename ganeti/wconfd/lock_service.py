"""The locks as a service: decisions from the pure core, made lasting, told to the waiters.

Every operation has three steps: decide (`LockAllocation`), serve the waiters that can be served,
and write the file; only then is anybody answered, the new owners included.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ganeti.base import metrics
from ganeti.base.errors import GenericError, LockError
from ganeti.daemon.tally import Histogram, Labels, written
from ganeti.locking.names import CONFIG_LOCK, Request, in_order
from ganeti.locking.serialisation import decode_locks, encode_locks
from ganeti.protocol.wconfd import GONE, GRANTED, TIMEOUT, ClientId, LockMode
from ganeti.system import clock
from ganeti.wconfd.owners import Owners
from ganeti.wconfd.signalling import Signals
from ganeti.wconfd.volatile import VolatileFile

logger = logging.getLogger(__name__)

CONFIG_LOCK_S_MAX: Final = 45.0  # less than clients wait for an answer; 3.0 holds it for moments


@dataclass(eq=False, slots=True)
class _Union:
    """A waiter for enough locks of a set."""

    owner: ClientId
    priority: int
    request: Request
    count: int
    future: asyncio.Future[list[str]]


class _ObjectRemovedError(LockError):
    """The object of a lock that somebody waits for has been removed."""


class LockService:
    """Locks and waiters, with the file behind them."""

    def __init__(
        self,
        path: str,
        content: bytes,
        owners: Owners,
        signals: Signals,
        on_death: Callable[[ClientId], None],
    ) -> None:
        self.allocation = decode_locks(content)
        self._owners = owners
        self._signals = signals
        self._on_death = on_death
        self._file = VolatileFile(path, content, self._encode, self._restore, self._tell)
        self._waiting: dict[ClientId, asyncio.Future[None]] = {}
        self._granted: list[asyncio.Future[None]] = []
        self._to_signal = self._left_to_signal()
        self._unions: list[_Union] = []
        self._config_waiters: list[asyncio.Future[None]] = []
        self._waits = Histogram(metrics.WCONFD_LOCK_WAIT_S)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the page of metrics about locks."""
        owners = list(self.allocation.owners())
        held: dict[Labels, float] = {("exclusive",): 0, ("shared",): 0}
        for owner in owners:
            for mode in self.allocation.held(owner).values():
                held[mode.value,] += 1
        yield from written(metrics.WCONFD_LOCKS_HELD, held)
        yield from written(metrics.WCONFD_LOCK_OWNERS, {(): len(owners)})
        waiters = sum(1 for _ in self.allocation.pending()) + len(self._unions)
        yield from written(metrics.WCONFD_LOCK_WAITERS, {(): waiters})
        yield from self._waits.lines()

    def _count_wait(self, outcome: str, begun_s: float) -> None:
        self._waits.add(clock.monotonic() - begun_s, (outcome,))

    def _left_to_signal(self) -> list[ClientId]:
        """Return those whose request was granted in the file, and who do not know it yet."""
        expecting = [o for o in self._signals.expecting() if not self.allocation.is_pending(o)]
        return [owner for owner in expecting if self.allocation.held(owner)]

    # The file.

    def _encode(self) -> bytes:
        return encode_locks(self.allocation)

    def _restore(self, content: bytes) -> None:
        """Go back to what the file holds: it could not be written."""
        before, self.allocation = self.allocation, decode_locks(content)
        self.allocation.jobs_max = before.jobs_max
        self.allocation.sharers_max = before.sharers_max
        self._to_signal = self._left_to_signal()
        self._granted.clear()
        for owner, future in self._waiting.items():
            if not self.allocation.is_pending(owner):
                _fail(future, GenericError("the locks cannot be written; ask again"))

    def close(self) -> None:
        """Stop using the files."""
        self._file.close()
        self._signals.close()

    @property
    def content(self) -> bytes:
        """The content of the file."""
        return self._file.content

    def set_jobs_max(self, jobs_max: int) -> None:
        """Let so many jobs work at once; serves those who waited for that."""
        if jobs_max != self.allocation.jobs_max:
            self.allocation.set_jobs_max(jobs_max)
            self.serve()
            self._file.begin_save()

    def set_sharers_max(self, sharers_max: int | None) -> None:
        """Let so many jobs share what a node has; serves those who waited for that."""
        if sharers_max != self.allocation.sharers_max:
            self.allocation.set_sharers_max(sharers_max)
            self.serve()
            self._file.begin_save()

    async def save(self) -> None:
        """Serve all waiters that can be served now, write the file, then tell all of them.

        Raises:
            GenericError: the file could not be written, and nothing was changed.
        """
        self.serve()
        await self._file.save()

    def _tell(self) -> None:
        """Tell new owners that they are: it is in the file."""
        granted, self._granted = self._granted, []
        for future in granted:
            if not future.done():
                future.set_result(None)
        self._wake_config_waiters()
        self._to_signal = [owner for owner in self._to_signal if not self._signals.send(owner)]

    def serve(self) -> None:
        """Grant everything that can be granted to owners that live."""
        while (owner := self.allocation.grantable()) is not None:
            if self._is_dead(owner):
                continue
            self.allocation.grant(owner)
            future = self._waiting.get(owner)
            if future is not None:
                self._granted.append(future)
            elif self._signals.is_expected_by(owner):
                self._to_signal.append(owner)
        self._serve_unions()

    def _is_dead(self, owner: ClientId) -> bool:
        """Look whether an owner that is about to get locks is dead, and free everything if so."""
        if self._owners.is_alive(owner):
            return False
        self._on_death(owner)
        self._remove(owner)
        return True

    def _serve_unions(self) -> None:
        for union in sorted(self._unions, key=lambda union: union.priority):
            if union.future.done():
                continue
            if self._is_dead(union.owner):
                _fail(union.future, LockError(f"{union.owner} is dead"))
            else:
                self._serve_union(union)

    def _serve_union(self, union: _Union) -> None:
        """Give the free locks of the set, if with the ones held already they are enough."""
        have = len(self._covered(union.owner, union.request))
        try:
            self.allocation.opportunistic_union(
                union.owner, union.request, max(0, union.count - have)
            )
        except LockError as err:
            _fail(union.future, err)
            return
        found = self._covered(union.owner, union.request)
        if len(found) >= union.count:
            union.future.set_result(found)

    def _covered(self, owner: ClientId, request: Request) -> list[str]:
        """Return the wanted locks that the owner has, in order."""
        has = self.allocation.covers
        wanted = [(lock, mode) for lock, mode in request if mode is not LockMode.RELEASE]
        return in_order(lock for lock, mode in wanted if has(owner, lock, mode))

    # Updates.

    async def try_update(self, owner: ClientId, request: Request) -> set[ClientId]:
        """Do an update now or not at all; returns the owners in the way."""
        blockers = self.allocation.try_update(owner, request)
        if not blockers:
            await self.save()
        return blockers

    async def update_waiting(
        self, owner: ClientId, priority: int, request: Request
    ) -> set[ClientId]:
        """Do an update or queue it; the client gets a SIGHUP when it is granted."""
        blockers = self.allocation.wait_update(owner, priority, request)
        await self.save()
        if blockers:
            await self._signals.expect(owner)
            is_granted = not self.allocation.is_pending(owner)  # meanwhile, and nobody was told
            if is_granted and not self._signals.send(owner):
                self._to_signal.append(owner)
        return blockers

    async def wait(
        self,
        owner: ClientId,
        priority: int,
        request: Request,
        *,
        timeout_s: float,
        gone: Callable[[], Awaitable[None]],
    ) -> tuple[str, Collection[ClientId]]:
        """Wait for an update as `_wait`, and count the time of it."""
        begun_s = clock.monotonic()
        outcome, blockers = await self._wait(
            owner, priority, request, timeout_s=timeout_s, gone=gone
        )
        self._count_wait(outcome, begun_s)
        return outcome, blockers

    async def _wait(
        self,
        owner: ClientId,
        priority: int,
        request: Request,
        *,
        timeout_s: float,
        gone: Callable[[], Awaitable[None]],
    ) -> tuple[str, Collection[ClientId]]:
        """Wait for an update; the request is withdrawn when the time is over.

        It is also withdrawn, with the outcome GONE, when the object of one of the locks was
        removed: the client must look again at its objects.

        Args:
            gone: returns when the client has gone away, which withdraws the request as well.

        Raises:
            LockError: the request can never be granted.
        """
        blockers = self.allocation.wait_update(owner, priority, request)
        self._signals.forget(owner)
        if not blockers:
            await self.save()
            return GRANTED, ()
        if owner in self._waiting:
            _fail(self._waiting[owner], LockError("the same request was made again"))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[owner] = future
        try:
            await self.save()
            await _first(future, gone, timeout_s)
            if future.done():
                with contextlib.suppress(_ObjectRemovedError):
                    await future
                    return GRANTED, ()
                return GONE, ()
            if future in self._granted:  # in the very last moment
                await self._file.save()
                return GRANTED, ()
            blockers = self.allocation.blockers(owner, request)
            if self._waiting.get(owner) is future and self.allocation.withdraw(owner):
                await self.save()
            return TIMEOUT, blockers
        finally:
            if self._waiting.get(owner) is future:
                del self._waiting[owner]

    def change_priority(self, owner: ClientId, priority: int) -> bool:
        """Give the pending request of an owner another priority; False when it has none."""
        unions = [union for union in self._unions if union.owner == owner]
        for union in unions:
            union.priority = priority
        return self.allocation.change_priority(owner, priority) or bool(unions)

    async def union(self, owner: ClientId, request: Request, count: int) -> list[str]:
        """Take the locks that are free now."""
        got = self.allocation.opportunistic_union(owner, request, count)
        if got:
            await self.save()
        return got

    async def wait_union(
        self,
        owner: ClientId,
        priority: int,
        request: Request,
        *,
        count: int,
        timeout_s: float,
        gone: Callable[[], Awaitable[None]],
    ) -> list[str]:
        """Take the free locks as soon as they are enough; nothing when the time is over.

        Locks of the set that the owner has already count and are answered as well, so the same
        question asked again after a restart has the same answer.
        """
        if count > len(request):
            raise LockError(f"{count} locks are wanted of a set of {len(request)}")
        future: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        union = _Union(owner, priority, request, count, future)
        begun_s = clock.monotonic()
        self._unions.append(union)
        try:
            self._serve_union(union)
            await _first(future, gone, timeout_s)
        finally:
            self._unions.remove(union)
        self._count_wait(GRANTED if future.done() else TIMEOUT, begun_s)
        if not future.done():
            return []
        got = await future
        await self.save()
        if not set(got) <= set(self._covered(owner, request)):
            raise GenericError("the locks cannot be written; ask again")
        return got

    async def remove_owner(self, owner: ClientId) -> None:
        """Free all locks of an owner and drop its pending request."""
        if self._remove(owner):
            await self.save()

    def _remove(self, owner: ClientId) -> bool:
        self._signals.forget(owner)
        if owner in self._waiting and self.allocation.is_pending(owner):
            _fail(self._waiting[owner], LockError(f"the locks of {owner} were freed"))
        return self.allocation.remove_owner(owner)

    def fail_waiters(self, locks: Iterable[str]) -> None:
        """Fail the callers that wait on their connection for locks of objects that are gone."""
        for lock in locks:
            for owner, future in list(self._waiting.items()):
                waiting = dict(self.allocation.pending_request(owner) or ())
                if waiting.get(lock) in (LockMode.SHARED, LockMode.EXCLUSIVE):
                    self.allocation.withdraw(owner)
                    _fail(future, _ObjectRemovedError(f"the object of lock {lock} was removed"))

    # The lock on the whole configuration.

    def config_is_locked_by_others(self, owner: ClientId | None) -> bool:
        """Tell whether somebody else holds the lock on the whole configuration."""
        return any(holder != owner for holder in self.allocation.holders(CONFIG_LOCK))

    async def config_free(self, owner: ClientId | None) -> None:
        """Return once nobody else holds the lock on the whole configuration.

        Raises:
            LockError: it was held for too long; names the holders.
        """
        try:
            async with asyncio.timeout(CONFIG_LOCK_S_MAX):
                while self.config_is_locked_by_others(owner):
                    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._config_waiters.append(future)
                    await future
        except TimeoutError as err:
            holders = ", ".join(map(str, self.allocation.holders(CONFIG_LOCK)))
            raise LockError(f"the configuration is locked by {holders}") from err

    def _wake_config_waiters(self) -> None:
        if self._config_waiters:
            waiters, self._config_waiters = self._config_waiters, []
            for future in waiters:
                if not future.done():
                    future.set_result(None)


async def _first(
    future: asyncio.Future[Any], gone: Callable[[], Awaitable[None]], timeout_s: float
) -> None:
    """Return when the future is done, the client has gone, or the time is over."""
    over = asyncio.Event()

    async def watch() -> None:
        await gone()
        over.set()

    def on_done(_future: asyncio.Future[Any]) -> None:
        over.set()

    future.add_done_callback(on_done)
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch(), name="watch the client")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await over.wait()
        watching.cancel()


def _fail(future: asyncio.Future[None] | asyncio.Future[list[str]], error: GenericError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # the caller may be gone
