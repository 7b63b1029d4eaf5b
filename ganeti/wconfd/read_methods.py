"""The handlers of calls that read the configuration, declared in `ganeti.protocol.wconfd`.

Readers see the durable configuration, all of one answer as of one instant.  Objects are answered as
the text they are stored in; only objects asked for are decoded.

Source: wconfd.json, "methods".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec import Raw

from ganeti.base.errors import ConfigVerifyError
from ganeti.config.changes import table_of
from ganeti.config.checks import cluster_problems, problems_of
from ganeti.config.index import (
    CLUSTER_ID,
    DISKS,
    FILTERS,
    GROUPS,
    INSTANCES,
    NETWORKS,
    NODES,
    By,
    ObjectId,
)
from ganeti.config.ssconf_values import ssconf_values
from ganeti.config.views import Base, View
from ganeti.daemon.tally import page
from ganeti.objects.rpc_instance import secondary_nodes
from ganeti.wconfd.copies.distribution import Distributor
from ganeti.wconfd.keeper import Keeper

_CHECKED_AT_ONCE: Final = 100  # objects, 1 to 2 ms; then others get their turn

Keys = list[str] | None


def _objects_of(table: str) -> Callable[[ReadMethods, Keys], object]:
    """Make the handler that answers objects by name or UUID, null for one that does not exist."""

    def get(self: ReadMethods, keys: Keys) -> object:
        view = self._keeper.durable
        return [uuid and _raw(view, (table, uuid)) for uuid in _uuids(view, table, keys)]

    return get


class ReadMethods:
    """Handlers of the reading methods."""

    def __init__(self, keeper: Keeper, distributor: Distributor) -> None:
        self._keeper = keeper
        self._distributor = distributor

    def echo(self, text: str) -> str:
        return text

    def read_config(self) -> object:
        return self._keeper.whole()

    async def verify_config(self) -> None:
        view = self._keeper.durable
        found = cluster_problems(view, view.tables)
        for number, identity in enumerate(list(view.identities())):
            found += problems_of(view, identity)
            if number % _CHECKED_AT_ONCE == 0:
                await asyncio.sleep(0)
        if found:
            raise ConfigVerifyError("Configuration is not valid", found)

    def get_metrics(self) -> str:
        return page((*self._keeper.lines(), *self._distributor.lines()))

    def get_serial(self) -> object:
        return [self._keeper.state.serial_no, self._keeper.state.mtime]

    def get_cluster(self) -> object:
        return _raw(self._keeper.durable, CLUSTER_ID)

    get_nodes = _objects_of(NODES)
    get_node_groups = _objects_of(GROUPS)
    get_instances = _objects_of(INSTANCES)
    get_disks = _objects_of(DISKS)
    get_networks = _objects_of(NETWORKS)
    get_filters = _objects_of(FILTERS)

    def expand_names(self, kind: str, names: list[str]) -> object:
        view, table = self._keeper.durable, table_of(kind)
        found = [view.resolve(table, name) for name in names]
        return [None if uuid is None else [uuid, view.name_of((table, uuid))] for uuid in found]

    def get_instance_context(self, key: str) -> object:
        view = self._keeper.durable
        _, uuid = view.existing(INSTANCES, key)
        instance = view.instance(uuid)
        assert instance is not None
        disks = [disk for disk_uuid in instance.disks if (disk := view.disk(disk_uuid)) is not None]
        node_uuids = [instance.primary_node, *secondary_nodes(instance, disks)]
        nodes = [node for node_uuid in node_uuids if (node := view.node(node_uuid)) is not None]
        groups = dict.fromkeys(node.group for node in nodes)
        networks = dict.fromkeys(nic.network for nic in instance.nics if nic.network)
        return {
            "cluster": self.get_cluster(),
            "instance": _raw(view, (INSTANCES, uuid)),
            "disks": [_raw(view, (DISKS, disk.uuid)) for disk in disks],
            "nodes": [_raw(view, (NODES, node.uuid)) for node in nodes],
            "groups": [_raw(view, (GROUPS, group)) for group in groups],
            "networks": [_raw(view, (NETWORKS, network)) for network in networks],
        }

    def get_node_instances(self, keys: Keys) -> object:
        view = self._keeper.durable
        return [uuid and _node_instances(view, uuid) for uuid in _uuids(view, NODES, keys)]

    def get_group_members(self, keys: Keys) -> object:
        view = self._keeper.durable
        return [uuid and _group_members(view, uuid) for uuid in _uuids(view, GROUPS, keys)]

    def get_ssconf(self) -> object:
        return ssconf_values(self._keeper.durable)

    def snapshot(self) -> object:
        reservations = self._keeper.reservations_content
        return {
            "config": self._keeper.whole(),
            "locks": Raw(self._keeper.locks.content),
            "reservations": {name: Raw(data) for name, data in reservations.items()},
        }

    def get_replication_status(self) -> object:
        return self._distributor.status()

    async def redistribute_config(self) -> None:
        await self._keeper.committer.settled()
        await self._distributor.begin_again()

    async def flush_config(self) -> None:
        await self._keeper.committer.settled()
        await self._distributor.flush(None)

    async def flush_config_group(self, group: str) -> None:
        _, uuid = self._keeper.durable.existing(GROUPS, group)
        await self._keeper.committer.settled()
        await self._distributor.flush(uuid)


def _uuids(view: Base, table: str, keys: Keys) -> list[str | None]:
    """Return the UUIDs of objects by name or UUID; without keys, of all."""
    return [*view.tables[table]] if keys is None else [view.resolve(table, key) for key in keys]


def _raw(view: View, identity: ObjectId) -> Raw | None:
    """Return an object as the text that it is stored in; a node group with its members."""
    stored = view.stored(identity)
    if stored is not None and identity[0] == GROUPS:
        stored = stored.with_changes({"members": _group_members(view, identity[1])[0]})
    return None if stored is None else Raw(stored.raw)


def _node_instances(view: View, uuid: str) -> list[list[str]]:
    """Return [primary instances, secondary instances] of a node, as UUIDs."""
    primary = {instance for _, instance in view.find(By.PRIMARY, uuid)}
    secondary = {
        instance
        for _, disk in view.find(By.DISK_NODE, uuid)
        for _, instance in view.find(By.DISK_OWNER, disk)
        if _is_mirrored(view, disk)
    }
    return [sorted(primary), sorted(secondary - primary)]


def _is_mirrored(view: View, uuid: str) -> bool:
    disk = view.disk(uuid)
    return disk is not None and len(disk.nodes) > 1


def _group_members(view: View, uuid: str) -> list[list[str]]:
    """Return [nodes, instances with their primary node among these] of a group, as UUIDs."""
    nodes = [node for _, node in view.find(By.GROUP, uuid)]
    instances = [i for node in nodes for _, i in view.find(By.PRIMARY, node)]
    return [sorted(nodes), sorted(instances)]
