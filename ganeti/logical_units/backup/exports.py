"""Exports on nodes: find and describe them, and make ready for one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ganeti.backups.policy import Policy, choose
from ganeti.base.errors import ErrorCode, OpPrereqError, ProtocolError, refusing
from ganeti.base.text import shown
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.model import Instance, Node
from ganeti.opcodes.backup import OpBackupPrepare
from ganeti.protocol.export_description import ExportDescription, parse_description
from ganeti.protocol.node_calls import NodeCalls

EXPORT_DIR: Final = "/var/lib/ganeti/export"  # config.json, "well_known_paths"


def nodes_with_export(context: JobContext, nodes: Iterable[Node], name: str) -> list[Node]:
    """Return the nodes that have an export of that name; silent nodes are named in the log."""
    return [node for node, names in exports_on(context, nodes) if name in names]


def exports_on(context: JobContext, nodes: Iterable[Node]) -> list[tuple[Node, list[str]]]:
    """Return the names of the exports on each node that answers; the others are named."""
    asked = [node for node in nodes if not node.offline]
    results = context.nodes.call_all(NodeCalls.export_list, asked)
    found = []
    for node in asked:
        result = results[node.name]
        if result.error is not None:
            context.warn(f"cannot look for exports on node {node.name}: {result.error}")
        else:
            found.append((node, result.payload))
    return found


def require_export(context: JobContext, name: str) -> list[Node]:
    """Return the nodes that have an export of that name.

    Raises:
        OpPrereqError: there are none (unknown_entity); names the exports that there are.
    """
    found = exports_on(context, lookup.all_nodes(context.config))
    nodes = [node for node, names in found if name in names]
    if not nodes:
        others = {other for _, names in found for other in names}
        known = f"there are: {shown(others)}" if others else "there are none"
        raise OpPrereqError(
            f"no node has an export {name!r}; {known} ('gnt-backup list')", ErrorCode.NOENT
        )
    return nodes


def read_description(context: JobContext, node: Node, path: str) -> ExportDescription:
    """Return the description of an export.

    Raises:
        OpPrereqError: there is none, or its description is damaged.
    """
    doing = f"read the export {path!r}"
    text = context.nodes.check(node, doing, ErrorCode.STATE).export_info(path)
    prefix = f"export {path!r} on node {node.name!r}: "
    with refusing(ProtocolError, prefix=prefix, ecode=ErrorCode.ENVIRON):
        return parse_description(str(text))


def policy_of(view: InstanceView) -> Policy | None:
    """Return the policy of backups of an instance."""
    groups = (each.tags for each in view.groups if each.uuid == view.primary.group)
    tags = {
        "instance": view.instance.tags,
        "nodegroup": next(groups, []),
        "cluster": view.cluster.tags,
    }
    return choose(tags).policy


class LUBackupPrepare(LogicalUnit[OpBackupPrepare, Instance, None]):
    """Make ready for an export; one to a node of this cluster needs nothing."""

    def resolve(self) -> Instance:
        op = self.op
        return lookup.require_instance(self.config, op.instance_uuid or op.instance_name)

    def plan(self, found: Instance) -> None:
        """Decide nothing: nothing is needed."""

    def execute(self, plan: None) -> None:
        """Do nothing."""
