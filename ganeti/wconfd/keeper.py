"""Everything that WConfD keeps, and the few ways to change it.

Source: ARCHITECTURE, invariants 3, 4, 7 and 8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from msgspec import Raw

from ganeti.base import metrics
from ganeti.base.errors import GenericError, LockError
from ganeti.base.paths import Paths
from ganeti.config.index import By
from ganeti.config.reservation_file import (
    decode_reservations,
    encode_own_reservations,
    encode_reservations,
)
from ganeti.config.state import ConfigState, Flush
from ganeti.config.transaction import Transaction, free_ports
from ganeti.config.views import Base
from ganeti.daemon import tally
from ganeti.daemon.tally import Counter
from ganeti.protocol.node_rpc_values import ConfigVersion
from ganeti.protocol.wconfd import ClientId, LockMode
from ganeti.store.config_file import MastersFile
from ganeti.system import clock
from ganeti.wconfd.committing import CONFIG_FILE, JOURNAL_FILE, Checkpoints, Committer, Writes
from ganeti.wconfd.lock_service import LockService
from ganeti.wconfd.owners import Owners
from ganeti.wconfd.signalling import Signals
from ganeti.wconfd.volatile import VolatileFile

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The contents of the files when the daemon started.

    Attributes:
        file_version: of the configuration file, which a journal may be ahead of.
    """

    config: ConfigState
    file: MastersFile
    file_version: ConfigVersion
    locks: bytes
    signalled: bytes
    reservations: bytes
    own_reservations: bytes


