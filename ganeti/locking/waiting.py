"""The queue of requests that wait for locks.

Theory of operation.  A waiter is *parked* on one reason why it cannot be granted: either one lock
that somebody else holds, or one older waiter that it must not overtake any more.  When that reason
may have gone, the waiter is *stirred*: put on the heap of those to look at again, in the order in
which they are to be served (starving first, then priority, then age).  So a release costs the
number of waiters that it touches, not the length of the queue.

Ageing.  A later request that can be granted at once is granted, so a request for {1..4} that
waits for 4 does not delay a request for {1}.  Each time such a later request takes something that
the waiter wants, the waiter counts it - unless it is still blocked by an *elder*, somebody who was
in the way when it came, because then it was not the overtaking that kept it waiting.  After
`OVERTAKEN_MAX` times the waiter *starves*: no later request that conflicts with it is granted
before it, at any priority.  Excepted are owners for which the starving waiter itself waits,
directly or through others: barring these would be a deadlock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Final

from ganeti.locking.names import Request, group_of, is_group
from ganeti.protocol.wconfd import ClientId, LockMode

OVERTAKEN_MAX: Final = 10  # small enough to matter to people, large enough to keep locks in use

_EXCLUSIVE = LockMode.EXCLUSIVE


class Waiter:
    """One pending request."""

    __slots__ = (
        "barred_by",
        "elders",
        "encoded",
        "member_wants",
        "overtaken",
        "owner",
        "parked_on",
        "priority",
        "request",
        "sequence",
        "wants",
    )

    def __init__(self, owner: ClientId, priority: int, request: Request, sequence: int) -> None:
        self.owner = owner
        self.priority = priority
        self.request = request
        self.sequence = sequence
        self.wants = {lock: mode for lock, mode in request if mode is not LockMode.RELEASE}
        self.member_wants: dict[str, LockMode] = {}  # group -> strongest mode of its members
        for lock, mode in self.wants.items():
            group = group_of(lock)
            if group is not None and self.member_wants.get(group) is not _EXCLUSIVE:
                self.member_wants[group] = mode
        self.elders: set[ClientId] = set()
        self.overtaken = 0
        self.parked_on: str | None = None
        self.barred_by: Waiter | None = None
        self.encoded: bytes | None = None

    @property
    def is_starving(self) -> bool:
        """True once it may not be overtaken any more."""
        return self.overtaken >= OVERTAKEN_MAX

    @property
    def rank(self) -> tuple[int, int, int]:
        """Return the key by which waiters are served: smaller first."""
        if self.is_starving:
            return (0, 0, self.sequence)
        return (1, self.priority, self.sequence)

    def conflicts_with(self, lock: str, mode: LockMode) -> bool:
        """Tell whether somebody else's holding of the lock would be in the way."""
        group = group_of(lock)
        if group is not None:
            return _clash(self.wants.get(lock), mode) or _clash(self.wants.get(group), mode)
        if is_group(lock) and _clash(self.member_wants.get(lock), mode):
            return True
        return _clash(self.wants.get(lock), mode)

    def conflicts_with_any(self, wants: Iterable[tuple[str, LockMode]]) -> bool:
        """Tell whether any of these would be in the way."""
        return any(self.conflicts_with(lock, mode) for lock, mode in wants)


def _clash(ours: LockMode | None, theirs: LockMode) -> bool:
    return ours is not None and (ours is _EXCLUSIVE or theirs is _EXCLUSIVE)


