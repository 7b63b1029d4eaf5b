"""Copying a disk from one node to another (or to the same), with progress and a checksum.

Each side is a process on its node; this follows both until they have ended.  Whatever happens, both
are stopped and forgotten in the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError
from ganeti.logical_units.node_calls import call_node, failure_text, order
from ganeti.protocol.node_rpc_values import DISK_COMPRESSIONS

if TYPE_CHECKING:
    from ganeti.logical_units.context import JobContext
    from ganeti.logical_units.instance.subject import Subject
    from ganeti.objects.disk import Disk
    from ganeti.objects.node import Node

POLL_S: Final = 0.1
PROGRESS_S: Final = 5.0  # between two messages
NO_ANSWER_S_MAX: Final = 30.0  # a node daemon that is restarted is back by then
_STATUS: Final = "impexp_status"


@dataclass(frozen=True, slots=True)
class Place:
    """A disk on a node."""

    node: Node
    disk: Disk


def check_compression(name: str) -> None:
    """Refuse ways to compress that are not built.

    Raises:
        OpPrereqError: names those that are.
    """
    if name not in DISK_COMPRESSIONS:
        raise OpPrereqError(
            f"compression {name!r} is not supported for copies of disks; use one of"
            f" {', '.join(DISK_COMPRESSIONS)}"
        )


def copy_disk(
    context: JobContext,
    subject: Subject,
    index: int,
    *,
    source: Place,
    target: Place,
    compress: str = "none",
) -> None:
    """Copy the contents of a disk over another one, which must exist.

    Raises:
        OpExecError: it was not copied completely; names the node and what went wrong there.
        JobCanceled: canceled on the way.
    """
    doing = f"copy disk {index} of instance {subject.instance.name!r}"
    options = {
        "key_name": None,
        "ca_pem": None,
        "compress": compress,
        "magic": context.new_uuid(),
        "ipv6": False,
        "connect_timeout": None,
    }
    wire, component = subject.wire(), f"disk{index}"
    started: list[tuple[Node, str]] = []
    try:
        into = ["raw", [subject.disk_wire(target.disk)]]
        answer = order(context, target.node, doing, "import_start", options, wire, component, into)
        started.append((target.node, str(answer)))
        status = _status(context, doing, *started[0])
        host, port = target.node.secondary_ip, status.get("listen_port")
        out_of = ["raw", [subject.disk_wire(source.disk)]]
        answer = order(
            context,
            source.node,
            doing,
            "export_start",
            options,
            host,
            port,
            wire,
            component,
            out_of,
        )
        started.append((source.node, str(answer)))
        context.feedback(
            f"* copying disk {index} ({source.disk.size} MiB) from {source.node.name}"
            f" to {target.node.name}"
        )
        _follow(context, doing, index, started)
    finally:
        for node, name in reversed(started):
            _forget(context, doing, node, name)


def _follow(context: JobContext, doing: str, index: int, started: list[tuple[Node, str]]) -> None:
    """Wait until both sides have ended."""
    next_message = context.monotonic() + PROGRESS_S
    while True:
        context.check_canceled()
        states = [(node, _status(context, doing, node, name)) for node, name in started]
        # What the receiver says comes first: the sender only sees that it is gone.
        for node, state in states:
            if state.get("exit_status") not in (None, 0):
                raise OpExecError(
                    f"cannot {doing}: node {node.name!r}: {state.get('error_message')}"
                )
        sender = states[-1][1]
        if all(state.get("exit_status") == 0 for _, state in states):
            context.feedback(f"* disk {index} copied: {_amount(sender)}")
            return
        if context.monotonic() >= next_message:
            next_message = context.monotonic() + PROGRESS_S
            context.feedback(progress_text(index, sender))
        context.wait(POLL_S)


def _status(context: JobContext, doing: str, node: Node, name: str) -> Mapping[str, object]:
    """Ask a node how far it is; patient with a node daemon that is being restarted."""
    deadline = context.monotonic() + NO_ANSWER_S_MAX
    while True:
        result = call_node(context, node, _STATUS, [name])
        if result.error is None:
            match result.payload:
                case [dict(state)]:
                    return state
                case _:
                    raise OpExecError(
                        f"cannot {doing}: node {node.name!r} does not know transfer {name} any more"
                    )
        if context.monotonic() >= deadline:
            raise OpExecError(failure_text(doing, node, _STATUS, result))
        context.wait(1.0)


def _forget(context: JobContext, doing: str, node: Node, name: str) -> None:
    """Stop one side, if it still runs; a failure is told."""
    try:
        result = call_node(context, node, "impexp_cleanup", name)
    except GenericError as err:
        context.warn(f"transfer {name} on node {node.name} was not cleaned up: {err}")
        return
    if result.error is not None:
        context.warn(failure_text(f"end the attempt to {doing}", node, "impexp_cleanup", result))


def progress_text(index: int, state: Mapping[str, object]) -> str:
    """Say how much of a disk has been copied, how fast, and how long the rest will take."""
    percent, eta = state.get("progress_percent"), state.get("progress_eta")
    shown = f"{percent:.1f} %" if isinstance(percent, int | float) else "nothing yet"
    rest = f", {eta:.0f} s left" if isinstance(eta, int | float) else ""
    return f"* disk {index}: {shown} ({_amount(state)}{rest})"


def _amount(state: Mapping[str, object]) -> str:
    moved, speed = state.get("progress_mbytes"), state.get("progress_throughput")
    parts = []
    if isinstance(moved, int | float):
        parts.append(f"{moved:.1f} MiB of data")
    if isinstance(speed, int | float):
        parts.append(f"{speed:.1f} MiB/s")
    return ", ".join(parts) or "no data"
