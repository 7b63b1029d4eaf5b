"""Move the instances of a node away from it: one job for each, submitted here and run beside us.

Nothing but the node is locked while the jobs are chosen: each job checks everything again
under its own locks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, TypeVar

from ganeti.base.errors import wrong_state
from ganeti.base.ids import NodeUuid
from ganeti.base.text import shown
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator import asking
from ganeti.logical_units.allocator.asking import Allocator
from ganeti.logical_units.allocator.moves import (
    planned_jobs,
    stays_planned,
    submit_moves,
    tell_moves,
)
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.creation.choosing import check_one_way
from ganeti.logical_units.instance.view import is_planned
from ganeti.logical_units.locks import LockLevel, LockNeed, shared
from ganeti.logical_units.node.base import instances_of
from ganeti.objects.allocation_modes import EvacMode, IAllocatorMode
from ganeti.objects.disk_templates import traits_of_all
from ganeti.objects.model import Instance, Node
from ganeti.objects.rpc_instance import secondary_nodes
from ganeti.opcodes.instance import (
    OpInstanceFailover,
    OpInstanceMigrate,
    OpInstanceReplaceDisks,
    ReplaceDisksMode,
)
from ganeti.opcodes.node import OpNodeEvacuate, OpNodeMigrate
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.summary import summary
from ganeti.protocol.iallocator import (
    DEFAULT_SHORTCUT,
    IGNORE_SOFT_ERRORS,
    EvacuateResult,
    NodeEvacuate,
)
from ganeti.protocol.wconfd import WConfCalls

MoveOp = OpInstanceFailover | OpInstanceMigrate | OpInstanceReplaceDisks
_WORDS: Final[Mapping[type[MoveOp], str]] = {
    OpInstanceFailover: "fails over",
    OpInstanceMigrate: "migrates",
    OpInstanceReplaceDisks: "replaces the secondary node of",
}
LeavingOpType = TypeVar("LeavingOpType", bound=OpNodeEvacuate | OpNodeMigrate)


def check_target(source: Node, target: Node) -> None:
    """Refuse a target node that cannot take the instances.

    Raises:
        OpPrereqError: names the reason.
    """
    for is_bad, reason in (
        (target.uuid == source.uuid, "is the node that the instances are to leave"),
        (target.offline, "is marked offline"),
        (target.drained, "is drained"),
        (not target.vm_capable, "is not vm_capable"),
    ):
        if is_bad:
            raise wrong_state(f"target node {target.name!r} {reason}")


def check_movable(config: WConfCalls, source: Node, instances: Sequence[Instance]) -> None:
    """Refuse when the disks of an instance cannot be reached from another node.

    Raises:
        OpPrereqError: names such instances.
    """
    stuck = [
        instance.name
        for instance, disks in zip(instances, lookup.disks_of_each(config, instances), strict=True)
        if not traits_of_all(disk.dev_type for disk in disks).shared
    ]
    if stuck:
        raise wrong_state(
            f"node {source.name!r} holds the only copy of the disks of {shown(stuck)}; move"
            " those first ('gnt-instance move -n NODE'), or remove them"
        )


def seconds_of(config: WConfCalls, instances: Sequence[Instance]) -> dict[str, list[NodeUuid]]:
    """Return {UUID: UUIDs of its secondary nodes} of the instances whose disks have copies."""
    return {
        instance.uuid: secondary_nodes(instance, disks)
        for instance, disks in zip(instances, lookup.disks_of_each(config, instances), strict=True)
        if any(disk.traits.mirrored for disk in disks)
    }


@dataclass(frozen=True, slots=True)
class Leaving:
    """The instances that are to leave a node.

    Attributes:
        primary, secondary: the instances with this primary, and with this secondary node.
        planned: instances that are only planned; they stay.
        target: the node that all go to, if one was named.
        allocator: chooses the targets otherwise, if there is an instance.
    """

    node: Node
    primary: Sequence[Instance]
    secondary: Sequence[Instance]
    planned: Sequence[Instance]
    target: Node | None
    allocator: Allocator | None

    @property
    def target_uuid(self) -> str | None:
        """The UUID of the target, if one was named."""
        return self.target.uuid if self.target else None

    @property
    def target_name(self) -> str | None:
        """The name of the target, if one was named."""
        return self.target.name if self.target else None


@dataclass(frozen=True, slots=True)
class Moves:
    """The moves of the instances of a node: one job each, or as an allocator answered."""

    node: Node
    jobs: Sequence[Sequence[MoveOp]]
    answer: EvacuateResult | None = None


class LeavingUnit(LogicalUnit[LeavingOpType, Leaving, Moves]):
    """The common part of both ways to empty a node."""

    request_kind: ClassVar[IAllocatorMode] = IAllocatorMode.NODE_EVACUATE

    def find(
        self, target_uuid: str | None, target_name: str | None, *, primary: bool, secondary: bool
    ) -> Leaving:
        """Return the instances that leave, and the named target or the allocator.

        Args:
            primary, secondary: which instances of the node leave.

        Raises:
            OpPrereqError: both a target and an allocator are given, or there is neither.
        """
        node = lookup.require_node(self.config, self.op.node_uuid or self.op.node_name)
        what = f"node {node.name!r}"
        of_primary, of_secondary = instances_of(self.config, node)
        sides = [of_primary if primary else [], of_secondary if secondary else []]
        planned = self._planned([*sides[0], *sides[1]])
        first, second = ([each for each in side if each not in planned] for side in sides)
        key = target_uuid or target_name
        check_one_way(what, node=target_name or target_uuid, iallocator=self.op.iallocator)
        target, allocator = None, None
        if key is not None:
            target = lookup.require_node(self.config, key)
            check_target(node, target)
        elif self.needs_allocator(first) or second:
            allocator = asking.choose_allocator(
                self.cluster, self.op.iallocator, what, self.request_kind
            )
        return Leaving(node, first, second, planned, target, allocator)

    def needs_allocator(self, instances: Sequence[Instance]) -> bool:
        """Tell whether somebody has to choose where primary instances go."""
        return bool(instances)

    def _planned(self, instances: Sequence[Instance]) -> list[Instance]:
        """Return the instances that are only planned; the job of one being made is waited for."""
        forthcoming = [each for each in instances if each.forthcoming]
        disks_of = lookup.disks_of_each(self.config, forthcoming)
        return [
            instance
            for instance, disks in zip(forthcoming, disks_of, strict=True)
            if is_planned(instance, disks)
        ]

    def locks(self, found: Leaving) -> LockNeed:
        """Lock the node shared, so that it stays as it is while jobs are chosen."""
        return shared(LockLevel.NODE, [found.node.uuid])

    def warn_of_planned(self, found: Leaving) -> None:
        """Name the instances that stay, and how to go on with them."""
        for instance in found.planned:
            self.context.warn(stays_planned(instance))

    def execute(self, plan: Moves) -> dict[str, object]:
        """Submit a job for each instance; returns their ids as opcodes answer them."""
        job_ids = self.context.submit_jobs([list(ops) for ops in plan.jobs])
        for ops, job_id in zip(plan.jobs, job_ids, strict=True):
            doing = ", then ".join(_WORDS[type(op)] for op in ops)
            self.context.info(f"job {job_id} {doing} instance {ops[0].instance_name}")
        if not plan.jobs:
            self.context.info(f"node {plan.node.name} has no such instances, nothing to do")
        return {"jobs": [(True, job_id) for job_id in job_ids]}


class LUNodeMigrate(LeavingUnit[OpNodeMigrate]):
    """Migrate the primary instances of a node; the ones that do not run are failed over."""

    request_kind = IAllocatorMode.RELOCATE
    hooks = HookPoint("node-migrate", ObjectType.NODE)

    def resolve(self) -> Leaving:
        op = self.op
        return self.find(op.target_node_uuid, op.target_node, primary=True, secondary=False)

    def needs_allocator(self, instances: Sequence[Instance]) -> bool:
        return len(seconds_of(self.config, instances)) < len(instances)

    def plan(self, found: Leaving) -> Moves:
        """Try every instance: the job of one that cannot move says why, and holds no other back."""
        op, pairs = self.op, seconds_of(self.config, found.primary)
        # Each job asks for itself, and so tries the default allocators in order.
        allocator = (op.iallocator or DEFAULT_SHORTCUT) if found.allocator else None
        self.warn_of_planned(found)
        return Moves(
            found.node,
            [
                [
                    OpInstanceMigrate(
                        instance_name=instance.name,
                        instance_uuid=instance.uuid,
                        mode=op.mode,
                        live=op.live,
                        target_node=found.target_name,
                        iallocator=None if instance.uuid in pairs else allocator,
                        allow_runtime_changes=op.allow_runtime_changes,
                        ignore_ipolicy=op.ignore_ipolicy,
                        allow_failover=True,
                        reason=op.reason,
                    )
                ]
                for instance in found.primary
            ],
        )

    def hook_values(self, plan: Moves) -> Mapping[str, object]:
        return {"NODE_NAME": plan.node.name, "ALLOW_RUNTIME_CHANGES": self.op.allow_runtime_changes}


class LUNodeEvacuate(LeavingUnit[OpNodeEvacuate]):
    """Move instances away from a node for good."""

    def resolve(self) -> Leaving:
        return self.find(
            self.op.remote_node_uuid,
            self.op.remote_node,
            primary=self.op.mode is not EvacMode.SECONDARY_ONLY,
            secondary=self.op.mode is not EvacMode.PRIMARY_ONLY,
        )

    def plan(self, found: Leaving) -> Moves:
        """Ask the allocator for the moves, or refuse moves that no job could make."""
        self.warn_of_planned(found)
        if found.allocator is not None:
            return Moves(found.node, [], self._ask(found, found.allocator))
        seconds = seconds_of(self.config, found.primary)
        alone = [each for each in found.primary if each.uuid not in seconds]
        check_movable(self.config, found.node, alone)
        jobs = [self._job(found, each, seconds.get(each.uuid, ())) for each in found.primary]
        for each in found.primary if self.op.mode is EvacMode.ALL else ():
            if found.target_uuid in seconds.get(each.uuid, ()):
                self.context.warn(
                    f"instance {each.name} keeps copies of its disks on node {found.node.name}, as"
                    f" node {found.target_name} has the others; 'gnt-instance replace-disks -n NODE"
                    f" {each.name}' brings them elsewhere once it has moved"
                )
        return Moves(found.node, [*jobs, *([self._replacement(found, i)] for i in found.secondary)])

    def _job(self, found: Leaving, instance: Instance, seconds: Sequence[str]) -> list[MoveOp]:
        """Return the opcodes of one instance that leaves its primary node.

        One with copies goes to its secondary node, which has them; then they go to the target.
        """
        if not seconds or found.target_uuid in seconds:
            return [self._move(found, instance)]
        to_copies = self._move(replace(found, target=None), instance)
        return [to_copies, self._replacement(found, instance)]

    def _replacement(self, found: Leaving, instance: Instance) -> MoveOp:
        """Return the opcode that brings the copies of an instance's disks to another node."""
        return OpInstanceReplaceDisks(
            instance_name=instance.name,
            instance_uuid=instance.uuid,
            mode=ReplaceDisksMode.NEW_SECONDARY,
            remote_node=found.target_name,
            early_release=self.op.early_release,
            reason=self.op.reason,
        )

    def _ask(self, found: Leaving, allocator: Allocator) -> EvacuateResult:
        names = [instance.name for instance in (*found.primary, *found.secondary)]
        if self.op.ignore_soft_errors:
            allocator = allocator.with_option(IGNORE_SOFT_ERRORS)
        wanted = NodeEvacuate(instances=names, evac_mode=self.op.mode)
        snapshot = asking.read_snapshot(self.config)
        answer: EvacuateResult = asking.ask_allocator(self.context, allocator, wanted, snapshot)[1]
        return answer

    def _move(self, found: Leaving, instance: Instance) -> MoveOp:
        """Return the move of one instance; none can migrate away from a node that is offline."""
        if found.node.offline:
            return OpInstanceFailover(
                instance_name=instance.name,
                instance_uuid=instance.uuid,
                target_node=found.target_name,
                reason=self.op.reason,
            )
        return OpInstanceMigrate(
            instance_name=instance.name,
            instance_uuid=instance.uuid,
            target_node=found.target_name,
            allow_failover=True,
            reason=self.op.reason,
        )

    def rehearsal(self, plan: Moves) -> list[list[str]]:
        """Log the plan, and return the summaries of its jobs."""
        jobs: Sequence[Sequence[OpCode]] = plan.jobs
        if plan.answer is not None:
            tell_moves(self.context, plan.answer)
            jobs = planned_jobs(
                plan.answer, reason=self.op.reason, early_release=self.op.early_release
            )
        summaries = [[summary(op) for op in job] for job in jobs]
        for job in summaries:
            self.context.info(f"a job would be submitted: {', '.join(job)}")
        return summaries

    def execute(self, plan: Moves) -> dict[str, object]:
        """Submit the jobs that the allocator planned, or one for each instance."""
        if plan.answer is None:
            return super().execute(plan)
        jobs = planned_jobs(plan.answer, reason=self.op.reason, early_release=self.op.early_release)
        return submit_moves(self.context, plan.answer, jobs)
