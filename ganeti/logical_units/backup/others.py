"""Remove exports; make ready for one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.backup.finding import nodes_with_export
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.locks import LockLevel, LockNeed, all_shared, exclusive
from ganeti.logical_units.lookup import normal_name
from ganeti.objects.model import Instance, Node
from ganeti.opcodes.backup import OpBackupPrepare, OpBackupRemove
from ganeti.protocol.export_description import PARTIAL_SUFFIX
from ganeti.protocol.node_calls import NodeCalls


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
        """Refuse to remove an export that no node has."""
        nodes = nodes_with_export(self.context, lookup.all_nodes(self.config), found.name)
        if not nodes:
            raise OpPrereqError(
                f"no node has an export {found.name!r}; see 'gnt-backup list'", ErrorCode.NOENT
            )
        return Exports(found.name, nodes)

    def execute(self, plan: Exports) -> None:
        """Remove them.

        Raises:
            OpExecError: a node could not.
        """
        failed = []
        for node in plan.nodes:
            result = self.context.nodes.call_one(NodeCalls.export_remove, node, plan.name)
            if result.error is not None:
                doing = f"remove the export {plan.name!r}"
                failed.append(result.explain(doing))
        if failed:
            raise OpExecError("; ".join(failed))


class LUBackupPrepare(LogicalUnit[OpBackupPrepare, Instance, None]):
    """Make ready for an export; one to a node of this cluster needs nothing."""

    def resolve(self) -> Instance:
        op = self.op
        return lookup.require_instance(self.config, op.instance_uuid or op.instance_name)

    def plan(self, found: Instance) -> None:
        """Decide nothing: nothing is needed."""

    def execute(self, plan: None) -> None:
        """Do nothing."""
