"""Removing exports, or the oldest points of a chain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ganeti.base.errors import OpExecError, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.backup.chains import points_of, require_point
from ganeti.logical_units.backup.exports import require_export
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.instance.storage.copying import (
    POLL_S,
    PROGRESS_S,
    forget_transfers,
    looks,
    transfer_states,
    transferred,
)
from ganeti.logical_units.locks import LockLevel, LockNeed, all_shared, exclusive
from ganeti.logical_units.lookup import normal_name
from ganeti.objects.model import Node
from ganeti.opcodes.backup import OpBackupRemove
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
    """Remove the exports of an instance, which need not exist any more, from all nodes.

    Of a chain the oldest points can be removed alone: what the others build on is merged first.
    """

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
        if self.op.before is not None:
            return self._plan_merge(found.name, self.op.before)
        try:
            return Exports(found.name, require_export(self.context, found.name))
        except OpPrereqError as err:
            self.context.warn(err.message)
            return Exports(found.name, ())

    def _plan_merge(self, name: str, number: int) -> Exports:
        """Find the nodes whose chains do not begin at a point yet.

        Raises:
            OpPrereqError: there is no such export, or none has such a point.
        """
        found = [(n, points_of(self.context, n, name)) for n in require_export(self.context, name)]
        if not any(point.number == number for _, points in found for point in points):
            for node, points in found:
                require_point(points, number, f"export {name!r} on node {node.name!r}")
        nodes = []
        for node, points in found:
            export = f"export {name} on {node.name}"
            if number not in [point.number for point in points]:
                self.context.info(f"{export} has no point {number}, and stays as it is")
            elif points[0].number == number:
                self.context.info(f"{export} begins with point {number} already")
            else:
                nodes.append(node)
        return Exports(name, nodes)

    def execute(self, plan: Exports) -> None:
        """Remove them.

        Raises:
            OpExecError: a node could not.
        """
        if self.op.before is not None:
            for node in plan.nodes:
                self._merge(node, plan.name, self.op.before)
            return
        doing = f"remove the export {plan.name!r}"
        failures = [
            self.context.failure(doing, NodeCalls.export_remove, node, plan.name)
            for node in plan.nodes
        ]
        if any(failures):
            raise OpExecError("; ".join(filter(None, failures)))

    def _merge(self, node: Node, name: str, number: int) -> None:
        """Make a point the first one of a chain; the chain stays as it was until that is done."""
        context, doing = self.context, f"remove the points of {name!r} before {number}"
        transfer = context.nodes.on(node, doing).export_merge(name, number)
        try:
            for is_due in looks(context, POLL_S, PROGRESS_S):
                state = transfer_states(context, doing, node, [transfer])[0]
                if state.get("exit_status") == 0:
                    break
                if state.get("exit_status") is not None:
                    text = f"node {node.name!r}: {state.get('error_message')}"
                    raise OpExecError(f"cannot {doing}, all points are as they were: {text}")
                if is_due:
                    context.feedback(f"* {transferred(state)}")
        finally:
            forget_transfers(context, doing, node, [transfer])
        context.feedback(f"Export {name} on {node.name} begins with point {number} now")
