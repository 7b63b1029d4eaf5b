"""The real WConfD in this process: its handlers and their checks, without socket and replication.

The configuration is durable as soon as it is accepted.  Tests look at the objects as JSON has them,
and edit them in place: an edit goes into the configuration before the next call, unchecked.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

from fakes.fake_records import GROUP, make_cluster, make_group, make_node, uuid_of
from msgspec import Raw

from ganeti.base.errors import GenericError
from ganeti.base.json import dumps, loads
from ganeti.base.paths import Paths
from ganeti.base.versions import CONFIG_VERSION
from ganeti.config import reservation_file
from ganeti.config.config_data import TABLES
from ganeti.config.index import CLUSTER, CLUSTER_ID, ObjectId
from ganeti.config.overlay import Stored
from ganeti.config.reservations import Kind, Reservations
from ganeti.config.state import ConfigState
from ganeti.config.transaction import Transaction
from ganeti.locking import serialisation
from ganeti.locking.names import parse_request
from ganeti.objects.record import plain
from ganeti.protocol.envelope import (
    decode_request,
    decode_response_as,
    encode_failure,
    encode_request,
    encode_success,
)
from ganeti.protocol.service import Call
from ganeti.protocol.wconfd import ClientId, Rules, WConfCalls
from ganeti.store.config_file import MastersFile
from ganeti.store.swap_file import SwapFile
from ganeti.system import clock, files
from ganeti.system.filelock import LiveLock
from ganeti.transport.unix_server import Connection
from ganeti.wconfd import signalling
from ganeti.wconfd.change_methods import OwnChanges, V3Changes
from ganeti.wconfd.committing import Committer
from ganeti.wconfd.copies.distribution import Distributor
from ganeti.wconfd.deaths import DeathWatch
from ganeti.wconfd.dispatch import Dispatcher
from ganeti.wconfd.keeper import Keeper, StateFiles
from ganeti.wconfd.lock_methods import LockMethods
from ganeti.wconfd.maintenance_methods import MaintenanceMethods
from ganeti.wconfd.read_methods import ReadMethods
from ganeti.wconfd.reservation_methods import ReservationMethods

T = TypeVar("T")
Wire = dict[str, Any]

_loop: Final = asyncio.new_event_loop()
atexit.register(_loop.close)
_numbers: Final = itertools.count()
OPEN: Final = contextlib.ExitStack()
"""Closes the files of all configurations; the conftest does so after each test."""


class FakeConfig(WConfCalls):
    """The configuration, locks and reservations of a cluster, and the job that uses them.

    Attributes:
        failing: errors by name of the call on the wire.
        stand_ins: functions by name of the method; `serve` is the real one.
        before_grant: called one by one, each before another request for locks is looked at.
    """

    def __init__(self, root: str, nodes: int = 3, **cluster: object) -> None:
        paths = Paths(root)
        for directory in (paths.data_dir, paths.run_dir, paths.lock_dir, paths.livelock_dir):
            files.ensure_directory(directory)
        self.owner = self._owner(paths, 7)
        self._paths = paths
        self._other: ClientId | None = None
        self.keeper = _keeper(paths, nodes, cluster)
        self.distribution = InPlace()
        own = f"{paths.livelock_dir}/wconfd"
        self._dispatcher = served_by(self.keeper, self.distribution, None, own)
        self.cluster: Wire = {}
        self.tables: dict[str, dict[str, Wire]] = {name: {} for name in TABLES}
        self._seen: dict[ObjectId, tuple[bytes, Wire]] = {}
        self._show()
        self.lock_history: list[list[tuple[str, str]]] = []
        self.calls: list[str] = []
        self.failing: dict[str, GenericError] = {}
        self.stand_ins: dict[str, Callable[..., Any]] = {}
        self.before_grant: list[Callable[[], None]] = []

    @staticmethod
    def _owner(paths: Paths, identifier: int) -> ClientId:
        livelock = LiveLock.create(f"{paths.livelock_dir}/job_{identifier}_{next(_numbers)}")
        OPEN.callback(livelock.release)
        return ClientId(identifier, livelock.path, os.getpid())

    # Calls.

    def invoke(self, call: Call[Rules], args: list[Any]) -> Any:
        self.calls.append(call.name)
        if call.name in self.failing:
            raise self.failing[call.name]
        if call.method in self.stand_ins:
            return self.stand_ins[call.method](*args)
        return self.serve(call, args)

    def serve(self, call: Call[Rules], args: list[Any]) -> Any:
        """Have WConfD answer a call; a wait for locks is over at once."""
        if call.method == "wait_locks" and self.before_grant:
            self.before_grant.pop(0)()
        if call.method in ("wait_locks", "wait_opportunistic_union"):
            args = [*args[:-1], 0.0]
        wire = [plain(arg) for arg in args]
        if call.rules.owner is not None:
            wire.insert(call.rules.owner, self.owner)
        self._take_edits()
        request = decode_request(encode_request(call.name, wire))
        try:
            answer = _loop.run_until_complete(self._dispatcher(request, _CONNECTION))
            response = encode_success(answer)
        except GenericError as err:
            response = encode_failure(err)
        finally:
            self._show()
        result = call.decode_answer(decode_response_as(Raw, response))
        if call.method == "wait_locks" and result[0] == "granted":
            self.lock_history.append(args[1])
        return result

    # The objects as tests see them.

    def _show(self) -> None:
        """Have the objects that tests hold follow the configuration."""
        view = self.keeper.durable
        identities = [CLUSTER_ID, *((t, uuid) for t in TABLES for uuid in view.tables[t])]
        for identity in identities:
            stored = view.stored(identity)
            assert stored is not None
            seen = self._seen.get(identity)
            if seen is None or seen[0] != stored.raw:
                self._seen[identity] = (stored.raw, cast(Wire, loads(stored.raw)))
                shown = self._shown(identity)
                shown.clear()
                shown.update(cast(Wire, loads(stored.raw)))
        for table, uuid in self._seen.keys() - set(identities):
            del self._seen[table, uuid], self.tables[table][uuid]

    def _shown(self, identity: ObjectId) -> Wire:
        table, uuid = identity
        return self.cluster if table == CLUSTER else self.tables[table].setdefault(uuid, {})

    def _take_edits(self) -> None:
        """Put what tests have edited into the configuration."""
        now: dict[ObjectId, Wire] = {CLUSTER_ID: self.cluster}
        now |= {(t, uuid): wire for t, table in self.tables.items() for uuid, wire in table.items()}
        edited = {
            identity: wire
            for identity, wire in now.items()
            if identity not in self._seen or self._seen[identity][1] != wire
        }
        gone = self._seen.keys() - now.keys()
        if not edited and not gone:
            return
        state = self.keeper.state
        transaction = state.begin(clock.now())
        for identity, wire in edited.items():
            transaction.put(identity, Stored(dumps(wire)))
        for identity in gone:
            self._seen.pop(identity)
            transaction.put(identity, None)
        state.accept(transaction)
        _commit(state)
        self._show()

    @property
    def nodes(self) -> dict[str, Wire]:
        return self.tables["nodes"]

    @property
    def nodegroups(self) -> dict[str, Wire]:
        return self.tables["nodegroups"]

    @property
    def instances(self) -> dict[str, Wire]:
        return self.tables["instances"]

    @property
    def disks(self) -> dict[str, Wire]:
        return self.tables["disks"]

    @property
    def networks(self) -> dict[str, Wire]:
        return self.tables["networks"]

    def instance(self, name: str) -> Wire:
        """Return the instance of that name."""
        (found,) = (i for i in self.instances.values() if i["name"] == name)
        return found

    def node(self, number: int) -> Wire:
        """Return a node's object."""
        return self.nodes[uuid_of(f"node{number}")]

    # Locks and reservations.

    @property
    def held(self) -> dict[str, str]:
        """The locks that the job holds."""
        return {
            lock: str(mode) for lock, mode in self.keeper.locks.allocation.list_locks(self.owner)
        }

    def free_everything(self) -> None:
        """Free locks and reservations of the job, as WConfD does when its process dies."""
        _loop.run_until_complete(self.keeper.remove_owner(self.owner))

    def lock_by_another(self, *locks: str) -> None:
        """Have another job hold locks."""
        if self._other is None:
            self._other = self._owner(self._paths, 8)
        request = dict.fromkeys(locks, "exclusive")
        blockers = self.keeper.locks.allocation.try_update(
            self._other, parse_request(list(request.items()))
        )
        assert not blockers

    @property
    def reserved(self) -> Reservations:
        """All reservations."""
        return self.keeper.reservations

    @property
    def macs(self) -> set[str]:
        """MAC addresses that are reserved."""
        return set(self.reserved.texts[Kind.MAC])

    @property
    def ips(self) -> dict[ClientId, Any]:
        """Addresses of networks that are reserved, by owner."""
        return self.reserved.ips

    @property
    def resources(self) -> list[Any]:
        """Memory and disk space of nodes that the job has reserved."""
        mine = self.reserved.amounts.get(self.owner, {})
        return [[node, *amounts] for node, amounts in mine.items()]


