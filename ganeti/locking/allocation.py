"""Decides which owner gets which locks: the whole of WConfD's locking, without I/O or clock.

An owner's locks change by *updates*, each all or nothing.  The rules that keep owners that obey
them from deadlocks: a lock newly wanted must come after all locks held (`names.order_key`);
nothing exclusive below a group held shared; no update while one is pending.  The case that these
rules leave, two owners that both want to turn a shared lock into an exclusive one, is found as a
circle of waiting owners, and refused to the owner that closes it.

Granting is done in two steps, so that the caller can look whether a waiter still lives:
`grantable` names the next one, `grant` or `remove_owner` decides.  The caller repeats this after
every operation until `grantable` answers None.

Slots.  A job runs while it holds the BGL, which every opcode takes with its other locks, in any
mode.  `jobs_max` says how many may: the request by which a job would be one more waits although
its locks are free, and is served like the others by rank.  So a job takes its slot and its locks
in one step; nobody holds the one while it waits for the other.  What counts are the locks held,
so slots need no record: a restart finds them, the death of a job frees them.

Transfers.  The locks of what nodes have are held shared by jobs that move data: migrations,
exports, disks that get into step.  `sharers_max` says how many may share one; the next waits in the
same way, holding neither slot nor lock.

Invariants: no two owners hold conflicting locks; nobody pending could be granted (after the
repetition above); no circle of owners waiting for each other; no request was granted by which more
than `jobs_max` jobs ran.

Source: wconfd.json, "lock_request"; design of the 2.12 daemons, "Locking".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ganeti.base.errors import LockError
from ganeti.locking.names import (
    BGL,
    CONFIG_LOCK,
    NODE_RES,
    Request,
    check_level,
    group_of,
    in_order,
    is_group,
    level_of,
    order_key,
)
from ganeti.locking.ownership import Ownership
from ganeti.locking.waiting import Waiter, WaitQueue
from ganeti.protocol.wconfd import PRIORITY_BEYOND_LIMIT, ClientId, LockMode

_SHARED = LockMode.SHARED
_EXCLUSIVE = LockMode.EXCLUSIVE
_RELEASE = LockMode.RELEASE


class LockAllocation:
    """Locks, owners and waiters.

    Attributes:
        jobs_max: how many jobs may run at once; None for any number.
        sharers_max: how many jobs may share the lock of what a node has; None for any number.
    """

    def __init__(self) -> None:
        self.jobs_max: int | None = None
        self.sharers_max: int | None = None
        self._owned = Ownership()
        self._queue = WaitQueue()
        self._sequence = 0

    # Looking.

    def held(self, owner: ClientId) -> Mapping[str, LockMode]:
        """Return the locks that an owner holds directly."""
        return self._owned.held(owner)

    def covers(self, owner: ClientId, lock: str, mode: LockMode) -> bool:
        """Tell whether the owner holds the lock or its group at least in that mode."""
        return self._owned.covers(owner, lock, mode)

    def is_pending(self, owner: ClientId) -> bool:
        """Tell whether a request of this owner waits."""
        return self._queue.get(owner) is not None

    def pending_request(self, owner: ClientId) -> Request | None:
        """Return the pending request of an owner, or None."""
        waiter = self._queue.get(owner)
        return None if waiter is None else waiter.request

    def holders(self, lock: str) -> Mapping[ClientId, LockMode]:
        """Return the owners that hold a lock directly."""
        return self._owned.holders(lock)

    def waiters(self) -> list[Waiter]:
        """Return the pending requests in the order in which they would be served."""
        return sorted(self._queue, key=lambda waiter: waiter.rank)

    def clients(self) -> set[ClientId]:
        """Return all owners that hold or await a lock."""
        return {*self._owned.owners(), *(waiter.owner for waiter in self._queue)}

    def list_locks(self, owner: ClientId) -> list[tuple[str, LockMode]]:
        """Return an owner's locks in order."""
        held = self._owned.held(owner)
        return [(lock, held[lock]) for lock in in_order(held)]

    def list_all(self) -> list[str]:
        """Return all locks that are held, group locks held through members included, in order."""
        names = {lock for lock, _ in self._owned.locks()}
        return in_order(names.union(self._owned.groups_held_through_members()))

    def list_all_owners(self) -> list[tuple[str, list[tuple[ClientId, LockMode]]]]:
        """Return all locks with the owners that hold them directly, in order."""
        owners = dict(self._owned.locks())
        return [(lock, list(owners[lock].items())) for lock in in_order(owners)]

    def blockers(
        self, owner: ClientId, request: Request, priority: int | None = None
    ) -> set[ClientId]:
        """Return the owners in the way of a request, starving waiters included.

        The request of an owner that is pending counts from when it came.

        Args:
            priority: that of a request that may wait, and so needs a slot.
        """
        waiter = self._queue.get(owner)
        sequence = self._sequence + 1 if waiter is None else waiter.sequence
        found: set[ClientId] = set()
        wants = self._wants(owner, request)
        for lock, mode in wants:
            found.update(self._owned.blockers(owner, lock, mode))
        starving = self._barrier(owner, wants, sequence)
        if starving is not None:
            found.add(starving.owner)
        found |= self._sharers_against(owner, wants)[1]
        if waiter is not None:
            priority = waiter.priority
        if priority is not None:
            found |= self._slot_holders_against(owner, priority, wants)
        return found

    # Updates.

    def check(self, owner: ClientId, request: Request) -> None:
        """Check a request against the rules; whether it can be granted now is another question.

        Raises:
            LockError: it breaks one of them.
        """
        waiter = self._queue.get(owner)
        if waiter is not None:
            if dict(waiter.request) == dict(request):
                return
            raise LockError(
                f"{owner} has a request pending ({_describe(waiter.request)}) and cannot make"
                " another one until it is granted or withdrawn"
            )
        held = self._owned.held(owner)
        if not held:
            return
        highest = self._owned.highest(owner)
        assert highest is not None
        for lock, mode in request:
            if mode is _RELEASE:
                continue
            group = group_of(lock)
            below_shared = group is not None and held.get(group) is _SHARED
            if mode is _EXCLUSIVE and below_shared and held.get(lock) is not _EXCLUSIVE:
                raise LockError(
                    f"{owner} cannot get {lock} exclusive while it holds {group} shared"
                )
            if order_key(lock) < highest and not self._owned.covers(owner, lock, mode):
                raise LockError(
                    f"{owner} asks for {lock} {mode} out of order: it already holds {highest[2]}"
                )

    def try_update(
        self, owner: ClientId, request: Request, priority: int | None = None
    ) -> set[ClientId]:
        """Do the update now or not at all.

        Args:
            priority: that of a request that may wait, and so needs a slot.

        Returns:
            The owners in the way; empty when the update was done.

        Raises:
            LockError: the request breaks a rule.
        """
        self.check(owner, request)
        blockers = self.blockers(owner, request, priority)
        if blockers:
            return blockers
        if self._queue.get(owner) is not None:
            self.grant(owner)
        else:
            self._apply(owner, request)
        return blockers

    def wait_update(self, owner: ClientId, priority: int, request: Request) -> set[ClientId]:
        """Do the update now, or queue it.

        Asking the same again while it is pending changes the priority and nothing else.

        Returns:
            The owners in the way; empty when the update was done.

        Raises:
            LockError: the request breaks a rule, or would close a circle of waiting owners.
        """
        self.check(owner, request)
        was_pending = self.change_priority(owner, priority)
        blockers = self.try_update(owner, request, priority)
        if not blockers or was_pending:
            return blockers
        waiter = Waiter(owner, priority, request, self._sequence + 1)
        elders = self._holders_against(waiter)
        self._check_circle(owner, elders)
        self._sequence += 1
        waiter.elders = elders
        self._queue.add(waiter)
        self._queue.stir(waiter)
        self._queue.stir_barred()
        return blockers

    def change_priority(self, owner: ClientId, priority: int) -> bool:
        """Give the pending request of an owner another priority; False when it has none."""
        waiter = self._queue.get(owner)
        if waiter is None:
            return False
        if priority != waiter.priority:
            waiter.priority = priority
            waiter.encoded = None
            self._queue.stir(waiter)
        return True

    def set_jobs_max(self, jobs_max: int | None) -> None:
        """Let so many jobs run at once; those above a smaller number go on."""
        self.jobs_max = jobs_max
        self._queue.stir_released(BGL)

    def set_sharers_max(self, sharers_max: int | None) -> None:
        """Let so many jobs share the lock of what a node has; those above it go on."""
        self.sharers_max = sharers_max
        for lock in {lock for waiter in self._queue for lock, _ in waiter.request}:
            self._queue.stir_released(lock)

    def withdraw(self, owner: ClientId) -> bool:
        """Drop the pending request of an owner; False when it has none."""
        waiter = self._queue.get(owner)
        if waiter is None:
            return False
        self._queue.remove(waiter)
        return True

    def opportunistic_union(
        self, owner: ClientId, request: Request, count_min: int = 0
    ) -> list[str]:
        """Take as many of the wanted locks as can be had at once.

        Returns:
            The locks newly got, in order; none at all when fewer than `count_min` could be had, or
            while the owner has a request pending.
        """
        if self._queue.get(owner) is not None:
            return []  # locks taken now might come after those that it waits for
        held = self._owned.held(owner)
        highest = self._owned.highest(owner)
        modes = dict(request)
        got: dict[str, LockMode] = {}
        for lock in in_order(modes):
            mode = modes[lock]
            group = group_of(lock)
            group_mode = None if group is None else got.get(group, held.get(group))
            if mode is _RELEASE or self._owned.covers(owner, lock, mode):
                continue
            if highest is not None and order_key(lock) < highest:
                continue
            if mode is _EXCLUSIVE and group_mode is _SHARED:
                continue
            wants = ((lock, mode),)
            if self._owned.is_blocked(owner, lock, mode) or self._sharers_against(owner, wants)[1]:
                continue
            if self._barrier(owner, wants, self._sequence + 1) is None:
                got[lock] = mode
        if len(got) < count_min:
            return []
        self._apply(owner, tuple(got.items()))
        return list(got)

    # Giving back.

    def release(self, owner: ClientId, locks: Iterable[str]) -> None:
        """Give back some locks; those not held do not matter."""
        for lock in list(locks):
            self._set(owner, lock, None)

    def release_level(self, owner: ClientId, level: str) -> None:
        """Give back all locks of one level."""
        check_level(level)
        self.release(owner, [lock for lock in self.held(owner) if level_of(lock) == level])

    def downgrade_level(self, owner: ClientId, level: str) -> None:
        """Turn the exclusive locks of one level into shared ones."""
        check_level(level)
        for lock, mode in list(self.held(owner).items()):
            if mode is _EXCLUSIVE and level_of(lock) == level:
                self._set(owner, lock, _SHARED)

    def intersect(self, owner: ClientId, keep: Iterable[str]) -> None:
        """Give back all locks but these."""
        self.release(owner, set(self.held(owner)).difference(keep))

    def remove_owner(self, owner: ClientId) -> bool:
        """Give back all locks of an owner and withdraw its request; False when it had none."""
        was_pending = self.withdraw(owner)
        held = list(self.held(owner))
        self.release(owner, held)
        return was_pending or bool(held)

    def transfer(self, owner: ClientId, lock: str, heir: ClientId) -> None:
        """Let another owner hold a lock instead of this one, without letting it go between."""
        mode = self.held(owner)[lock]
        self._owned.set_mode(owner, lock, None)
        self._owned.set_mode(heir, lock, mode)

    # Serving the waiters.

    def grantable(self) -> ClientId | None:
        """Return the next owner whose pending request can be granted now, or None."""
        while (waiter := self._queue.first_stirred()) is not None:
            wants = self._wants(waiter.owner, waiter.request)
            lock = self._first_blocked(waiter.owner, wants)
            lock = lock or self._sharers_against(waiter.owner, wants)[0]
            if lock is None and self._slot_holders_against(waiter.owner, waiter.priority, wants):
                lock = BGL  # a slot is free when somebody lets go of it
            if lock is not None:
                self._queue.park(waiter, lock=lock)
                continue
            starving = self._barrier(waiter.owner, wants, waiter.sequence)
            if starving is None:
                return waiter.owner
            self._queue.park(waiter, behind=starving)
        return None

    def grant(self, owner: ClientId) -> None:
        """Grant the pending request that `grantable` named."""
        waiter = self._queue.get(owner)
        assert waiter is not None, f"{owner} does not wait"
        wants = self._wants(owner, waiter.request)
        assert self._first_blocked(owner, wants) is None, f"{owner} cannot be granted"
        self._queue.remove(waiter)
        self._apply(owner, waiter.request, waiter.sequence)

    # Loading.

    def load_held(self, owner: ClientId, lock: str, mode: LockMode) -> None:
        """Note a lock held, as read from the file.

        Raises:
            LockError: it conflicts with a lock loaded before.
        """
        order_key(lock)
        if self._owned.is_blocked(owner, lock, mode):
            raise LockError(f"lock {lock} has conflicting owners, {owner} among them")
        self._owned.set_mode(owner, lock, mode)

    def load_pending(self, owner: ClientId, priority: int, request: Request) -> None:
        """Queue a request read from the file, after all locks held were loaded.

        Raises:
            LockError: the owner has another request.
        """
        if self._queue.get(owner) is not None:
            raise LockError(f"{owner} has two pending requests")
        self._sequence += 1
        waiter = Waiter(owner, priority, request, self._sequence)
        waiter.elders = self._holders_against(waiter)
        self._queue.add(waiter)
        self._queue.stir(waiter)

    # For the file.

    def encoded(self, owner: ClientId) -> bytes | None:
        """Return the cached encoding of an owner's locks, if they have not changed since."""
        return self._owned.encoded(owner)

    def set_encoded(self, owner: ClientId, data: bytes) -> None:
        """Remember the encoding of an owner's locks until they change."""
        self._owned.set_encoded(owner, data)

    def owners(self) -> Iterable[ClientId]:
        """Iterate over all owners that hold a lock."""
        return self._owned.owners()

    def pending(self) -> Iterable[Waiter]:
        """Iterate over the pending requests in the order of arrival."""
        return iter(self._queue)

    # Inside.

    def _wants(self, owner: ClientId, request: Request) -> list[tuple[str, LockMode]]:
        """Return the part of a request that the owner does not hold strongly enough."""
        return [
            (lock, mode)
            for lock, mode in request
            if mode is not _RELEASE and not self._owned.covers(owner, lock, mode)
        ]

    def _first_blocked(self, owner: ClientId, wants: Iterable[tuple[str, LockMode]]) -> str | None:
        for lock, mode in wants:
            if self._owned.is_blocked(owner, lock, mode):
                return lock
        return None

    def _barrier(
        self, owner: ClientId, wants: Iterable[tuple[str, LockMode]], sequence: int
    ) -> Waiter | None:
        """Return a starving waiter that came before and must not be overtaken by this."""
        for starving in self._queue.starving_before(sequence):
            if starving.owner == owner or not starving.conflicts_with_any(wants):
                continue
            if owner not in self._waited_for(starving):
                return starving
        return None

    def _holders_against(self, waiter: Waiter) -> set[ClientId]:
        found: set[ClientId] = set()
        for lock, mode in self._wants(waiter.owner, waiter.request):
            found.update(self._owned.blockers(waiter.owner, lock, mode))
        return found

    def _slot_holders_against(
        self, owner: ClientId, priority: int, wants: Iterable[tuple[str, LockMode]]
    ) -> set[ClientId]:
        """Return the jobs that run, if they are too many for this owner to be one more."""
        if self.jobs_max is None or priority <= PRIORITY_BEYOND_LIMIT or not _is_job(owner):
            return set()
        if BGL in self._owned.held(owner) or all(lock != BGL for lock, _ in wants):
            return set()
        running = {other for other in self._owned.holders(BGL) if _is_job(other)}
        return running if len(running) >= self.jobs_max else set()

    def _sharers_against(
        self, owner: ClientId, wants: Iterable[tuple[str, LockMode]]
    ) -> tuple[str | None, set[ClientId]]:
        """Return the first lock that as many share as may, and the jobs that do; none if none."""
        if self.sharers_max is None:
            return None, set()
        for lock, mode in wants:
            if mode is not _SHARED or level_of(lock) != NODE_RES or is_group(lock):
                continue
            sharers = {other for other in self._owned.holders(lock) if other != owner}
            if len(sharers) >= self.sharers_max:
                return lock, sharers
        return None, set()

    def _waited_for(self, waiter: Waiter) -> set[ClientId]:
        """Return all owners that this one waits for, directly or through others."""
        found: set[ClientId] = set()
        todo = [waiter]
        while todo:
            current = todo.pop()
            wants = self._wants(current.owner, current.request)
            nexts = self._holders_against(current)
            nexts |= self._slot_holders_against(current.owner, current.priority, wants)
            nexts |= self._sharers_against(current.owner, wants)[1]
            if current.barred_by is not None:
                nexts.add(current.barred_by.owner)
            for owner in nexts - found:
                found.add(owner)
                other = self._queue.get(owner)
                if other is not None:
                    todo.append(other)
        return found

    def _check_circle(self, owner: ClientId, blockers: set[ClientId]) -> None:
        """Refuse to wait for an owner that waits for this owner's locks."""
        if not self._owned.held(owner):
            return  # nobody can be waiting for an owner that has nothing
        seen: set[ClientId] = set()
        todo = [*blockers]
        while todo:
            other = todo.pop()
            waiter = self._queue.get(other)
            if other in seen or waiter is None:
                continue
            seen.add(other)
            nexts = self._holders_against(waiter)
            if owner in nexts:
                raise LockError(
                    f"{owner} would wait for {other}, which waits for {owner}"
                    f" ({_describe(waiter.request)}): release something and ask again"
                )
            todo.extend(nexts)

    def _apply(self, owner: ClientId, request: Request, sequence: int | None = None) -> None:
        """Carry out a request that is known to be possible."""
        newly = self._wants(owner, request)
        for lock, mode in request:
            self._set(owner, lock, None if mode is _RELEASE else mode)
        if len(self._queue) and newly:
            if sequence is None:
                self._sequence += 1
                sequence = self._sequence
            self._count_overtaken(owner, newly, sequence)

    def _count_overtaken(
        self, owner: ClientId, newly: Iterable[tuple[str, LockMode]], sequence: int
    ) -> None:
        overtaken = {
            waiter.sequence: waiter
            for lock, mode in newly
            for waiter in self._queue.overtaken_by(lock, mode, sequence)
            if waiter.owner != owner
        }
        for waiter in overtaken.values():
            waiter.elders.discard(owner)
            if waiter.elders:
                waiter.elders &= self._holders_against(waiter)
            if not waiter.elders and not waiter.is_starving:
                self._queue.count_overtaken(waiter)

    def _set(self, owner: ClientId, lock: str, mode: LockMode | None) -> None:
        before = self._owned.held(owner).get(lock)
        self._owned.set_mode(owner, lock, mode)
        if before is not None and (mode is None or (before is _EXCLUSIVE and mode is _SHARED)):
            self._queue.stir_released(lock)


def _is_job(owner: ClientId) -> bool:
    return isinstance(owner.identifier, int)


def _describe(request: Request) -> str:
    shown = ", ".join(f"{lock} {mode}" for lock, mode in request[:4])
    return shown if len(request) <= 4 else f"{shown} and {len(request) - 4} more"


def config_lock_request(*, shared: bool) -> Request:
    """Return the request for the lock on the whole configuration."""
    return ((CONFIG_LOCK, _SHARED if shared else _EXCLUSIVE),)
