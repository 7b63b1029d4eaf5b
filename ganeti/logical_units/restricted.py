"""Commands that the administrators of nodes allow to be run from the master.

Source: hooks_os_ext.json, "restricted_commands".
"""

from __future__ import annotations

from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, exclusive
from ganeti.logical_units.node_calls import call_nodes
from ganeti.opcodes.restricted import OpRestrictedCommand


class LURestrictedCommand(LogicalUnit[OpRestrictedCommand]):
    """Run one of them on nodes, on all at once."""

    def expand_names(self) -> None:
        """Look the nodes up."""
        self.nodes = lookup.require_nodes(self.config, self.op.node_uuids or self.op.nodes)

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the nodes exclusively where asked for: nothing else changes them meanwhile."""
        if self.op.use_locking and level is LockLevel.NODE:
            return exclusive(level, [node.uuid for node in self.nodes])
        return {}

    def exec(self) -> list[tuple[bool, str]]:
        """Run it; returns (whether it worked, what it printed or why not) in the nodes' order."""
        results = call_nodes(self.context, self.nodes, "restricted_command", self.op.command)
        rows: list[tuple[bool, str]] = []
        for node in self.nodes:
            result = results[node.name]
            if result.error is None:
                rows.append((True, str(result.payload)))
            else:
                rows.append((False, f"Node {node.name}: {result.error}"))
        return rows
