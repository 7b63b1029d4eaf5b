"""Scripts of the operating system, run on the node of an instance: they may take hours.

A job that is canceled meanwhile does not wait for the script: it has the node end it first, so that
nothing works on the disks any more when what was begun is undone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec

from ganeti.base.errors import GenericError, JobCanceled
from ganeti.clients.node_rpc import RpcResult
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.view import InstanceView
from ganeti.protocol.node_calls import NodeCalls

P = ParamSpec("P")


def run_script(
    context: JobContext,
    view: InstanceView,
    script: Callable[Concatenate[NodeCalls, P], None],
    *args: P.args,
    **named: P.kwargs,
) -> RpcResult[None]:
    """Run a script by ``instance_os_add`` or ``instance_run_rename``; the instance is stopped.

    Raises:
        JobCanceled: canceled while it ran; it does not run any more.
    """
    try:
        with context.interruptible():
            result = context.nodes.call_one(script, view.primary, *args, **named)
        if result.error is not None:
            context.check_canceled()  # the connection may be what the request broke
    except JobCanceled:
        _end(context, view)
        raise
    return result


def _end(context: JobContext, view: InstanceView) -> None:
    """Have the node end the script: stopping an instance ends all work on its disks."""
    name = view.instance.name
    context.feedback(f"* canceled: ending the script of instance {name}")
    doing = f"end the script of instance {name!r}"
    try:
        result = context.nodes.call_one(
            NodeCalls.instance_shutdown, view.primary, view.wire(), 0, []
        )
    except GenericError as err:
        context.warn(f"cannot {doing}: {err}; ignoring")
        return
    if result.error is not None:
        context.warn(f"{result.explain(doing)}; ignoring")
