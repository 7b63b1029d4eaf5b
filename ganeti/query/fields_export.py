"""The fields of exports.

Source: query_fields.json, "export"; luxi.json, "QueryExports".
"""

from __future__ import annotations

from typing import Final

import msgspec

from ganeti.base.ids import NodeUuid
from ganeti.objects.node import Node
from ganeti.objects.query_words import FieldKind, QueryResource
from ganeti.query.context import RunContext, name_key
from ganeti.query.fields import (
    NODATA,
    OFFLINE,
    Comparison,
    FieldSpec,
    Resource,
    Source,
    field_table,
)


class ExportItem(msgspec.Struct, frozen=True):
    """One export, or a node that could not tell which it has (export None)."""

    node: Node
    export: str | None


def _items(context: RunContext) -> dict[tuple[NodeUuid, str], ExportItem]:
    items: dict[tuple[NodeUuid, str], ExportItem] = {}
    for node_uuid, node in context.view.nodes.items():
        exports = context.view.exports.get(node_uuid)
        if exports is None:
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
            FieldSpec(
                "node",
                "Node",
                FieldKind.TEXT,
                "Node that has the export",
                lambda item, _context: item.node.name,
                comparison=Comparison.HOST_NAME,
            ),
            FieldSpec("export", "Export", FieldKind.TEXT, "Name of the export", _export),
        ]
    ),
    items=_items,
    name_field="node",
    sort_key=lambda item, _context: (name_key(item.node.name), name_key(item.export or "")),
    source=Source.EXPORTS,
)
