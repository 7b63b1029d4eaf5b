"""Exports on nodes: where they are, and their descriptions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError, ProtocolError
from ganeti.logical_units.context import JobContext
from ganeti.objects.model import Node
from ganeti.protocol.export_description import ExportDescription, parse_description
from ganeti.protocol.node_calls import NodeCalls

EXPORT_DIR: Final = "/var/lib/ganeti/export"  # config.json, "well_known_paths"


def nodes_with_export(context: JobContext, nodes: Iterable[Node], name: str) -> list[Node]:
    """Return the nodes that have an export of that name; those that do not answer are named."""
    asked = [node for node in nodes if not node.offline]
    results = context.nodes.call_all(NodeCalls.export_list, asked)
    found = []
    for node in asked:
        result = results[node.name]
        if result.error is not None:
            context.warn(f"cannot look for exports on node {node.name}: {result.error}")
        elif isinstance(result.payload, list) and name in result.payload:
            found.append(node)
    return found


def read_description(context: JobContext, node: Node, path: str) -> ExportDescription:
    """Return the description of an export.

    Raises:
        OpPrereqError: there is none, or its description is damaged.
    """
    doing = f"read the export {path!r}"
    text = context.nodes.check(node, doing, ErrorCode.STATE).export_info(path)
    try:
        return parse_description(str(text))
    except ProtocolError as err:
        raise OpPrereqError(
            f"export {path!r} on node {node.name!r}: {err.message}", ErrorCode.ENVIRON
        ) from err
