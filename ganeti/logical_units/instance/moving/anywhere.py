"""Fail an instance with copies of its disks over to a third node, in one step.

    check     one of its two nodes has all data: the keeper, the secondary node if it can be
    stop      the instance, where it runs
    make      sides of the disks on the target, which wait
    record    the configuration names the target as primary node, the keeper as secondary one
    connect   the data is copied from the keeper to the target
    start     the instance on the target, as soon as the copying has begun
    wait      until the target has all data; then the old copy, of the third node, is removed

Until the record every failure leads back.  From the start to the end of the copying the keeper has
the only complete data: an error of its disk, or of the network to it, stops the instance.

Source: design-2.0, "Failover to any node".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from ganeti.base.errors import GenericError, OpExecError
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance import guest
from ganeti.logical_units.instance.moving.mirrors import only_looking
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.storage.disks import assemble_copies, mirrored
from ganeti.logical_units.instance.storage.generations import (
    doubt,
    risky_age,
    sides_of_keeper,
    sides_or_none,
    tell_risk,
)
from ganeti.logical_units.instance.storage.replacing import NewNode, Replacement
from ganeti.logical_units.instance.storage.syncing import sync_states
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.model import AdminState, Node
from ganeti.opcodes.instance import ReplaceDisksMode
from ganeti.protocol.wconfd import ObjectKind

BEGINS_S_MAX: Final = 60.0
_LOOK_S: Final = 0.5


def find_keeper(context: JobContext, view: InstanceView) -> Node:
    """Return the node of the instance that has all data, and keeps it.

    Raises:
        OpExecError: no node certainly has; nothing was changed.
    """
    source, other = view.nodes[:2]
    with only_looking(context, view, source if other.offline else other):
        return _find_keeper(context, view, source, other)


def _find_keeper(context: JobContext, view: InstanceView, source: Node, other: Node) -> Node:
    copies, name = mirrored(view), view.name
    seen = {node.uuid: sides_or_none(context, view, node, copies) for node in (source, other)}
    if source.offline and not other.offline:
        seen[other.uuid] = sides_of_keeper(context, view, other, copies)
    found = []
    for node, reference in ((other, source), (source, other)):
        if node.offline:
            found.append(f"node {node.name} is marked offline")
            continue
        states = sync_states(context, view, node, copies, f"look at the disks of {name!r}")
        pairs = list(zip(seen[node.uuid], seen[reference.uuid], strict=True))
        if node is other:
            reasons = [doubt(node, mine, source, theirs) for mine, theirs in pairs]
        else:
            ages = [risky_age(mine, theirs) for mine, theirs in pairs]
            reasons = [f"it {age} {other.name}" if age else None for age in ages]
        problems = [
            reason if state.is_whole else state.words()
            for state, reason in zip(states, reasons, strict=True)
        ]
        if not any(problems):
            tell_risk(context, node, reference, seen[node.uuid] if node is other else ())
            return node
        found.append(f"node {node.name}: {'; '.join(filter(None, problems))}")
    raise OpExecError(
        f"no node certainly has all data of instance {name!r} ({', '.join(found)}); nothing was"
        f" changed: connect its disks with 'gnt-instance activate-disks --wait-for-sync {name}', or"
        f" accept the data of the secondary node by 'gnt-instance failover --ignore-consistency"
        f" {name}' first"
    )


def fail_over_anywhere(
    context: JobContext, view: InstanceView, target: Node, keeper: Node, reason: Sequence[object]
) -> None:
    """Bring a stopped instance to a third node, with its copies on the keeper.

    Raises:
        OpExecError: says where the instance is now, and the next command.
    """
    name = view.name
    [gone] = [node for node in view.nodes[:2] if node.uuid != keeper.uuid]
    indexes = [index for index, disk in enumerate(view.disks) if disk.traits.mirrored]
    pair = replace(view, nodes=[keeper, gone])
    work = NewNode(
        context, Replacement(pair, target, ReplaceDisksMode.NEW_SECONDARY, indexes), False
    )
    primary = (ObjectKind.INSTANCE, view.instance.uuid, {"primary_node": target.uuid})
    with leading_back(context, view, reason):
        now, made = work.switch([primary])
    context.warn(
        f"until the copy on {target.name} is complete, node {keeper.name} has the only complete"
        f" data of {name}: an error of its disk, or of the network to it, stops the instance"
    )
    try:
        assemble_copies(context, now, target)
        _wait_begun(context, now)
        if view.instance.admin_state is AdminState.UP:
            context.feedback(f"* starting the instance on the target node {target.name}")
            guest.start_on(context, now, target, reason)
        work.finish(now, made)
    except GenericError as err:
        raise OpExecError(
            f"{err}; the primary node of instance {name} is {target.name} now, and"
            f" {keeper.name} has its data: when that is mended, use 'gnt-instance activate-disks"
            f" --wait-for-sync {name}' and 'gnt-instance startup {name}'; {work.old_left()}"
        ) from err
    if not view.instance.disks_active and view.instance.admin_state is not AdminState.UP:
        disks.deactivate(context, now, target)


@contextmanager
def leading_back(
    context: JobContext, view: InstanceView, reason: Sequence[object]
) -> Iterator[None]:
    """Start a stopped instance again where it was, if what is done meanwhile fails."""
    try:
        yield
    except GenericError:
        if view.instance.admin_state is AdminState.UP and not view.primary.offline:
            try:
                guest.start_again(context, view, reason)
            except GenericError as err:
                context.warn(str(err))
        raise


def _wait_begun(context: JobContext, view: InstanceView) -> None:
    """Wait until the primary node gets data, or has all of it."""
    deadline_s = context.monotonic() + BEGINS_S_MAX
    doing = f"follow the disks of instance {view.name!r}"
    while True:
        states = sync_states(context, view, view.primary, mirrored(view), doing)
        if all(state.is_syncing or state.is_whole for state in states):
            return
        if context.monotonic() >= deadline_s:
            words = "; ".join(state.words() for state in states)
            raise OpExecError(f"node {view.primary.name!r} gets no data: {words}")
        context.wait(_LOOK_S)
