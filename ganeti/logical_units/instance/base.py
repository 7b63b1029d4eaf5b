"""Operations on one existing instance share how it is read, its locks and its hooks.

The instance is locked exclusively, its nodes shared: so different instances never wait for each
other, and a node cannot be changed or removed under an instance that is being worked on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from ganeti.base.errors import wrong_state
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive, shared
from ganeti.objects.model import Node
from ganeti.opcodes import instance as ops
from ganeti.opcodes.backup import OpBackupExport, OpBackupPrepare

InstanceOp = (
    OpBackupExport
    | OpBackupPrepare
    | ops.OpInstanceActivateDisks
    | ops.OpInstanceConsole
    | ops.OpInstanceDeactivateDisks
    | ops.OpInstanceFailover
    | ops.OpInstanceGrowDisk
    | ops.OpInstanceMigrate
    | ops.OpInstanceMove
    | ops.OpInstanceReboot
    | ops.OpInstanceRecreateDisks
    | ops.OpInstanceReinstall
    | ops.OpInstanceRemove
    | ops.OpInstanceRename
    | ops.OpInstanceReplaceDisks
    | ops.OpInstanceSetParams
    | ops.OpInstanceShutdown
    | ops.OpInstanceStartup
)
InstanceOpType = TypeVar("InstanceOpType", bound=InstanceOp)


@dataclass(frozen=True, slots=True)
class OnInstance:
    """The instance that a unit works on; the base of all that such units find and plan."""

    view: InstanceView


FoundOnInstance = TypeVar("FoundOnInstance", bound=OnInstance)
PlanOnInstance = TypeVar("PlanOnInstance", bound=OnInstance)


class AnyInstanceUnit(LogicalUnit[InstanceOpType, FoundOnInstance, PlanOnInstance]):
    """An operation on one existing instance, and perhaps on other objects.

    Class attributes:
        takes_incomplete: it can be done to an instance whose disks were never filled.
    """

    takes_incomplete: ClassVar[bool] = False

    def read_instance(self) -> InstanceView:
        """Read the instance and all around it."""
        op = self.op
        found = lookup.require_instance_context(self.config, op.instance_name, op.instance_uuid)
        self.cluster = found.cluster
        return InstanceView.of(found)

    def locks(self, found: FoundOnInstance) -> LockNeed:
        """Lock the instance exclusively and its nodes shared."""
        view = found.view
        nodes = shared(LockLevel.NODE, [node.uuid for node in view.nodes])
        return exclusive(LockLevel.INSTANCE, [view.instance.name]) | nodes

    def check_state(self, found: FoundOnInstance) -> None:
        if not self.takes_incomplete:
            check_complete(found.view)

    def hook_nodes(self, plan: PlanOnInstance) -> Sequence[Node]:
        """Run hooks on the master and the nodes of the instance."""
        return [self.master, *plan.view.nodes]

    def hook_values(self, plan: PlanOnInstance) -> Mapping[str, object]:
        """Tell about the instance and the values of this operation."""
        return plan.view.env() | dict(self.own_values(plan))

    def own_values(self, plan: PlanOnInstance) -> Mapping[str, object]:
        """Return the values of this operation alone; by default there are none."""
        return {}

    def hook_values_after(self, plan: PlanOnInstance) -> Mapping[str, object]:
        """Tell about the instance as it is now."""
        found = self.config.get_instance_context(plan.view.instance.uuid)
        return InstanceView.of(found).env() | dict(self.own_values(plan))


class InstanceUnit(AnyInstanceUnit[InstanceOpType, OnInstance, PlanOnInstance]):
    """An operation on one existing instance alone."""

    def resolve(self) -> OnInstance:
        return OnInstance(self.read_instance())


def check_complete(view: InstanceView) -> None:
    """Refuse an instance that the job which was to make it did not complete.

    Raises:
        OpPrereqError: it is only planned, or its disks were never filled (wrong_state).
    """
    name = view.instance.name
    if view.instance.forthcoming:
        remedy = (
            f"is only planned; make it with 'gnt-instance add --commit {name}', or drop it"
            f" with 'gnt-instance remove {name}'"
            if view.is_planned
            else "is not complete: the job that was to make it ended before its disks were"
            f" filled; install it anew with 'gnt-instance reinstall {name}', or remove it"
            f" with 'gnt-instance remove {name}' and make it again"
        )
        raise wrong_state(f"instance {name!r} {remedy}")


def check_node_online(node: Node, what: str) -> None:
    """Refuse to work on a node that is marked offline.

    Raises:
        OpPrereqError: it is offline (wrong_state).
    """
    if node.offline:
        raise wrong_state(f"{what} node {node.name!r} is marked offline")
