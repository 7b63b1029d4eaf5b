"""Move the instances of a node away from it: one job for each, submitted here and run beside us.

Nothing but the node is locked while the jobs are chosen: each job checks everything again
under its own locks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError
from ganeti.base.text import natural_sort_key
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, shared
from ganeti.objects.allocation_modes import EvacMode
from ganeti.objects.disk_templates import EXTERNALLY_MIRRORED
from ganeti.objects.rpc_instance import disk_template
from ganeti.opcodes.instance import OpInstanceFailover, OpInstanceMigrate
from ganeti.opcodes.node import OpNodeEvacuate, OpNodeMigrate

if TYPE_CHECKING:
    from ganeti.clients.wconfd_stub import WConfStub
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


def check_target(source: Node, target: Node | None, *, iallocator: str | None) -> Node:
    """Refuse to go on without a usable target node.

    Raises:
        OpPrereqError: none is named, or not one that can take instances.
        NotSupportedError: an allocator is to choose.
    """
    if iallocator is not None:
        raise NotSupportedError(
            f"node {source.name!r}: choosing target nodes by an allocator is not supported yet;"
            " name the target node with -n NODE"
        )
    if target is None:
        raise OpPrereqError(
            f"node {source.name!r}: no target node given, and choosing one by an allocator is not"
            " supported yet; use -n NODE",
            ErrorCode.INVAL,
        )
    for is_bad, what in (
        (target.uuid == source.uuid, "is the node that the instances are to leave"),
        (target.offline, "is marked offline"),
        (target.drained, "is drained"),
        (not target.vm_capable, "is not vm_capable"),
    ):
        if is_bad:
            raise OpPrereqError(f"target node {target.name!r} {what}", ErrorCode.STATE)
    return target


def check_movable(config: WConfStub, source: Node, instances: Sequence[Instance]) -> None:
    """Refuse when the disks of an instance cannot be reached from another node.

    Raises:
        OpPrereqError: names the first of them.
    """
    uuids = [uuid for instance in instances for uuid in instance.disks]
    disks = {disk.uuid: disk for disk in lookup.present(config.get_disks(uuids) if uuids else [])}
    stuck = [
        instance.name
        for instance in instances
        if disk_template([disks[uuid] for uuid in instance.disks if uuid in disks])
        not in EXTERNALLY_MIRRORED
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

    def expand_names(self) -> None:
        """Look the node up, with its instances."""
        self.node = lookup.require_node(self.config, self.op.node_uuid or self.op.node_name)
        self.primary, self.secondary = instances_of(self.config, self.node)

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the node shared, so that it stays what it is while jobs are chosen."""
        return shared(level, [self.node.uuid]) if level is LockLevel.NODE else {}

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
        self.target = named_node(self.config, self.op.target_node_uuid, self.op.target_node)

    def check_prereq(self) -> None:
        """Refuse what no job could do."""
        if self.primary:
            self.target = check_target(self.node, self.target, iallocator=self.op.iallocator)
            check_movable(self.config, self.node, self.primary)

    def hooks_env(self) -> Mapping[str, object]:
        """Name the node."""
        return {
            "NODE_NAME": self.node.name,
            "ALLOW_RUNTIME_CHANGES": self.op.allow_runtime_changes,
        }

    def exec(self) -> dict[str, object]:
        """Submit the jobs."""
        op, target = self.op, self.target.name if self.target else None
        return self.submit(
            [
                OpInstanceMigrate(
                    instance_name=instance.name,
                    instance_uuid=instance.uuid,
                    mode=op.mode,
                    live=op.live,
                    target_node=target,
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

    def expand_names(self) -> None:
        """Look both nodes up."""
        super().expand_names()
        self.target = named_node(self.config, self.op.remote_node_uuid, self.op.remote_node)
        if self.op.mode is EvacMode.SECONDARY_ONLY:
            self.primary = []
        if self.op.mode is EvacMode.PRIMARY_ONLY:
            self.secondary = []

    def check_prereq(self) -> None:
        """Refuse what no job could do."""
        if self.secondary:
            names = ", ".join(instance.name for instance in self.secondary[:_NAMES_SHOWN_MAX])
            raise NotSupportedError(
                f"node {self.node.name!r} is the secondary node of {names}: replacing secondary"
                " nodes is not supported yet"
            )
        if self.primary:
            self.target = check_target(self.node, self.target, iallocator=self.op.iallocator)
            check_movable(self.config, self.node, self.primary)

    def exec(self) -> dict[str, object]:
        """Submit the jobs: nobody can migrate away from a node that is offline."""
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
