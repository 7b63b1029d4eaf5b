"""Fencing: a change is refused unless its owner lives and holds the lock that the change needs.

Which lock that is, the method table says (`Need`).  The methods of Ganeti 3.0 come with rules of
their own: those that name a client are refused for a dead one, the others are logged once each.

Source: ARCHITECTURE, invariant 3; design of the 2.12 daemons, "Future aims" of locking.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base.errors import LockError
from ganeti.config.changes import table_of
from ganeti.config.index import DISKS, GROUPS, INSTANCES, NETWORKS, NODES
from ganeti.config.lookup import instance_of_disk, lock_key
from ganeti.config.views import View
from ganeti.locking.names import BGL
from ganeti.protocol.wconfd import OWN, ClientId, Effect, LockMode, Method, Need
from ganeti.wconfd.keeper import Keeper

logger = logging.getLogger(__name__)

NeededLock = tuple[str, LockMode]

_ANY_BGL: Final[NeededLock] = (BGL, LockMode.SHARED)
_FOR_THE_DEAD_AS_WELL: Final = frozenset(
    {"freeLocks", "freeLocksLevel", "downGradeLocksLevel", "intersectLocks"}
    | {"unlockConfig", "dropAllReservations", "releaseNodeResources", "releaseInstancePort"}
)
_TABLES: Final[Mapping[Need, str]] = {
    Need.NODE: NODES,
    Need.GROUP: GROUPS,
    Need.INSTANCE: INSTANCES,
    Need.NETWORK: NETWORKS,
    Need.DISK: DISKS,
}
_LEVELS: Final[Mapping[str, str]] = {
    NODES: "node",
    GROUPS: "nodegroup",
    INSTANCES: "instance",
    NETWORKS: "network",
}


def needed_locks(view: View, method: Method, args: Sequence[Any]) -> list[NeededLock]:
    """Return the locks that the owner of a call must hold, in the order of its arguments.

    A call about something that does not exist needs none: its handler refuses it by name.
    """
    match method.needs:
        case Need.NONE:
            return []
        case Need.BGL:
            return [_ANY_BGL]
        case Need.KIND:
            named = [(table_of(args[1]), args[2])]
        case Need.OBJECTS:
            named = [(table_of(kind), key) for kind, key, _ in args[1]]
        case single:
            named = [(_TABLES[single], args[1])]
    found = (_lock_of(view, table, key) for table, key in named)
    return [lock for lock in found if lock is not None]


def _lock_of(view: View, table: str, key: object) -> NeededLock | None:
    """Return the lock of an object, given by name, by UUID or, if it is to be created, as such."""
    if table == DISKS:
        name = instance_of_disk(view, str(key))
        return _ANY_BGL if name is None else (f"instance/{name}", LockMode.EXCLUSIVE)
    level = _LEVELS.get(table)
    if level is None:  # the cluster and filter rules have no lock of their own
        return _ANY_BGL
    if isinstance(key, dict):
        found = key.get("name") if table == INSTANCES else key.get("uuid")
    else:
        found = lock_key(view, table, str(key))
    return (f"{level}/{found}", LockMode.EXCLUSIVE) if isinstance(found, str) else None


class Fence:
    """Checks calls before they are carried out."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._seen_without_client: set[str] = set()

    def check(self, method: Method, args: Sequence[Any]) -> None:
        """Refuse a call whose owner may not make it.

        Raises:
            LockError: the owner is dead, or lacks a lock; names method, owner and lock.
            OpPrereqError: the owner's lock file does not lie in the directory for them.
        """
        index = method.client_index
        if index is None:
            self._note_nameless(method)
            return
        client: ClientId = args[index]
        self._keeper.owners.local_path(client)  # refuses a lock file elsewhere
        if method.effect is Effect.READ or method.name in _FOR_THE_DEAD_AS_WELL:
            return
        self._keeper.owners.check_alive(client)
        if method.since == OWN:
            self._check_locks(method, client, args)

    def _check_locks(self, method: Method, client: ClientId, args: Sequence[Any]) -> None:
        allocation = self._keeper.locks.allocation
        if allocation.covers(client, BGL, LockMode.EXCLUSIVE):
            return
        for lock, mode in needed_locks(self._keeper.state.head, method, args):
            if not allocation.covers(client, lock, mode):
                raise LockError(
                    f"{method.name} by {client}: this needs lock {lock} ({mode}), which"
                    f" {client} does not hold"
                )

    def _note_nameless(self, method: Method) -> None:
        changes = method.effect in (Effect.CONFIG, Effect.RESERVE)
        if changes and method.name not in self._seen_without_client:
            self._seen_without_client.add(method.name)
            logger.info("%s is called, which changes things but names no client", method.name)