class WaitQueue:
    """All waiters, with the indexes that find the waiters an event concerns."""

    def __init__(self) -> None:
        self._waiters: dict[ClientId, Waiter] = {}
        self._starving: dict[int, Waiter] = {}  # by sequence
        self._parked: dict[str, dict[int, Waiter]] = {}  # lock in the way -> by sequence
        self._barred: dict[int, Waiter] = {}
        # lock, or "<group>*" for any member of a group -> waiters that want it, by sequence
        self._wanting: dict[str, dict[int, Waiter]] = {}
        self._heap: list[tuple[tuple[int, int, int], int]] = []
        self._stirred: dict[int, Waiter] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def __iter__(self) -> Iterator[Waiter]:
        """Iterate in the order of arrival."""
        return iter(self._waiters.values())

    def get(self, owner: ClientId) -> Waiter | None:
        """Return the pending request of an owner."""
        return self._waiters.get(owner)

    def add(self, waiter: Waiter) -> None:
        """Add a waiter; it is neither parked nor stirred yet."""
        assert waiter.owner not in self._waiters, f"{waiter.owner} waits already"
        self._waiters[waiter.owner] = waiter
        for key in _interests(waiter):
            self._wanting.setdefault(key, {})[waiter.sequence] = waiter

    def remove(self, waiter: Waiter) -> None:
        """Remove a waiter; the waiters that it barred are looked at again."""
        del self._waiters[waiter.owner]
        for key in _interests(waiter):
            _discard(self._wanting, key, waiter.sequence)
        self._unpark(waiter)
        self._stirred.pop(waiter.sequence, None)
        if self._starving.pop(waiter.sequence, None) is not None:
            for other in list(self._barred.values()):
                if other.barred_by is waiter:
                    self.stir(other)

    # Parking and stirring.

    def park(
        self, waiter: Waiter, *, lock: str | None = None, behind: Waiter | None = None
    ) -> None:
        """Note the one reason why the waiter cannot be granted now."""
        self._unpark(waiter)
        self._stirred.pop(waiter.sequence, None)
        waiter.parked_on, waiter.barred_by = lock, behind
        if lock is not None:
            self._parked.setdefault(lock, {})[waiter.sequence] = waiter
        else:
            self._barred[waiter.sequence] = waiter

    def _unpark(self, waiter: Waiter) -> None:
        if waiter.parked_on is not None:
            _discard(self._parked, waiter.parked_on, waiter.sequence)
        self._barred.pop(waiter.sequence, None)
        waiter.parked_on = waiter.barred_by = None

    def stir(self, waiter: Waiter) -> None:
        """Have the waiter looked at again."""
        if waiter.sequence not in self._stirred:
            self._stirred[waiter.sequence] = waiter
            heapq.heappush(self._heap, (waiter.rank, waiter.sequence))

    def stir_released(self, lock: str) -> None:
        """Mark the waiters that may be parked on a released or downgraded lock for another look."""
        if not self._parked:
            return
        keys = [lock]
        group = group_of(lock)
        if group is not None:
            keys.append(group)
        elif is_group(lock):
            keys += [name for name in self._parked if group_of(name) == lock]
        for key in keys:
            for waiter in list(self._parked.get(key, {}).values()):
                self.stir(waiter)

    def stir_barred(self) -> None:
        """Look again at all waiters behind a starving one: the chain of waits has changed."""
        for waiter in list(self._barred.values()):
            self.stir(waiter)

    def first_stirred(self) -> Waiter | None:
        """Return the waiter to look at next."""
        while self._heap:
            rank, sequence = self._heap[0]
            waiter = self._stirred.get(sequence)
            if waiter is not None and waiter.rank == rank:
                return waiter
            heapq.heappop(self._heap)
            if waiter is not None:  # its rank has changed since
                heapq.heappush(self._heap, (waiter.rank, sequence))
        return None

    # Ageing.

    def overtaken_by(self, lock: str, mode: LockMode, sequence: int) -> list[Waiter]:
        """Return the waiters older than `sequence` that this lock, once taken, is in the way of."""
        keys = [lock]
        group = group_of(lock)
        if group is not None:
            keys.append(group)
        elif is_group(lock):
            keys.append(lock + "*")
        return [
            waiter
            for key in keys
            for waiter in self._wanting.get(key, {}).values()
            if waiter.sequence < sequence and waiter.conflicts_with(lock, mode)
        ]

    def count_overtaken(self, waiter: Waiter) -> None:
        """Count one overtaking of a waiter."""
        waiter.overtaken += 1
        if waiter.is_starving:
            self._starving[waiter.sequence] = waiter

    def starving_before(self, sequence: int) -> Iterator[Waiter]:
        """Iterate over the starving waiters that came before, oldest first."""
        if self._starving:
            for older in sorted(self._starving):
                if older < sequence:
                    yield self._starving[older]


def _interests(waiter: Waiter) -> Iterator[str]:
    yield from waiter.wants
    for group in waiter.member_wants:
        yield group + "*"


def _discard(index: dict[str, dict[int, Waiter]], key: str, sequence: int) -> None:
    entries = index[key]
    del entries[sequence]
    if not entries:
        del index[key]
