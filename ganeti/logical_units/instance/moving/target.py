"""The node that an instance is to move to: which it is, and whether it will do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, TypeVar

from ganeti.base.errors import OpPrereqError, wrong_state
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.placing import still_usable
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.base import AnyInstanceUnit, WithTarget, check_takes_instances
from ganeti.logical_units.instance.changes.nics import bridges_of, check_bridges
from ganeti.logical_units.instance.creation.choosing import check_one_way, choose_target
from ganeti.logical_units.instance.parameters import check_policy
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.locks import LockLevel, LockNeed, all_shared
from ganeti.objects.disk_templates import FORMAT
from ganeti.objects.fill import fill_diskparams
from ganeti.objects.model import Disk, Node, NodeGroup
from ganeti.opcodes.instance import OpInstanceFailover, OpInstanceMigrate
from ganeti.protocol.wconfd import Change, ObjectKind

MoveOp = TypeVar("MoveOp", bound=OpInstanceMigrate | OpInstanceFailover)
MovePlan = TypeVar("MovePlan", bound=WithTarget)


class MoveUnit(AnyInstanceUnit[MoveOp, WithTarget, MovePlan]):
    """A move to a node that reaches the disks, or the clean-up after one that was interrupted.

    Class attributes:
        doing: the work, as it reads after "cannot".
        goes_anywhere: an instance with copies of its disks can go to a third node, too.
    """

    doing: ClassVar[str]
    goes_anywhere: ClassVar[bool] = False

    def resolve(self) -> WithTarget:
        """Read the instance and the target, if one is named."""
        op, view = self.op, self.read_instance()
        name = op.target_node_uuid or op.target_node
        if view.needs_own_nodes and len(view.nodes) > 1:
            return WithTarget(view, self._other_own_node(view, name))
        if op.iallocator is None:
            return WithTarget(
                view, None if name is None else lookup.require_node(self.config, name)
            )
        what = f"instance {view.name!r}"
        check_one_way(what, node=op.target_node or name, iallocator=op.iallocator)
        if op.cleanup:
            raise OpPrereqError(
                f"{what}: an allocator cannot tell where an interrupted migration has left it;"
                " leave -I out"
            )
        return WithTarget(view, None)

    def _other_own_node(self, view: InstanceView, name: str | None) -> Node:
        """Return the secondary node, which has the copies of the disks.

        Raises:
            OpPrereqError: another node is asked for (wrong_state).
        """
        secondary = view.nodes[1]
        named = None if name is None else lookup.require_node(self.config, name)
        is_third = named is not None and named.uuid not in [node.uuid for node in view.nodes]
        if self.op.iallocator is not None or (
            is_third and (self.op.cleanup or not self.goes_anywhere)
        ):
            raise wrong_state(
                f"cannot {self.doing} instance {view.name!r} to another node than"
                f" {secondary.name!r}, which has the copies of its disks; give no node and no"
                f" allocator, or bring the copies to another node first: 'gnt-instance"
                f" replace-disks -n NODE {view.name}'"
            )
        return secondary if named is None else named

    def place(self, found: WithTarget, earlier: WithTarget | None) -> WithTarget:
        """Have an allocator choose the target, unless one was named; memory on it is reserved."""
        if found.target is not None or self.op.cleanup:
            return found
        view = found.view
        check_movable(view, self.doing)
        kept = still_usable(self.config, [earlier.goal]) if earlier else []
        if not kept or kept[0].uuid == view.primary.uuid:
            kept = [choose_target(self.context, view, self.op.iallocator)]
        return replace(found, target=kept[0])

    def own_values(self, plan: MovePlan) -> Mapping[str, object]:
        second = " ".join(node.name for node in plan.view.nodes[1:])
        return {
            **super().own_values(plan),
            "OLD_PRIMARY": plan.view.primary.name,
            "NEW_PRIMARY": plan.target.name if plan.target else "",
            "OLD_SECONDARY": second,
            "NEW_SECONDARY": plan.view.primary.name if second else "",
        }

    def locks(self, found: WithTarget) -> LockNeed:
        """Lock the instance, and the nodes that it is or may be on."""
        is_anywhere = self.op.cleanup and not found.view.needs_own_nodes
        return super().locks(found) | (all_shared(LockLevel.NODE) if is_anywhere else {})


def where_it_may_be(context: JobContext, view: InstanceView) -> list[Node]:
    """Return the nodes that may have the instance, after a migration that was broken off.

    Neither the configuration nor the operator is asked: nobody may know where it was to go.
    """
    if view.needs_own_nodes:
        return view.nodes
    return [
        node
        for node in lookup.all_nodes(context.config)
        if node.vm_capable or node.uuid == view.primary.uuid
    ]


def check_movable(view: InstanceView, what: str) -> None:
    """Refuse an instance whose disks only its own node can reach.

    Args:
        what: the work, as it reads after "cannot".

    Raises:
        OpPrereqError: its disks cannot be reached from another node (wrong_state).
    """
    bound = [index for index, disk in enumerate(view.disks) if disk.traits.alone]
    if bound and view.needs_own_nodes:
        raise wrong_state(
            f"cannot {what} instance {view.name!r}: disk {bound[0]} of template"
            f" {view.disks[bound[0]].dev_type!r} is on node {view.primary.name!r} alone, though"
            f" others have copies on {view.nodes[1].name!r}; bring all disks to one template with"
            f" 'gnt-instance modify -t', or detach it"
        )
    if bound:
        raise wrong_state(
            f"cannot {what} instance {view.name!r}: its disk template"
            f" {view.disks[bound[0]].dev_type!r} keeps the disks on node {view.primary.name!r};"
            " while that node answers, 'gnt-instance move' copies them to another; if it is lost,"
            " so are they:"
            " 'gnt-instance remove --ignore-failures', then 'gnt-backup import' of an export."
            "  Instances of template sharedfile can fail over"
        )


def check_other_node(view: InstanceView, target: Node) -> None:
    """Refuse a target node that is the primary node already.

    Raises:
        OpPrereqError: it is (wrong_state).
    """
    if target.uuid == view.primary.uuid:
        raise wrong_state(
            f"node {target.name!r} is the primary node of instance {view.name!r}"
            " already; give another target node"
        )


def check_target(
    context: JobContext, view: InstanceView, target: Node, *, ignore_ipolicy: bool
) -> None:
    """Refuse a target node that cannot take the instance.

    Raises:
        OpPrereqError: says why.
    """
    check_takes_instances(target, f"move instance {view.name!r} to")
    if target.group != view.primary.group:
        group = lookup.require_group(context.config, target.group)
        ignore = ignore_ipolicy
        check_policy(context, view.cluster, group, view.instance, view.disks, ignore=ignore)
        _warn_of_networks(context, view, group)
    check_bridges(context, target, bridges_of(view.cluster, view.instance.nics))


def check_finds_disks(context: JobContext, view: InstanceView, target: Node) -> None:
    """Refuse a node that would look elsewhere for disks which all nodes reach, and not find them.

    Where they are, such as in what pool, is said by the disk parameters of node groups.

    Raises:
        OpPrereqError: it does not find one (wrong_state), or does not answer.
    """
    if target.group == view.primary.group:
        return
    group = lookup.require_group(context.config, target.group)
    there = view.moved_to(target, group)
    moved = [
        disk
        for disk in view.disks
        if disk.traits.shared and _place(there, disk) != _place(view, disk)
    ]
    for index in disks.indexes_on(context, there, target, moved, there=False):
        raise wrong_state(
            f"cannot move instance {view.name!r} to node {target.name!r}: the disk parameters of"
            f" its node group {group.name!r} lead elsewhere than those of"
            f" {view.group.name!r}, and disk {index} is not there; compare them with 'gnt-group"
            " info', and change them with 'gnt-group modify -D'"
        )


def _place(view: InstanceView, disk: Disk) -> dict[str, object]:
    """Return the parameters of a disk that may say where it is."""
    filled = fill_diskparams(view.cluster, view.group, disk.dev_type, disk.params or {})
    return {name: value for name, value in filled.items() if name not in ("access", FORMAT)}


def _warn_of_networks(context: JobContext, view: InstanceView, group: NodeGroup) -> None:
    """Say which networks of the instance its NICs will not find in another group."""
    used = {nic.network for nic in view.instance.nics if nic.network}
    missing = sorted(view.networks[uuid].name for uuid in used - set(group.networks))
    if missing:
        context.warn(
            f"node group {group.name!r} is not connected to network(s) {', '.join(missing)} of"
            f" instance {view.name!r}; its NICs keep mode and link"
        )


def record_move(context: JobContext, view: InstanceView, target: Node) -> None:
    """Write down the new primary node, for the instance and its disks, in one step."""
    old, new = view.primary.uuid, target.uuid
    changes: list[Change] = [(ObjectKind.INSTANCE, view.instance.uuid, {"primary_node": new})]
    for disk in view.disks:
        if old in disk.nodes and not disk.traits.mirrored:  # written so by earlier versions
            nodes = [uuid for uuid in disk.nodes if uuid not in (old, new)]
            changes.append((ObjectKind.DISK, disk.uuid, {"nodes": [new, *nodes]}))
    context.config.modify_objects(changes)
