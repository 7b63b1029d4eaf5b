"""Add, remove, rename and change node groups; move nodes to a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from ganeti.base.errors import OpPrereqError, wrong_state
from ganeti.base.text import COLUMN_SEPARATOR, fits_column, natural_sorted, shown
from ganeti.logical_units import lookup, parameters
from ganeti.logical_units.base import LogicalUnit, SimpleUnit
from ganeti.logical_units.cluster import communication
from ganeti.logical_units.cluster.set_params import ClusterObjects, violators
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive, shared, union
from ganeti.logical_units.node.base import make_switch, switch_of
from ganeti.logical_units.node.candidates import tell_availability
from ganeti.objects.model import AllocPolicy, Cluster, Disk, Instance, Network, Node, NodeGroup
from ganeti.opcodes import group as opcodes
from ganeti.protocol.wconfd import ObjectKind

GroupOpType = TypeVar("GroupOpType", bound=opcodes.GroupOpCode)
PlanType = TypeVar("PlanType")


def check_name(name: str) -> None:
    """Refuse a text that cannot be the name of a node group.

    Raises:
        OpPrereqError: it is too long, or lists and the tools for placement cannot show it.
    """
    if len(name) > lookup.NAME_LENGTH_MAX:
        raise OpPrereqError(
            f"{name[:20]!r}... cannot be the name of a node group: it is longer than"
            f" {lookup.NAME_LENGTH_MAX} characters"
        )
    if not name.isprintable() or not fits_column(name):
        raise OpPrereqError(
            f"{name!r} cannot be the name of a node group: use characters that can be printed, and"
            f" no {COLUMN_SEPARATOR}"
        )


def group_changes(
    op: opcodes.GroupSettings, cluster: Cluster, group: NodeGroup | None
) -> dict[str, object]:
    """Return the new values of the fields of a group that an opcode sets.

    Raises:
        OpPrereqError: a parameter is unknown or wrong.
    """
    changes: dict[str, object] = {}
    if op.alloc_policy is not None:
        changes["alloc_policy"] = op.alloc_policy.value
    changes |= parameters.parameter_changes(op, group)
    if op.ipolicy is not None:
        old = group.ipolicy if group else {}
        parameters.check_ipolicy_changes(op.ipolicy, of_cluster=False)
        parameters.check_templates_enabled(op.ipolicy, cluster)
        changes["ipolicy"] = parameters.merge_ipolicy(cluster, old, op.ipolicy)
    return changes


class LUGroupAdd(LogicalUnit[opcodes.OpGroupAdd, Network | None, NodeGroup]):
    """Add a node group; the network for communication with instances is connected to it."""

    hooks = HookPoint("group-add", ObjectType.GROUP)

    def resolve(self) -> Network | None:
        """Return the network for communication, if there is one."""
        name = self.cluster.instance_communication_network
        return communication.named(lookup.all_networks(self.config), name) if name else None

    def locks(self, found: Network | None) -> LockNeed:
        return shared(LockLevel.NETWORK, [found.uuid]) if found else {}

    def plan(self, found: Network | None) -> NodeGroup:
        """Refuse a name that is taken or cannot be, and wrong parameters."""
        name = self.op.group_name
        check_name(name)
        lookup.check_name_free(ObjectKind.NODEGROUP, lookup.all_groups(self.config), name)
        values: dict[str, object] = {
            "name": name,
            "uuid": self.context.new_uuid(),
            "alloc_policy": AllocPolicy.PREFERRED.value,
            "networks": {found.uuid: communication.CONNECTION} if found else {},
            "serial_no": 1,
            **group_changes(self.op, self.cluster, None),
        }
        return NodeGroup.from_wire(values)

    def hook_values(self, plan: NodeGroup) -> Mapping[str, object]:
        return {"GROUP_NAME": plan.name}

    def execute(self, plan: NodeGroup) -> None:
        self.config.create(ObjectKind.NODEGROUP, plan.to_wire())
        self.context.created(f"node group {plan.name}", plan.uuid)


class _GroupUnit(LogicalUnit[GroupOpType, NodeGroup, PlanType]):
    """An operation on one existing group, which is locked exclusively."""

    def resolve(self) -> NodeGroup:
        return lookup.require_group(self.config, self.op.group_name)

    def locks(self, found: NodeGroup) -> LockNeed:
        return exclusive(LockLevel.NODEGROUP, [found.uuid])


class LUGroupRemove(_GroupUnit[opcodes.OpGroupRemove, NodeGroup]):
    """Remove an empty group, but never the last one."""

    hooks = HookPoint("group-remove", ObjectType.GROUP)

    def plan(self, found: NodeGroup) -> NodeGroup:
        """Refuse a group with nodes, and the last group."""
        nodes = lookup.group_nodes(self.config, found.uuid)
        if nodes:
            names = shown(node.name for node in nodes)
            raise wrong_state(
                f"node group {found.name!r} is not empty, it has the nodes {names}; move them with"
                " 'gnt-group assign-nodes'"
            )
        if len(self.config.get_node_groups(None)) == 1:
            raise wrong_state(f"node group {found.name!r} is the only one and cannot be removed")
        return found

    def hook_values(self, plan: NodeGroup) -> Mapping[str, object]:
        return {"GROUP_NAME": plan.name}

    def execute(self, plan: NodeGroup) -> None:
        self.config.delete(ObjectKind.NODEGROUP, plan.uuid)


class LUGroupRename(_GroupUnit[opcodes.OpGroupRename, NodeGroup]):
    """Give a group another name."""

    hooks = HookPoint("group-rename", ObjectType.GROUP)

    def plan(self, found: NodeGroup) -> NodeGroup:
        """Refuse a name that is taken or cannot be."""
        check_name(self.op.new_name)
        groups = lookup.all_groups(self.config)
        lookup.check_name_free(ObjectKind.NODEGROUP, groups, self.op.new_name)
        return found

    def hook_nodes(self, plan: NodeGroup) -> Sequence[Node]:
        """Run hooks on the master and the members."""
        return [self.master, *lookup.group_nodes(self.config, plan.uuid)]

    def hook_values(self, plan: NodeGroup) -> Mapping[str, object]:
        return {"OLD_NAME": plan.name, "NEW_NAME": self.op.new_name}

    def execute(self, plan: NodeGroup) -> str:
        """Rename the group; returns the new name."""
        self.config.modify(ObjectKind.NODEGROUP, plan.uuid, {"name": self.op.new_name})
        return self.op.new_name


@dataclass(frozen=True, slots=True)
class GroupChange:
    """New values of some fields of a group."""

    group: NodeGroup
    changes: Mapping[str, object]


class LUGroupSetParams(_GroupUnit[opcodes.OpGroupSetParams, GroupChange]):
    """Change settings of a group."""

    hooks = HookPoint("group-modify", ObjectType.GROUP)

    def plan(self, found: NodeGroup) -> GroupChange:
        """Refuse wrong parameters, and an opcode in which no change is given, even an empty one."""
        changes = group_changes(self.op, self.cluster, found)
        if not changes:
            raise OpPrereqError("please give at least one change")
        empty = parameters.empty_fields(self.op)
        changes = {field: value for field, value in changes.items() if field not in empty}
        if "ipolicy" in changes:
            self._warn_of_violators(found, changes["ipolicy"])
        return GroupChange(found, changes)

    def _warn_of_violators(self, group: NodeGroup, ipolicy: object) -> None:
        """Name the instances that fit the policy now, but will not."""
        objects = ClusterObjects(self.config)
        after = NodeGroup.from_wire({**group.to_wire(), "ipolicy": ipolicy})
        now = violators(self.cluster, objects, [group])
        newly = [name for name in violators(self.cluster, objects, [after]) if name not in now]
        if newly:
            self.context.warn(f"with the new policy these instances violate it: {shown(newly)}")

    def hook_values(self, plan: GroupChange) -> Mapping[str, object]:
        policy = self.op.alloc_policy
        return {"GROUP_NAME": plan.group.name, "NEW_ALLOC_POLICY": policy and policy.value}

    def execute(self, plan: GroupChange) -> list[tuple[str, object]]:
        """Change the group; returns the changes."""
        before = plan.group
        if "ndparams" in plan.changes:
            after = replace(before, ndparams=plan.changes["ndparams"])
            for node in lookup.group_nodes(self.config, before.uuid):
                switch = switch_of(self.cluster, after, node)
                make_switch(self.context, node, switch, switch_of(self.cluster, before, node))
        if plan.changes:
            self.config.modify(ObjectKind.NODEGROUP, before.uuid, plan.changes)
        if "ndparams" in plan.changes:
            tell_availability(self.context)
        return list(plan.changes.items())


def split_instances(
    instances: Sequence[Instance], disks: Mapping[str, Disk], group_of: Mapping[str, str]
) -> list[str]:
    """Return the names of instances whose nodes are in more than one group.

    Args:
        group_of: group UUID by node UUID.
    """
    split = []
    for instance in instances:
        held_by = (node for uuid in instance.disks if uuid in disks for node in disks[uuid].nodes)
        groups = {group_of[node] for node in (instance.primary_node, *held_by) if node in group_of}
        if len(groups) > 1:
            split.append(instance.name)
    return natural_sorted(split)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Nodes that are to be members of a group."""

    group: NodeGroup
    nodes: Sequence[Node]