class _Connection:
    """A client that stays."""

    async def wait_closed(self) -> None:
        await asyncio.Event().wait()


_CONNECTION: Final = cast(Connection, _Connection())


class InPlace:
    """Candidates that have everything; `rows` is their state as told to clients."""

    def __init__(self) -> None:
        self.rows: list[Wire] = []

    def status(self) -> list[Wire]:
        return self.rows

    async def begin_again(self) -> None:
        """There is nothing to send."""

    async def flush(self, _group: str | None) -> None:
        """There is nothing to wait for."""


def served_by(
    keeper: Keeper, distribution: InPlace, deaths: DeathWatch | None, livelock_path: str
) -> Dispatcher:
    """Return all handlers of WConfD; the path is that of the daemon's own lock file."""
    own = ClientId("wconfd", livelock_path, os.getpid())
    locks = LockMethods(keeper, cast(DeathWatch, deaths), own)
    servers = (
        locks,
        ReadMethods(keeper, cast(Distributor, distribution)),
        ReservationMethods(keeper),
        OwnChanges(keeper),
        V3Changes(keeper, locks),
        MaintenanceMethods(keeper),
    )
    return Dispatcher(keeper, servers)


class _Nowhere(SwapFile):
    """A file of which nobody reads the content: WConfD is never started again."""

    def write(self, data: bytes) -> None:
        pass


