"""The handlers of calls about locks, declared in `ganeti.protocol.wconfd`.

Source: wconfd.json, "methods".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ganeti.base.errors import LockError
from ganeti.locking.allocation import config_lock_request
from ganeti.locking.names import BGL, CONFIG_LOCK, parse_request
from ganeti.locking.serialisation import waiter_to_wire
from ganeti.protocol.wconfd import ClientId, LockMode, LockRequest
from ganeti.transport.unix_server import Connection
from ganeti.wconfd.deaths import DeathWatch
from ganeti.wconfd.keeper import Keeper

WAIT_S_MAX = 24 * 3600.0  # a job that waits longer asks again


def clients_to_wire(clients: Iterable[ClientId]) -> list[list[object]]:
    """Encode clients, in a stable order."""
    return sorted((client.to_wire() for client in clients), key=str)


class LockMethods:
    """Handlers of the lock methods."""

    def __init__(self, keeper: Keeper, deaths: DeathWatch, own: ClientId) -> None:
        self._keeper = keeper
        self._locks = keeper.locks
        self._deaths = deaths
        self._own = own

    # Reads.

    def list_locks(self, client: ClientId) -> object:
        return self._locks.allocation.list_locks(client)

    def list_all_locks(self) -> object:
        return self._locks.allocation.list_all()

    def list_all_locks_owners(self) -> object:
        return [
            [lock, [[owner.to_wire(), mode] for owner, mode in owners]]
            for lock, owners in self._locks.allocation.list_all_owners()
        ]

    def list_locks_waiting_status(self) -> object:
        waiters = [waiter_to_wire(waiter) for waiter in self._locks.allocation.waiters()]
        return [self.list_all_locks_owners(), waiters]

    def has_pending_request(self, client: ClientId) -> bool:
        return self._locks.allocation.is_pending(client)

    # Updates.

    async def try_update_locks(self, client: ClientId, request: LockRequest) -> object:
        return clients_to_wire(await self._locks.try_update(client, parse_request(request)))

    async def update_locks_waiting(
        self, client: ClientId, priority: int, request: LockRequest
    ) -> object:
        return clients_to_wire(
            await self._locks.update_waiting(client, priority, parse_request(request))
        )

    async def wait_locks(
        self,
        client: ClientId,
        connection: Connection,
        priority: int,
        request: LockRequest,
        timeout_s: float,
    ) -> object:
        outcome, blockers = await self._locks.wait(
            client,
            priority,
            parse_request(request),
            timeout_s=min(max(timeout_s, 0.0), WAIT_S_MAX),
            gone=connection.wait_closed,
        )
        return [outcome, clients_to_wire(blockers)]

    async def change_wait_priority(self, client: ClientId, priority: int) -> bool:
        found = self._locks.change_priority(client, priority)
        if found:
            await self._locks.save()
        return found

    async def opportunistic_lock_union(self, client: ClientId, request: LockRequest) -> list[str]:
        return await self._locks.union(client, parse_request(request), 0)

    async def guarded_opportunistic_lock_union(
        self, client: ClientId, count: int, request: LockRequest
    ) -> list[str]:
        return await self._locks.union(client, parse_request(request), count)

    async def wait_opportunistic_union(
        self,
        client: ClientId,
        connection: Connection,
        priority: int,
        count: int,
        request: LockRequest,
        timeout_s: float,
    ) -> list[str]:
        return await self._locks.wait_union(
            client,
            priority,
            parse_request(request),
            count=count,
            timeout_s=min(max(timeout_s, 0.0), WAIT_S_MAX),
            gone=connection.wait_closed,
        )

    async def free_locks(self, client: ClientId) -> None:
        await self._locks.remove_owner(client)

    async def free_locks_level(self, client: ClientId, level: str) -> None:
        self._locks.allocation.release_level(client, level)
        await self._locks.save()

    async def down_grade_locks_level(self, client: ClientId, level: str) -> None:
        self._locks.allocation.downgrade_level(client, level)
        await self._locks.save()

    async def intersect_locks(self, client: ClientId, keep: Sequence[str]) -> None:
        self._locks.allocation.intersect(client, keep)
        await self._locks.save()

    async def cleanup_locks(self) -> None:
        await self._deaths.sweep()

    # The lock on the whole configuration.

    async def lock_config(self, client: ClientId, shared: bool) -> object:
        wanted = LockMode.SHARED if shared else LockMode.EXCLUSIVE
        if not self._locks.allocation.covers(client, CONFIG_LOCK, wanted):
            blockers = await self._locks.try_update(client, config_lock_request(shared=shared))
            if blockers:
                return None
        await self._keeper.committer.settled()
        return self._keeper.whole()

    async def unlock_config(self, client: ClientId) -> None:
        self._locks.allocation.release(client, [CONFIG_LOCK])
        await self._locks.save()

    async def take_over_bgl(self, client: ClientId) -> None:
        """Hold the BGL instead of a client that is about to destroy the cluster.

        Raises:
            LockError: the client does not hold it exclusively.
        """
        if not self._locks.allocation.covers(client, BGL, LockMode.EXCLUSIVE):
            raise LockError(f"{client} does not hold {BGL} exclusively")
        self._locks.allocation.transfer(client, BGL, self._own)
        await self._locks.save()
