"""Which nodes can be switched off while the others have room, or must be switched on for it.

A node may leave if it is online, not the master, and all its instances have their disks where any
node reaches them.  Those with the fewest instances are tried first; each leaves if after balancing
no instance is left on a node that has gone, and every other node has the room wanted.  If nodes
lack room as they are, those on standby come back, one after the other, until balancing gives it.

Source: manual page hsqueeze(1), "Algorithm".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ganeti.allocation.balancing.search import Ends, Search
from ganeti.allocation.balancing.steps import Limits, Step
from ganeti.allocation.capacity.tiers import Size, size_of
from ganeti.allocation.limits import Obstacle, obstacle
from ganeti.allocation.model import Instance, Rules
from ganeti.allocation.snapshot import Snapshot
from ganeti.allocation.state import ClusterState, make_state
from ganeti.objects.disk_templates import DiskTemplate, Mirroring

STANDBY: Final = "htools:standby:"
"""Beginning of the tags of nodes that may be switched on."""
_RULES: Final = Rules(checks_capacity=False)
_PASSED_OVER: Final = (None, Obstacle.REDUNDANCY)  # as with 3.0 room is what is free
_LIMITS: Final = Limits(_RULES)
_ENDS: Final = Ends(score_min=1e-9, gain_min=0.01, gain_limit=0.1)  # those of hbal


class Room(Struct, frozen=True):
    """The room that nodes must have, in standard instances: now, and after others have left."""

    least: float
    target: float


class Squeezed(Struct, frozen=True):
    """The nodes that may leave or come, and those that should, with the moves for it.

    Attributes:
        snapshot: the cluster with these nodes offline or online, before any move.
        after: after the moves.
        lacks_room: nodes had too little room to begin with.
        is_short: they have even if all nodes come.
    """

    may_leave: Sequence[str]
    may_come: Sequence[str]
    leave: Sequence[str]
    come: Sequence[str]
    steps: Sequence[Step]
    snapshot: Snapshot
    after: ClusterState
    lacks_room: bool = False
    is_short: bool = False


def squeeze(snapshot: Snapshot, room: Room) -> Squeezed:
    """Return the nodes to be switched off or on."""
    state = make_state(snapshot)
    leaving, coming = _may_leave(snapshot), _may_come(snapshot)
    if _has_room(snapshot, state, room.least):
        return _with_fewer(snapshot, state, leaving, coming, room.target)
    return _with_more(snapshot, state, leaving, coming, room.least)


def _with_fewer(
    snapshot: Snapshot,
    state: ClusterState,
    leaving: Sequence[str],
    coming: Sequence[str],
    target: float,
) -> Squeezed:
    best = Squeezed(leaving, coming, (), (), (), snapshot, state)
    for name in reversed(leaving):
        names = [each for each in leaving if each in (*best.leave, name)]
        without = _switched(snapshot, names, is_offline=True)
        steps, after = _balanced(without)
        left = {node for each in after.instances.values() for node in each.nodes}
        if left.isdisjoint(names) and _has_room(without, after, target):
            best = replace(best, leave=names, steps=steps, snapshot=without, after=after)
    return best


def _with_more(
    snapshot: Snapshot,
    state: ClusterState,
    leaving: Sequence[str],
    coming: Sequence[str],
    least: float,
) -> Squeezed:
    found = Squeezed(leaving, coming, (), (), (), snapshot, state, lacks_room=True, is_short=True)
    for count in range(len(coming) + 1):
        names = coming[:count]
        more = _switched(snapshot, names, is_offline=False)
        steps, after = _balanced(more)
        found = replace(found, come=names, steps=steps, snapshot=more, after=after)
        if _has_room(more, after, least):
            return replace(found, is_short=False)
    return found


def _may_leave(snapshot: Snapshot) -> list[str]:
    """Return the nodes that may leave, those with most instances first."""
    here: dict[str, list[Instance]] = {name: [] for name in snapshot.nodes}
    for each in snapshot.instances.values():
        for name in each.nodes:
            here[name].append(each)
    names = [
        name
        for name, node in snapshot.nodes.items()
        if node.is_usable
        and not node.is_master
        and all(each.mirroring is Mirroring.EXTERNAL for each in here[name])
    ]
    return sorted(names, key=lambda name: -len(here[name]))


def _may_come(snapshot: Snapshot) -> list[str]:
    return [
        name
        for name, node in snapshot.nodes.items()
        if node.is_offline and any(tag.startswith(STANDBY) for tag in node.tags)
    ]


def _switched(snapshot: Snapshot, names: Collection[str], *, is_offline: bool) -> Snapshot:
    nodes = {
        name: replace(node, is_offline=is_offline, is_usable=not is_offline)
        if name in names
        else node
        for name, node in snapshot.nodes.items()
    }
    return replace(snapshot, nodes=nodes)


def _balanced(snapshot: Snapshot) -> tuple[list[Step], ClusterState]:
    state = make_state(snapshot)
    steps: list[Step] = []
    for uuid in snapshot.groups:
        search = Search(state, uuid, _LIMITS, _ENDS)
        steps += [done.step for done in search.steps()]
        state = search.cluster()
    return steps, state


def _has_room(snapshot: Snapshot, state: ClusterState, factor: float) -> bool:
    """Tell whether there are nodes, and each could take an instance of so many times the usual."""
    usable = [load for load in state.loads if load.node.is_usable]
    wanted = _scaled(snapshot.ipolicy, factor)
    return bool(usable) and all(
        obstacle(load, load.with_primary(wanted, None), _RULES) in _PASSED_OVER for load in usable
    )


def _scaled(policy: Mapping[str, Any], factor: float) -> Instance:
    usual = size_of(policy["std"])
    memory, disk, vcpus = (int(each * factor) for each in (usual.memory, usual.disk, usual.vcpus))
    template = next(iter(policy["disk-templates"]), DiskTemplate.DISKLESS)
    return Size(memory, disk, vcpus, spindles=0, spindle_use=0).instance(template)