class _Committer(Committer):
    """What is accepted is durable."""

    async def apply(self, change: Callable[[Transaction], T]) -> T:
        transaction = self.state.begin(self._now())
        result = change(transaction)
        if transaction.objects:
            transaction.check()
            self.state.accept(transaction)
            _commit(self.state)
        return result


def _commit(state: ConfigState) -> None:
    state.start_flush(clock.now())
    state.flush_done()


def _keeper(paths: Paths, nodes: int, cluster: Mapping[str, object]) -> Keeper:
    made = [make_node(number) for number in range(1, nodes + 1)]
    config = {
        "version": CONFIG_VERSION,
        "cluster": make_cluster(**cluster),
        "nodes": {node["uuid"]: node for node in made},
        "nodegroups": {GROUP: make_group()},
        "instances": {},
        "networks": {},
        "disks": {},
        "filters": {},
        "serial_no": 1,
        "ctime": 1000.0,
        "mtime": 1000.0,
    }
    state = ConfigState(dumps(config))
    contents = StateFiles(
        state,
        MastersFile(paths),
        state.version,
        serialisation.EMPTY,
        signalling.EMPTY,
        reservation_file.EMPTY,
        reservation_file.EMPTY_OWN,
    )
    keeper = Keeper(paths, contents)
    keeper.committer = _Committer(
        keeper.state, lambda _pieces: 0, lambda _flush: None, clock.now, keeper.writes
    )
    lasting = (keeper._own_file, keeper._file, keeper.locks._file, keeper.locks._signals._file)
    for file in lasting:
        file._file = _Nowhere(file.path, 0o600)
    return keeper
