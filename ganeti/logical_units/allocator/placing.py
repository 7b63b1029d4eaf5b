"""Finds nodes by an allocator, and room on them that no other job can take.

Nothing is locked while the allocator thinks, so any number of jobs can ask at once and may be told
the same nodes.  Room on them is reserved, first come, first served; a late job asks again, and
the allocator then sees the reservations.  The caller takes the locks of its own objects only and
looks once more whether the nodes will still do.

With opportunistic locking it is the other way round (`lock_free_nodes`): the nodes whose locks are
free are locked first, the allocator sees no others, and the locks of the chosen ones are kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec import UNSET, UnsetType

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.asking import Allocator, ask_allocator, read_snapshot
from ganeti.logical_units.allocator.question import Snapshot
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.locks import (
    LockLevel,
    PriorityChangedError,
    lock_name,
    shared,
    to_request,
)
from ganeti.objects.model import Node
from ganeti.protocol.iallocator import Relocate, Wanted
from ganeti.protocol.wconfd import LockMode, WConfCalls

TRIES_MAX: Final = 10  # each but the first means that somebody else was quicker
# How long another creation that has all free nodes may choose: allocators answer within a second.
CHOOSING_S_MAX: Final = 10.0
_TRY_AGAIN: Final = "try again, or without --opportunistic-locking"
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
        name, names = ask_allocator(
            context, allocator, request(snapshot), snapshot, hypervisor=hypervisor
        )
        context.info(f"allocator {name} chose {', '.join(names)}")
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


@dataclass(frozen=True, slots=True)
class FreeNodes:
    """The nodes whose locks could be had at once; the job holds these until it gives them back.

    Attributes:
        names: the nodes.
        usable: how many nodes would have done, had all been free.
        locks: the locks that it has got for them, by node.
    """

    context: JobContext
    names: list[str]
    usable: int
    locks: Mapping[str, Sequence[str]]

    def keep(self, nodes: Iterable[Node]) -> None:
        """Give back all locks but those of the nodes that were chosen."""
        chosen = {node.name for node in nodes}
        _let_go(
            self.context, [each for name in set(self.locks) - chosen for each in self.locks[name]]
        )

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Tell in the errors in here that it is for now only that there is no place."""
        try:
            yield
        except OpPrereqError as err:
            if err.ecode != ErrorCode.NORES or len(self.names) == self.usable:
                raise
            raise OpPrereqError(
                f"{err.message} (with {len(self.names)} of {self.usable} nodes to choose from, as"
                f" other jobs have locked the rest); {_TRY_AGAIN}",
                ErrorCode.TEMP_NORES,
            ) from err


def lock_free_nodes(
    context: JobContext,
    what: str,
    *,
    resources: LockMode | None,
    count: int = 1,
    group: str | None = None,
    besides: Sequence[Node] = (),
) -> FreeNodes:
    """Lock the nodes that are free, for an allocator to choose among.

    They are locked shared.  A creation that is just choosing has all that were free: it gives most
    of them back as soon as its allocator has answered, which is waited for.

    Args:
        resources: how their resources are locked; None if they need not be.
        count: how many nodes are needed.
        group: the only node group that they may be in.
        besides: nodes that the work needs whichever are chosen.

    Raises:
        OpPrereqError: too few are free just now (temp_insufficient_resources).
    """
    config = context.config
    wanted = [node.uuid for node in (*_choosable(config, group), *besides)]
    held = set(config.opportunistic_lock_union(to_request(shared(LockLevel.NODE, wanted))))
    if resources is not None:
        free = [
            node.uuid
            for node in _choosable(config, group)
            if lock_name(LockLevel.NODE, node.uuid) in held
        ]
        held.update(_take_resources(context, free, resources, count))
    # Read again: a node that was changed before it was locked is seen as it is now.
    usable, levels = _choosable(config, group), [LockLevel.NODE, LockLevel.NODE_RES]
    locks = {
        node.name: [name for level in levels if (name := lock_name(level, node.uuid)) in held]
        for node in (*usable, *besides)
    }
    enough = 1 if resources is None else 2
    names = [node.name for node in usable if len(locks[node.name]) == enough]
    missing = [node.name for node in besides if not locks[node.name]]
    if missing or len(names) < count:
        _let_go(context, held)
        why = (
            f"node {missing[0]} is locked by another job"
            if missing
            else f"{len(names)} of {len(usable)} nodes are free, and it needs {count}"
            if names
            else "every node is locked by other jobs"
        )
        raise OpPrereqError(f"{what}: {why} just now; {_TRY_AGAIN}", ErrorCode.TEMP_NORES)
    for node in besides:  # these stay locked in any case
        locks[node.name].remove(lock_name(LockLevel.NODE, node.uuid))
    return FreeNodes(context, names, len(usable), locks)


def _choosable(config: WConfCalls, group: str | None) -> list[Node]:
    return [
        node for node in lookup.all_nodes(config) if is_usable(node) and group in (None, node.group)
    ]


def _take_resources(
    context: JobContext, uuids: Sequence[str], mode: LockMode, count: int
) -> list[str]:
    """Lock the resources of nodes where that is possible; waits a while for enough of them."""
    if len(uuids) < count:
        return []
    request = to_request({lock_name(LockLevel.NODE_RES, uuid): mode for uuid in uuids})
    ends_s = context.monotonic() + CHOOSING_S_MAX
    while True:
        with contextlib.suppress(PriorityChangedError), context.interruptible():
            left_s = max(0.0, ends_s - context.monotonic())
            priority = context.priority()
            return context.config.wait_opportunistic_union(priority, count, request, left_s)


@contextmanager
def nodes_to_choose_from(
    context: JobContext, what: str, *, only_free: bool
) -> Iterator[list[str] | UnsetType]:
    """Give the names of the nodes that an allocator may choose; UNSET for all.

    Args:
        only_free: those whose locks can be had, also those of their resources: where disks are
            being made, no more are put.  The locks are held, shared, until the end.

    Raises:
        OpPrereqError: no lock can be had just now (temp_insufficient_resources).
    """
    if not only_free:
        yield UNSET
        return
    free = lock_free_nodes(context, what, resources=LockMode.SHARED)
    try:
        with free.explained():
            yield free.names
    finally:
        free.keep(())


def _let_go(context: JobContext, held: Iterable[str]) -> None:
    context.config.try_update_locks([(lock, LockMode.RELEASE.value) for lock in sorted(held)])
