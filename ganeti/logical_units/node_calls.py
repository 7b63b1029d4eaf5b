"""Calls to nodes, with errors that name node, call and what the node said.

`order` is for work that has begun (it raises OpExecError), `ask` for checks before it (it raises
OpPrereqError), `call_nodes` for asking many nodes at once where each may fail by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ganeti.base.errors import ErrorCode, OpExecError, OpPrereqError

if TYPE_CHECKING:
    from ganeti.clients.node_rpc import RpcResult, Target
    from ganeti.logical_units.context import JobContext
    from ganeti.objects.node import Node


def target_of(node: Node) -> Target:
    """Return where a node's daemon is reached."""
    from ganeti.clients.node_rpc import Target

    return Target(node.name, node.primary_ip, offline=node.offline)


def call_nodes(
    context: JobContext, nodes: Iterable[Node], call: str, *args: object
) -> dict[str, RpcResult]:
    """Make one call on many nodes at once; returns {node name: result}."""
    targets = {target_of(node): list(args) for node in nodes}
    return context.rpc.call(call, targets) if targets else {}


def call_node(context: JobContext, node: Node, call: str, *args: object) -> RpcResult:
    """Make one call on one node; the caller looks at the result."""
    return context.rpc.single(call, target_of(node), *args)


def failure_text(doing: str, node: Node, call: str, result: RpcResult) -> str:
    """Say which step failed, where, and what the node said."""
    if result.offline:
        return f"cannot {doing}: node {node.name!r} is offline"
    return f"cannot {doing}: node {node.name!r}, call {call}: {result.error}"


def order(context: JobContext, node: Node, doing: str, call: str, *args: object) -> object:
    """Make a call that is part of the work, and return what the node answered.

    Args:
        doing: what this step is for, as it reads after "cannot".

    Raises:
        OpExecError: the node is offline, was not reached, or failed.
    """
    result = call_node(context, node, call, *args)
    if result.error is not None:
        raise OpExecError(failure_text(doing, node, call, result))
    return result.payload


def ask(
    context: JobContext,
    node: Node,
    doing: str,
    call: str,
    *args: object,
    ecode: ErrorCode = ErrorCode.ENVIRON,
) -> object:
    """Make a call that is part of a check, and return what the node answered.

    Raises:
        OpPrereqError: the node is offline, was not reached, or says no.
    """
    result = call_node(context, node, call, *args)
    if result.error is not None:
        raise OpPrereqError(failure_text(doing, node, call, result), ecode)
    return result.payload
