"""Moves instances to other node groups: one, or all of a group.

Only what is named is locked, and shared: the group or the instance stays what it is while an
allocator plans.  The jobs that come of it check everything again under locks of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.text import natural_sorted
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.asking import (
    Allocator,
    ask_allocator,
    choose_allocator,
    read_snapshot,
)
from ganeti.logical_units.allocator.moves import planned_jobs, stays_planned, submit_moves
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.view import InstanceView, is_planned
from ganeti.logical_units.locks import LockLevel, LockNeed, shared
from ganeti.objects.model import Node, NodeGroup
from ganeti.opcodes.group import OpGroupEvacuate
from ganeti.opcodes.instance import OpInstanceChangeGroup
from ganeti.protocol.iallocator import ChangeGroup, EvacuateResult
from ganeti.protocol.wconfd import WConfCalls


def find_targets(
    config: WConfCalls, asked: Sequence[str] | None, left: Mapping[str, str], what: str
) -> list[NodeGroup]:
    """Return the groups to go to: those asked for, else all but those that are left.

    Args:
        left: names by UUID of the groups that the instances are in now.
        what: what is moved, as errors begin.

    Raises:
        OpPrereqError: unknown, one that they are in already, or there is no other.
    """
    if asked:
        found = {group.uuid: group for group in (lookup.require_group(config, n) for n in asked)}
        stays = [group.name for uuid, group in found.items() if uuid in left]
        if stays:
            raise OpPrereqError(
                f"{what}: node group {stays[0]!r} is the one to leave; give another with --to"
            )
        return list(found.values())
    others = [g for g in lookup.present(config.get_node_groups(None)) if g.uuid not in left]
    if not others:
        names = ", ".join(left.values())
        raise OpPrereqError(
            f"{what}: there is no node group besides {names}; make one with 'gnt-group add'",
            ErrorCode.STATE,
        )
    return others


@dataclass(frozen=True, slots=True)
class GroupChange:
    """An instance that changes its group.

    Attributes:
        left: names by UUID of the groups that it is in now.
    """

    view: InstanceView
    left: Mapping[str, str]
    targets: Sequence[NodeGroup]
    allocator: Allocator


@dataclass(frozen=True, slots=True)
class PlannedGroupChange:
    """The moves that an allocator planned for an instance."""

    found: GroupChange
    moves: EvacuateResult


class LUInstanceChangeGroup(LogicalUnit[OpInstanceChangeGroup, GroupChange, PlannedGroupChange]):
    """Plan and submit the jobs that move an instance to another group."""

    hooks = HookPoint("instance-change-group", ObjectType.INSTANCE)

    def resolve(self) -> GroupChange:
        """Read the instance, and look the groups up."""
        op = self.op
        found = lookup.require_instance_context(self.config, op.instance_name, op.instance_uuid)
        left = {str(group.uuid): group.name for group in found.groups}
        what = f"instance {found.instance.name!r}"
        targets = find_targets(self.config, op.target_groups, left, what)
        allocator = choose_allocator(self.cluster, op.iallocator, what)
        return GroupChange(InstanceView.of(found), left, targets, allocator)

    def locks(self, found: GroupChange) -> LockNeed:
        """Lock the instance and the groups that it may go to, shared."""
        groups = [*found.left, *(group.uuid for group in found.targets)]
        instance = shared(LockLevel.INSTANCE, [found.view.instance.name])
        return instance | shared(LockLevel.NODEGROUP, groups)

    def plan(self, found: GroupChange) -> PlannedGroupChange:
        """Ask the allocator."""
        instance = found.view.instance
        if found.view.is_planned:
            raise OpPrereqError(stays_planned(instance), ErrorCode.STATE)
        wanted = ChangeGroup(
            instances=[instance.name], target_groups=[group.uuid for group in found.targets]
        )
        snapshot = read_snapshot(self.config)
        moves = ask_allocator(self.context, found.allocator, wanted, snapshot)
        return PlannedGroupChange(found, moves)

    def hook_values(self, plan: PlannedGroupChange) -> Mapping[str, object]:
        """Tell about the instance and where it may go."""
        targets = " ".join(group.uuid for group in plan.found.targets)
        return {**plan.found.view.env(), "TARGET_GROUPS": targets}

    def execute(self, plan: PlannedGroupChange) -> dict[str, object]:
        """Submit the jobs."""
        op = self.op
        jobs = planned_jobs(plan.moves, reason=op.reason, early_release=op.early_release)
        return submit_moves(self.context, plan.moves, jobs)


@dataclass(frozen=True, slots=True)
class Evacuation:
    """A group that is to be emptied, and the groups that its instances may go to."""

    group: NodeGroup
    targets: Sequence[NodeGroup]
    allocator: Allocator


@dataclass(frozen=True, slots=True)
class PlannedEvacuation:
    """The moves that an allocator planned for the instances of a group."""

    found: Evacuation
    moves: EvacuateResult


class LUGroupEvacuate(LogicalUnit[OpGroupEvacuate, Evacuation, PlannedEvacuation]):
    """Plan and submit the jobs that move all instances of a group elsewhere."""

    hooks = HookPoint("group-evacuate", ObjectType.GROUP)

    def resolve(self) -> Evacuation:
        """Look the groups up."""
        op = self.op
        group = lookup.require_group(self.config, op.group_name)
        what = f"node group {group.name!r}"
        targets = find_targets(self.config, op.target_groups, {str(group.uuid): group.name}, what)
        return Evacuation(group, targets, choose_allocator(self.cluster, op.iallocator, what))

    def locks(self, found: Evacuation) -> LockNeed:
        """Lock the groups shared."""
        groups = [found.group.uuid, *(group.uuid for group in found.targets)]
        return shared(LockLevel.NODEGROUP, groups)

    def plan(self, found: Evacuation) -> PlannedEvacuation:
        """Ask the allocator, if there is anything to move."""
        snapshot = read_snapshot(self.config)
        members = [
            instance
            for instance in snapshot.instances.values()
            if any(node.group == found.group.uuid for node in snapshot.nodes_of(instance))
        ]
        planned = [each for each in members if is_planned(each, snapshot.disks_of(each))]
        for instance in planned:
            self.context.warn(stays_planned(instance))
        names = natural_sorted(each.name for each in members if each not in planned)
        if not names:
            return PlannedEvacuation(found, ([], [], []))
        wanted = ChangeGroup(instances=names, target_groups=[group.uuid for group in found.targets])
        moves = ask_allocator(self.context, found.allocator, wanted, snapshot)
        return PlannedEvacuation(found, moves)

    def hook_nodes(self, plan: PlannedEvacuation) -> Sequence[Node]:
        """Run hooks on the master and the nodes of the group."""
        uuid = plan.found.group.uuid
        return [self.master, *(n for n in lookup.all_nodes(self.config) if n.group == uuid)]

    def hook_values(self, plan: PlannedEvacuation) -> Mapping[str, object]:
        """Name the group and where its instances may go."""
        targets = " ".join(group.uuid for group in plan.found.targets)
        return {"GROUP_NAME": plan.found.group.name, "TARGET_GROUPS": targets}

    def execute(self, plan: PlannedEvacuation) -> dict[str, object]:
        """Submit the jobs."""
        op = self.op
        if plan.moves == ([], [], []):
            name = plan.found.group.name
            self.context.info(f"node group {name} has no instances to move, nothing to do")
        jobs = planned_jobs(
            plan.moves,
            reason=op.reason,
            early_release=op.early_release,
            force_failover=op.force_failover,
            sequential=op.sequential,
        )
        return submit_moves(self.context, plan.moves, jobs)
