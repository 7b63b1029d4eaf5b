"""From a request to its handler: call, arguments, fence.

The fence refuses a change unless its owner lives and holds the lock that the rules of the call ask
for (`Need`).  Some calls of Ganeti 3.0 change things and name no owner: these are refused, or each
is logged where they are allowed.

Source: wconfd.json, "methods"; ARCHITECTURE, invariant 3; design of the 2.12 daemons, "Future aims"
of locking.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base.errors import GenericError, LockError, OpPrereqError, ProtocolError
from ganeti.config.changes import TABLE_OF
from ganeti.config.index import DISKS, FILTERS, GROUPS, INSTANCES, NETWORKS, NODES, By
from ganeti.config.views import View
from ganeti.locking.names import BGL
from ganeti.protocol.envelope import Request
from ganeti.protocol.service import Call, handlers_of
from ganeti.protocol.wconfd import ClientId, Effect, LockMode, Need, Rules, WConfCalls, wire_names
from ganeti.transport.unix_server import Connection
from ganeti.wconfd.keeper import Keeper

logger = logging.getLogger(__name__)

NeededLock = tuple[str, LockMode]

_ANY_BGL: Final[NeededLock] = (BGL, LockMode.SHARED)
LEVELS: Final[Mapping[str, tuple[str, ...]]] = {
    NODES: ("node", "node-res"),
    GROUPS: ("nodegroup",),
    INSTANCES: ("instance",),
    NETWORKS: ("network",),
}
"""The lock levels of objects; a change needs the lock of the first."""


class Dispatcher:
    """Answers requests; `servers` are objects with a method for each call.

    A method takes the owner first, if the call has one, then the connection, if the call waits.
    """

    def __init__(
        self, keeper: Keeper, servers: Sequence[object], *, changes_without_owner: bool = False
    ) -> None:
        self._calls = keeper.calls
        self._fence = Fence(keeper, changes_without_owner=changes_without_owner)
        self._handlers: dict[str, Callable[..., object]] = {}
        for server in servers:
            found = handlers_of(WConfCalls, server, leading=_leading)
            assert not found.keys() & self._handlers.keys(), f"{found.keys()} are served twice"
            self._handlers |= found
        missing = WConfCalls.calls.keys() - self._handlers.keys()
        assert not missing, f"nobody serves {missing}"

    async def __call__(self, request: Request, connection: Connection) -> object:
        """Answer one request.

        Raises:
            GenericError: unknown call, wrong arguments, or the error of the handler.
        """
        call: Call[Rules] | None = WConfCalls.calls.get(request.method)
        if call is None:
            raise GenericError(
                f"unknown method {request.method!r:.100}; a client of another version must be"
                " started again"
            )
        self._calls.add((call.name,))
        client, args = read_arguments(call, request.args)
        self._fence.check(call, client, args)
        leading: list[object] = [] if client is None else [client]
        if call.rules.waits:
            leading.append(connection)
        result = self._handlers[call.name](*leading, *args)
        if isinstance(result, Awaitable):
            result = await result
        return [] if result is None and call.answers_nothing else result


def _leading(call: Call[Rules]) -> int:
    return (call.rules.owner is not None) + call.rules.waits


def read_arguments(
    call: Call[Rules], values: Sequence[object]
) -> tuple[ClientId | None, list[Any]]:
    """Return the owner and the other arguments of a request, each of its declared type.

    Raises:
        OpPrereqError: wrong number of arguments, or one of a wrong type; names it.
    """
    names = wire_names(call)
    if len(values) != len(names):
        raise OpPrereqError(
            f"{call.name} takes {len(names)} arguments ({', '.join(names) or 'none'}),"
            f" not {len(values)}"
        )
    rest = list(values)
    index = call.rules.owner
    client = None if index is None else ClientId.from_wire(rest.pop(index))
    try:
        return client, call.read(rest)
    except ProtocolError as err:
        raise OpPrereqError(err.message) from err


def needed_locks(view: View, call: Call[Rules], args: Sequence[Any]) -> list[NeededLock]:
    """Return the locks that the owner of a call must hold, in the order of its arguments.

    A call about an object that does not exist needs none: its handler refuses it by name.
    """
    match call.rules.needs:
        case Need.NONE | Need.LIFE:
            return []
        case Need.BGL:
            return [_ANY_BGL]
        case Need.INSTANCE:
            named = [(INSTANCES, args[0])]
        case Need.OBJECT:
            named = [(TABLE_OF[args[0]], args[1])]
        case Need.OBJECTS:
            named = [(TABLE_OF[kind], key) for kind, key, _ in args[0]]
    found = (_lock_of(view, table, key) for table, key in named)
    return [lock for lock in found if lock is not None]


def lock_key(view: View, table: str, key: str) -> str | None:
    """Return the name that the lock of an object has: a name for instances, else the UUID."""
    uuid = view.resolve(table, key)
    if uuid is None or table != INSTANCES:
        return uuid
    return view.name_of((table, uuid))


def _instance_of_disk(view: View, key: str) -> str | None:
    """Return the name of the instance that a disk is attached to, or None."""
    uuid = view.resolve(DISKS, key)
    owners = () if uuid is None else view.find(By.DISK_OWNER, uuid)
    return view.name_of(owners[0]) if owners else None


def _lock_of(view: View, table: str, key: object) -> NeededLock | None:
    """Return the lock of an object, given by name, by UUID or, if it is to be created, as such."""
    if table == FILTERS:  # LuxiD owns these, and holds no lock
        return None
    if table == DISKS:
        name = _instance_of_disk(view, str(key))
        return _ANY_BGL if name is None else (f"instance/{name}", LockMode.EXCLUSIVE)
    if table not in LEVELS:  # the cluster has no lock of its own
        return _ANY_BGL
    if not isinstance(key, dict):
        found = lock_key(view, table, str(key))
    elif table == INSTANCES:
        found = key.get("name")
    else:
        return _ANY_BGL
    return (f"{LEVELS[table][0]}/{found}", LockMode.EXCLUSIVE) if isinstance(found, str) else None


class Fence:
    """Checks calls before they are carried out."""

    def __init__(self, keeper: Keeper, *, changes_without_owner: bool) -> None:
        self._keeper = keeper
        self._changes_without_owner = changes_without_owner

    def check(self, call: Call[Rules], client: ClientId | None, args: Sequence[Any]) -> None:
        """Refuse a call whose owner may not make it.

        Raises:
            LockError: the owner is dead, or lacks a lock, or there is none; names call, owner and
                lock.
            OpPrereqError: the owner's lock file does not lie in the directory for them.
        """
        if client is None:
            self._check_without_owner(call, args)
            return
        if call.rules.effect is Effect.READ or call.rules.for_dead:
            return  # who does not live has nothing: that is no failure
        self._keeper.owners.local_path(client)  # refuses a lock file elsewhere
        self._keeper.owners.check_alive(client)
        self._check_locks(call, client, args)

    def _check_locks(self, call: Call[Rules], client: ClientId, args: Sequence[Any]) -> None:
        allocation = self._keeper.locks.allocation
        if allocation.covers(client, BGL, LockMode.EXCLUSIVE):
            return
        for lock, mode in needed_locks(self._keeper.state.head, call, args):
            if not allocation.covers(client, lock, mode):
                raise LockError(
                    f"{call.name} by {client}: this needs lock {lock} ({mode}), which"
                    f" {client} does not hold"
                )

    def _check_without_owner(self, call: Call[Rules], args: Sequence[Any]) -> None:
        if not call.rules.instead:
            return
        if not self._changes_without_owner:
            raise LockError(
                f"{call.name} changes things and names no owner, so nobody can tell whether its"
                f" locks are held: use {call.rules.instead}; for programs of Ganeti 3.0 start"
                " ganeti-wconfd with --changes-without-owner"
            )
        about = next((str(arg) for arg in args if isinstance(arg, str)), "")
        logger.warning("%s %s: done without an owner and without locks", call.name, about)
