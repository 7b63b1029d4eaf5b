"""The owners of locks: facts only, no queue.

Group locks are kept exact by counting, per group and owner, the member locks held: an owner of
a member is in the way of every owner that wants the group.

Invariant: no two owners hold locks that conflict (see `Ownership.blockers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ganeti.locking.names import OrderKey, group_of, is_group, order_key
from ganeti.protocol.wconfd import ClientId, LockMode

_SHARED = LockMode.SHARED
_EXCLUSIVE = LockMode.EXCLUSIVE


class _Owned:
    """The locks of one owner."""

    __slots__ = ("client", "encoded", "highest", "locks")

    def __init__(self, client: ClientId) -> None:
        self.client = client
        self.locks: dict[str, LockMode] = {}
        self.highest: OrderKey | None = None  # None while unknown or nothing is held
        self.encoded: bytes | None = None


class Ownership:
    """Locks and their holders."""

    def __init__(self) -> None:
        self._owned: dict[ClientId, _Owned] = {}
        self._holders: dict[str, dict[ClientId, LockMode]] = {}
        # group lock -> owner -> number of member locks held (in any mode; exclusively)
        self._inside: dict[str, dict[ClientId, int]] = {}
        self._inside_exclusive: dict[str, dict[ClientId, int]] = {}

    def owners(self) -> Iterator[ClientId]:
        """Iterate over all owners that hold a lock."""
        return iter(self._owned)

    def held(self, owner: ClientId) -> Mapping[str, LockMode]:
        """Return the locks of one owner."""
        owned = self._owned.get(owner)
        return owned.locks if owned is not None else {}

    def locks(self) -> Iterator[tuple[str, Mapping[ClientId, LockMode]]]:
        """Iterate over all locks that are held directly, with their holders."""
        return iter(self._holders.items())

    def holders(self, lock: str) -> Mapping[ClientId, LockMode]:
        """Return the owners that hold a lock directly."""
        return self._holders.get(lock, {})

    def groups_held_through_members(self) -> Iterator[str]:
        """Iterate over group locks of which some member is held."""
        return (group for group, owners in self._inside.items() if owners)

    def covers(self, owner: ClientId, lock: str, mode: LockMode) -> bool:
        """Tell whether the owner holds the lock, or its group, at least in that mode."""
        held = self.held(owner)
        mine = held.get(lock)
        if mine is _EXCLUSIVE or (mine is not None and mode is _SHARED):
            return True
        group = group_of(lock)
        mine = held.get(group) if group is not None else None
        return mine is _EXCLUSIVE or (mine is not None and mode is _SHARED)

    def highest(self, owner: ClientId) -> OrderKey | None:
        """Return the order of the highest lock held, or None."""
        owned = self._owned.get(owner)
        if owned is None:
            return None
        if owned.highest is None:
            owned.highest = max(map(order_key, owned.locks))
        return owned.highest

    def blockers(self, owner: ClientId, lock: str, mode: LockMode) -> Iterator[ClientId]:
        """Iterate over the others in the way of one wish; some may come twice."""
        yield from self._holders_against(owner, lock, mode)
        group = group_of(lock)
        if group is not None:
            yield from self._holders_against(owner, group, mode)
        elif is_group(lock):
            inside = self._inside if mode is _EXCLUSIVE else self._inside_exclusive
            for other in inside.get(lock, ()):
                if other != owner:
                    yield other

    def _holders_against(self, owner: ClientId, lock: str, mode: LockMode) -> Iterator[ClientId]:
        for other, theirs in self._holders.get(lock, {}).items():
            if (mode is _EXCLUSIVE or theirs is _EXCLUSIVE) and other != owner:
                yield other

    def is_blocked(self, owner: ClientId, lock: str, mode: LockMode) -> bool:
        """Tell whether anybody else is in the way."""
        return next(self.blockers(owner, lock, mode), None) is not None

    def set_mode(self, owner: ClientId, lock: str, mode: LockMode | None) -> None:
        """Let the owner hold the lock in that mode, or no more.  Conflicts are not looked at."""
        owned = self._owned.get(owner)
        before = owned.locks.get(lock) if owned is not None else None
        if before is mode:
            return
        if owned is None:
            owned = self._owned[owner] = _Owned(owner)
        owned.encoded = None
        self._count(owner, lock, before, -1)
        self._count(owner, lock, mode, +1)
        if mode is None:
            self._drop(owned, lock)
            return
        owned.locks[lock] = mode
        self._holders.setdefault(lock, {})[owner] = mode
        key = order_key(lock)
        if len(owned.locks) == 1 or (owned.highest is not None and key > owned.highest):
            owned.highest = key

    def _drop(self, owned: _Owned, lock: str) -> None:
        del owned.locks[lock]
        if owned.highest == order_key(lock):
            owned.highest = None
        holders = self._holders[lock]
        del holders[owned.client]
        if not holders:
            del self._holders[lock]
        if not owned.locks:
            del self._owned[owned.client]

    def _count(self, owner: ClientId, lock: str, mode: LockMode | None, step: int) -> None:
        group = group_of(lock)
        if group is None or mode is None:
            return
        _add(self._inside, group, owner, step)
        if mode is _EXCLUSIVE:
            _add(self._inside_exclusive, group, owner, step)

    def encoded(self, owner: ClientId) -> bytes | None:
        """Return the cached encoding of an owner's locks, if nothing changed since."""
        return self._owned[owner].encoded

    def set_encoded(self, owner: ClientId, data: bytes) -> None:
        """Remember an encoding until the owner's locks change."""
        self._owned[owner].encoded = data


def _add(counts: dict[str, dict[ClientId, int]], group: str, owner: ClientId, step: int) -> None:
    owners = counts.setdefault(group, {})
    count = owners.get(owner, 0) + step
    if count:
        owners[owner] = count
    else:
        del owners[owner]
        if not owners:
            del counts[group]
