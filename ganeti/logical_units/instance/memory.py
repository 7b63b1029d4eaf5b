"""Is there enough memory on a node for an instance; and keep it for this job.

What a node reports as free does not know of the instances that other jobs are about to start
there, so the amount is also reserved with WConfD, which knows all reservations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units.node_calls import ask

if TYPE_CHECKING:
    from ganeti.logical_units.context import JobContext
    from ganeti.objects.node import Node


def free_memory_mib(
    context: JobContext, node: Node, hypervisor: str, hvparams: Mapping[str, object]
) -> int:
    """Ask a node for its free memory.

    Raises:
        OpPrereqError: it does not answer, or does not know.
    """
    answer = ask(
        context,
        node,
        "find the free memory",
        "node_info",
        [],
        [[hypervisor, dict(hvparams)]],
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
) -> None:
    """Refuse an instance that does not fit into a node's memory, and reserve it if it does.

    Args:
        what: what the memory is for, as it reads after "not enough memory on node x for".

    Raises:
        OpPrereqError: it does not fit (insufficient_resources).
    """
    free_mib = free_memory_mib(context, node, hypervisor, hvparams)
    if needed_mib > free_mib:
        raise OpPrereqError(
            f"not enough memory on node {node.name!r} for {what}: needed {needed_mib} MiB,"
            f" available {free_mib} MiB",
            ErrorCode.NORES,
        )
    context.config.reserve_node_resources(
        [(node.uuid, needed_mib, 0)], [(node.uuid, free_mib, None)]
    )
