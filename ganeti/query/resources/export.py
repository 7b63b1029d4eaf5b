"""The fields of exports.

Source: query_fields.json, "export"; luxi.json, "QueryExports".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ganeti.base.ids import NodeUuid
from ganeti.config.tables import name_key
from ganeti.objects.model import Node
from ganeti.objects.query_words import QueryResource
from ganeti.protocol.node_rpc_values import ChainPoint
from ganeti.query.context import RunContext
from ganeti.query.fields import (
    NODATA,
    OFFLINE,
    Resource,
    Source,
    field_table,
    host_name,
    other,
    text,
    timestamp,
    unit,
)

_MIB: Final = 1 << 20


class ExportItem(msgspec.Struct, frozen=True):
    """One export, or a node that has none or could not tell which it has (export None)."""

    node: Node
    export: str | None
    points: Sequence[ChainPoint] | None = None

    @property
    def uuid(self) -> NodeUuid:
        """The UUID of the node: exports are named by their nodes."""
        return self.node.uuid


def _items(context: RunContext) -> dict[tuple[NodeUuid, str], ExportItem]:
    items: dict[tuple[NodeUuid, str], ExportItem] = {}
    for node_uuid, node in context.nodes.items():
        exports = context.view.exports.get(node_uuid)
        if not exports:
            items[node_uuid, ""] = ExportItem(node, None)
        else:
            chains = context.view.chains.get(node_uuid) or {}
            items |= {(node_uuid, n): ExportItem(node, n, chains.get(n)) for n in exports}
    return items


def _export(item: ExportItem, _context: RunContext) -> object:
    if item.export is None:
        return OFFLINE if item.node.offline else NODATA
    return item.export


def _points(item: ExportItem, _context: RunContext) -> object:
    return NODATA if item.points is None else [point.number for point in item.points]


def _sizes(item: ExportItem, _context: RunContext) -> object:
    return NODATA if item.points is None else [_mib(point.size) for point in item.points]


def _size(item: ExportItem, _context: RunContext) -> object:
    return NODATA if item.points is None else _mib(sum(point.size for point in item.points))


def _mib(size: int) -> int:
    return -(-size // _MIB)


def _newest(item: ExportItem, _context: RunContext) -> object:
    return [item.points[-1].timestamp, 0] if item.points else NODATA


RESOURCE: Final[Resource[ExportItem]] = Resource(
    name=QueryResource.EXPORT,
    fields=field_table(
        [
            host_name("node", "Node", "Node that has the export", lambda item, _: item.node.name),
            text("export", "Export", "Name of the export", _export),
            unit("size", "Size", "Disk space taken by the export", _size, Source.CHAINS),
            other("points", "Points", "Points of the chain, by number", _points, Source.CHAINS),
            other("sizes", "Sizes", "Disk space of each point, in MiB", _sizes, Source.CHAINS),
            timestamp("newest", "Newest", "Time of the newest point", _newest, Source.CHAINS),
        ]
    ),
    items=_items,
    name_field="node",
    sort_key=lambda item, _context: (name_key(item.node.name), name_key(item.export or "")),
    source=Source.EXPORTS,
)
