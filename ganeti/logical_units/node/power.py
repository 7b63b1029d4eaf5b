"""Power of nodes: restarting one by its own daemon, and the out-of-band helper.

Source: hooks_os_ext.json, "oob_helper"; opcodes.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import OpPrereqError, wrong_state
from ganeti.base.json import JsonValue
from ganeti.base.text import natural_sort_key
from ganeti.clients.node_rpc import RpcResult
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit, SimpleUnit
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive
from ganeti.logical_units.node.base import NodeUnit
from ganeti.objects.fill import cluster_hvparams, fill_ndparams
from ganeti.objects.model import Node
from ganeti.objects.query_words import ResultStatus
from ganeti.opcodes.node import (
    OobCommand,
    OpNodePowercycle,
    OpOobCommand,
    OpRepairCommand,
    OpRestrictedCommand,
)
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.wconfd import ObjectKind

# (status, value) pairs of one node: its name, and the answer of the helper.
Row = list[tuple[ResultStatus, JsonValue]]

_TAKES_POWER_AWAY: Final = frozenset({OobCommand.POWER_CYCLE, OobCommand.POWER_OFF})
_POWERED_AFTER: Final = {OobCommand.POWER_OFF: False, OobCommand.POWER_ON: True}
_HEALTH_WORDS: Final = frozenset({"OK", "WARNING", "CRITICAL", "UNKNOWN"})


class LUNodePowercycle(NodeUnit[OpNodePowercycle, Node]):
    """Restart a node's machine without stopping anything on it.

    No lock is taken, since a node that hangs may be why some are held.
    """

    def plan(self, found: Node) -> Node:
        """Refuse the master node, unless forced."""
        if found.uuid == self.cluster.master_node and not self.op.force:
            raise OpPrereqError(
                f"node {found.name!r} is the master node and is not restarted from here; use"
                " --force if it must be"
            )
        return found

    def execute(self, plan: Node) -> str:
        hypervisor = self.cluster.enabled_hypervisors[0]
        params = cluster_hvparams(self.cluster).get(hypervisor, {})
        calls = self.context.nodes.on(plan, f"restart node {plan.name!r}")
        return calls.node_powercycle(hypervisor, params)


@dataclass(frozen=True, slots=True)
class Helped:
    """A node, and the out-of-band helper that is set for it; "" for none."""

    node: Node
    helper: str


class LUOobCommand(LogicalUnit[OpOobCommand, Sequence[Helped], Sequence[Helped]]):
    """Have the out-of-band helper do something for nodes, one after the other."""

    def resolve(self) -> list[Helped]:
        """Look the nodes up, with their helpers; power is never taken from all with the master."""
        names = self.op.node_uuids or self.op.node_names
        nodes = lookup.named_or_all_nodes(self.config, names)
        if not names and self.op.command in _TAKES_POWER_AWAY:
            nodes = [node for node in nodes if node.uuid != self.cluster.master_node]
        groups = lookup.groups_of(self.config, nodes)
        return [
            Helped(node, fill_ndparams(self.cluster, groups[node.group], node)["oob_program"])
            for node in sorted(nodes, key=lambda node: natural_sort_key(node.name))
        ]

    def locks(self, found: Sequence[Helped]) -> LockNeed:
        """Lock the nodes exclusively if their power is to be recorded."""
        if self.op.command in _POWERED_AFTER:
            return exclusive(LockLevel.NODE, [each.node.uuid for each in found])
        return {}

    def plan(self, found: Sequence[Helped]) -> Sequence[Helped]:
        """Refuse to cut the power of the master, of a node in use, or of one that cannot be asked.

        A node without a helper would be marked offline and run on.
        """
        if self.op.command in _TAKES_POWER_AWAY:
            if (self.op.node_names or self.op.node_uuids) and not any(it.helper for it in found):
                names = ", ".join(each.node.name for each in found)
                raise wrong_state(
                    f"no out-of-band helper is set for {names}; set the node parameter oob_program"
                )
            for each in found:
                self._check_may_lose_power(each.node, each.helper)
        return found

    def _check_may_lose_power(self, node: Node, helper: str) -> None:
        command = self.op.command
        if node.uuid == self.cluster.master_node:
            raise OpPrereqError(
                f"node {node.name!r} is the master node: {command} is refused; fail the"
                " master role over first, or call the helper by hand:"
                f" '{helper} {command} {node.name}'"
            )
        in_use = not node.offline and not self.op.ignore_status
        if command is OobCommand.POWER_OFF and in_use:
            raise wrong_state(
                f"cannot power off node {node.name!r}: it is not marked offline; use"
                f" 'gnt-node modify --offline yes {node.name}' first, or --ignore-status"
            )

    def execute(self, plan: Sequence[Helped]) -> list[Row]:
        """Run the command, with a pause between two nodes that get power."""
        rows: list[Row] = []
        for each in plan:
            if rows and self.op.command is OobCommand.POWER_ON:
                self.context.wait(self.op.power_delay)
            name, answer = each.node.name, self._run(each.node, each.helper)
            rows.append([(ResultStatus.NORMAL, name), answer])
        return rows

    def _run(self, node: Node, helper: str) -> tuple[ResultStatus, JsonValue]:
        command = self.op.command
        if not helper:
            return ResultStatus.UNAVAIL, None
        result = self.context.nodes.call_one(
            NodeCalls.run_oob, self.master, helper, command, node.name, self.op.timeout
        )
        if result.error is not None:
            self.context.warn(f"out-of-band {command} of node {node.name} failed: {result.error}")
            return ResultStatus.NODATA, None
        mistake = mistake_in_answer(command, result.payload)
        if mistake is not None:
            self.context.warn(f"out-of-band {command} of node {node.name}: {mistake}")
            return ResultStatus.NODATA, None
        if command in _POWERED_AFTER:
            self._record(node, _POWERED_AFTER[command])
        if command is OobCommand.POWER_STATUS:
            self._compare(node, result.payload)
        return ResultStatus.NORMAL, result.payload

    def _record(self, node: Node, powered: bool) -> None:
        if node.powered != powered:
            self.config.modify(ObjectKind.NODE, node.uuid, {"powered": powered})

    def _compare(self, node: Node, answer: object) -> None:
        """Warn if the record differs; it is read now, because no lock kept it as it was."""
        [now] = self.config.get_nodes([node.uuid])
        match answer:
            case {"powered": bool(powered)} if now is not None and powered != now.powered:
                words = {True: "has power", False: "has no power"}
                self.context.warn(
                    f"node {node.name} {words[powered]}, but it is recorded that it"
                    f" {words[now.powered]}"
                )


def mistake_in_answer(command: OobCommand, answer: object) -> str | None:
    """Return the mistake in the output of a helper, or None.

    >>> mistake_in_answer(OobCommand.POWER_STATUS, {"powered": "on"})
    'the answer must be {"powered": true or false}'
    """
    if command is OobCommand.POWER_STATUS:
        match answer:
            case {"powered": bool()}:
                return None
        return 'the answer must be {"powered": true or false}'
    if command is OobCommand.HEALTH:
        entries = answer if isinstance(answer, list) else [None]
        for entry in entries:
            match entry:
                case [str(), str(word)] if word in _HEALTH_WORDS:
                    continue
            return f"the answer must be [[item, one of {', '.join(sorted(_HEALTH_WORDS))}], ...]"
        return None
    return None if answer is None else "an answer came where none is expected"


# Commands that the administrators of nodes allow to be run from the master.


class LURestrictedCommand(SimpleUnit[OpRestrictedCommand, Sequence[Node]]):
    """Run one of them on nodes, on all at once."""

    def resolve(self) -> list[Node]:
        return lookup.require_nodes(self.config, self.op.node_uuids or self.op.nodes)

    def locks(self, found: Sequence[Node]) -> LockNeed:
        """Lock the nodes exclusively where asked for: nothing else changes them meanwhile."""
        if self.op.use_locking:
            return exclusive(LockLevel.NODE, [node.uuid for node in found])
        return {}

    def execute(self, plan: Sequence[Node]) -> list[tuple[bool, str]]:
        """Run it; returns (success, output or failure) in the nodes' order."""
        results = self.context.nodes.call_all(NodeCalls.restricted_command, plan, self.op.command)
        return [_row(results[node.name]) for node in plan]


class LURepairCommand(SimpleUnit[OpRepairCommand, Node]):
    """Run one of those for repairs on a node.

    No lock is taken, as for `LURestrictedCommand`: instances run on meanwhile.
    """

    def resolve(self) -> Node:
        return lookup.require_node(self.config, self.op.node_name)

    def execute(self, plan: Node) -> str:
        calls = self.context.nodes.on(plan, f"run the repair command {self.op.command!r}")
        return calls.repair_command(self.op.command, self.op.input)


def _row(result: RpcResult[str]) -> tuple[bool, str]:
    if result.error is None:
        return True, result.payload
    return False, f"Node {result.node_name}: {result.error}"
