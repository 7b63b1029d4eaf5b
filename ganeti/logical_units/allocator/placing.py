"""Finds nodes by an allocator, and room on them that no other job can take.

Nothing is locked while the allocator thinks, so any number of jobs can ask at once and may be told
the same nodes.  Room on them is reserved, first come, first served; a late job asks again, and
the allocator then sees the reservations.  The caller takes the locks of its own objects only and
looks once more whether the nodes will still do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

from msgspec import UNSET, UnsetType

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.asking import Allocator, ask_allocator, read_snapshot
from ganeti.logical_units.allocator.question import Snapshot
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.locks import LockLevel, lock_name, shared, to_request
from ganeti.objects.model import Node
from ganeti.protocol.iallocator import Relocate, Wanted
from ganeti.protocol.wconfd import LockMode, WConfCalls

TRIES_MAX: Final = 10  # each but the first means that somebody else was quicker
_FULL: Final = frozenset({ErrorCode.NORES, ErrorCode.TEMP_NORES})

MakeRequest: TypeAlias = "Callable[[Snapshot], Wanted]"
TakeRoom: TypeAlias = "Callable[[list[Node]], None]"


def place(
    context: JobContext,
    allocator: Allocator,
    request: MakeRequest,
    take_room: TakeRoom,
    *,
    hypervisor: str,
) -> list[Node]:
    """Return the nodes that an allocator names, with the room on them taken.

    Args:
        request: the arguments of the question, of a mode that is answered with a list of nodes.
        take_room: reserves the room needed on the nodes; raises OpPrereqError when it is not there.

    Raises:
        OpPrereqError: the allocator finds no place, or none that is still there when it is taken.
    """
    for left in reversed(range(TRIES_MAX)):
        snapshot = read_snapshot(context.config)
        names = ask_allocator(
            context, allocator, request(snapshot), snapshot, hypervisor=hypervisor
        )
        context.info(f"allocator {allocator.name} chose {', '.join(names)}")
        nodes = [lookup.require_node(context.config, name) for name in names]
        try:
            take_room(nodes)
        except OpPrereqError as err:
            context.config.release_node_resources()
            if err.ecode not in _FULL or not left:
                raise
            context.info(f"{err.message}; asking the allocator again")
            continue
        return nodes
    raise AssertionError("the last try returns or raises")


def relocation(name: str) -> MakeRequest:
    """Return the request for another node for an instance, in the group that it is in."""

    def request(snapshot: Snapshot) -> Wanted:
        instance = snapshot.instance(name)
        return Relocate(
            name=name,
            disk_space_total=snapshot.disk_space_of(instance),
            relocate_from=[snapshot.nodes_of(instance)[-1].name],
        )

    return request


def is_usable(node: Node | None) -> bool:
    """Tell whether a node can take instances."""
    return node is not None and not (node.offline or node.drained) and node.vm_capable


def still_usable(config: WConfCalls, chosen: Sequence[Node]) -> list[Node]:
    """Return the nodes chosen before, as they are now; none if one of them will not do any more."""
    if not chosen:
        return []
    now = config.get_nodes([node.uuid for node in chosen])
    return [node for node in now if node] if all(map(is_usable, now)) else []


@contextmanager
def nodes_to_choose_from(
    context: JobContext, what: str, *, only_free: bool
) -> Iterator[list[str] | UnsetType]:
    """Give the names of the nodes that an allocator may choose; UNSET for all.

    Args:
        only_free: those whose locks can be had at once, also those of their resources: where disks
            are being made, no more are put.  The locks are held, shared, until the end.

    Raises:
        OpPrereqError: no lock can be had just now (temp_insufficient_resources).
    """
    if not only_free:
        yield UNSET
        return
    nodes = [node for node in lookup.all_nodes(context.config) if is_usable(node)]
    uuids = [node.uuid for node in nodes]
    wanted = shared(LockLevel.NODE, uuids) | shared(LockLevel.NODE_RES, uuids)
    held = set(context.config.opportunistic_lock_union(to_request(wanted)))
    free = [node.name for node in nodes if held.issuperset(_locks_of(node))]
    if not free:
        _let_go(context, held)
        raise OpPrereqError(
            f"{what}: every node is locked by other jobs just now; try again, or without"
            " --opportunistic-locking",
            ErrorCode.TEMP_NORES,
        )
    try:
        yield free
    finally:
        _let_go(context, held)


def _locks_of(node: Node) -> list[str]:
    return [lock_name(level, node.uuid) for level in (LockLevel.NODE, LockLevel.NODE_RES)]


def _let_go(context: JobContext, held: Iterable[str]) -> None:
    context.config.try_update_locks([(lock, LockMode.RELEASE.value) for lock in sorted(held)])
