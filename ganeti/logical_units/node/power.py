"""Power of nodes: restarting one from inside, and the out-of-band helper.

Source: hooks_os_ext.json, "oob_helper"; opcodes.json.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.text import natural_sort_key
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, exclusive
from ganeti.logical_units.node_calls import call_node, order
from ganeti.objects.fill import cluster_hvparams, fill_ndparams
from ganeti.objects.query_words import ResultStatus
from ganeti.opcodes.node import OobCommand, OpNodePowercycle, OpOobCommand

if TYPE_CHECKING:
    from ganeti.objects.json_value import JsonValue
    from ganeti.objects.node import Node

# (status, value) pairs of one node: its name, and what the helper said.
Row = list[tuple[ResultStatus, "JsonValue"]]

_TAKES_POWER_AWAY: Final = frozenset({OobCommand.POWER_CYCLE, OobCommand.POWER_OFF})
_POWERED_AFTER: Final = {OobCommand.POWER_OFF: False, OobCommand.POWER_ON: True}
_HEALTH_WORDS: Final = frozenset({"OK", "WARNING", "CRITICAL", "UNKNOWN"})


class LUNodePowercycle(LogicalUnit[OpNodePowercycle]):
    """Restart a node's machine without stopping anything on it."""

    def expand_names(self) -> None:
        """Look the node up."""
        self.node = lookup.require_node(self.config, self.op.node_uuid or self.op.node_name)

    def check_prereq(self) -> None:
        """Refuse the master node, unless forced."""
        if self.node.uuid == self.cluster.master_node and not self.op.force:
            raise OpPrereqError(
                f"node {self.node.name!r} is the master node and is not restarted from here; use"
                " --force if it must be",
                ErrorCode.INVAL,
            )

    def exec(self) -> object:
        """Tell it; no lock is taken, since a node that hangs may be why some are held."""
        hypervisor = self.cluster.enabled_hypervisors[0]
        hvparams = cluster_hvparams(self.cluster).get(hypervisor, {})
        doing = f"restart node {self.node.name!r}"
        return order(self.context, self.node, doing, "node_powercycle", hypervisor, hvparams)


class LUOobCommand(LogicalUnit[OpOobCommand]):
    """Have the out-of-band helper do something for nodes, one after the other."""

    def expand_names(self) -> None:
        """Look the nodes up, and what helps with each."""
        names = self.op.node_uuids or self.op.node_names
        nodes = lookup.require_nodes(self.config, names) if names else lookup.all_nodes(self.config)
        if not names and self.op.command in _TAKES_POWER_AWAY:
            nodes = [node for node in nodes if node.uuid != self.cluster.master_node]
        self.nodes = sorted(nodes, key=lambda node: natural_sort_key(node.name))
        groups = {
            group.uuid: group
            for group in lookup.present(
                self.config.get_node_groups(list(dict.fromkeys(n.group for n in self.nodes)))
            )
        }
        self.helpers = {
            node.uuid: fill_ndparams(self.cluster, groups[node.group], node)["oob_program"]
            for node in self.nodes
        }

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the nodes exclusively: whether they have power is written down."""
        if level is LockLevel.NODE and self.op.command in _POWERED_AFTER:
            return exclusive(level, [node.uuid for node in self.nodes])
        return {}

    def check_prereq(self) -> None:
        """Refuse to cut the power under the master, or under a node that is in use."""
        helped = [node for node in self.nodes if self.helpers[node.uuid]]
        if not helped and (self.op.node_names or self.op.node_uuids):
            names = ", ".join(node.name for node in self.nodes)
            raise OpPrereqError(
                f"no out-of-band helper is set for {names}; set the node parameter oob_program",
                ErrorCode.STATE,
            )
        if self.op.command not in _TAKES_POWER_AWAY:
            return
        for node in self.nodes:
            if node.uuid == self.cluster.master_node:
                raise OpPrereqError(
                    f"node {node.name!r} is the master node: {self.op.command} is refused; fail the"
                    " master role over first, or call the helper by hand:"
                    f" '{self.helpers[node.uuid]} {self.op.command} {node.name}'",
                    ErrorCode.INVAL,
                )
            in_use = not node.offline and not self.op.ignore_status
            if self.op.command is OobCommand.POWER_OFF and in_use:
                raise OpPrereqError(
                    f"cannot power off node {node.name!r}: it is not marked offline; use"
                    f" 'gnt-node modify --offline yes {node.name}' first, or --ignore-status",
                    ErrorCode.STATE,
                )

    def exec(self) -> list[Row]:
        """Do it, with a pause between two nodes that get power."""
        rows: list[Row] = []
        for node in self.nodes:
            if rows and self.op.command is OobCommand.POWER_ON:
                self.context.wait(self.op.power_delay)
            rows.append([(ResultStatus.NORMAL, node.name), self._one(node)])
        return rows

    def _one(self, node: Node) -> tuple[ResultStatus, JsonValue]:
        helper, command = self.helpers[node.uuid], self.op.command
        if not helper:
            return ResultStatus.UNAVAIL, None
        result = call_node(
            self.context, self.master, "run_oob", helper, command, node.name, self.op.timeout
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
            self.config.modify_node(node.uuid, {"powered": powered})

    def _compare(self, node: Node, answer: object) -> None:
        """Say where the record differs; it is read now, as no lock kept it as it was."""
        [now] = self.config.get_nodes([node.uuid])
        match answer:
            case {"powered": bool(powered)} if now is not None and powered != now.powered:
                words = {True: "has power", False: "has no power"}
                self.context.warn(
                    f"node {node.name} {words[powered]}, but it is recorded that it"
                    f" {words[node.powered]}"
                )


def mistake_in_answer(command: OobCommand, answer: object) -> str | None:
    """Say what is wrong with what a helper printed, or return None.

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
