"""Move the instances of a node away from it: one job for each, submitted here and run beside us.

Nothing but the node is locked while the jobs are chosen: each job checks everything again
under its own locks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError
from ganeti.base.text import natural_sort_key
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.asking import (
    Allocator,
    ask_allocator,
    choose_allocator,
    read_snapshot,
)
from ganeti.logical_units.allocator.moves import planned_jobs, stays_planned, submit_moves
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.instance.choosing import check_one_way
from ganeti.logical_units.instance.subject import is_planned
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, shared
from ganeti.objects.allocation_modes import EvacMode
from ganeti.objects.disk_templates import EXTERNALLY_MIRRORED
from ganeti.objects.rpc_instance import disk_template
from ganeti.opcodes.instance import OpInstanceFailover, OpInstanceMigrate
from ganeti.opcodes.node import OpNodeEvacuate, OpNodeMigrate
from ganeti.protocol.iallocator import IGNORE_SOFT_ERRORS, EvacuateResult, NodeEvacuate

if TYPE_CHECKING:
    from ganeti.clients.wconfd_stub import WConfStub
    from ganeti.objects.disk import Disk
    from ganeti.objects.instance import Instance
    from ganeti.objects.node import Node

_NAMES_SHOWN_MAX = 10


def named_node(config: WConfStub, uuid: str | None, name: str | None) -> Node | None:
    """Return the node that an opcode names by UUID or name, or None if it names none."""
    key = uuid or name
    return None if key is None else lookup.require_node(config, key)


def instances_of(config: WConfStub, node: Node) -> tuple[list[Instance], list[Instance]]:
    """Return the instances whose primary, and whose secondary node this is, by name."""
    found = config.get_node_instances([node.uuid])[0] or ([], [])
    primary, secondary = (
        sorted(
            lookup.present(config.get_instances(uuids)) if uuids else [],
            key=lambda instance: natural_sort_key(instance.name),
        )
        for uuids in found
    )
    return primary, secondary


def check_target(source: Node, target: Node) -> Node:
    """Refuse a target node that cannot take the instances.

    Raises:
        OpPrereqError: says why.
    """
    for is_bad, what in (
        (target.uuid == source.uuid, "is the node that the instances are to leave"),
        (target.offline, "is marked offline"),
        (target.drained, "is drained"),
        (not target.vm_capable, "is not vm_capable"),
    ):
        if is_bad:
            raise OpPrereqError(f"target node {target.name!r} {what}", ErrorCode.STATE)
    return target


def _disks_of(config: WConfStub, instances: Sequence[Instance]) -> list[list[Disk]]:
    """Return the disks of each instance; asked for all together."""
    uuids = [uuid for instance in instances for uuid in instance.disks]
    disks = {disk.uuid: disk for disk in lookup.present(config.get_disks(uuids) if uuids else [])}
    return [[disks[uuid] for uuid in instance.disks if uuid in disks] for instance in instances]


def check_movable(config: WConfStub, source: Node, instances: Sequence[Instance]) -> None:
    """Refuse when the disks of an instance cannot be reached from another node.

    Raises:
        OpPrereqError: names the first of them.
    """
    stuck = [
        instance.name
        for instance, disks in zip(instances, _disks_of(config, instances), strict=True)
        if disk_template(disks) not in EXTERNALLY_MIRRORED
    ]
    if stuck:
        names = ", ".join(stuck[:_NAMES_SHOWN_MAX])
        more = f" and {len(stuck) - _NAMES_SHOWN_MAX} more" if len(stuck) > _NAMES_SHOWN_MAX else ""
        raise OpPrereqError(
            f"node {source.name!r} holds the only copy of the disks of {names}{more}; move those"
            " first ('gnt-instance move -n NODE'), or remove them",
            ErrorCode.STATE,
        )


class LeavingUnit(LogicalUnit[OpNodeEvacuate | OpNodeMigrate]):
    """What both ways to empty a node share."""

    target: Node | None
    allocator: Allocator | None  # chooses the targets when none is named

    def expand_names(self) -> None:
        """Look the node up, with its instances."""
        self.node = lookup.require_node(self.config, self.op.node_uuid or self.op.node_name)
        self.primary, self.secondary = instances_of(self.config, self.node)

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the node shared, so that it stays what it is while jobs are chosen."""
        return shared(level, [self.node.uuid]) if level is LockLevel.NODE else {}

    def decide_way(self, target_uuid: str | None, target_name: str | None) -> None:
        """Find out whether a node is named that all go to, or an allocator chooses.

        Raises:
            OpPrereqError: both are given, or there is neither.
        """
        what = f"node {self.node.name!r}"
        self._leave_out_planned()
        named = target_name or target_uuid
        check_one_way(what, node=named, iallocator=self.op.iallocator)
        self.target = named_node(self.config, target_uuid, target_name)
        self.allocator = None
        if self.target is not None:
            check_target(self.node, self.target)
        elif self.primary or self.secondary:
            self.allocator = choose_allocator(self.cluster, self.op.iallocator, what)

    def _leave_out_planned(self) -> None:
        """Keep those that there is something of; one that is just being made is waited for."""
        found = [each for each in (*self.primary, *self.secondary) if each.forthcoming]
        disks_of = _disks_of(self.config, found)
        self.planned = [
            each for each, disks in zip(found, disks_of, strict=True) if is_planned(each, disks)
        ]
        self.primary = [each for each in self.primary if each not in self.planned]
        self.secondary = [each for each in self.secondary if each not in self.planned]

    def warn_of_planned(self) -> None:
        """Name the instances that stay, and say what to do with them."""
        for instance in self.planned:
            self.context.warn(stays_planned(instance))

    def submit(self, ops: Sequence[OpInstanceFailover | OpInstanceMigrate]) -> dict[str, object]:
        """Submit a job for each instance; returns their ids as opcodes answer them."""
        job_ids = self.context.submit_jobs([[op] for op in ops])
        for op, job_id in zip(ops, job_ids, strict=True):
            doing = "migrates" if isinstance(op, OpInstanceMigrate) else "fails over"
            self.context.info(f"job {job_id} {doing} instance {op.instance_name}")
        if not ops:
            self.context.info(f"node {self.node.name} has no such instances, nothing to do")
        return {"jobs": [(True, job_id) for job_id in job_ids]}


