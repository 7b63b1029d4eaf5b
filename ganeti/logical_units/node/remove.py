"""Remove a node from the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ganeti.base.errors import OpPrereqError
from ganeti.clients.node_rpc import RpcResult
from ganeti.logical_units import ancillary, lookup
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive
from ganeti.logical_units.node import ssh_keys
from ganeti.logical_units.node.base import NodeUnit, instances_of
from ganeti.logical_units.node.candidates import refill_pool
from ganeti.objects.model import Node
from ganeti.opcodes.node import OpNodeRemove
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.wconfd import ObjectKind


class LUNodeRemove(NodeUnit[OpNodeRemove, Node]):
    """Remove a node that has no instances."""

    hooks = HookPoint("node-remove", ObjectType.NODE)

    def locks(self, found: Node) -> LockNeed:
        return exclusive(LockLevel.NODE, [found.uuid])

    def plan(self, found: Node) -> Node:
        """Refuse the master node, and a node with instances."""
        if found.uuid == self.cluster.master_node:
            raise OpPrereqError(
                f"node {found.name!r} is the master node; fail the master role over to another"
                " node first ('gnt-cluster master-failover')"
            )
        primary, secondary = instances_of(self.config, found)
        for role, instances in (("primary", primary), ("secondary", secondary)):
            if instances:
                raise OpPrereqError(
                    f"node {found.name!r} is still the {role} node of instance(s)"
                    f" {', '.join(each.name for each in instances[:10])}; move or remove them first"
                )
        return found

    def hook_nodes(self, plan: Node) -> Sequence[Node]:
        """Run hooks on all other nodes."""
        return self.others(plan)

    def hook_values(self, plan: Node) -> Mapping[str, object]:
        return {"OP_TARGET": plan.name, "NODE_NAME": plan.name}

    def execute(self, plan: Node) -> None:
        """Remove the node, and let another one become candidate if it was one."""
        context, cluster = self.context, self.cluster
        context.info(f"stopping the node daemon and removing configs from node {plan.name}")
        ssh_keys.dismiss(context, cluster, plan)
        ssh_keys.farewell(context, cluster, plan)
        self.config.delete(ObjectKind.NODE, plan.uuid)  # its certificate goes off the list with it
        self._clean_up(plan)
        refill_pool(context, [])
        if cluster.modify_etc_hosts:
            self._forget_address(plan)

    def _clean_up(self, node: Node) -> None:
        if node.offline:
            self.context.warn(
                f"node {node.name} is offline and was not told; run 'node-cleanup' there before it"
                " is used again"
            )
            return
        result = self.context.nodes.call_one(
            NodeCalls.node_leave_cluster, node, modify_ssh_setup=self.cluster.modify_ssh_setup
        )
        self._warn(result, f"tell node {node.name!r} that it has left the cluster")

    def _forget_address(self, node: Node) -> None:
        result = self.context.nodes.call_one(
            NodeCalls.etc_hosts_modify, self.master, "remove", node.name, None
        )
        self._warn(result, f"take node {node.name!r} out of the hosts file")
        if result.error is None:
            ancillary.send_hosts(self.context, self.cluster, lookup.all_nodes(self.config))

    def _warn(self, result: RpcResult[object], doing: str) -> None:
        if result.error is not None:
            self.context.warn(f"{result.explain(doing)}; ignoring")
