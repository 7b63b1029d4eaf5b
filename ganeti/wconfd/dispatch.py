"""From a request to its handler: arguments, life of the client, locks that a change needs.

Fencing.  Whoever takes or changes anything by name must be alive.  A change by one of our own
methods needs a lock, as its table row says; one without is carried out and logged as a violation,
or refused where violations are errors (`FENCING_IS_STRICT`).  The methods of Ganeti 3.0 that change
the configuration without naming a client are logged, each once.

Source: ARCHITECTURE, invariant 3; design of the 2.12 daemons, "Future aims" of locking.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from ganeti.base.errors import GenericError, LockError
from ganeti.config.changes import table_of
from ganeti.config.index import CLUSTER, FILTERS, GROUPS, INSTANCES, NETWORKS, NODES
from ganeti.config.lookup import instance_of_disk, lock_key
from ganeti.locking.names import BGL
from ganeti.protocol.envelope import Request
from ganeti.protocol.wconfd import (
    OWN,
    WCONFD_METHODS,
    ClientId,
    Effect,
    LockMode,
    Method,
    Need,
)
from ganeti.protocol.wconfd_stub import python_name
from ganeti.transport.unix_server import Connection
from ganeti.wconfd.arguments import decode_arguments
from ganeti.wconfd.keeper import Keeper

logger = logging.getLogger(__name__)

FENCING_IS_STRICT: Final = False

Handler = Callable[..., object]

_WITH_CONNECTION: Final = frozenset({"waitLocks", "waitOpportunisticUnion"})
_FOR_THE_DEAD_AS_WELL: Final = frozenset(
    {"freeLocks", "freeLocksLevel", "downGradeLocksLevel", "intersectLocks"}
    | {"unlockConfig", "dropAllReservations", "releaseNodeResources", "releaseInstancePort"}
)
_LEVELS: Final = {
    Need.NODE: (NODES, "node"),
    Need.GROUP: (GROUPS, "nodegroup"),
    Need.INSTANCE: (INSTANCES, "instance"),
    Need.NETWORK: (NETWORKS, "network"),
}
_LEVEL_OF_TABLE: Final = dict(_LEVELS.values())


class Dispatcher:
    """Answers requests; `handlers` are objects with a method for each row of the table."""

    def __init__(self, keeper: Keeper, handlers: Sequence[object]) -> None:
        self._keeper = keeper
        self._handlers: dict[str, Handler] = {}
        for name in WCONFD_METHODS:
            owners = [handler for handler in handlers if hasattr(handler, python_name(name))]
            assert len(owners) == 1, f"{name} has {len(owners)} handlers"
            self._handlers[name] = getattr(owners[0], python_name(name))
        self._seen_without_client: set[str] = set()
        self._seen_violations: set[tuple[ClientId, str, str]] = set()

    async def __call__(self, request: Request, connection: Connection) -> object:
        """Answer one request.

        Raises:
            GenericError: unknown method, wrong arguments, or whatever the method refused.
        """
        method = WCONFD_METHODS.get(request.method)
        if method is None:
            raise GenericError(f"unknown method {request.method!r:.100}")
        args = decode_arguments(method, request.args)
        self._fence(method, args)
        handler = self._handlers[method.name]
        if method.name in _WITH_CONNECTION:
            result = handler(*args, connection=connection)
        else:
            result = handler(*args)
        if isinstance(result, Awaitable):
            result = await result
        return [] if result is None and method.result == "void" else result

    def _fence(self, method: Method, args: Sequence[Any]) -> None:
        index = method.client_index
        if index is None:
            changes = method.effect in (Effect.CONFIG, Effect.RESERVE)
            if changes and method.name not in self._seen_without_client:
                self._seen_without_client.add(method.name)
                logger.info("%s is called, which changes things but names no client", method.name)
            return
        client: ClientId = args[index]
        self._keeper.owners.local_path(client)  # refuses a lock file elsewhere
        if method.effect is Effect.READ or method.name in _FOR_THE_DEAD_AS_WELL:
            return
        self._keeper.owners.check_alive(client)
        if method.since == OWN and method.needs is not Need.NONE:
            self._check_lock(method, client, args)

    def _check_lock(self, method: Method, client: ClientId, args: Sequence[Any]) -> None:
        """Check that the client holds the lock that its change needs."""
        needed, mode = self._needed_lock(method, args)
        allocation = self._keeper.locks.allocation
        if needed is None or allocation.covers(client, BGL, LockMode.EXCLUSIVE):
            return
        if allocation.covers(client, needed, mode):
            return
        if FENCING_IS_STRICT:
            raise LockError(f"{client} calls {method.name} without holding {needed} {mode}")
        violation = (client, method.name, needed)
        if violation not in self._seen_violations:
            if len(self._seen_violations) > 10_000:  # jobs come and go; keep no list of the past
                self._seen_violations.clear()
            self._seen_violations.add(violation)
            logger.warning(
                "Lock violation: %s calls %s without holding %s %s",
                client,
                method.name,
                needed,
                mode,
            )

    def _needed_lock(self, method: Method, args: Sequence[Any]) -> tuple[str | None, LockMode]:
        """Return the lock that a call needs; None when it is about something unknown."""
        head = self._keeper.state.head
        bgl = (BGL, LockMode.SHARED)
        if method.needs is Need.BGL:
            return bgl
        if method.needs is Need.DISK:
            name = instance_of_disk(head, args[1])
            return bgl if name is None else (f"instance/{name}", LockMode.EXCLUSIVE)
        if method.needs is Need.KIND:
            table, key = table_of(args[1]), args[2]
            if table in (CLUSTER, FILTERS):
                return bgl
            level = _LEVEL_OF_TABLE.get(table)
        else:
            table, level = _LEVELS[method.needs]
            key = args[1]
        if isinstance(key, dict):  # an object to be created
            found = key.get("name") if table == INSTANCES else key.get("uuid")
        else:
            found = lock_key(head, table, key)
        if level is None or not isinstance(found, str):
            return None, LockMode.EXCLUSIVE
        return f"{level}/{found}", LockMode.EXCLUSIVE