class LUGroupAssignNodes(SimpleUnit[opcodes.OpGroupAssignNodes, Assignment]):
    """Move nodes to a group."""

    def resolve(self) -> Assignment:
        group = lookup.require_group(self.config, self.op.group_name)
        names = self.op.node_uuids or self.op.nodes
        return Assignment(group, lookup.require_nodes(self.config, names))

    def locks(self, found: Assignment) -> LockNeed:
        """Lock all groups of the move shared and the nodes exclusively."""
        groups = [found.group.uuid, *(node.group for node in found.nodes)]
        nodes = exclusive(LockLevel.NODE, [node.uuid for node in found.nodes])
        return union(shared(LockLevel.NODEGROUP, groups), nodes)

    def plan(self, found: Assignment) -> Assignment:
        """Refuse to split instances over groups, unless forced; leave out members."""
        objects = ClusterObjects(self.config)
        before = {str(node.uuid): str(node.group) for node in objects.nodes}
        moved = {str(node.uuid): str(found.group.uuid) for node in found.nodes}
        self._warn_of_violators(found.group, objects, moved)
        self._warn_of_networks(found, objects)
        already = set(split_instances(objects.instances, objects.disks, before))
        after = split_instances(objects.instances, objects.disks, before | moved)
        if newly := [name for name in after if name not in already]:
            text = f"this splits the following instances over groups: {', '.join(newly)}"
            if not self.op.force:
                raise wrong_state(f"{text}; use --force if that is wanted")
            self.context.warn(text)
        nodes = [node for node in found.nodes if node.group != found.group.uuid]
        return Assignment(found.group, nodes)

    def _warn_of_violators(
        self, group: NodeGroup, objects: ClusterObjects, moved: Mapping[str, str]
    ) -> None:
        """Name the instances that fit the policy of their group, but not that of the new one."""
        now = violators(self.cluster, objects, objects.groups)
        then = violators(self.cluster, objects, [group], moved)
        if newly := [name for name in then if name not in now]:
            self.context.warn(
                f"these instances violate the policy of group {group.name}: {shown(newly)}"
            )

    def _warn_of_networks(self, found: Assignment, objects: ClusterObjects) -> None:
        """Name the networks that instances are in, and that the new group is not connected to."""
        moved = {node.uuid for node in found.nodes if node.group != found.group.uuid}
        used = {
            nic.network
            for instance in objects.instances
            for nic in instance.nics
            if instance.primary_node in moved and nic.network not in (None, *found.group.networks)
        }
        networks = lookup.all_networks(self.config) if used else []
        if missing := shown(network.name for network in networks if network.uuid in used):
            self.context.warn(
                f"node group {found.group.name} is not connected to network(s) {missing} of"
                f" instances there; connect it: gnt-network connect NETWORK {found.group.name}"
            )

    def execute(self, plan: Assignment) -> None:
        """Move the nodes, all or none."""
        for node in plan.nodes:
            make_switch(self.context, node, switch_of(self.cluster, plan.group, node))
        if plan.nodes:
            self.config.modify_objects(
                [(ObjectKind.NODE, node.uuid, {"group": plan.group.uuid}) for node in plan.nodes]
            )
            tell_availability(self.context)
