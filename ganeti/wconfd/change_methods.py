"""The handlers of calls that change the configuration, declared in `ganeti.protocol.wconfd`.

Each hands a function of `ganeti.config` to the keeper, which carries it out on top of everything
accepted before and answers once it is durable.

Source: wconfd.json, "methods".
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Raw

from ganeti.base.errors import LockError
from ganeti.config import changes, instances
from ganeti.config.changes import TABLE_OF, modify_many, replace_config
from ganeti.config.index import CLUSTER, DISKS, GROUPS, INSTANCES, NETWORKS, NODES, ObjectId
from ganeti.config.transaction import SerialAndTime, Transaction, apply_ip_actions, free_ports
from ganeti.locking.names import BGL, CONFIG_LOCK
from ganeti.protocol.wconfd import ClientId, ObjectKind
from ganeti.wconfd.dispatch import LEVELS, lock_key
from ganeti.wconfd.keeper import Keeper
from ganeti.wconfd.lock_methods import LockMethods

T = TypeVar("T")
Wire = Mapping[str, object]


class OwnChanges:
    """Handlers of our own calls; each names its owner, which has been checked."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    async def _change(self, client: ClientId, change: Callable[..., T], *args: object) -> T:
        return await self._keeper.change(lambda transaction: change(transaction, *args), client)

    async def _change_named(
        self,
        client: ClientId,
        objects: Sequence[tuple[str, str]],
        change: Callable[[Transaction], SerialAndTime],
    ) -> SerialAndTime:
        """Change objects; waiters for a lock named after an object that is gone are failed."""
        before = self._lock_names(objects)
        serial = await self._keeper.change(change, client)
        gone = before - self._lock_names(objects)
        if gone:
            self._keeper.locks.fail_waiters(gone)
            await self._keeper.save_locks()
        return serial

    def _lock_names(self, objects: Sequence[tuple[str, str]]) -> set[str]:
        head = self._keeper.state.head
        named = [(table, lock_key(head, table, key)) for table, key in objects if table in LEVELS]
        return {f"{level}/{name}" for table, name in named if name for level in LEVELS[table]}

    async def create(self, client: ClientId, kind: ObjectKind, new: Wire) -> SerialAndTime:
        return await self._change(client, changes.create, TABLE_OF[kind], new)

    async def modify_objects(
        self, client: ClientId, changes: Sequence[tuple[ObjectKind, str, Wire]]
    ) -> SerialAndTime:
        objects = [(TABLE_OF[kind], key) for kind, key, _ in changes]
        return await self._change_named(
            client, objects, lambda transaction: modify_many(transaction, changes)
        )

    async def delete(self, client: ClientId, kind: ObjectKind, key: str) -> SerialAndTime:
        table = TABLE_OF[kind]
        return await self._change_named(
            client, [(table, key)], lambda change: changes.delete(change, table, key)
        )

    async def replace_cluster(self, client: ClientId, cluster: Wire) -> SerialAndTime:
        return await self._change(client, changes.replace_cluster, cluster)

    async def create_instance(
        self, client: ClientId, instance: Wire, disks: Sequence[Wire]
    ) -> SerialAndTime:
        return await self._change(client, instances.create_instance, instance, disks)

    async def put_instance(
        self, client: ClientId, key: str, instance: Wire, disks: Sequence[Wire]
    ) -> SerialAndTime:
        return await self._change(client, instances.put_instance, key, instance, disks)

    async def add_disk(
        self, client: ClientId, instance: str, disk: Wire, index: int | None
    ) -> SerialAndTime:
        return await self._change(client, instances.add_disk, instance, disk, index)

    async def remove_disk(self, client: ClientId, instance: str, disk: str) -> SerialAndTime:
        return await self._change(client, instances.remove_disk, instance, disk)

    async def attach_disk(
        self, client: ClientId, instance: str, disk: str, index: int | None
    ) -> SerialAndTime:
        return await self._change(client, instances.attach_disk, instance, disk, index)

    async def detach_disk(self, client: ClientId, instance: str, disk: str) -> SerialAndTime:
        return await self._change(client, instances.detach_disk, instance, disk)

    async def add_tags(
        self, client: ClientId, kind: ObjectKind, key: str, tags: Sequence[str]
    ) -> SerialAndTime:
        return await self._change(client, changes.add_tags, kind, key, tags)

    async def remove_tags(
        self, client: ClientId, kind: ObjectKind, key: str, tags: Sequence[str]
    ) -> SerialAndTime:
        return await self._change(client, changes.remove_tags, kind, key, tags)

    async def set_candidate_cert(
        self, client: ClientId, node_uuid: str, digest: str | None
    ) -> SerialAndTime:
        return await self._change(client, changes.set_candidate_cert, node_uuid, digest)

    async def maintain_candidate_pool(
        self, client: ClientId, exempt: Sequence[str], unfit: Sequence[str] = ()
    ) -> dict[str, list[str]]:
        def change(transaction: Transaction) -> dict[str, list[str]]:
            for key in unfit:
                changes.modify(transaction, NODES, key, {"master_candidate": False})
            spared = {transaction.existing(NODES, key)[1] for key in (*exempt, *unfit)}
            nodes = list(self._keeper.durable.tables[NODES])
            return changes.maintain_candidate_pool(transaction, nodes, spared, random.sample)

        return await self._keeper.change(change, client)


