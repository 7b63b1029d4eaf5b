"""Operations on one existing instance share how it is read, its locks and its hooks.

The instance is locked exclusively, its nodes shared: so different instances do not wait for each
other, and a node cannot be changed or removed under an instance that is being worked on.  Only work
that is heavy on disks takes the resource locks of the nodes as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from ganeti.base.errors import OpPrereqError, wrong_state
from ganeti.logical_units import lookup
from ganeti.logical_units.base import LogicalUnit
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.locks import LockLevel, LockNeed, exclusive, lock_name, shared
from ganeti.objects.disk_templates import traits_of
from ganeti.objects.model import Node
from ganeti.opcodes.opcode import InstanceOpCode
from ganeti.protocol.wconfd import LockMode

InstanceOpType = TypeVar("InstanceOpType", bound=InstanceOpCode)


@dataclass(frozen=True, slots=True)
class OnInstance:
    """The instance that a unit works on; the base of all that such units find and plan."""

    view: InstanceView

    @property
    def nodes(self) -> list[Node]:
        """The nodes that are worked on."""
        return self.view.nodes


@dataclass(frozen=True, slots=True)
class WithTarget(OnInstance):
    """An instance and the node that it goes to, or its copy.

    Attributes:
        target: None until an allocator has chosen it, and where a clean-up does not need one.
    """

    target: Node | None

    @property
    def goal(self) -> Node:
        """The target, once it is known."""
        assert self.target is not None, "only a clean-up has no target"
        return self.target

    @property
    def nodes(self) -> list[Node]:
        """The nodes of the instance, and the target."""
        return [*self.view.nodes, *([self.target] if self.target else [])]


FoundOnInstance = TypeVar("FoundOnInstance", bound=OnInstance)
PlanOnInstance = TypeVar("PlanOnInstance", bound=OnInstance)


class AnyInstanceUnit(LogicalUnit[InstanceOpType, FoundOnInstance, PlanOnInstance]):
    """An operation on one existing instance, and perhaps on other objects.

    Class attributes:
        takes_incomplete: it can be done to an instance whose disks were never filled.
        told: the parameters of the opcode whose values hooks are told, under the same names.
        resources: how the resource locks of the nodes are taken, by work that is heavy on disks:
            exclusively where disks are made, grow or are filled, shared where they are only read.
    """

    takes_incomplete: ClassVar[bool] = False
    told: ClassVar[Sequence[str]] = ()
    resources: ClassVar[LockMode | None] = None

    def read_instance(self) -> InstanceView:
        """Read the instance and all around it."""
        op = self.op
        found = lookup.require_instance_context(self.config, op.instance_name, op.instance_uuid)
        self.cluster = found.cluster
        return InstanceView.of(found)

    def locks(self, found: FoundOnInstance) -> LockNeed:
        """Lock the instance exclusively and the nodes shared, perhaps their resources too."""
        uuids = [node.uuid for node in found.nodes]
        nodes = shared(LockLevel.NODE, uuids) | self.resource_locks(found, uuids)
        return exclusive(LockLevel.INSTANCE, [found.view.name]) | nodes

    def resource_locks(self, found: FoundOnInstance, uuids: Sequence[str]) -> LockNeed:
        """Return the locks of what the nodes have; an instance without disks needs none."""
        if self.resources is None or not found.view.disks:
            return {}
        return {lock_name(LockLevel.NODE_RES, uuid): self.resources for uuid in uuids}

    def check_state(self, found: FoundOnInstance) -> None:
        if not self.takes_incomplete:
            check_complete(found.view)

    def hook_nodes(self, plan: PlanOnInstance) -> Sequence[Node]:
        """Run hooks on the master and the nodes that are worked on."""
        return [self.master, *plan.nodes]

    def hook_values(self, plan: PlanOnInstance) -> Mapping[str, object]:
        """Tell about the instance and the values of this operation."""
        return plan.view.env() | dict(self.own_values(plan))

    def own_values(self, plan: PlanOnInstance) -> Mapping[str, object]:
        """Return the values of this operation alone."""
        return {name.upper(): getattr(self.op, name) for name in self.told}

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
    name = view.name
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


def check_primary_online(view: InstanceView, doing: str = "") -> None:
    """Refuse to work on an instance whose primary node is marked offline.

    Args:
        doing: the work, as it reads after "cannot" and before "from its node".

    Raises:
        OpPrereqError: it is offline (wrong_state).
    """
    name, primary = view.name, view.primary
    if primary.offline:
        what = f"cannot {doing} from its" if doing else f"primary node of instance {name!r}:"
        raise wrong_state(f"{what} node {primary.name!r} is marked offline")


def check_pair(
    context: JobContext, what: str, nodes: Sequence[Node], templates: Iterable[str]
) -> None:
    """Refuse nodes that cannot hold disks of these templates, by their number and state.

    Args:
        what: the instance, as errors begin.
        nodes: the primary node, then the secondary one.

    Raises:
        OpPrereqError: one too few, twice the same, or the secondary node cannot take copies.
    """
    template = next((each for each in templates if traits_of(each).mirrored), None)
    if template is None:
        return
    if len(nodes) < 2:
        raise OpPrereqError(
            f"{what}: disk template {str(template)!r} keeps its disks on two nodes; give both with"
            " -n PRIMARY:SECONDARY, or an allocator with -I"
        )
    primary, secondary = nodes
    if primary.uuid == secondary.uuid:
        raise OpPrereqError(
            f"{what}: the secondary node cannot be the primary node {primary.name!r} itself"
        )
    check_takes_instances(secondary, f"put copies of the disks of {what} on")
    if primary.group != secondary.group:
        context.warn(
            f"{what}: its nodes {primary.name} and {secondary.name} are in different node groups;"
            f" the disk parameters are those of the group of {primary.name}"
        )


def check_online(node: Node, doing: str) -> None:
    """Refuse a node that is marked offline.

    Args:
        doing: the work, as it reads after "cannot" and before the name of the node.

    Raises:
        OpPrereqError: it is (wrong_state).
    """
    if node.offline:
        raise wrong_state(f"cannot {doing} node {node.name!r}: it is marked offline")


def check_takes_instances(node: Node, doing: str) -> None:
    """Refuse a node on which no instance can be put.

    Args:
        doing: the work, as it reads after "cannot" and before the name of the node.

    Raises:
        OpPrereqError: says why (wrong_state).
    """
    for is_bad, what in (
        (node.offline, "is marked offline"),
        (node.drained, "is drained"),
        (not node.vm_capable, "is not vm_capable"),
    ):
        if is_bad:
            raise wrong_state(f"cannot {doing} node {node.name!r}: it {what}")
