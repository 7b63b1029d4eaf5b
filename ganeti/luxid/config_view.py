"""A view of the configuration in memory that follows ``config.data``.

The file is split into one raw value per object; an object is decoded when it is first looked at,
and stays decoded as long as its text stays the same.  WConfD replaces the file in one step; its
event and those of the job files come through one watcher, so whoever sees a job's success sees the
change as well.

Source: ARCHITECTURE, "Rules that keep it fast".
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Raw

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
from ganeti.query.view import View
from ganeti.store import config_file

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=str)
R = TypeVar("R", bound=Record)


_NO_TEXT = Raw(b"")


class ConfigView:
    """The configuration as of the last event."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._is_stale = True
        self._error = ""
        self._cluster: Cluster | None = None
        self._cluster_text = _NO_TEXT
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
        return self.nodes[self.cluster.master_node]

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
            cluster = decode_record(split.cluster, Cluster)
        except ConfigurationError as err:
            self._error = err.message
            logger.warning("Cannot read the configuration: %s; going on with the old one", err)
            return False
        self._take(split, cluster)
        if self.on_changed is not None:
            self.on_changed()
        return True

    def _take(self, split: SplitConfig, cluster: Cluster) -> None:
        tables = split.tables
        same_cluster = split.cluster == self._cluster_text
        self._cluster, self._cluster_text = cluster, split.cluster
        self.nodes = Table(Node, tables["nodes"], self.nodes)
        self.groups = Table(NodeGroup, tables["nodegroups"], self.groups)
        self.instances = Table(Instance, tables["instances"], self.instances)
        self.disks = Table(Disk, tables["disks"], self.disks)
        self.networks = Table(Network, tables["networks"], self.networks)
        self.filters = Table(FilterRule, tables["filters"], self.filters)
        # What is said about an instance follows from it, its disks, and all of these.
        others = (self.nodes, self.groups, self.networks)
        rows = self.index.row_cache
        if not same_cluster or any(table.changed for table in others):
            rows = RowCache()
        if rows:
            rows = rows.without(self._touched_instances())
        self.index = self._make_index(rows)

    def _touched_instances(self) -> set[str]:
        """Return the UUIDs of instances that changed, or whose disks did."""
        touched = set(self.instances.changed)
        disks = self.disks.changed
        if disks:
            unsure = self.instances.keys() - touched
            touched |= {uuid for uuid in unsure if not disks.isdisjoint(self.instances[uuid].disks)}
        return touched

    def _make_index(self, rows: RowCache) -> ConfigIndex:
        tables: dict[QueryResource, Table[Any, Any]] = {
            QueryResource.NODE: self.nodes,
            QueryResource.GROUP: self.groups,
            QueryResource.INSTANCE: self.instances,
            QueryResource.NETWORK: self.networks,
            QueryResource.FILTER: self.filters,
        }
        return ConfigIndex(tables, rows)

    def snapshot(self) -> View:
        """Return what queries look at, as it is now."""
        return View(
            cluster=self.cluster,
            nodes=self.nodes,
            groups=self.groups,
            instances=self.instances,
            disks=self.disks,
            networks=self.networks,
            filters=self.filters,
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
