"""Exports on nodes: find, describe and remove them, and make ready for one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError, ProtocolError, refusing
from ganeti.base.text import shown
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.locks import LockLevel, LockNeed, all_shared, exclusive
from ganeti.logical_units.lookup import normal_name
from ganeti.objects.model import Instance, Node
from ganeti.opcodes.backup import OpBackupPrepare, OpBackupRemove
from ganeti.protocol.export_description import PARTIAL_SUFFIX, ExportDescription, parse_description
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


@dataclass(frozen=True, slots=True)
class ExportName:
    """The name of an export, and the name of the instance that is locked for it."""

    name: str
    instance_name: str


@dataclass(frozen=True, slots=True)
class Exports:
    """An export and the nodes that have it."""

    name: str
    nodes: Sequence[Node]


class LUBackupRemove(LogicalUnit[OpBackupRemove, ExportName, Exports]):
    """Remove the exports of an instance, which need not exist any more, from all nodes."""

    def resolve(self) -> ExportName:
        """Find the full name, if the instance is still there."""
        op = self.op
        found = lookup.present(self.config.get_instances([op.instance_uuid or op.instance_name]))
        name = found[0].name if found else op.instance_name
        return ExportName(name, normal_name("export", name.removesuffix(PARTIAL_SUFFIX)))

    def locks(self, found: ExportName) -> LockNeed:
        """Lock the name exclusively, as an export does, and all nodes shared."""
        return exclusive(LockLevel.INSTANCE, [found.instance_name]) | all_shared(LockLevel.NODE)

    def plan(self, found: ExportName) -> Exports:
        """Find the nodes that have the export; if none has, that is told and nothing done."""
        try:
            return Exports(found.name, require_export(self.context, found.name))
        except OpPrereqError as err:
            self.context.warn(err.message)
            return Exports(found.name, ())

    def execute(self, plan: Exports) -> None:
        """Remove them.

        Raises:
            OpExecError: a node could not.
        """
        doing = f"remove the export {plan.name!r}"
        failures = [
            self.context.failure(doing, NodeCalls.export_remove, node, plan.name)
            for node in plan.nodes
        ]
        if any(failures):
            raise OpExecError("; ".join(filter(None, failures)))


class LUBackupPrepare(LogicalUnit[OpBackupPrepare, Instance, None]):
    """Make ready for an export; one to a node of this cluster needs nothing."""

    def resolve(self) -> Instance:
        op = self.op
        return lookup.require_instance(self.config, op.instance_uuid or op.instance_name)

    def plan(self, found: Instance) -> None:
        """Decide nothing: nothing is needed."""

    def execute(self, plan: None) -> None:
        """Do nothing."""
