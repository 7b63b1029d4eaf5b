"""Remove exports; make ready for one."""

from __future__ import annotations

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.backup.finding import nodes_with_export
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.host_names import normal_name
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, all_shared, exclusive
from ganeti.logical_units.node_calls import call_node, failure_text
from ganeti.opcodes.backup import OpBackupPrepare, OpBackupRemove
from ganeti.protocol.export_description import PARTIAL_SUFFIX


class LUBackupRemove(LogicalUnit[OpBackupRemove]):
    """Remove the exports of an instance, which need not exist any more, from all nodes."""

    def expand_names(self) -> None:
        """Find the full name, if the instance is still there."""
        op = self.op
        found = lookup.present(self.config.get_instances([op.instance_uuid or op.instance_name]))
        self.name = found[0].name if found else op.instance_name
        self.lock_key = normal_name("export", self.name.removesuffix(PARTIAL_SUFFIX))

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the name exclusively, as who exports does, and all nodes shared: none goes."""
        if level is LockLevel.INSTANCE:
            return exclusive(level, [self.lock_key])
        return all_shared(level) if level is LockLevel.NODE else {}

    def check_prereq(self) -> None:
        """Refuse to remove what nobody has."""
        self.nodes = nodes_with_export(self.context, lookup.all_nodes(self.config), self.name)
        if not self.nodes:
            raise OpPrereqError(
                f"no node has an export {self.name!r}; see 'gnt-backup list'",
                ErrorCode.NOENT,
            )

    def exec(self) -> None:
        """Remove them.

        Raises:
            OpExecError: a node could not.
        """
        failed = []
        for node in self.nodes:
            result = call_node(self.context, node, "export_remove", self.name)
            if result.error is not None:
                doing = f"remove the export {self.name!r}"
                failed.append(failure_text(doing, node, "export_remove", result))
        if failed:
            raise OpExecError("; ".join(failed))


class LUBackupPrepare(LogicalUnit[OpBackupPrepare]):
    """Make ready for an export; one to a node of this cluster needs nothing."""

    def expand_names(self) -> None:
        """Look the instance up."""
        op = self.op
        lookup.require_instance(self.config, op.instance_uuid or op.instance_name)

    def exec(self) -> None:
        """Nothing is needed."""
