"""The node that an instance is to move to: which it is, and whether it will do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.instance.nic_addresses import bridges_of
from ganeti.logical_units.instance.policy import check_policy, spec_of
from ganeti.logical_units.instance.subject import Subject
from ganeti.logical_units.lock_plan import (
    LockLevel,
    LockNeed,
    all_shared,
    exclusive,
    shared,
)
from ganeti.logical_units.node_calls import ask
from ganeti.objects.disk_templates import EXTERNALLY_MIRRORED
from ganeti.opcodes.instance import OpInstanceFailover, OpInstanceMigrate

if TYPE_CHECKING:
    from ganeti.base.ids import NodeUuid
    from ganeti.clients.wconfd_stub import WConfStub
    from ganeti.logical_units.context import JobContext
    from ganeti.objects.node import Node
    from ganeti.objects.nodegroup import NodeGroup


InstanceMove = OpInstanceMigrate | OpInstanceFailover


def check_movable(subject: Subject, what: str) -> None:
    """Refuse an instance whose disks only its own node can reach.

    Args:
        what: what is to be done, as it reads after "cannot".

    Raises:
        OpPrereqError: its disks cannot be reached from another node (wrong_state).
    """
    if subject.template not in EXTERNALLY_MIRRORED:
        raise OpPrereqError(
            f"cannot {what} instance {subject.instance.name!r}: its disk template"
            f" {subject.template!r} keeps the disks on node {subject.primary.name!r}; use"
            " 'gnt-instance move', or a template such as sharedfile",
            ErrorCode.STATE,
        )


def find_target(
    context: JobContext,
    subject: Subject,
    op: InstanceMove,
    chosen: NodeUuid | None,
    *,
    doing: str,
) -> Node | None:
    """Return the node named in the opcode, or one that an allocator chooses; None to clean up.

    Args:
        chosen: what an allocator chose before, if it did; it stays if it will still do.
        doing: what is to be done, as it reads after "cannot".

    Raises:
        OpPrereqError: unknown, the instance cannot move, or no allocator finds a place.
    """
    name = op.target_node_uuid or op.target_node
    if name is not None and op.iallocator is None:
        return lookup.require_node(context.config, name)
    if op.cleanup and op.iallocator is None:
        return None
    from ganeti.logical_units.allocator.placing import still_usable
    from ganeti.logical_units.instance.choosing import check_one_way, choose_target

    what = f"instance {subject.instance.name!r}"
    check_one_way(what, node=op.target_node or name, iallocator=op.iallocator)
    if op.cleanup:
        raise OpPrereqError(
            f"{what}: an allocator cannot tell where an interrupted migration has left it; leave"
            " -I out",
            ErrorCode.INVAL,
        )
    check_movable(subject, doing)
    kept = still_usable(context.config, chosen)
    if kept is not None and kept.uuid != subject.primary.uuid:
        return kept
    return choose_target(context, subject, op.iallocator)


def require_target(subject: Subject, target: Node | None) -> Node:
    """Return the target node, which must be another than the primary one.

    Raises:
        OpPrereqError: it is the primary node already (wrong_state).
    """
    assert target is not None, "only a clean-up has no target"
    if target.uuid == subject.primary.uuid:
        raise OpPrereqError(
            f"node {target.name!r} is the primary node of instance {subject.instance.name!r}"
            " already; give another target node",
            ErrorCode.STATE,
        )
    return target


def check_target(
    context: JobContext, subject: Subject, target: Node, *, ignore_ipolicy: bool
) -> None:
    """Refuse a target node that cannot take the instance.

    Raises:
        OpPrereqError: says why.
    """
    name = subject.instance.name
    for is_bad, what in (
        (target.offline, "is marked offline"),
        (target.drained, "is drained"),
        (not target.vm_capable, "is not vm_capable"),
    ):
        if is_bad:
            raise OpPrereqError(
                f"cannot move instance {name!r} to node {target.name!r}: it {what}",
                ErrorCode.STATE,
            )
    if target.group != subject.primary.group:
        group = lookup.require_group(context.config, target.group)
        spec = spec_of(subject.cluster, subject.instance, subject.disks)
        ignored = check_policy(subject.cluster, group, name, spec, ignore=ignore_ipolicy)
        if ignored:
            context.warn(f"{ignored}; ignoring")
        _warn_of_networks(context, subject, group)
    bridges = bridges_of(subject.cluster, subject.instance.nics)
    if bridges:
        ask(context, target, "use the bridges of the NICs", "bridges_exist", bridges)


def _warn_of_networks(context: JobContext, subject: Subject, group: NodeGroup) -> None:
    """Say which networks of the instance its NICs will not find in another group."""
    used = {nic.network for nic in subject.instance.nics if nic.network}
    missing = sorted(subject.networks[uuid].name for uuid in used - set(group.networks))
    if missing:
        context.warn(
            f"node group {group.name!r} is not connected to network(s) {', '.join(missing)} of"
            f" instance {subject.instance.name!r}; its NICs keep mode and link"
        )


def record_move(context: JobContext, subject: Subject, target: Node) -> None:
    """Write down the new primary node, for the instance and its disks, in one step."""
    old, new = subject.primary.uuid, target.uuid
    changes: list[tuple[str, str, dict[str, object]]] = [
        ("instance", subject.instance.uuid, {"primary_node": new})
    ]
    for disk in subject.disks:
        if old in disk.nodes:  # written so by earlier versions
            nodes = [uuid for uuid in disk.nodes if uuid not in (old, new)]
            changes.append(("disk", disk.uuid, {"nodes": [new, *nodes]}))
    context.config.modify_objects(changes)


def is_search_narrow(subject: Subject, target: Node | None) -> bool:
    """Tell whether an instance can only be on its primary node or on the target.

    The configuration may name the target as primary node already, so naming that node again says
    nothing about where it came from.
    """
    return target is not None and target.uuid != subject.primary.uuid


def locks_for_move(level: LockLevel, subject: Subject, target: Node | None) -> LockNeed:
    """Lock the instance exclusively, its nodes and the target shared."""
    others = [target.uuid] if target else []
    match level:
        case LockLevel.INSTANCE:
            return exclusive(level, [subject.instance.name])
        case LockLevel.NODE:
            return shared(level, [*(node.uuid for node in subject.nodes), *others])
        case _:
            return {}


def locks_for_search(level: LockLevel, subject: Subject, target: Node | None) -> LockNeed:
    """Lock the instance exclusively, and every node where it may be shared."""
    if level is LockLevel.NODE and not is_search_narrow(subject, target):
        return all_shared(level)
    return locks_for_move(level, subject, target)


def nodes_to_search(config: WConfStub, subject: Subject, target: Node | None) -> list[Node]:
    """Return the nodes where an instance may be."""
    if target is not None and is_search_narrow(subject, target):
        return [subject.primary, target]
    return [node for node in lookup.all_nodes(config) if node.vm_capable]
