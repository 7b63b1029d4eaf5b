"""Add a node to the cluster, take a known one in again, or remove one.

The machine of a new node was set up before (certificate, simple configuration, node daemon); here
it is checked, entered into the configuration and given the files that it needs.  Its group is
locked shared, so that it cannot go away meanwhile; the node itself is locked before it is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

from msgspec import structs

from ganeti.base.errors import ErrorCode, OpPrereqError, wrong_state
from ganeti.base.ids import NodeUuid
from ganeti.logical_units import lookup, node_files
from ganeti.logical_units.base import SimpleUnit
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive, shared, union
from ganeti.logical_units.node import base as checks
from ganeti.logical_units.node import candidates
from ganeti.logical_units.node.base import NodeUnit, instances_of, make_switch, switch_of
from ganeti.logical_units.parameters import parameter_changes
from ganeti.logical_units.undo import Undo
from ganeti.objects.model import Node, NodeGroup
from ganeti.opcodes.node import OpNodeAdd, OpNodeRemove
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.wconfd import ObjectKind


@dataclass(frozen=True, slots=True)
class Joining:
    """A node that is about to join.

    Attributes:
        node: the node as it will be in the configuration.
        known: the node as it is in the configuration, if it was in the cluster before.
        others: all other nodes.
        foreign_config: why the configuration that it brings is not the cluster's, if so.
    """

    node: Node
    group: NodeGroup
    known: Node | None
    others: Sequence[Node]
    foreign_config: str | None = None


class LUNodeAdd(SimpleUnit[OpNodeAdd, Joining]):
    """Add a node, or take a known one in again."""

    hooks = HookPoint("node-add", ObjectType.NODE)

    def resolve(self) -> Joining:
        """Resolve the name, and find the group and the known node."""
        name, address = lookup.resolve(
            "node",
            self.op.node_name,
            self.context.paths,
            ip_version=self.cluster.primary_ip_family.version,
        )
        nodes = lookup.all_nodes(self.config)
        known = next((node for node in nodes if node.name == name), None)
        self._check_known(name, known)
        group = self._group_of(name, known)
        node = self._planned_node(name, self.op.primary_ip or address, group, known)
        return Joining(node, group, known, [node for node in nodes if node.name != name])

    def _check_known(self, name: str, known: Node | None) -> None:
        if not self.op.readd:
            if known is not None:
                raise OpPrereqError(
                    f"node {name!r} is already in the configuration; use --readd to take it in"
                    " again",
                    ErrorCode.EXISTS,
                )
            return
        if known is None:
            raise OpPrereqError(
                f"node {name!r} is not in the configuration; add it without --readd",
                ErrorCode.NOENT,
            )
        if known.uuid == self.cluster.master_node:
            raise wrong_state(f"node {name!r} is the master; it cannot be re-added")
        if self.op.group is not None:
            raise OpPrereqError(
                "a group cannot be given when a node is re-added; use 'gnt-group assign-nodes'"
            )

    def _group_of(self, name: str, known: Node | None) -> NodeGroup:
        key = known.group if known else self.op.group
        if key is not None:
            return lookup.require_group(self.config, key)
        groups = lookup.present(self.config.get_node_groups(None))
        if len(groups) != 1:
            raise OpPrereqError(
                f"there are {len(groups)} node groups; say with -g which one node {name!r}"
                " belongs to"
            )
        return groups[0]

    def _planned_node(
        self, name: str, primary_ip: str, group: NodeGroup, known: Node | None
    ) -> Node:
        op = self.op
        before = known or Node(
            name=name,
            uuid=NodeUuid(self.context.new_uuid()),
            primary_ip=primary_ip,
            secondary_ip=primary_ip,
            group=group.uuid,
            master_candidate=False,
            offline=False,
            drained=False,
            master_capable=True,
            vm_capable=True,
            powered=True,
            serial_no=1,
        )
        return structs.replace(
            before,
            **parameter_changes(op, before),
            primary_ip=primary_ip,
            secondary_ip=op.secondary_ip or before.secondary_ip,
            offline=False,
            drained=False,
            master_candidate=False,
            powered=True,
            master_capable=_or(op.master_capable, before.master_capable),
            vm_capable=_or(op.vm_capable, before.vm_capable),
        )

    def place(self, found: Joining, earlier: Joining | None) -> Joining:
        """Keep the new node's UUID, which is locked."""
        if earlier is None or found.known:
            return found
        return replace(found, node=structs.replace(found.node, uuid=earlier.node.uuid))

    def locks(self, found: Joining) -> LockNeed:
        """Lock the group shared, and the node exclusively; for another address instances, too."""
        node = exclusive(LockLevel.NODE, [found.node.uuid])
        group = shared(LockLevel.NODEGROUP, [found.group.uuid])
        if found.known is None or found.known.secondary_ip == found.node.secondary_ip:
            return union(group, node)
        names = [each.name for each in checks.copied_on(self.config, found.known)]
        return union(shared(LockLevel.INSTANCE, names), group, node)

    def plan(self, found: Joining) -> Joining:
        """Check the addresses, and ask the node for its version."""
        node, others = found.node, found.others
        wanted = candidates.is_capable(node) and candidates.has_room(
            others, self.cluster.candidate_pool_size
        )
        checks.check_addresses(node, others, self.master)
        if found.known is None or found.known.primary_ip != node.primary_ip:
            version = self.cluster.primary_ip_family.version
            lookup.check_ip_version(f"node {node.name!r}", node.primary_ip, version)
        if found.known is not None and found.known.secondary_ip != node.secondary_ip:
            checks.check_copies_at_rest(self.config, found.known)
        if found.known is not None and found.known.vm_capable and not node.vm_capable:
            checks.check_no_instances(self.config, found.known)
        checks.check_version(self.context, node)
        if found.known is None:
            candidates.check_availability(self.context)
        if node.secondary_ip != node.primary_ip:
            checks.check_has_secondary_ip(self.context, node)
        return replace(
            found,
            node=structs.replace(node, master_candidate=wanted),
            foreign_config=checks.find_foreign_config(self.context, node, others),
        )

    def hook_nodes(self, plan: Joining) -> Sequence[Node]:
        """Run hooks on all other nodes."""
        return plan.others

    def hook_nodes_after(self, plan: Joining) -> Sequence[Node]:
        """Run hooks on the new node as well."""
        return [*plan.others, plan.node]

    def hook_values(self, plan: Joining) -> Mapping[str, object]:
        node = plan.node
        return {
            "OP_TARGET": node.name,
            "NODE_NAME": node.name,
            "NODE_PIP": node.primary_ip,
            "NODE_SIP": node.secondary_ip,
            "MASTER_CAPABLE": str(node.master_capable),
            "VM_CAPABLE": str(node.vm_capable),
        }

    def execute(self, plan: Joining) -> None:
        """Enter the node into the configuration, and make it known and trusted."""
        with nullcontext() if plan.known else candidates.changing_nodes(self.context):
            self._enter(plan)
        node, cluster = plan.node, self.cluster
        candidates.let_in_candidates_alone(self.context, cluster, node)
        if node.master_candidate:
            candidates.authorize_candidate(self.context, cluster, node)
        node_files.distribute(self.context, cluster, [node])
        node_files.send_hosts(self.context, cluster, plan.others)
        candidates.tell_availability(self.context)

    def _enter(self, plan: Joining) -> None:
        node, cluster = plan.node, self.cluster
        checks.lead(self.context, node, plan.foreign_config)
        if node.master_candidate:
            self.context.info("Node will be a master candidate")
        make_switch(self.context, node, switch_of(cluster, plan.group, node))
        with Undo(self.context) as undo:
            if plan.known is None:
                self._create(node, undo)
            else:
                self._take_in_again(plan.known, node, undo)
            if node.master_candidate:
                candidates.trust(self.context, node)
            if cluster.modify_etc_hosts:  # last, as nobody knows what stood there before
                doing = f"enter node {node.name!r} into the hosts file"
                calls = self.context.nodes.on(self.master, doing)
                calls.etc_hosts_modify("add", node.name, node.primary_ip)
            undo.forget()

    def _create(self, node: Node, undo: Undo) -> None:
        def forget() -> None:
            if any(self.config.get_nodes([node.uuid])):
                self.config.set_candidate_cert(node.uuid, None)
                self.config.delete(ObjectKind.NODE, node.uuid)

        undo.push(f"remove node {node.name!r} from the configuration", forget)
        self.config.create(ObjectKind.NODE, node.to_wire())
        self.context.created(f"node {node.name}", node.uuid)

    def _take_in_again(self, known: Node, node: Node, undo: Undo) -> None:
        candidates.forget_boot(self.context, known)
        if known.master_candidate or candidates.keeps_rights(self.context, known):
            candidates.demote(self.context, known)
        before, after = ({**Node.LEFT_OUT, **each.to_wire()} for each in (known, node))
        changes = {name: value for name, value in after.items() if before.get(name) != value}
        self.context.info(f"readding node {node.name}, the offline and drained flags are reset")
        if changes:
            self.config.modify(ObjectKind.NODE, node.uuid, changes)
            back = {name: before.get(name) for name in changes}
            undo.push(
                f"restore the flags of node {node.name!r}",
                lambda: self.config.modify(ObjectKind.NODE, node.uuid, back),
            )


