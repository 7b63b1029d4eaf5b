"""Scripts of the operating system, run on the node of an instance: they may take hours.

A job that is canceled meanwhile does not wait for the script: it has the node end it first, so that
nothing works on the disks any more when what was begun is undone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti.base.errors import GenericError, JobCanceled
from ganeti.logical_units.node_calls import call_node, failure_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ganeti.clients.node_rpc import RpcResult
    from ganeti.logical_units.context import JobContext
    from ganeti.logical_units.instance.subject import Subject

INSTALL = "instance_os_add"
RENAME = "instance_run_rename"


def run_script(
    context: JobContext, subject: Subject, call: str, wire: Mapping[str, object], *args: object
) -> RpcResult:
    """Run a script by one of the two calls above, which must find the instance stopped.

    Raises:
        JobCanceled: canceled while it ran; it does not run any more.
    """
    try:
        with context.interruptible():
            result = call_node(context, subject.primary, call, wire, *args)
        if result.error is not None:
            context.check_canceled()  # the connection may be what the request broke
    except JobCanceled:
        _end(context, subject)
        raise
    return result


def _end(context: JobContext, subject: Subject) -> None:
    """Have the node end the script: to stop an instance ends what works on its disks."""
    name = subject.instance.name
    context.feedback(f"* canceled: ending the script of instance {name}")
    doing, call = f"end the script of instance {name!r}", "instance_shutdown"
    try:
        result = call_node(context, subject.primary, call, subject.wire(), 0, [])
    except GenericError as err:
        context.warn(f"cannot {doing}: {err}; ignoring")
        return
    if result.error is not None:
        context.warn(f"{failure_text(doing, subject.primary, call, result)}; ignoring")