class LUNodeMigrate(LeavingUnit):
    """Migrate the primary instances of a node; those that do not run are failed over."""

    op: OpNodeMigrate

    def expand_names(self) -> None:
        """Look both nodes up."""
        super().expand_names()
        self.secondary = []
        self.decide_way(self.op.target_node_uuid, self.op.target_node)

    def check_prereq(self) -> None:
        """Refuse what no job could do."""
        self.warn_of_planned()
        check_movable(self.config, self.node, self.primary)

    def hooks_env(self) -> Mapping[str, object]:
        """Name the node."""
        return {
            "NODE_NAME": self.node.name,
            "ALLOW_RUNTIME_CHANGES": self.op.allow_runtime_changes,
        }

    def exec(self) -> dict[str, object]:
        """Submit the jobs; where an allocator is to choose, each asks it for itself."""
        op, target = self.op, self.target.name if self.target else None
        return self.submit(
            [
                OpInstanceMigrate(
                    instance_name=instance.name,
                    instance_uuid=instance.uuid,
                    mode=op.mode,
                    live=op.live,
                    target_node=target,
                    iallocator=self.allocator.name if self.allocator else None,
                    allow_runtime_changes=op.allow_runtime_changes,
                    ignore_ipolicy=op.ignore_ipolicy,
                    allow_failover=True,
                    reason=op.reason,
                )
                for instance in self.primary
            ]
        )


class LUNodeEvacuate(LeavingUnit):
    """Move instances away from a node for good."""

    op: OpNodeEvacuate
    plan: EvacuateResult | None = None  # of an allocator

    def expand_names(self) -> None:
        """Look both nodes up."""
        super().expand_names()
        if self.op.mode is EvacMode.SECONDARY_ONLY:
            self.primary = []
        if self.op.mode is EvacMode.PRIMARY_ONLY:
            self.secondary = []
        self.decide_way(self.op.remote_node_uuid, self.op.remote_node)

    def check_prereq(self) -> None:
        """Refuse what no job could do, or ask the allocator which jobs will do it."""
        self.warn_of_planned()
        if self.allocator is not None:
            self.plan = self._ask(self.allocator)
            return
        if self.secondary:
            names = ", ".join(instance.name for instance in self.secondary[:_NAMES_SHOWN_MAX])
            raise NotSupportedError(
                f"node {self.node.name!r} is the secondary node of {names}: replacing secondary"
                " nodes is not supported yet"
            )
        check_movable(self.config, self.node, self.primary)

    def _ask(self, allocator: Allocator) -> EvacuateResult:
        names = [instance.name for instance in (*self.primary, *self.secondary)]
        if self.op.ignore_soft_errors:
            options = {**allocator.options, IGNORE_SOFT_ERRORS: None}
            allocator = replace(allocator, options=options)
        wanted = NodeEvacuate(instances=names, evac_mode=self.op.mode)
        snapshot = read_snapshot(self.config)
        result: EvacuateResult = ask_allocator(self.context, allocator, wanted, snapshot)
        return result

    def exec(self) -> dict[str, object]:
        """Submit the jobs: nobody can migrate away from a node that is offline."""
        if self.plan is not None:
            jobs = planned_jobs(
                self.plan, reason=self.op.reason, early_release=self.op.early_release
            )
            return submit_moves(self.context, self.plan, jobs)
        if self.node.offline:
            return self.submit([self._failover(instance) for instance in self.primary])
        return self.submit([self._migration(instance) for instance in self.primary])

    def _failover(self, instance: Instance) -> OpInstanceFailover:
        return OpInstanceFailover(
            instance_name=instance.name,
            instance_uuid=instance.uuid,
            target_node=self.target.name if self.target else None,
            reason=self.op.reason,
        )

    def _migration(self, instance: Instance) -> OpInstanceMigrate:
        return OpInstanceMigrate(
            instance_name=instance.name,
            instance_uuid=instance.uuid,
            target_node=self.target.name if self.target else None,
            allow_failover=True,
            reason=self.op.reason,
        )
