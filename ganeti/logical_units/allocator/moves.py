"""Jobs that an allocator plans in modes node-evacuate and change-group, made ready and submitted.

Its answer was checked already (`asking`); each job checks everything again under its own locks.
The units move instances to other node groups: one, or all of a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from msgspec import structs

from ganeti.base.errors import OpPrereqError, wrong_state
from ganeti.base.json import JsonValue
from ganeti.base.text import natural_sorted
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator import asking
from ganeti.logical_units.allocator.question import Snapshot
from ganeti.logical_units.base import SimpleUnit
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.view import InstanceView, is_planned
from ganeti.logical_units.locks import LockLevel, LockNeed, shared
from ganeti.objects.allocation_modes import IAllocatorMode
from ganeti.objects.model import Instance, Node, NodeGroup
from ganeti.opcodes import instance as instance_opcodes
from ganeti.opcodes.group import OpGroupEvacuate
from ganeti.opcodes.instance import OpInstanceFailover, OpInstanceMigrate, OpInstanceReplaceDisks
from ganeti.opcodes.opcode import FinalStatus, OpCode
from ganeti.opcodes.registry import decode_opcode
from ganeti.opcodes.summary import summary
from ganeti.protocol.iallocator import ChangeGroup, EvacuateResult
from ganeti.protocol.wconfd import WConfCalls

Jobs = list[list["OpCode"]]
LeaverType = TypeVar("LeaverType", InstanceView, NodeGroup)
LeavingOpType = TypeVar(
    "LeavingOpType", bound=instance_opcodes.OpInstanceChangeGroup | OpGroupEvacuate
)

# One after the other, also after a failure; to cancel one stops the rest.
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
                op = structs.replace(op, early_release=True)
            if force_failover and isinstance(op, OpInstanceMigrate):
                op = _as_failover(op)
            job[index] = op if op.reason else structs.replace(op, reason=reason)
        if sequential and number:
            job[0] = structs.replace(
                job[0], depends=[*(job[0].depends or []), *_AFTER_THE_ONE_BEFORE]
            )
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
    tell_moves(context, result)
    return {"jobs": [*submitted(context, jobs), *((False, text) for text in refusals(result))]}


def tell_moves(context: JobContext, result: EvacuateResult) -> None:
    """Log where instances go, and which go nowhere."""
    for name, group, nodes in result[0]:
        context.info(f"instance {name} goes to {', '.join(nodes)} (node group {group})")
    for text in refusals(result):
        context.warn(text)


def submitted(context: JobContext, jobs: Sequence[Sequence[OpCode]]) -> list[tuple[bool, int]]:
    """Submit jobs and name them in the log; returns (accepted, job id) of each."""
    job_ids = context.submit_jobs(jobs) if jobs else []
    for job, job_id in zip(jobs, job_ids, strict=True):
        context.info(f"job {job_id}: {', '.join(summary(op) for op in job)}")
    return [(True, job_id) for job_id in job_ids]


def find_targets(
    config: WConfCalls, asked: Sequence[str] | None, left: Mapping[str, str], what: str
) -> list[NodeGroup]:
    """Return the groups to go to: the groups asked for, else all groups not left.

    Args:
        left: names by UUID of the groups that the instances are in now.
        what: the objects that are moved, as errors begin.

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
    others = [group for group in lookup.all_groups(config) if group.uuid not in left]
    if not others:
        names = ", ".join(left.values())
        raise wrong_state(
            f"{what}: there is no node group besides {names}; make one with 'gnt-group add'"
        )
    return others


@dataclass(frozen=True, slots=True)
class Leaving(Generic[LeaverType]):
    """An instance that is to leave its node groups, or a group that its instances are to leave.

    Attributes:
        left: names by UUID of the groups that are left.
        targets: the groups that instances may go to.
        moves: the moves that the allocator planned.
    """

    leaver: LeaverType
    left: Mapping[str, str]
    targets: Sequence[NodeGroup]
    allocator: asking.Allocator
    moves: EvacuateResult = ([], [], [])

    @property
    def target_uuids(self) -> list[str]:
        """The UUIDs of the groups that instances may go to."""
        return [group.uuid for group in self.targets]