def _or(given: bool | None, otherwise: bool) -> bool:
    return otherwise if given is None else given


class LUNodeRemove(NodeUnit[OpNodeRemove, Node]):
    """Remove a node that has no instances and no disks."""

    hooks = HookPoint("node-remove", ObjectType.NODE)

    def locks(self, found: Node) -> LockNeed:
        return exclusive(LockLevel.NODE, [found.uuid])

    def plan(self, found: Node) -> Node:
        """Refuse the master node, and a node with instances or with disks that none has."""
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
        self._check_no_disks(found)
        candidates.check_availability(self.context, leaving=found)
        return found

    def _check_no_disks(self, node: Node) -> None:
        """Refuse a node with disks, which are detached ones when it has no instances."""
        detached = [
            f"{disk.uuid} ({disk.name or disk.iv_name or disk.dev_type}, {disk.size} MiB)"
            for disk in lookup.present(self.config.get_disks(None))
            if node.uuid in disk.nodes
        ]
        if detached:
            raise wrong_state(
                f"node {node.name!r} has {len(detached)} disk(s) that belong to no instance:"
                f" {', '.join(detached[:10])}; attach each to an instance on a node of the disk"
                " ('gnt-instance modify --disk attach:uuid=UUID INSTANCE'), then take it away from"
                " here with the instance ('gnt-instance move', for one with a copy 'gnt-instance"
                " replace-disks'), or remove it with its data ('gnt-instance modify --disk N:remove"
                " INSTANCE')"
            )

    def hook_nodes(self, plan: Node) -> Sequence[Node]:
        """Run hooks on all other nodes."""
        return self.others(plan)

    def hook_values(self, plan: Node) -> Mapping[str, object]:
        return {"OP_TARGET": plan.name, "NODE_NAME": plan.name}

    def execute(self, plan: Node) -> None:
        """Remove the node, and let another one become candidate if it was one."""
        context, cluster = self.context, self.cluster
        with candidates.changing_nodes(context, leaving=plan):
            context.info(f"stopping the node daemon and removing configs from node {plan.name}")
            candidates.revoke_key(context, cluster, plan, has_key=plan.master_candidate)
            candidates.remove_keys_from(context, cluster, plan)
            # Its certificate goes off the list with it.
            self.config.delete(ObjectKind.NODE, plan.uuid)
        self._clean_up(plan)
        candidates.refill_pool(context, [])
        candidates.tell_availability(context)
        if cluster.modify_etc_hosts:
            self._forget_address(plan)

    def _clean_up(self, node: Node) -> None:
        if node.offline:
            self.context.warn(
                f"node {node.name} is offline and was not told; run 'node-cleanup' there before it"
                " is used again"
            )
            return
        self.context.attempt(
            f"tell node {node.name!r} that it has left the cluster",
            NodeCalls.node_leave_cluster,
            node,
            modify_ssh_setup=self.cluster.modify_ssh_setup,
        )

    def _forget_address(self, node: Node) -> None:
        doing = f"take node {node.name!r} out of the hosts file"
        call = NodeCalls.etc_hosts_modify
        if self.context.attempt(doing, call, self.master, "remove", node.name, None):
            node_files.send_hosts(self.context, self.cluster, lookup.all_nodes(self.config))
