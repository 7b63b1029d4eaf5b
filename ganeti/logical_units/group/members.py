"""Move nodes to a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.text import natural_sorted
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.cluster.in_use import shown, violators
from ganeti.logical_units.inside import Inside
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, exclusive, shared
from ganeti.logical_units.node.switches import make_switch, switch_of
from ganeti.opcodes.group import OpGroupAssignNodes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ganeti.objects.disk import Disk
    from ganeti.objects.instance import Instance


def split_instances(
    instances: Sequence[Instance],
    disks: Mapping[str, Disk],
    group_of: Mapping[str, str],
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


class LUGroupAssignNodes(LogicalUnit[OpGroupAssignNodes]):
    """Move nodes to a group."""

    def expand_names(self) -> None:
        """Look the group and the nodes up."""
        self.group = lookup.require_group(self.config, self.op.group_name)
        self.nodes = lookup.require_nodes(self.config, self.op.node_uuids or self.op.nodes)

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the groups concerned shared and the nodes exclusively."""
        match level:
            case LockLevel.NODEGROUP:
                return shared(level, [self.group.uuid, *(node.group for node in self.nodes)])
            case LockLevel.NODE:
                return exclusive(level, [node.uuid for node in self.nodes])
            case _:
                return {}

    def check_prereq(self) -> None:
        """Refuse to split instances over groups, unless forced."""
        inside = Inside(self.config)
        instances, disks = inside.instances, inside.disks
        before = {str(node.uuid): str(node.group) for node in inside.nodes}
        after = before | {str(node.uuid): str(self.group.uuid) for node in self.nodes}
        self._tell_violators(inside)
        already = set(split_instances(instances, disks, before))
        newly = [name for name in split_instances(instances, disks, after) if name not in already]
        if not newly:
            return
        text = f"this splits the following instances over groups: {', '.join(newly)}"
        if not self.op.force:
            raise OpPrereqError(f"{text}; use --force if that is wanted", ErrorCode.STATE)
        self.context.warn(text)

    def _tell_violators(self, inside: Inside) -> None:
        """Name the instances that fit the policy of their group, but not that of the new one."""
        moved = {str(node.uuid): str(self.group.uuid) for node in self.nodes}
        now = violators(self.cluster, inside, inside.groups)
        then = violators(self.cluster, inside, [self.group], moved)
        if newly := [name for name in then if name not in now]:
            self.context.warn(
                f"these instances violate the policy of group {self.group.name}: {shown(newly)}"
            )

    def exec(self) -> None:
        """Move them, all or none."""
        moving = [node for node in self.nodes if node.group != self.group.uuid]
        for node in moving:
            make_switch(self.context, node, switch_of(self.cluster, self.group, node))
        if moving:
            self.config.modify_objects(
                [("node", node.uuid, {"group": self.group.uuid}) for node in moving]
            )
