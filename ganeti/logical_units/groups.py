"""Add, remove, rename and change node groups; move nodes to a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError, TypeEnforcementError
from ganeti.base.text import natural_sorted
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.cluster.conflicts import ClusterObjects, shown, violators
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.ipolicy import (
    check_ipolicy_changes,
    check_templates_enabled,
    merge_ipolicy,
)
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive, shared, union
from ganeti.logical_units.node.parameters import check_disk_state, check_hv_state, check_ndparams
from ganeti.logical_units.node.switches import make_switch, switch_of
from ganeti.objects.model import AllocPolicy, Cluster, Disk, Instance, Node, NodeGroup
from ganeti.objects.parameters import DISKPARAMS, apply_changes, checked
from ganeti.opcodes.group import (
    OpGroupAdd,
    OpGroupAssignNodes,
    OpGroupRemove,
    OpGroupRename,
    OpGroupSetParams,
)
from ganeti.protocol.wconfd import ObjectKind

GroupOpType = TypeVar("GroupOpType", bound=OpGroupRemove | OpGroupRename | OpGroupSetParams)
PlanType = TypeVar("PlanType")


def check_diskparams(given: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """Return disk parameters with their types enforced.

    Raises:
        OpPrereqError: unknown, or of the wrong type.
    """
    try:
        enforced = {
            str(template): checked(params, DISKPARAMS[template], what=f"{template} disk parameter")
            for template, params in given.items()
        }
    except TypeEnforcementError as err:
        raise OpPrereqError(err.message) from err
    return enforced


def group_changes(
    op: OpGroupAdd | OpGroupSetParams, cluster: Cluster, group: NodeGroup | None
) -> dict[str, object]:
    """Return the new values of the fields of a group that an opcode sets.

    Raises:
        OpPrereqError: a parameter is unknown or wrong.
    """
    changes: dict[str, object] = {}
    if op.alloc_policy is not None:
        changes["alloc_policy"] = op.alloc_policy.value
    if op.ndparams is not None:
        given = check_ndparams(op.ndparams, of_node=False)
        changes["ndparams"] = apply_changes(group.ndparams if group else {}, given)
    if op.diskparams is not None:
        old = group.diskparams if group else {}
        checked = check_diskparams({str(name): params for name, params in op.diskparams.items()})
        changes["diskparams"] = {
            **old,
            **{
                template: apply_changes(old.get(template, {}), params)
                for template, params in checked.items()
            },
        }
    if op.ipolicy is not None:
        check_ipolicy_changes(op.ipolicy, of_cluster=False)
        check_templates_enabled(op.ipolicy, cluster)
        changes["ipolicy"] = merge_ipolicy(cluster, group.ipolicy if group else {}, op.ipolicy)
    if op.hv_state is not None:
        old_state = group.hv_state_static if group else {}
        changes["hv_state_static"] = {**old_state, **check_hv_state(op.hv_state)}
    if op.disk_state is not None:
        old_state = group.disk_state_static if group else {}
        changes["disk_state_static"] = {**old_state, **check_disk_state(op.disk_state)}
    return changes


class LUGroupAdd(LogicalUnit[OpGroupAdd, None, NodeGroup]):
    """Add a node group."""

    hooks = HookPoint("group-add", ObjectType.GROUP)

    def resolve(self) -> None:
        """Nothing exists yet."""

    def plan(self, found: None) -> NodeGroup:
        """Refuse a name that is taken, and wrong parameters."""
        name = self.op.group_name
        check_name_free(lookup.present(self.config.get_node_groups(None)), name)
        values: dict[str, object] = {
            "name": name,
            "uuid": self.context.new_uuid(),
            "alloc_policy": AllocPolicy.PREFERRED.value,
            "serial_no": 1,
            **group_changes(self.op, self.cluster, None),
        }
        return NodeGroup.from_wire(values)

    def hook_values(self, plan: NodeGroup) -> Mapping[str, object]:
        return {"GROUP_NAME": plan.name}

    def execute(self, plan: NodeGroup) -> None:
        self.config.create(ObjectKind.NODEGROUP, plan.to_wire())


def check_name_free(groups: Sequence[NodeGroup], name: str) -> None:
    """Refuse the name or UUID of a group that exists.

    Raises:
        OpPrereqError: it does (already_exists).
    """
    taken = next((group for group in groups if name in (group.name, group.uuid)), None)
    if taken is not None:
        raise OpPrereqError(
            f"the name {name!r} is already used by node group {taken.name!r} (UUID {taken.uuid})",
            ErrorCode.EXISTS,
        )


class _GroupUnit(LogicalUnit[GroupOpType, NodeGroup, PlanType]):
    """An operation on one existing group, which is locked exclusively."""

    def resolve(self) -> NodeGroup:
        return lookup.require_group(self.config, self.op.group_name)

    def locks(self, found: NodeGroup) -> LockNeed:
        return exclusive(LockLevel.NODEGROUP, [found.uuid])

    def members(self, group: NodeGroup) -> list[Node]:
        """Return the nodes of a group."""
        return [node for node in lookup.all_nodes(self.config) if node.group == group.uuid]


class LUGroupRemove(_GroupUnit[OpGroupRemove, NodeGroup]):
    """Remove an empty group, but never the last one."""

    hooks = HookPoint("group-remove", ObjectType.GROUP)

    def plan(self, found: NodeGroup) -> NodeGroup:
        """Refuse a group with nodes, and the last group."""
        names = natural_sorted(node.name for node in self.members(found))
        if names:
            raise OpPrereqError(
                f"node group {found.name!r} is not empty, it has the nodes"
                f" {', '.join(names[:10])}; move them with 'gnt-group assign-nodes'",
                ErrorCode.STATE,
            )
        if len(self.config.get_node_groups(None)) == 1:
            raise OpPrereqError(
                f"node group {found.name!r} is the only one and cannot be removed", ErrorCode.STATE
            )
        return found

    def hook_values(self, plan: NodeGroup) -> Mapping[str, object]:
        return {"GROUP_NAME": plan.name}

    def execute(self, plan: NodeGroup) -> None:
        self.config.delete(ObjectKind.NODEGROUP, plan.uuid)


class LUGroupRename(_GroupUnit[OpGroupRename, NodeGroup]):
    """Give a group another name."""

    hooks = HookPoint("group-rename", ObjectType.GROUP)

    def plan(self, found: NodeGroup) -> NodeGroup:
        """Refuse a name that is taken."""
        check_name_free(lookup.present(self.config.get_node_groups(None)), self.op.new_name)
        return found

    def hook_nodes(self, plan: NodeGroup) -> Sequence[Node]:
        """Run hooks on the master and the members."""
        return [self.master, *self.members(plan)]

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


class LUGroupSetParams(_GroupUnit[OpGroupSetParams, GroupChange]):
    """Change settings of a group."""

    hooks = HookPoint("group-modify", ObjectType.GROUP)

    def plan(self, found: NodeGroup) -> GroupChange:
        """Refuse wrong parameters, and an opcode that changes nothing."""
        changes = group_changes(self.op, self.cluster, found)
        if not changes:
            raise OpPrereqError("please give at least one change")
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
        return {
            "GROUP_NAME": plan.group.name,
            "NEW_ALLOC_POLICY": None if policy is None else policy.value,
        }

    def _make_switches(self, group: NodeGroup, ndparams: object) -> None:
        after = replace(group, ndparams=ndparams)
        for node in self.members(group):
            before = switch_of(self.cluster, group, node)
            make_switch(self.context, node, switch_of(self.cluster, after, node), before)

    def execute(self, plan: GroupChange) -> list[tuple[str, object]]:
        """Change the group; returns the changes."""
        if "ndparams" in plan.changes:
            self._make_switches(plan.group, plan.changes["ndparams"])
        self.config.modify(ObjectKind.NODEGROUP, plan.group.uuid, plan.changes)
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


class LUGroupAssignNodes(LogicalUnit[OpGroupAssignNodes, Assignment, Assignment]):
    """Move nodes to a group."""

    def resolve(self) -> Assignment:
        group = lookup.require_group(self.config, self.op.group_name)
        return Assignment(
            group, lookup.require_nodes(self.config, self.op.node_uuids or self.op.nodes)
        )

    def locks(self, found: Assignment) -> LockNeed:
        """Lock all groups of the move shared and the nodes exclusively."""
        groups = [found.group.uuid, *(node.group for node in found.nodes)]
        return union(
            shared(LockLevel.NODEGROUP, groups),
            exclusive(LockLevel.NODE, [node.uuid for node in found.nodes]),
        )

    def plan(self, found: Assignment) -> Assignment:
        """Refuse to split instances over groups, unless forced; leave out members."""
        objects = ClusterObjects(self.config)
        instances, disks = objects.instances, objects.disks
        before = {str(node.uuid): str(node.group) for node in objects.nodes}
        moved = {str(node.uuid): str(found.group.uuid) for node in found.nodes}
        self._warn_of_violators(found.group, objects, moved)
        already = set(split_instances(instances, disks, before))
        after = split_instances(instances, disks, before | moved)
        if newly := [name for name in after if name not in already]:
            text = f"this splits the following instances over groups: {', '.join(newly)}"
            if not self.op.force:
                raise OpPrereqError(f"{text}; use --force if that is wanted", ErrorCode.STATE)
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

    def execute(self, plan: Assignment) -> None:
        """Move the nodes, all or none."""
        for node in plan.nodes:
            make_switch(self.context, node, switch_of(self.cluster, plan.group, node))
        if plan.nodes:
            self.config.modify_objects(
                [(ObjectKind.NODE, node.uuid, {"group": plan.group.uuid}) for node in plan.nodes]
            )
