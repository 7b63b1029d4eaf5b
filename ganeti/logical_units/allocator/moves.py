"""Jobs that an allocator plans in modes node-evacuate and change-group, made ready and submitted.

What it says was checked already (`answer`); each job checks everything again under its own locks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import OpPrereqError, wrong_state
from ganeti.base.json import JsonValue
from ganeti.base.text import natural_sorted
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.asking import (
    Allocator,
    ask_allocator,
    choose_allocator,
    read_snapshot,
)
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.view import InstanceView, is_planned
from ganeti.logical_units.locks import LockLevel, LockNeed, shared
from ganeti.objects.model import Instance, Node, NodeGroup
from ganeti.opcodes.group import OpGroupEvacuate
from ganeti.opcodes.instance import (
    OpInstanceChangeGroup,
    OpInstanceFailover,
    OpInstanceMigrate,
    OpInstanceReplaceDisks,
)
from ganeti.opcodes.opcode import FinalStatus, OpCode
from ganeti.opcodes.registry import decode_opcode
from ganeti.opcodes.summary import summary
from ganeti.protocol.iallocator import ChangeGroup, EvacuateResult
from ganeti.protocol.wconfd import WConfCalls

Jobs = list[list["OpCode"]]

# One after the other, whether or not the one before went well; whoever cancels one stops them.
_AFTER_THE_ONE_BEFORE: Final = [(-1, [FinalStatus.ERROR, FinalStatus.SUCCESS])]


def planned_jobs(
    result: EvacuateResult,
    *,
    reason: list[JsonValue] | None,
    early_release: bool = False,
    force_failover: bool = False,
    sequential: bool = False,
) -> Jobs:
    """Return the jobs of an answer, changed as the operator wants them.

    Args:
        reason: why all this is done; for opcodes that do not say so themselves.
        early_release: free old disks before new ones have all data, where that can be.
        force_failover: fail over instead of migrating.
        sequential: one job after the other.
    """
    _moved, _failed, wires = result
    jobs: Jobs = [[decode_opcode(wire) for wire in job] for job in wires]
    for number, job in enumerate(jobs):
        for index, op in enumerate(job):
            if early_release and isinstance(op, OpInstanceReplaceDisks):
                op = replace(op, early_release=True)
            if force_failover and isinstance(op, OpInstanceMigrate):
                op = _as_failover(op)
            job[index] = op if op.reason else replace(op, reason=reason)
        if sequential and number:
            job[0] = replace(job[0], depends=[*(job[0].depends or []), *_AFTER_THE_ONE_BEFORE])
    return jobs


def _as_failover(op: OpInstanceMigrate) -> OpInstanceFailover:
    return OpInstanceFailover(
        instance_name=op.instance_name,
        instance_uuid=op.instance_uuid,
        target_node=op.target_node,
        target_node_uuid=op.target_node_uuid,
        iallocator=op.iallocator,
        ignore_ipolicy=op.ignore_ipolicy,
        reason=op.reason,
        depends=op.depends,
    )


def refusals(result: EvacuateResult) -> list[str]:
    """Return a line for each instance that the allocator cannot move."""
    return [
        f"instance {name} cannot be moved: {why or 'no reason given'}" for name, why in result[1]
    ]


def stays_planned(instance: Instance) -> str:
    """Return the hint for an instance that is only planned: no job can move it."""
    return (
        f"instance {instance.name} is only planned, so there is nothing to move; make it on another"
        f" node with 'gnt-instance add --commit -n NODE {instance.name}', or drop it with"
        f" 'gnt-instance remove {instance.name}'"
    )


def submit_moves(context: JobContext, result: EvacuateResult, jobs: Jobs) -> dict[str, object]:
    """Submit jobs; returns their ids as opcodes answer them, and the instances without a plan."""
    for name, group, nodes in result[0]:
        context.info(f"instance {name} goes to {', '.join(nodes)} (node group {group})")
    for text in refusals(result):
        context.warn(text)
    return {"jobs": [*submitted(context, jobs), *((False, text) for text in refusals(result))]}


def submitted(context: JobContext, jobs: Sequence[Sequence[OpCode]]) -> list[tuple[bool, int]]:
    """Submit jobs and name them in the log; returns (accepted, job id) of each."""
    job_ids = context.submit_jobs(jobs) if jobs else []
    for job, job_id in zip(jobs, job_ids, strict=True):
        context.info(f"job {job_id}: {', '.join(summary(op) for op in job)}")
    return [(True, job_id) for job_id in job_ids]


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
        raise wrong_state(
            f"{what}: there is no node group besides {names}; make one with 'gnt-group add'"
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
            raise wrong_state(stays_planned(instance))
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
