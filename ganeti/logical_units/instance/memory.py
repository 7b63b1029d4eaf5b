"""Is there enough memory on a node for an instance; and keep it for this job.

What a node reports as free does not know of the instances that other jobs are about to start
there, so the amount is also reserved with WConfD, which knows all reservations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError, ReservationError
from ganeti.logical_units.context import JobContext
from ganeti.objects.disk_templates import disk_space_mib, traits_of
from ganeti.objects.model import Node
from ganeti.protocol.wconfd import ClientId

ASKED_MAX: Final = 20  # each time again means that another job ended in between


def space_on_node_mib(template: str, sizes_mib: Iterable[int]) -> int:
    """Return how much of a node's own disk space the disks of an instance take."""
    return 0 if traits_of(template).shared else disk_space_mib(template, sizes_mib)


def free_memory_mib(
    context: JobContext, node: Node, hypervisor: str, hvparams: Mapping[str, object]
) -> int:
    """Ask a node for its free memory.

    Raises:
        OpPrereqError: it does not answer, or does not know.
    """
    answer = context.nodes.check(node, "find the free memory").node_info(
        [], [(hypervisor, hvparams)]
    )
    match answer:
        case [_, _, [{"memory_free": int(free_mib)}, *_]]:
            return free_mib
    raise OpPrereqError(
        f"cannot find the free memory: node {node.name!r}, call node_info: the answer has no"
        f" 'memory_free' for hypervisor {hypervisor}",
        ErrorCode.ENVIRON,
    )


def reserve_memory(
    context: JobContext,
    node: Node,
    what: str,
    needed_mib: int,
    hypervisor: str,
    hvparams: Mapping[str, object],
    *,
    disk_mib: int = 0,
) -> None:
    """Refuse an instance that does not fit into a node's memory, and reserve it if it does.

    The amount is reserved before the node is asked, so that of two jobs the later one always knows
    of the earlier: by its reservation, or, when that was given back meanwhile, by asking again.

    Args:
        what: what the memory is for, as it reads after "not enough memory on node x for".
        disk_mib: reserved as well, for allocators to see; it is not compared with anything.

    Raises:
        OpPrereqError: it does not fit (insufficient_resources), or only if other jobs did not need
            the rest (temp_insufficient_resources).
    """
    amounts = [(node.uuid, needed_mib, disk_mib)]
    context.config.reserve_node_resources(amounts, [])
    for _ in range(ASKED_MAX):
        others = _others_before(context, node)
        free_mib = free_memory_mib(context, node, hypervisor, hvparams)
        try:
            context.config.reserve_node_resources(amounts, [(node.uuid, free_mib, None)])
        except ReservationError as err:
            raise _not_enough(node, what, needed_mib, free_mib, sum(others.values())) from err
        if set(others) <= set(_others_before(context, node)):
            return
    raise OpPrereqError(
        f"cannot find the free memory of node {node.name!r} for {what}: too many other jobs change"
        " it; try again",
        ErrorCode.TEMP_NORES,
    )


def _others_before(context: JobContext, node: Node) -> dict[str, int]:
    """Return the memory (MiB) that others have reserved on a node before this job, by owner."""
    found: dict[str, int] = {}
    for client, uuid, memory_mib, _disk_mib in context.config.list_node_reservations():
        owner = ClientId.from_wire(client)
        if owner == context.config.owner:
            break
        if uuid == node.uuid:
            found[f"{owner.identifier} {owner.livelock}"] = memory_mib
    return found


def _not_enough(
    node: Node, what: str, needed_mib: int, free_mib: int, others_mib: int
) -> OpPrereqError:
    text = (
        f"not enough memory on node {node.name!r} for {what}: needed {needed_mib} MiB, available"
        f" {free_mib} MiB"
    )
    if needed_mib > free_mib:
        return OpPrereqError(text, ErrorCode.NORES)
    return OpPrereqError(
        f"{text}, of which other jobs have reserved {others_mib} MiB; try again when they have"
        " ended",
        ErrorCode.TEMP_NORES,
    )