class V3Changes:
    """Handlers of the methods of Ganeti 3.0: false or null means that the client tries again."""

    def __init__(self, keeper: Keeper, locks: LockMethods) -> None:
        self._keeper = keeper
        self._lock_methods = locks

    async def _try(self, change: Callable[[Transaction], T]) -> T | None:
        """Carry out a change, or answer None while the configuration is locked."""
        if self._keeper.is_config_busy():
            return None
        return await self._keeper.change(change)

    async def _try_bool(self, change: Callable[[Transaction], object]) -> bool:
        def wrapped(transaction: Transaction) -> bool:
            change(transaction)
            return True

        return await self._try(wrapped) or False

    # The whole configuration.

    async def write_config(self, client: ClientId, config: Wire) -> None:
        self._keeper.check_holder(client, CONFIG_LOCK)
        await self._keeper.committer.settled()
        state = self._keeper.state
        await self._keeper.change(
            lambda change: replace_config(change, state.durable, state.serial_no, config), client
        )

    async def write_config_and_unlock(self, client: ClientId, config: Wire) -> bool:
        try:
            await self.write_config(client, config)
        except LockError:
            return False
        self._keeper.locks.allocation.release(client, [CONFIG_LOCK])
        await self._keeper.save_locks()
        return True

    # Addresses.

    async def commit_temporary_ips(self, client: ClientId) -> None:
        actions = self._keeper.reservations.ip_actions(client)
        await self._keeper.change(lambda change: apply_ip_actions(change, actions), client)

    async def commit_release_temporary_ip(self, network: str, address: str) -> None:
        await self._keeper.change(
            lambda change: changes.commit_ip_release(change, network, address)
        )

    async def prepare_cluster_destruction(self, client: ClientId) -> None:
        if self._keeper.durable.cluster.master_node:
            self._keeper.check_holder(client, BGL)
        elif BGL not in self._keeper.locks.allocation.held(client):
            return  # a repetition: the answer was lost with a WConfD that was killed
        await self._keeper.change(changes.prepare_destruction, client)
        await self._lock_methods.take_over_bgl(client)  # last: nobody takes it back from there

    # Ports.

    async def allocate_port(self) -> int | None:

        def change(transaction: Transaction) -> int:
            return changes.allocate_port(transaction, self._keeper.reservations.ports)

        return await self._try(change)

    async def add_tcp_udp_port(self, port: int) -> bool:
        return await self._try_bool(lambda change: free_ports(change, [port]))

    # Instances and disks.

    async def set_instance_status(
        self,
        instance: str,
        admin_state: str | None,
        disks_active: bool | None,
        admin_state_source: str | None,
    ) -> object:

        def change(transaction: Transaction) -> ObjectId:
            uuid = instances.set_status(
                transaction, instance, admin_state, disks_active, admin_state_source
            )
            return (INSTANCES, uuid)

        identity = await self._try(change)
        if identity is None:
            return None
        stored = self._keeper.durable.stored(identity)
        return None if stored is None else Raw(stored.raw)

    async def set_instance_primary_node(self, instance: str, node: str) -> bool:
        return await self._try_bool(
            lambda change: instances.set_primary_node(change, instance, node)
        )

    async def add_instance(self, client: ClientId, instance: Wire, replace: bool) -> bool:
        if self._keeper.is_config_busy(client):
            return False
        actions = self._keeper.reservations.ip_actions(client)

        def change(transaction: Transaction) -> None:
            instances.replace_instance(transaction, instance, may_exist=replace)
            apply_ip_actions(transaction, actions)

        await self._keeper.change(change, client)
        return True

    async def remove_instance(self, instance: str) -> bool:
        return await self._try_bool(lambda change: instances.delete_instance(change, instance))

    async def attach_instance_disk(self, instance: str, disk: str, index: int | None) -> bool:
        return await self._try_bool(
            lambda change: instances.attach_disk(change, instance, disk, index)
        )

    async def detach_instance_disk(self, instance: str, disk: str) -> bool:
        return await self._try_bool(lambda change: instances.detach_disk(change, instance, disk))

    async def add_instance_disk(
        self, instance: str, disk: Wire, index: int | None, replace: bool
    ) -> bool:
        return await self._try_bool(
            lambda change: instances.add_disk(change, instance, disk, index, may_exist=replace)
        )

    async def remove_instance_disk(self, instance: str, disk: str) -> bool:
        return await self._try_bool(lambda change: instances.remove_disk(change, instance, disk))

    # Whole objects.

    async def _update(self, table: str, wire: Wire) -> SerialAndTime | None:
        return await self._try(lambda change: changes.update_whole(change, table, wire))

    async def update_cluster(self, cluster: Wire) -> SerialAndTime | None:
        return await self._update(CLUSTER, cluster)

    async def update_node(self, node: Wire) -> SerialAndTime | None:
        return await self._update(NODES, node)

    async def update_instance(self, instance: Wire) -> SerialAndTime | None:
        return await self._update(INSTANCES, instance)

    async def update_node_group(self, group: Wire) -> SerialAndTime | None:
        return await self._update(GROUPS, group)

    async def update_network(self, network: Wire) -> SerialAndTime | None:
        return await self._update(NETWORKS, network)

    async def update_disk(self, disk: Wire) -> SerialAndTime | None:
        return await self._update(DISKS, disk)
