"""Remove a node from the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.text import natural_sorted
from ganeti.logical_units import ancillary, lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, exclusive
from ganeti.logical_units.node import ssh_keys
from ganeti.logical_units.node.candidates import refill_pool
from ganeti.logical_units.node_calls import call_node, failure_text
from ganeti.opcodes.node import OpNodeRemove

if TYPE_CHECKING:
    from ganeti.clients.wconfd_stub import WConfStub
    from ganeti.objects.node import Node


def instance_names(config: WConfStub, node: Node) -> tuple[list[str], list[str]]:
    """Return the names of the instances that have a node as primary, and as secondary node."""
    found = config.get_node_instances([node.uuid])[0] or ([], [])
    primary, secondary = (
        natural_sorted(instance.name for instance in lookup.present(config.get_instances(uuids)))
        for uuids in found
    )
    return primary, secondary


class LUNodeRemove(LogicalUnit[OpNodeRemove]):
    """Remove a node that has no instances."""

    def expand_names(self) -> None:
        """Look the node up."""
        self.node = lookup.require_node(self.config, self.op.node_uuid or self.op.node_name)

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the node exclusively."""
        return exclusive(level, [self.node.uuid]) if level is LockLevel.NODE else {}

    def check_prereq(self) -> None:
        """Refuse the master node, and a node with instances."""
        if self.node.uuid == self.cluster.master_node:
            raise OpPrereqError(
                f"node {self.node.name!r} is the master node; fail the master role over to another"
                " node first ('gnt-cluster master-failover')",
                ErrorCode.INVAL,
            )
        for role, names in zip(
            ("primary", "secondary"), instance_names(self.config, self.node), strict=True
        ):
            if names:
                raise OpPrereqError(
                    f"node {self.node.name!r} is still the {role} node of instance(s)"
                    f" {', '.join(names[:10])}; move or remove them first",
                    ErrorCode.INVAL,
                )

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on all other nodes."""
        others = [node for node in lookup.all_nodes(self.config) if node.uuid != self.node.uuid]
        return others, others

    def hooks_env(self) -> Mapping[str, object]:
        """Name the node."""
        return {"OP_TARGET": self.node.name, "NODE_NAME": self.node.name}

    def exec(self) -> None:
        """Forget it, tell it, and let another node become candidate if it was one."""
        node = self.node
        self.context.info(f"stopping the node daemon and removing configs from node {node.name}")
        ssh_keys.dismiss(self.context, self.cluster, node)
        ssh_keys.farewell(self.context, self.cluster, node)
        self.config.delete_node(node.uuid)  # its certificate goes off the list with it
        self._tell_it()
        refill_pool(self.context, [])
        if self.cluster.modify_etc_hosts:
            self._forget_address()

    def _tell_it(self) -> None:
        node = self.node
        if node.offline:
            self.context.warn(
                f"node {node.name} is offline and was not told; run 'node-cleanup' there before it"
                " is used again"
            )
            return
        result = call_node(self.context, node, "node_leave_cluster", self.cluster.modify_ssh_setup)
        if result.error is not None:
            doing = f"tell node {node.name!r} that it has left the cluster"
            text = failure_text(doing, node, "node_leave_cluster", result)
            self.context.warn(f"{text}; ignoring")

    def _forget_address(self) -> None:
        node, master = self.node, self.master
        result = call_node(self.context, master, "etc_hosts_modify", "remove", node.name, None)
        if result.error is not None:
            doing = f"take node {node.name!r} out of the hosts file"
            text = failure_text(doing, master, "etc_hosts_modify", result)
            self.context.warn(f"{text}; ignoring")
            return
        ancillary.send_hosts(self.context, self.cluster, lookup.all_nodes(self.config))
