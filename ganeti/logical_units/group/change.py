"""Add, remove, rename and change node groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError, TypeEnforcementError
from ganeti.base.text import natural_sorted
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.cluster.in_use import shown, violators
from ganeti.logical_units.inside import Inside
from ganeti.logical_units.ipolicy import (
    check_ipolicy_changes,
    check_templates_enabled,
    merge_ipolicy,
)
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, exclusive
from ganeti.logical_units.node.parameters import (
    check_disk_state,
    check_hv_state,
    check_ndparams,
)
from ganeti.logical_units.node.switches import make_switch, switch_of
from ganeti.objects.disk_templates import DiskAccess
from ganeti.objects.nodegroup import AllocPolicy, NodeGroup
from ganeti.objects.parameters import (
    DISKPARAMS,
    VALUE_DEFAULT,
    apply_changes,
    enforce_types,
)
from ganeti.opcodes.group import OpGroupAdd, OpGroupRemove, OpGroupRename, OpGroupSetParams

if TYPE_CHECKING:
    from ganeti.objects.cluster import Cluster
    from ganeti.objects.node import Node

GroupOpType = TypeVar("GroupOpType", bound=OpGroupRemove | OpGroupRename | OpGroupSetParams)


def check_diskparams(given: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
    """Return disk parameters with their types enforced.

    Raises:
        OpPrereqError: unknown, or of the wrong type.
    """
    try:
        enforced = {
            str(template): enforce_types(
                params, DISKPARAMS[template], what=f"{template} disk parameter"
            )
            for template, params in given.items()
        }
    except TypeEnforcementError as err:
        raise OpPrereqError(err.message, ErrorCode.INVAL) from err
    for template, params in enforced.items():
        access = params.get("access", VALUE_DEFAULT)
        if access not in (*DiskAccess, VALUE_DEFAULT):
            raise OpPrereqError(
                f"{template} disk parameter 'access': {access!r} is not {' or '.join(DiskAccess)}",
                ErrorCode.INVAL,
            )
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


class LUGroupAdd(LogicalUnit[OpGroupAdd]):
    """Add a node group."""

    def check_prereq(self) -> None:
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
        self.group = NodeGroup.from_wire(values)

    def hooks_env(self) -> Mapping[str, object]:
        """Name the group."""
        return {"GROUP_NAME": self.op.group_name}

    def exec(self) -> None:
        """Add it."""
        self.config.create_node_group(self.group.to_wire())


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


class _GroupUnit(LogicalUnit[GroupOpType]):
    """An operation on one existing group, which is locked exclusively."""

    def expand_names(self) -> None:
        """Look the group up."""
        self.group = lookup.require_group(self.config, self.op.group_name)

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock it."""
        return exclusive(level, [self.group.uuid]) if level is LockLevel.NODEGROUP else {}

    def hooks_env(self) -> Mapping[str, object]:
        """Name the group."""
        return {"GROUP_NAME": self.group.name}

    def members(self) -> list[Node]:
        """Return the nodes of the group."""
        return [node for node in lookup.all_nodes(self.config) if node.group == self.group.uuid]


class LUGroupRemove(_GroupUnit[OpGroupRemove]):
    """Remove an empty group, but never the last one."""

    def check_prereq(self) -> None:
        """Refuse a group with nodes, and the last group."""
        names = natural_sorted(node.name for node in self.members())
        if names:
            raise OpPrereqError(
                f"node group {self.group.name!r} is not empty, it has the nodes"
                f" {', '.join(names[:10])}; move them with 'gnt-group assign-nodes'",
                ErrorCode.STATE,
            )
        if len(self.config.get_node_groups(None)) == 1:
            raise OpPrereqError(
                f"node group {self.group.name!r} is the only one and cannot be removed",
                ErrorCode.STATE,
            )

    def exec(self) -> None:
        """Remove it."""
        self.config.delete_node_group(self.group.uuid)


class LUGroupRename(_GroupUnit[OpGroupRename]):
    """Give a group another name."""

    def check_prereq(self) -> None:
        """Refuse a name that is taken."""
        check_name_free(lookup.present(self.config.get_node_groups(None)), self.op.new_name)

    def hooks_env(self) -> Mapping[str, object]:
        """Tell both names."""
        return {"OLD_NAME": self.group.name, "NEW_NAME": self.op.new_name}

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on the master and the members."""
        nodes = [self.master, *self.members()]
        return nodes, nodes

    def exec(self) -> str:
        """Rename it; returns the new name."""
        self.config.modify_node_group(self.group.uuid, {"name": self.op.new_name})
        return self.op.new_name


class LUGroupSetParams(_GroupUnit[OpGroupSetParams]):
    """Change settings of a group."""

    def check_prereq(self) -> None:
        """Refuse wrong parameters, and an opcode that changes nothing."""
        self.changes = group_changes(self.op, self.cluster, self.group)
        if not self.changes:
            raise OpPrereqError("please give at least one change", ErrorCode.INVAL)
        if "ipolicy" in self.changes:
            self._tell_violators()

    def _tell_violators(self) -> None:
        """Name the instances that fit the policy now, but will not."""
        inside = Inside(self.config)
        after = NodeGroup.from_wire({**self.group.to_wire(), "ipolicy": self.changes["ipolicy"]})
        now = violators(self.cluster, inside, [self.group])
        newly = [name for name in violators(self.cluster, inside, [after]) if name not in now]
        if newly:
            self.context.warn(f"with the new policy these instances violate it: {shown(newly)}")

    def hooks_env(self) -> Mapping[str, object]:
        """Name the group and its new policy."""
        policy = self.op.alloc_policy
        return {
            "GROUP_NAME": self.group.name,
            "NEW_ALLOC_POLICY": None if policy is None else policy.value,
        }

    def _make_switches(self) -> None:
        after = replace(self.group, ndparams=self.changes["ndparams"])
        for node in lookup.all_nodes(self.config):
            if node.group == self.group.uuid:
                before = switch_of(self.cluster, self.group, node)
                make_switch(self.context, node, switch_of(self.cluster, after, node), before)

    def exec(self) -> list[tuple[str, object]]:
        """Change it; returns what was changed."""
        if "ndparams" in self.changes:
            self._make_switches()
        self.config.modify_node_group(self.group.uuid, self.changes)
        return list(self.changes.items())
