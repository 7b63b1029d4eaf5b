"""Which side of a disk with a copy has the newer data, and whether that is certain.

A side that says "up to date" only means that it was when it was left: DRBD 8.4 without fencing does
not tell it that the other side was written alone since.  So the sides are compared wherever both
can be asked.  The data has a generation, which changes with the first write without the copy; the
side that was left behind has a generation that the other one remembers.

The comparison is also noted where it can be lost: `mark_left_behind` marks a side that lacks writes
as outdated, in its own metadata.  A failover after the loss of the other node is then refused.

Source: DRBD User's Guide 8.4, "Generation Identifiers" and "Automatic split brain recovery".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import permutations
from typing import Final

from ganeti.base.errors import OpExecError
from ganeti.base.text import utc
from ganeti.clients.node_rpc import Target
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.syncing import LOOK_S_MIN, SETTLES_S
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.model import Disk, Node
from ganeti.objects.rpc_instance import RpcDisk
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import CopySide

_DEATH_S_MAX: Final = 25.0  # DRBD asks for a sign of life each 10 s, and waits 6 s for an answer
_LOOK_S: Final = 0.5
Ask = Callable[[JobContext, InstanceView, Node, Sequence[Disk]], list[CopySide | None]]

_JUST_CREATED: Final = 4  # generation of a side that was made anew, and never had data
_PRIMARY_BIT: Final = 1  # of a generation: its side was the primary one; not part of its identity


class Age(StrEnum):
    """The data of one side, beside that of the other."""

    SAME = "has the same data as"
    OLDER = "lacks writes of"
    NEWER = "has newer data than"
    APART = "has other writes than"


def compare(side: CopySide, other: CopySide) -> Age:
    """Compare the data of two sides by their generations."""
    mine, others = _identities(side), _identities(other)
    if mine and mine[:1] == others[:1]:
        return Age.SAME
    if mine and mine[0] in others:
        return Age.OLDER
    if others and others[0] in mine:
        return Age.NEWER
    return Age.APART


def _identities(side: CopySide) -> list[int]:
    return [int(each, 16) & ~_PRIMARY_BIT for each in side.generations]


def sides_on(
    context: JobContext, view: InstanceView, node: Node, disks: Sequence[Disk]
) -> list[CopySide | None]:
    """Ask a node for its sides of disks; None for those that are not active.

    Raises:
        OpExecError: it does not answer.
    """
    doing = f"compare the copies of the disks of instance {view.name!r}"
    return context.nodes.on(node, doing).drbd_sides([view.disk_wire(disk, node) for disk in disks])


def sides_or_none(
    context: JobContext, view: InstanceView, node: Node, disks: Sequence[Disk]
) -> list[CopySide | None]:
    """As `sides_on`, of a node that may be gone."""
    try:
        return sides_on(context, view, node, disks)
    except OpExecError:
        return [None] * len(disks)


def sides_when_met(
    context: JobContext,
    view: InstanceView,
    disks: Sequence[Disk],
    node: Node,
    other: Node,
    *,
    ask: Ask = sides_or_none,
) -> list[tuple[CopySide | None, CopySide | None]]:
    """Return both sides of each disk, connected if they become so in a moment."""
    deadline_s = context.monotonic() + SETTLES_S
    while True:
        mine, others = (ask(context, view, each, disks) for each in (node, other))
        pairs = list(zip(mine, others, strict=True))
        if not any(_may_meet(*pair) for pair in pairs) or context.monotonic() >= deadline_s:
            return pairs
        context.wait(LOOK_S_MIN)


def _may_meet(side: CopySide | None, other: CopySide | None) -> bool:
    return bool(side and other and not (side.is_connected or side.parting))


def risky_age(side: CopySide | None, other: CopySide | None) -> Age | None:
    """Return how a side may lack data that the other one can still give; None if it does not."""
    if side is None or other is None or side.is_connected:
        return None
    if _identities(other)[:1] in ([], [_JUST_CREATED]):
        return None
    age = compare(side, other)
    return age if age in (Age.OLDER, Age.APART) else None


def sides_of_keeper(
    context: JobContext, view: InstanceView, node: Node, disks: Sequence[Disk]
) -> list[CopySide | None]:
    """As `sides_on`, of the node that is to go on without the primary one.

    Raises:
        OpExecError: it does not answer; or the primary node is marked offline, but at work.
    """
    writer, deadline_s = view.primary, context.monotonic() + _DEATH_S_MAX
    while True:
        sides = sides_on(context, view, node, disks)
        if not (writer.offline and any(side and side.is_open_there for side in sides)):
            return sides
        if context.monotonic() >= deadline_s:
            raise OpExecError(
                f"node {writer.name} is marked offline, but its DRBD answers and has disks of"
                f" instance {view.name!r} in use; nothing was changed: switch it off first, or type"
                f" 'gnt-node modify --offline no {writer.name}'"
            )
        context.wait(_LOOK_S)


def doubt(node: Node, side: CopySide | None, writer: Node, other: CopySide | None) -> str | None:
    """Return the reason to doubt that the side of a node has all data; None if nothing says so.

    Args:
        writer: the primary node.
        other: its side; None where it cannot be asked.
    """
    if side is None:
        return f"the disk is not active on {node.name}"
    if side.is_connected:
        return None
    if side.parting:
        return side.parting
    if other is None:
        if writer.offline:
            return None
        return (
            f"it is not connected with {writer.name}, which cannot be asked what it wrote since; if"
            f" that node is dead, switch it off and type 'gnt-node modify --offline yes"
            f" {writer.name}'"
        )
    if other.is_open:
        age = compare(other, side)
        return f"it is not connected with {writer.name}, which is written alone and {age} it"
    age = compare(side, other)
    return None if age in (Age.SAME, Age.NEWER) else f"it {age} {writer.name}"


def tell_risk(
    context: JobContext, node: Node, writer: Node, sides: Iterable[CopySide | None]
) -> None:
    """Say what nobody can know when the writer is gone: whether it went on alone."""
    alone = [side for side in sides if side is not None and not side.is_connected]
    if not (alone and writer.offline):
        return
    known = [side.alone_since for side in alone if side.alone_since is not None]
    when = "at an unknown time"
    if len(known) == len(alone):
        when = f"at {utc(min(known))}"
    context.warn(
        f"node {node.name} lost {writer.name} {when}: if {writer.name} did not stop at that moment,"
        " what it wrote after it is lost by going on without it; make sure that it is switched off"
    )


def mark_left_behind(context: JobContext, rows: Mapping[Target, Sequence[RpcDisk]]) -> list[str]:
    """Mark the sides that lack what the other one was written alone; failures are told.

    Args:
        rows: the disks on each node; those without an answer are passed over.

    Returns:
        The UUIDs of the disks of which a side is marked.
    """
    results = context.nodes.call_each(
        NodeCalls.drbd_sides, {target: (list(disks),) for target, disks in rows.items()}
    )
    seen: dict[str, list[tuple[Target, RpcDisk, CopySide]]] = {}
    for target, disks in rows.items():
        answers = results[target.name].payload if results[target.name].error is None else []
        for disk, side in zip(disks, answers, strict=False):
            if side is not None:
                seen.setdefault(str(disk.uuid), []).append((target, disk, side))
    marked = []
    for uuid, sides in seen.items():
        for (_, _, writer), (target, disk, left) in permutations(sides, 2):
            if not _is_left_behind(left, writer):
                continue
            if not left.is_outdated:
                result = context.nodes.call_one(NodeCalls.drbd_outdate, target, [disk])
                if result.error is not None:
                    context.warn(result.explain(f"mark {disk.iv_name} ({uuid}) as outdated"))
                    continue
            marked.append(uuid)
    return marked


def _is_left_behind(side: CopySide, writer: CopySide) -> bool:
    is_alone = writer.is_open and not writer.is_connected and not side.is_connected
    return is_alone and compare(side, writer) is Age.OLDER
