"""The node that an instance is to move to: which it is, and whether it will do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, TypeVar

from ganeti.base.errors import OpPrereqError, wrong_state
from ganeti.base.ids import NodeUuid
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.placing import still_usable
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.base import AnyInstanceUnit, OnInstance
from ganeti.logical_units.instance.changes.nic_addresses import bridges_of
from ganeti.logical_units.instance.creation.choosing import check_one_way, choose_target
from ganeti.logical_units.instance.policy import check_policy, spec_of
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.locks import LockLevel, LockNeed, all_shared, exclusive, shared
from ganeti.objects.model import Node, NodeGroup
from ganeti.opcodes.instance import OpInstanceFailover, OpInstanceMigrate
from ganeti.protocol.wconfd import Change, ObjectKind


@dataclass(frozen=True, slots=True)
class Move(OnInstance):
    """An instance and the node that it is to move to.

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
    def where_it_may_be(self) -> frozenset[NodeUuid] | None:
        """The nodes that the instance can be on; None where it can be on any.

        The configuration may name the target as primary node already, so naming that node again
        tells nothing about where it came from.
        """
        if self.target is None or self.target.uuid == self.view.primary.uuid:
            return None
        return frozenset({self.view.primary.uuid, self.target.uuid})


def locks_of_move(found: Move) -> LockNeed:
    """Lock the instance exclusively, its nodes and the target shared."""
    nodes = [node.uuid for node in found.view.nodes]
    target = [found.target.uuid] if found.target else []
    return exclusive(LockLevel.INSTANCE, [found.view.instance.name]) | shared(
        LockLevel.NODE, [*nodes, *target]
    )


def nodes_of_move(found: Move) -> dict[str, object]:
    """Return the old and the new nodes as hooks are told them."""
    return {
        "OLD_PRIMARY": found.view.primary.name,
        "NEW_PRIMARY": found.target.name if found.target else "",
        "OLD_SECONDARY": "",
        "NEW_SECONDARY": "",
    }


MoveOp = TypeVar("MoveOp", bound=OpInstanceMigrate | OpInstanceFailover)
MovePlan = TypeVar("MovePlan", bound=Move)


class MoveUnit(AnyInstanceUnit[MoveOp, Move, MovePlan]):
    """A move to a node that reaches the disks, or the clean-up after one that was interrupted.

    Class attributes:
        doing: the work, as it reads after "cannot".
    """

    doing: ClassVar[str]

    def resolve(self) -> Move:
        """Read the instance and the target, if one is named."""
        op, view = self.op, self.read_instance()
        name = op.target_node_uuid or op.target_node
        if op.iallocator is None:
            return Move(view, None if name is None else lookup.require_node(self.config, name))
        what = f"instance {view.instance.name!r}"
        check_one_way(what, node=op.target_node or name, iallocator=op.iallocator)
        if op.cleanup:
            raise OpPrereqError(
                f"{what}: an allocator cannot tell where an interrupted migration has left it;"
                " leave -I out"
            )
        return Move(view, None)

    def place(self, found: Move, earlier: Move | None) -> Move:
        """Have an allocator choose the target, unless one was named; memory on it is reserved."""
        if found.target is not None or self.op.cleanup:
            return found
        view = found.view
        check_movable(view, self.doing)
        kept = still_usable(self.config, earlier.goal.uuid) if earlier else None
        if kept is None or kept.uuid == view.primary.uuid:
            kept = choose_target(self.context, view, self.op.iallocator)
        return replace(found, target=kept)

    def locks(self, found: Move) -> LockNeed:
        """Lock the instance, and the nodes that it is or may be on."""
        if self.op.cleanup and found.where_it_may_be is None:
            return exclusive(LockLevel.INSTANCE, [found.view.instance.name]) | all_shared(
                LockLevel.NODE
            )
        return locks_of_move(found)


def check_movable(view: InstanceView, what: str) -> None:
    """Refuse an instance whose disks only its own node can reach.

    Args:
        what: what is to be done, as it reads after "cannot".

    Raises:
        OpPrereqError: its disks cannot be reached from another node (wrong_state).
    """
    if not view.traits.shared:
        raise wrong_state(
            f"cannot {what} instance {view.instance.name!r}: its disk template"
            f" {view.template!r} keeps the disks on node {view.primary.name!r}; use"
            " 'gnt-instance move', or a template such as sharedfile"
        )


def check_other_node(view: InstanceView, target: Node) -> None:
    """Refuse a target node that is the primary node already.

    Raises:
        OpPrereqError: it is (wrong_state).
    """
    if target.uuid == view.primary.uuid:
        raise wrong_state(
            f"node {target.name!r} is the primary node of instance {view.instance.name!r}"
            " already; give another target node"
        )


def check_target(
    context: JobContext, view: InstanceView, target: Node, *, ignore_ipolicy: bool
) -> None:
    """Refuse a target node that cannot take the instance.

    Raises:
        OpPrereqError: says why.
    """
    name = view.instance.name
    for is_bad, what in (
        (target.offline, "is marked offline"),
        (target.drained, "is drained"),
        (not target.vm_capable, "is not vm_capable"),
    ):
        if is_bad:
            raise wrong_state(f"cannot move instance {name!r} to node {target.name!r}: it {what}")
    if target.group != view.primary.group:
        group = lookup.require_group(context.config, target.group)
        spec = spec_of(view.cluster, view.instance, view.disks)
        ignored = check_policy(view.cluster, group, name, spec, ignore=ignore_ipolicy)
        if ignored:
            context.warn(f"{ignored}; ignoring")
        _warn_of_networks(context, view, group)
    bridges = bridges_of(view.cluster, view.instance.nics)
    if bridges:
        context.nodes.check(target, "use the bridges of the NICs").bridges_exist(bridges)


def _warn_of_networks(context: JobContext, view: InstanceView, group: NodeGroup) -> None:
    """Say which networks of the instance its NICs will not find in another group."""
    used = {nic.network for nic in view.instance.nics if nic.network}
    missing = sorted(view.networks[uuid].name for uuid in used - set(group.networks))
    if missing:
        context.warn(
            f"node group {group.name!r} is not connected to network(s) {', '.join(missing)} of"
            f" instance {view.instance.name!r}; its NICs keep mode and link"
        )


def record_move(context: JobContext, view: InstanceView, target: Node) -> None:
    """Write down the new primary node, for the instance and its disks, in one step."""
    old, new = view.primary.uuid, target.uuid
    changes: list[Change] = [(ObjectKind.INSTANCE, view.instance.uuid, {"primary_node": new})]
    for disk in view.disks:
        if old in disk.nodes:  # written so by earlier versions
            nodes = [uuid for uuid in disk.nodes if uuid not in (old, new)]
            changes.append((ObjectKind.DISK, disk.uuid, {"nodes": [new, *nodes]}))
    context.config.modify_objects(changes)
