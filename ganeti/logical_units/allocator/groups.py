"""Moves instances to other node groups: one, or all of a group.

Only what is named is locked, and shared: the group or the instance stays what it is while an
allocator plans.  The jobs that come of it check everything again under locks of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.text import natural_sorted
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.asking import ask_allocator, choose_allocator, read_snapshot
from ganeti.logical_units.allocator.moves import planned_jobs, stays_planned, submit_moves
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.instance.subject import Subject, is_planned
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, shared
from ganeti.opcodes.group import OpGroupEvacuate
from ganeti.opcodes.instance import OpInstanceChangeGroup
from ganeti.protocol.iallocator import ChangeGroup, EvacuateResult

if TYPE_CHECKING:
    from ganeti.clients.wconfd_stub import WConfStub
    from ganeti.logical_units.allocator.question import Snapshot
    from ganeti.objects.instance import Instance
    from ganeti.objects.node import Node
    from ganeti.objects.nodegroup import NodeGroup


def find_targets(
    config: WConfStub, asked: Sequence[str] | None, left: Mapping[str, str], what: str
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
                f"{what}: node group {stays[0]!r} is the one to leave; give another with --to",
                ErrorCode.INVAL,
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


class LUInstanceChangeGroup(LogicalUnit[OpInstanceChangeGroup]):
    """Plan and submit the jobs that move an instance to another group."""

    def expand_names(self) -> None:
        """Read the instance, and look the groups up."""
        op = self.op
        found = lookup.require_instance_context(self.config, op.instance_name, op.instance_uuid)
        self.subject = Subject(found)
        self.left = {str(group.uuid): group.name for group in found.groups}
        self.what = f"instance {found.instance.name!r}"
        self.targets = find_targets(self.config, op.target_groups, self.left, self.what)
        self.allocator = choose_allocator(self.cluster, op.iallocator, self.what)

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the instance and the groups that it may go to, shared."""
        match level:
            case LockLevel.INSTANCE:
                return shared(level, [self.subject.instance.name])
            case LockLevel.NODEGROUP:
                return shared(level, [*self.left, *(group.uuid for group in self.targets)])
            case _:
                return {}

    def check_prereq(self) -> None:
        """Ask the allocator."""
        if self.subject.is_planned:
            raise OpPrereqError(stays_planned(self.subject.instance), ErrorCode.STATE)
        wanted = ChangeGroup(
            instances=[self.subject.instance.name],
            target_groups=[group.uuid for group in self.targets],
        )
        snapshot = read_snapshot(self.config)
        self.plan: EvacuateResult = ask_allocator(self.context, self.allocator, wanted, snapshot)

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on the master alone."""
        return [self.master], [self.master]

    def hooks_env(self) -> Mapping[str, object]:
        """Tell about the instance and where it may go."""
        targets = " ".join(group.uuid for group in self.targets)
        return {**self.subject.env(), "TARGET_GROUPS": targets}

    def exec(self) -> dict[str, object]:
        """Submit the jobs."""
        jobs = planned_jobs(self.plan, reason=self.op.reason, early_release=self.op.early_release)
        return submit_moves(self.context, self.plan, jobs)


class LUGroupEvacuate(LogicalUnit[OpGroupEvacuate]):
    """Plan and submit the jobs that move all instances of a group elsewhere."""

    def expand_names(self) -> None:
        """Look the groups up."""
        op = self.op
        self.group = lookup.require_group(self.config, op.group_name)
        what = f"node group {self.group.name!r}"
        left = {str(self.group.uuid): self.group.name}
        self.targets = find_targets(self.config, op.target_groups, left, what)
        self.allocator = choose_allocator(self.cluster, op.iallocator, what)

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the groups shared."""
        if level is not LockLevel.NODEGROUP:
            return {}
        return shared(level, [self.group.uuid, *(group.uuid for group in self.targets)])

    def check_prereq(self) -> None:
        """Ask the allocator, if there is anything to move."""
        snapshot = read_snapshot(self.config)
        members = self._instances(snapshot)
        planned = [each for each in members if is_planned(each, snapshot.disks_of(each))]
        for instance in planned:
            self.context.warn(stays_planned(instance))
        names = natural_sorted(each.name for each in members if each not in planned)
        self.plan: EvacuateResult = ([], [], [])
        if names:
            wanted = ChangeGroup(
                instances=names, target_groups=[group.uuid for group in self.targets]
            )
            self.plan = ask_allocator(self.context, self.allocator, wanted, snapshot)

    def _instances(self, snapshot: Snapshot) -> list[Instance]:
        """Return the instances that have a node in the group."""
        return [
            instance
            for instance in snapshot.instances
            if any(node.group == self.group.uuid for node in snapshot.nodes_of(instance))
        ]

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on the master and the nodes of the group."""
        members = [n for n in lookup.all_nodes(self.config) if n.group == self.group.uuid]
        nodes = [self.master, *members]
        return nodes, nodes

    def hooks_env(self) -> Mapping[str, object]:
        """Name the group and where its instances may go."""
        return {
            "GROUP_NAME": self.group.name,
            "TARGET_GROUPS": " ".join(group.uuid for group in self.targets),
        }

    def exec(self) -> dict[str, object]:
        """Submit the jobs."""
        op = self.op
        if self.plan == ([], [], []):
            self.context.info(
                f"node group {self.group.name} has no instances to move, nothing to do"
            )
        jobs = planned_jobs(
            self.plan,
            reason=op.reason,
            early_release=op.early_release,
            force_failover=op.force_failover,
            sequential=op.sequential,
        )
        return submit_moves(self.context, self.plan, jobs)
