"""The whole configuration as one value.

Daemons do not work on this one: they split the file (`ganeti.objects.split`) and decode what they
need.  It is for making a new configuration, and for tools that look at everything.

Source: config.json, object "ConfigData".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from ganeti.base.ids import DiskUuid, GroupUuid, InstanceUuid, NetworkUuid, NodeUuid
from ganeti.objects.cluster import Cluster
from ganeti.objects.disk import Disk
from ganeti.objects.filter_rule import FilterRule
from ganeti.objects.instance import Instance
from ganeti.objects.network import Network
from ganeti.objects.node import Node
from ganeti.objects.nodegroup import NodeGroup
from ganeti.objects.record import Record

TABLES: Final[Mapping[str, type[Record]]] = {
    "nodes": Node,
    "nodegroups": NodeGroup,
    "instances": Instance,
    "networks": Network,
    "disks": Disk,
    "filters": FilterRule,
}
"""Keys of the configuration that hold objects by UUID, and what they hold."""


class ConfigData(Record, frozen=True, kw_only=True):
    """Everything in ``config.data``."""

    version: int
    cluster: Cluster
    nodes: Mapping[NodeUuid, Node]
    nodegroups: Mapping[GroupUuid, NodeGroup]
    instances: Mapping[InstanceUuid, Instance]
    networks: Mapping[NetworkUuid, Network]
    disks: Mapping[DiskUuid, Disk]
    filters: Mapping[str, FilterRule]
    ctime: float = 0.0
    mtime: float = 0.0
    serial_no: int

    @classmethod
    def from_wire(cls, wire: Mapping[str, object]) -> Self:
        """Make the configuration from its JSON form; an error names the object it is about."""
        checked = dict(wire)
        for name, kind in TABLES.items():
            table = wire.get(name)
            if isinstance(table, Mapping):
                checked[name] = {key: _record(kind, item) for key, item in table.items()}
        return super().from_wire(checked)


def _record(kind: type[Record], wire: object) -> Record:
    return kind.from_wire(wire if isinstance(wire, Mapping) else {})
