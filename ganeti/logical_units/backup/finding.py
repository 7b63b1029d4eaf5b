"""Exports that lie on nodes: where they are, what they hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ganeti.base.errors import ErrorCode, OpPrereqError, ProtocolError
from ganeti.logical_units.node_calls import ask, call_nodes
from ganeti.protocol.export_description import ExportDescription, parse_description

if TYPE_CHECKING:
    from ganeti.logical_units.context import JobContext
    from ganeti.objects.node import Node

EXPORT_DIR: Final = "/var/lib/ganeti/export"  # config.json, "well_known_paths"


def nodes_with_export(context: JobContext, nodes: Iterable[Node], name: str) -> list[Node]:
    """Return the nodes that have an export of that name; those that do not answer are named."""
    asked = [node for node in nodes if not node.offline]
    results = call_nodes(context, asked, "export_list")
    found = []
    for node in asked:
        result = results[node.name]
        if result.error is not None:
            context.warn(f"cannot look for exports on node {node.name}: {result.error}")
        elif isinstance(result.payload, list) and name in result.payload:
            found.append(node)
    return found


def read_description(context: JobContext, node: Node, path: str) -> ExportDescription:
    """Return what an export holds.

    Raises:
        OpPrereqError: there is none, or its description is damaged.
    """
    doing = f"read the export {path!r}"
    text = ask(context, node, doing, "export_info", path, ecode=ErrorCode.STATE)
    try:
        return parse_description(str(text))
    except ProtocolError as err:
        raise OpPrereqError(
            f"export {path!r} on node {node.name!r}: {err.message}", ErrorCode.ENVIRON
        ) from err