class _LeavingUnit(SimpleUnit[LeavingOpType, Leaving[LeaverType]]):
    """An operation that has an allocator plan moves to other groups, and submits the jobs.

    Only the group or the instance is locked, and shared: it does not change while the allocator
    plans.  The jobs check everything again under locks of their own.
    """

    def find(self, leaver: LeaverType, left: Mapping[str, str], what: str) -> Leaving[LeaverType]:
        """Look up the groups to go to, and the allocator."""
        targets = find_targets(self.config, self.op.target_groups, left, what)
        allocator = asking.choose_allocator(
            self.cluster, self.op.iallocator, what, IAllocatorMode.CHANGE_GROUP
        )
        return Leaving(leaver, left, targets, allocator)

    def locks(self, found: Leaving[LeaverType]) -> LockNeed:
        """Lock the groups shared."""
        return shared(LockLevel.NODEGROUP, [*found.left, *found.target_uuids])

    def ask(
        self, found: Leaving[LeaverType], names: list[str], snapshot: Snapshot
    ) -> Leaving[LeaverType]:
        """Ask the allocator how the instances of these names are to move."""
        wanted = ChangeGroup(instances=names, target_groups=found.target_uuids)
        _, moves = asking.ask_allocator(self.context, found.allocator, wanted, snapshot)
        return replace(found, moves=moves)

    def execute(self, plan: Leaving[LeaverType]) -> dict[str, object]:
        """Submit the jobs."""
        op = self.op
        jobs = planned_jobs(
            plan.moves,
            reason=op.reason,
            early_release=op.early_release,
            force_failover=isinstance(op, OpGroupEvacuate) and op.force_failover,
            sequential=isinstance(op, OpGroupEvacuate) and op.sequential,
        )
        return submit_moves(self.context, plan.moves, jobs)


class LUInstanceChangeGroup(_LeavingUnit[instance_opcodes.OpInstanceChangeGroup, InstanceView]):
    """Plan and submit the jobs that move an instance to another group."""

    hooks = HookPoint("instance-change-group", ObjectType.INSTANCE)

    def resolve(self) -> Leaving[InstanceView]:
        """Read the instance, and look the groups up."""
        op = self.op
        found = lookup.require_instance_context(self.config, op.instance_name, op.instance_uuid)
        left = {str(group.uuid): group.name for group in found.groups}
        return self.find(InstanceView.of(found), left, f"instance {found.instance.name!r}")

    def locks(self, found: Leaving[InstanceView]) -> LockNeed:
        """Lock the instance and the groups shared."""
        instance = shared(LockLevel.INSTANCE, [found.leaver.instance.name])
        return instance | super().locks(found)

    def plan(self, found: Leaving[InstanceView]) -> Leaving[InstanceView]:
        """Ask the allocator."""
        instance = found.leaver.instance
        if found.leaver.is_planned:
            raise wrong_state(stays_planned(instance))
        return self.ask(found, [instance.name], asking.read_snapshot(self.config))

    def hook_values(self, plan: Leaving[InstanceView]) -> Mapping[str, object]:
        """Tell about the instance and where it may go."""
        return {**plan.leaver.env(), "TARGET_GROUPS": " ".join(plan.target_uuids)}


class LUGroupEvacuate(_LeavingUnit[OpGroupEvacuate, NodeGroup]):
    """Plan and submit the jobs that move all instances of a group elsewhere."""

    hooks = HookPoint("group-evacuate", ObjectType.GROUP)

    def resolve(self) -> Leaving[NodeGroup]:
        """Look the groups up."""
        group = lookup.require_group(self.config, self.op.group_name)
        return self.find(group, {str(group.uuid): group.name}, f"node group {group.name!r}")

    def plan(self, found: Leaving[NodeGroup]) -> Leaving[NodeGroup]:
        """Ask the allocator, if there is anything to move."""
        snapshot = asking.read_snapshot(self.config)
        members = [
            instance
            for instance in snapshot.instances.values()
            if any(node.group == found.leaver.uuid for node in snapshot.nodes_of(instance))
        ]
        planned = [each for each in members if is_planned(each, snapshot.disks_of(each))]
        for instance in planned:
            self.context.warn(stays_planned(instance))
        names = natural_sorted(each.name for each in members if each not in planned)
        return self.ask(found, names, snapshot) if names else found

    def hook_nodes(self, plan: Leaving[NodeGroup]) -> Sequence[Node]:
        """Run hooks on the master and the nodes of the group."""
        return [self.master, *lookup.group_nodes(self.config, plan.leaver.uuid)]

    def hook_values(self, plan: Leaving[NodeGroup]) -> Mapping[str, object]:
        """Name the group and where its instances may go."""
        return {"GROUP_NAME": plan.leaver.name, "TARGET_GROUPS": " ".join(plan.target_uuids)}

    def execute(self, plan: Leaving[NodeGroup]) -> dict[str, object]:
        """Submit the jobs."""
        if plan.moves == ([], [], []):
            name = plan.leaver.name
            self.context.info(f"node group {name} has no instances to move, nothing to do")
        return super().execute(plan)
