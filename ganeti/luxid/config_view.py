"""A view of the configuration in memory that follows ``config.data``.

The file is split into one raw value per object; an object is decoded when it is first looked at,
and stays decoded as long as its text stays the same.  WConfD replaces the file in one step; its
event and those of the job files come through one watcher, so whoever sees a job's success sees the
change as well.

Source: ARCHITECTURE, "Rules that keep it fast".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from ganeti.base.errors import ConfigurationError, ErrorCode, OpPrereqError
from ganeti.base.ids import DiskUuid, GroupUuid, InstanceUuid, NetworkUuid, NodeUuid
from ganeti.base.paths import Paths
from ganeti.luxid.config_tables import ConfigIndex, RowCache, Table
from ganeti.objects.cluster import Cluster
from ganeti.objects.disk import Disk
from ganeti.objects.filter_rule import FilterRule
from ganeti.objects.instance import Instance
from ganeti.objects.network import Network
from ganeti.objects.node import Node
from ganeti.objects.nodegroup import NodeGroup
from ganeti.objects.overlay import decode_record
from ganeti.objects.query_words import QueryResource
from ganeti.objects.record import Record
from ganeti.objects.split import SplitConfig, split_config
from ganeti.query.engine import prepare
from ganeti.query.view import View
from ganeti.store import config_file

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=str)
R = TypeVar("R", bound=Record)


SHOWN_OF_OTHERS: Final[Mapping[type[Record], tuple[str, ...]]] = {
    Cluster: ("beparams", "hvparams", "nicparams", "os_hvp", "osparams"),
    Node: ("group", "name"),
    NodeGroup: ("name",),
    Network: ("name",),
}
"""What fields of instances show of other objects than instances and disks."""


class ConfigView:
    """The configuration as of the last event."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._is_stale = True
        self._error = ""
        self._cluster: Cluster | None = None
        self.on_changed: Callable[[], None] | None = None
        self.nodes: Table[NodeUuid, Node] = Table(Node, {})
        self.groups: Table[GroupUuid, NodeGroup] = Table(NodeGroup, {})
        self.instances: Table[InstanceUuid, Instance] = Table(Instance, {})
        self.disks: Table[DiskUuid, Disk] = Table(Disk, {})
        self.networks: Table[NetworkUuid, Network] = Table(Network, {})
        self.filters: Table[str, FilterRule] = Table(FilterRule, {})
        self.index = self._make_index(RowCache())

    @property
    def cluster(self) -> Cluster:
        """The cluster object.

        Raises:
            ConfigurationError: no configuration could be read so far.
        """
        self.refresh()
        if self._cluster is None:
            raise ConfigurationError(self._error or "no configuration loaded")
        return self._cluster

    @property
    def master(self) -> Node:
        """The master node."""
        uuid = self.cluster.master_node  # this reads what is new
        return self.nodes[uuid]

    def on_file_event(self, name: str, _kind: str) -> None:
        """Take note that the file was replaced (or that events were lost)."""
        if name in ("config.data", ""):
            self._is_stale = True

    def refresh(self) -> bool:
        """Read the file again if it changed; returns whether it did.

        A file that cannot be read leaves the view as it was.
        """
        if not self._is_stale:
            return False
        self._is_stale = False
        try:
            split = split_config(config_file.read_config(self._paths))
            self._take(split, decode_record(split.cluster, Cluster))
        except ConfigurationError as err:
            self._error = err.message
            logger.warning("Cannot read the configuration: %s; going on with the old one", err)
            return False
        if self.on_changed is not None:
            self.on_changed()
        return True

    def _take(self, split: SplitConfig, cluster: Cluster) -> None:
        """Take over a new configuration, as a whole or not at all."""
        raw = split.tables
        nodes = Table(Node, raw["nodes"], self.nodes)
        groups = Table(NodeGroup, raw["nodegroups"], self.groups)
        instances = Table(Instance, raw["instances"], self.instances)
        disks = Table(Disk, raw["disks"], self.disks)
        networks = Table(Network, raw["networks"], self.networks)
        rows = self.index.row_cache
        if rows.lists:
            look_same = (
                _looks_same(self._cluster, cluster)
                and _tables_look_same(self.nodes, nodes)
                and _tables_look_same(self.groups, groups)
                and _tables_look_same(self.networks, networks)
            )
            touched = _touched_instances(instances, disks) if look_same else ()
            rows = rows.without(touched) if look_same else rows.emptied()
        self._cluster = cluster
        self.nodes, self.groups, self.networks = nodes, groups, networks
        self.instances, self.disks = instances, disks
        self.filters = Table(FilterRule, raw["filters"], self.filters)
        self.index = self._make_index(rows)

    def _make_index(self, rows: RowCache) -> ConfigIndex:
        tables: dict[QueryResource, Table[Any, Any]] = {
            QueryResource.NODE: self.nodes,
            QueryResource.GROUP: self.groups,
            QueryResource.INSTANCE: self.instances,
            QueryResource.NETWORK: self.networks,
            QueryResource.FILTER: self.filters,
        }
        return ConfigIndex(tables, rows)

    def prepared(self) -> Iterator[None]:
        """Find out in small steps what questions about instances would have to wait for.

        That includes the rows of the lists that were asked for last.

        Raises:
            ConfigurationError: an object is not what it should be.
        """
        yield from self.disks.decoded()
        for table in (self.nodes, self.groups, self.networks, self.instances):
            yield from table.prepared()
        for fields in self.index.row_cache.lists:
            plan = prepare(QueryResource.INSTANCE, fields)
            yield from plan.prepared(self.snapshot())

    def snapshot(self) -> View:
        """Return what queries look at, as it is now."""
        return View(
            cluster=self.cluster,
            nodes=self.nodes.quick(),
            groups=self.groups.quick(),
            instances=self.instances.quick(),
            disks=self.disks.quick(),
            networks=self.networks.quick(),
            filters=self.filters.quick(),
            index=self.index,
        )

    def require(self, table: Table[K, R], what: str, key: str) -> R:
        """Return the object of that UUID or name.

        Raises:
            OpPrereqError: unknown_entity.
        """
        found = table.find(key)
        if found is None:
            raise OpPrereqError(f"{what} {key!r} not found", ErrorCode.NOENT)
        return found


def _looks_same(before: Record | None, after: Record | None) -> bool:
    """Tell whether fields of instances show the same of an object as before."""
    if before is None or after is None:
        return False
    shown = SHOWN_OF_OTHERS[type(after)]
    return all(getattr(before, name) == getattr(after, name) for name in shown)


def _tables_look_same(before: Table[Any, Any], after: Table[Any, Any]) -> bool:
    return all(_looks_same(before.get(uuid), after.get(uuid)) for uuid in after.changed)


def _touched_instances(
    instances: Table[InstanceUuid, Instance], disks: Table[DiskUuid, Disk]
) -> set[str]:
    """Return the UUIDs of instances that changed, or whose disks did."""
    touched = set(instances.changed)
    if disks.changed:
        unsure = instances.keys() - touched
        changed = disks.changed
        touched |= {uuid for uuid in unsure if not changed.isdisjoint(instances[uuid].disks)}
    return touched
