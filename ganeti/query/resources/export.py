"""The fields of exports.

Source: query_fields.json, "export"; luxi.json, "QueryExports".
"""

from __future__ import annotations

from typing import Final

import msgspec

from ganeti.base.ids import NodeUuid
from ganeti.config.tables import name_key
from ganeti.objects.model import Node
from ganeti.objects.query_words import QueryResource
from ganeti.query.context import RunContext
from ganeti.query.fields import NODATA, OFFLINE, Resource, Source, field_table, host_name, text


class ExportItem(msgspec.Struct, frozen=True):
    """One export, or a node that has none or could not tell which it has (export None)."""

    node: Node
    export: str | None

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
            items.update({(node_uuid, name): ExportItem(node, name) for name in exports})
    return items


def _export(item: ExportItem, _context: RunContext) -> object:
    if item.export is None:
        return OFFLINE if item.node.offline else NODATA
    return item.export


RESOURCE: Final[Resource[ExportItem]] = Resource(
    name=QueryResource.EXPORT,
    fields=field_table(
        [
            host_name("node", "Node", "Node that has the export", lambda item, _: item.node.name),
            text("export", "Export", "Name of the export", _export),
        ]
    ),
    items=_items,
    name_field="node",
    sort_key=lambda item, _context: (name_key(item.node.name), name_key(item.export or "")),
    source=Source.EXPORTS,
)