class Keeper:
    """Configuration, locks and reservations.

    Args:
        has_journal: changes of the configuration go into a journal first.
    """

    def __init__(self, paths: Paths, contents: StateFiles, *, has_journal: bool = False) -> None:
        self.paths = paths
        self.calls = Counter(metrics.WCONFD_CALLS)
        self.writes = Writes()
        self.owners = Owners(paths)
        self.state = contents.config
        self.reservations = decode_reservations(contents.reservations, contents.own_reservations)
        # As of a change just before the last WConfD ended.
        self.reservations.settle(self.durable, self.state.head)
        signals = Signals(paths.locks_own_data, contents.signalled, self.owners)
        self.locks = LockService(
            paths.locks_data, contents.locks, self.owners, signals, self._on_death_of_waiter
        )
        self.locks.allocation.set_jobs_max(self.durable.cluster.max_running_jobs)
        self.locks.allocation.set_sharers_max(self.durable.cluster.max_disk_transfers or None)
        self._listeners: list[Callable[[Flush], None]] = []
        self._file_listeners: list[Callable[[], None]] = []
        self.checkpoints: Checkpoints | None = None
        self._masters_file = contents.file
        write, file = self._write, CONFIG_FILE
        if has_journal:
            self.checkpoints = Checkpoints(
                paths,
                contents.file,
                contents.file_version,
                self.state,
                self._file_written,
                self.writes,
            )
            write, file = self.checkpoints.append, JOURNAL_FILE
            self.on_flush(self.checkpoints.follow)
        self.committer = Committer(self.state, write, self._written, clock.now, self.writes, file)
        self._own_file = VolatileFile(
            paths.tempres_own_data,
            contents.own_reservations,
            lambda: encode_own_reservations(self.reservations),
            lambda _content: self._restore(),
        )
        self._file = VolatileFile(
            paths.tempres_data,
            contents.reservations,
            lambda: encode_reservations(self.reservations),
            lambda _content: self._restore(),
        )

    @property
    def durable(self) -> Base:
        """The configuration as readers see it."""
        return self.state.durable

    def close(self) -> None:
        """Stop using the files."""
        for file in (self._own_file, self._file, self.locks):
            file.close()

    # Configuration.

    def whole(self) -> Raw:
        """Return the whole durable configuration as one object."""
        return Raw(b"".join(self.state.pieces))

    def _write(self, flush: Flush) -> int:
        self._masters_file.write(flush.pieces)
        return sum(map(len, flush.pieces))

    def lines(self) -> Iterator[str]:
        """Yield the lines of the page of metrics, but for the copies on other nodes."""
        size = sum(map(len, self.state.pieces))
        yield from tally.written(metrics.WCONFD_CONFIG_BYTES, {(): size})
        for each in (self.writes, self.locks, self.calls):
            yield from each.lines()

    def _written(self, flush: Flush) -> None:
        self.locks.set_jobs_max(self.durable.cluster.max_running_jobs)
        self.locks.set_sharers_max(self.durable.cluster.max_disk_transfers or None)
        for listener in self._listeners:
            listener(flush)

    def on_flush(self, listener: Callable[[Flush], None]) -> None:
        """Call a function after every change of the configuration."""
        self._listeners.append(listener)

    def _file_written(self) -> None:
        for listener in self._file_listeners:
            listener()

    def on_file(self, listener: Callable[[], None]) -> None:
        """Call a function after every write of the file, where a journal is kept."""
        self._file_listeners.append(listener)

    async def change(self, change: Callable[[Transaction], T], owner: ClientId | None = None) -> T:
        """Change the configuration; waits while somebody else holds the lock on all of it.

        Reservations of the owner that are now in the configuration are dropped.

        Raises:
            LockError: the owner died while it waited.
        """
        if self.locks.config_is_locked_by_others(owner):
            await self.locks.config_free(owner)
            if owner is not None:
                self.owners.check_alive(owner)

        dropped: set[int] = set()

        def with_dropped_ports(transaction: Transaction) -> T:
            result = change(transaction)
            if transaction.objects and self.reservations.dropped_ports:
                dropped.update(self.reservations.dropped_ports)
                self.reservations.dropped_ports.clear()
                free = [port for port in dropped if not transaction.find(By.PORT, port)]
                free_ports(transaction, free)
            return result

        try:
            result = await self.committer.apply(with_dropped_ports)
        except BaseException:
            self.reservations.dropped_ports |= dropped
            raise
        if self.reservations.settle(self.durable, self.state.head):
            await self._follow(self.save_reservations(), "reservations")
        return result

    async def save_locks(self) -> None:
        """Save the locks after a change of the configuration that they follow from."""
        await self._follow(self.locks.save(), "locks")

    async def _follow(self, saving: Awaitable[None], what: str) -> None:
        """Wait until a file has followed a change, which is durable and cannot fail any more."""
        try:
            await saving
        except GenericError as err:
            logger.warning("The %s do not follow the configuration yet: %s; ignoring", what, err)

    def is_config_busy(self, owner: ClientId | None = None) -> bool:
        """Tell whether old calls have to be answered with "try again"."""
        return self.locks.config_is_locked_by_others(owner)

    # Reservations.

    async def save_reservations(self) -> None:
        """Return once the reservations as they are now are in their files."""
        own, other = self._begin_save()
        await asyncio.shield(own)
        await asyncio.shield(other)

    def _begin_save(self) -> tuple[asyncio.Future[None], asyncio.Future[None]]:
        """Have both files written in one turn, so none is taken back between the two."""
        return self._own_file.begin_save(), self._file.begin_save()

    @property
    def reservations_content(self) -> dict[str, bytes]:
        """The contents of the files of the reservations."""
        return {"tempres": self._file.content, "own": self._own_file.content}

    def _restore(self) -> None:
        self.reservations = decode_reservations(self._file.content, self._own_file.content)

    # Owners.

    def clients(self) -> set[ClientId]:
        """Return the owners of all locks and reservations."""
        return self.locks.allocation.clients() | self.reservations.owners()

    def _on_death_of_waiter(self, owner: ClientId) -> None:
        logger.info("An owner that waited for a lock is dead: %s (%s)", owner, owner.livelock)
        self.reservations.remove_owner(owner)
        self._begin_save()

    async def remove_owner(self, owner: ClientId) -> None:
        """Free everything of an owner."""
        self.reservations.remove_owner(owner)
        await self.save_reservations()
        await self.locks.remove_owner(owner)

    def check_holder(self, owner: ClientId, lock: str) -> None:
        """Refuse an owner that does not hold a lock, or its group, exclusively."""
        if not self.locks.allocation.covers(owner, lock, LockMode.EXCLUSIVE):
            raise LockError(f"{owner} does not hold {lock} exclusively")
