"""The methods that change the configuration; names are those of the method table.

Each hands a function of `ganeti.config` to the keeper, which carries it out on top of everything
accepted before and answers once it is durable.

Source: wconfd.json, "methods".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from msgspec import Raw

from ganeti.base.errors import LockError
from ganeti.config import changes, instances
from ganeti.config.index import (
    CLUSTER,
    DISKS,
    FILTERS,
    GROUPS,
    INSTANCES,
    NETWORKS,
    NODES,
    ObjectId,
)
from ganeti.config.lookup import lock_key
from ganeti.config.replacing import replace_config
from ganeti.config.transaction import SerialAndTime, Transaction
from ganeti.config.usage import apply_ip_actions, free_ports
from ganeti.locking.names import CONFIG_LOCK
from ganeti.protocol.wconfd import ClientId
from ganeti.wconfd.keeper import Keeper
from ganeti.wconfd.lock_methods import LockMethods

T = TypeVar("T")
Wire = Mapping[str, object]

_LEVELS: Final[Mapping[str, tuple[str, ...]]] = {
    NODES: ("node", "node-res"),
    GROUPS: ("nodegroup",),
    INSTANCES: ("instance",),
    NETWORKS: ("network",),
}


class OwnChanges:
    """Handlers of our own methods; each names its owner, who has been checked."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    async def _change(self, client: ClientId, change: Callable[[Transaction], T]) -> T:
        return await self._keeper.change(change, client)

    async def _modify(self, client: ClientId, table: str, key: str, fields: Wire) -> SerialAndTime:
        return await self._change_named(
            client, [(table, key)], lambda change: changes.modify(change, table, key, fields)
        )

    async def _delete(
        self, client: ClientId, table: str, key: str, change: Callable[[Transaction], SerialAndTime]
    ) -> SerialAndTime:
        return await self._change_named(client, [(table, key)], change)

    async def _change_named(
        self,
        client: ClientId,
        objects: Sequence[tuple[str, str]],
        change: Callable[[Transaction], SerialAndTime],
    ) -> SerialAndTime:
        """Change objects; those who wait for a lock called after one that is gone are failed."""
        before = self._lock_names(objects)
        serial = await self._change(client, change)
        gone = before - self._lock_names(objects)
        if gone:
            self._keeper.locks.fail_waiters(gone)
            await self._keeper.save_locks()
        return serial

    def _lock_names(self, objects: Sequence[tuple[str, str]]) -> set[str]:
        head = self._keeper.state.head
        named = [(table, lock_key(head, table, key)) for table, key in objects if table in _LEVELS]
        return {f"{level}/{name}" for table, name in named if name for level in _LEVELS[table]}

    async def modify_cluster(self, client: ClientId, fields: Wire) -> SerialAndTime:
        """Replace fields of the cluster."""
        return await self._modify(client, CLUSTER, "", fields)

    async def replace_cluster(self, client: ClientId, cluster: Wire) -> SerialAndTime:
        """Put a whole cluster in the place of the one that it was made from."""
        return await self._change(
            client, lambda change: changes.update_whole(change, CLUSTER, cluster)
        )

    async def create_node(self, client: ClientId, node: Wire) -> SerialAndTime:
        """Add a node."""
        return await self._change(client, lambda change: changes.create(change, NODES, node))

    async def modify_node(self, client: ClientId, uuid: str, fields: Wire) -> SerialAndTime:
        """Replace fields of a node."""
        return await self._modify(client, NODES, uuid, fields)

    async def delete_node(self, client: ClientId, uuid: str) -> SerialAndTime:
        """Remove a node, and its certificate if it was a candidate."""
        return await self._delete(
            client, NODES, uuid, lambda change: changes.delete(change, NODES, uuid)
        )

    async def create_node_group(self, client: ClientId, group: Wire) -> SerialAndTime:
        """Add a node group."""
        return await self._change(client, lambda change: changes.create(change, GROUPS, group))

    async def modify_node_group(self, client: ClientId, uuid: str, fields: Wire) -> SerialAndTime:
        """Replace fields of a node group."""
        return await self._modify(client, GROUPS, uuid, fields)

    async def delete_node_group(self, client: ClientId, uuid: str) -> SerialAndTime:
        """Remove a node group without nodes."""
        return await self._delete(
            client, GROUPS, uuid, lambda change: changes.delete(change, GROUPS, uuid)
        )

    async def create_instance(
        self, client: ClientId, instance: Wire, disks: Sequence[Wire]
    ) -> SerialAndTime:
        """Add an instance with its disks."""
        return await self._change(
            client, lambda change: instances.create_instance(change, instance, disks)
        )

    async def modify_instance(self, client: ClientId, uuid: str, fields: Wire) -> SerialAndTime:
        """Replace fields of an instance."""
        return await self._modify(client, INSTANCES, uuid, fields)

    async def put_instance(
        self, client: ClientId, uuid: str, instance: Wire, disks: Sequence[Wire]
    ) -> SerialAndTime:
        """Make an instance and its disks another, whole one; what was reserved becomes real."""
        return await self._change(
            client, lambda change: instances.put_instance(change, uuid, instance, disks)
        )

    async def delete_instance(self, client: ClientId, uuid: str) -> SerialAndTime:
        """Remove an instance with its disks."""
        return await self._delete(
            client, INSTANCES, uuid, lambda change: instances.delete_instance(change, uuid)
        )

    async def add_disk(
        self, client: ClientId, instance: str, disk: Wire, index: int | None
    ) -> SerialAndTime:
        """Add a disk to an instance."""
        return await self._change(
            client, lambda change: instances.add_disk(change, instance, disk, index)
        )

    async def remove_disk(self, client: ClientId, instance: str, disk: str) -> SerialAndTime:
        """Remove a disk from an instance and at all."""
        return await self._change(
            client, lambda change: instances.remove_disk(change, instance, disk)
        )

    async def attach_disk(
        self, client: ClientId, instance: str, disk: str, index: int | None
    ) -> SerialAndTime:
        """Attach a disk that is there."""
        return await self._change(
            client, lambda change: instances.attach_disk(change, instance, disk, index)
        )

    async def detach_disk(self, client: ClientId, instance: str, disk: str) -> SerialAndTime:
        """Detach a disk, which stays."""
        return await self._change(
            client, lambda change: instances.detach_disk(change, instance, disk)
        )

    async def modify_disk(self, client: ClientId, uuid: str, fields: Wire) -> SerialAndTime:
        """Replace fields of a disk."""
        return await self._modify(client, DISKS, uuid, fields)

    async def create_network(self, client: ClientId, network: Wire) -> SerialAndTime:
        """Add a network."""
        return await self._change(client, lambda change: changes.create(change, NETWORKS, network))

    async def modify_network(self, client: ClientId, uuid: str, fields: Wire) -> SerialAndTime:
        """Replace fields of a network."""
        return await self._modify(client, NETWORKS, uuid, fields)

    async def delete_network(self, client: ClientId, uuid: str) -> SerialAndTime:
        """Remove a network."""
        return await self._delete(
            client, NETWORKS, uuid, lambda change: changes.delete(change, NETWORKS, uuid)
        )

    async def modify_objects(
        self, client: ClientId, many: Sequence[tuple[str, str, Wire]]
    ) -> SerialAndTime:
        """Replace fields of several objects in one step."""
        objects = [(changes.table_of(kind), key) for kind, key, _ in many]
        return await self._change_named(
            client, objects, lambda change: changes.modify_many(change, many)
        )

    async def add_tags(
        self, client: ClientId, kind: str, uuid: str, tags: Sequence[str]
    ) -> SerialAndTime:
        """Add tags."""
        return await self._change(client, lambda change: changes.add_tags(change, kind, uuid, tags))

    async def remove_tags(
        self, client: ClientId, kind: str, uuid: str, tags: Sequence[str]
    ) -> SerialAndTime:
        """Remove tags."""
        return await self._change(
            client, lambda change: changes.remove_tags(change, kind, uuid, tags)
        )

    async def set_candidate_cert(
        self, client: ClientId, node_uuid: str, digest: str | None
    ) -> SerialAndTime:
        """Note or remove the digest of a candidate's certificate."""
        return await self._change(
            client, lambda change: changes.set_candidate_cert(change, node_uuid, digest)
        )

    async def create_filter(self, client: ClientId, rule: Wire) -> SerialAndTime:
        """Add a filter rule."""
        return await self._change(client, lambda change: changes.create(change, FILTERS, rule))

    async def modify_filter(self, client: ClientId, uuid: str, fields: Wire) -> SerialAndTime:
        """Replace fields of a filter rule."""
        return await self._modify(client, FILTERS, uuid, fields)

    async def delete_filter(self, client: ClientId, uuid: str) -> SerialAndTime:
        """Remove a filter rule."""
        return await self._delete(
            client, FILTERS, uuid, lambda change: changes.delete(change, FILTERS, uuid)
        )

    async def maintain_candidate_pool(
        self, client: ClientId, exempt: Sequence[str]
    ) -> dict[str, list[str]]:
        """Promote or demote nodes."""

        def change(transaction: Transaction) -> dict[str, list[str]]:
            spared = {transaction.existing(NODES, key)[1] for key in exempt}
            nodes = list(self._keeper.durable.tables[NODES])
            return changes.maintain_candidate_pool(transaction, nodes, spared)

        return await self._change(client, change)


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
        """Replace the whole configuration.

        Raises:
            LockError: the client does not hold the lock on it exclusively.
        """
        self._keeper.check_holder(client, CONFIG_LOCK)
        await self._keeper.committer.settled()
        state = self._keeper.state
        await self._keeper.change(
            lambda change: replace_config(change, state.durable, state.serial_no, config), client
        )

    async def write_config_and_unlock(self, client: ClientId, config: Wire) -> bool:
        """Replace the whole configuration and give the lock on it back."""
        try:
            await self.write_config(client, config)
        except LockError:
            return False
        self._keeper.locks.allocation.release(client, [CONFIG_LOCK])
        await self._keeper.save_locks()
        return True

    # Addresses.

    async def commit_temporary_ips(self, client: ClientId) -> None:
        """Do with addresses what the client wants."""
        actions = self._keeper.reservations.ip_actions(client)
        await self._keeper.change(lambda change: apply_ip_actions(change, actions), client)

    async def commit_release_temporary_ip(self, network: str, address: str) -> None:
        """Free one address."""
        await self._keeper.change(
            lambda change: changes.commit_ip_release(change, network, address)
        )

    async def prepare_cluster_destruction(self, client: ClientId) -> None:
        """Leave the cluster without master and keep everybody out."""
        await self._lock_methods.take_over_bgl(client)
        await self._keeper.change(changes.prepare_destruction)

    # Ports.

    async def allocate_port(self) -> int | None:
        """Take a port out of the pool for good."""

        def change(transaction: Transaction) -> int:
            return changes.allocate_port(transaction, self._keeper.reservations.ports)

        return await self._try(change)

    async def add_tcp_udp_port(self, port: int) -> bool:
        """Return a port to the pool."""
        return await self._try_bool(lambda change: free_ports(change, [port]))

    # Instances and disks.

    async def set_instance_status(
        self,
        instance: str,
        admin_state: str | None,
        disks_active: bool | None,
        admin_state_source: str | None,
    ) -> object:
        """Set what an instance should be doing; answers it."""

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
        """Give an instance another primary node."""
        return await self._try_bool(
            lambda change: instances.set_primary_node(change, instance, node)
        )

    async def add_instance(self, instance: Wire, client: ClientId, replace: bool) -> bool:
        """Add an instance, with the addresses that the client reserved."""
        if self._keeper.is_config_busy(client):
            return False
        actions = self._keeper.reservations.ip_actions(client)

        def change(transaction: Transaction) -> None:
            instances.replace_instance(transaction, instance, may_exist=replace)
            apply_ip_actions(transaction, actions)

        await self._keeper.change(change, client)
        return True

    async def remove_instance(self, instance: str) -> bool:
        """Remove an instance with its disks."""
        return await self._try_bool(lambda change: instances.delete_instance(change, instance))

    async def attach_instance_disk(self, instance: str, disk: str, index: int | None) -> bool:
        """Attach a disk that is there."""
        return await self._try_bool(
            lambda change: instances.attach_disk(change, instance, disk, index)
        )

    async def detach_instance_disk(self, instance: str, disk: str) -> bool:
        """Detach a disk, which stays."""
        return await self._try_bool(lambda change: instances.detach_disk(change, instance, disk))

    async def add_instance_disk(
        self, instance: str, disk: Wire, index: int | None, replace: bool
    ) -> bool:
        """Add a disk to an instance."""
        return await self._try_bool(
            lambda change: instances.add_disk(change, instance, disk, index, may_exist=replace)
        )

    async def remove_instance_disk(self, instance: str, disk: str) -> bool:
        """Remove a disk from an instance and at all."""
        return await self._try_bool(lambda change: instances.remove_disk(change, instance, disk))

    # Whole objects.

    async def _update(self, table: str, wire: Wire) -> SerialAndTime | None:
        return await self._try(partial(_update_whole, table=table, wire=wire))

    async def update_cluster(self, cluster: Wire) -> SerialAndTime | None:
        """Replace the cluster object."""
        return await self._update(CLUSTER, cluster)

    async def update_node(self, node: Wire) -> SerialAndTime | None:
        """Replace a node."""
        return await self._update(NODES, node)

    async def update_instance(self, instance: Wire) -> SerialAndTime | None:
        """Replace an instance."""
        return await self._update(INSTANCES, instance)

    async def update_node_group(self, group: Wire) -> SerialAndTime | None:
        """Replace a node group."""
        return await self._update(GROUPS, group)

    async def update_network(self, network: Wire) -> SerialAndTime | None:
        """Replace a network."""
        return await self._update(NETWORKS, network)

    async def update_disk(self, disk: Wire) -> SerialAndTime | None:
        """Replace a disk."""
        return await self._update(DISKS, disk)


def _update_whole(change: Transaction, *, table: str, wire: Wire) -> SerialAndTime:
    return changes.update_whole(change, table, wire)
