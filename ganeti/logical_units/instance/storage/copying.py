"""Copying a disk from one node to another (or to the same), with progress and a checksum.

Each side is a process on its node; this follows both until they have ended.  In any case both
are stopped and forgotten in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Concatenate, Final, ParamSpec, TypeVar

from ganeti.base.errors import OpExecError, OpPrereqError
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.model import Disk, Node
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import (
    DISK_COMPRESSIONS,
    STREAM_ENDED_EARLY,
    StreamForm,
    TransferOptions,
)

P = ParamSpec("P")
R = TypeVar("R")

POLL_S: Final = 0.1
PROGRESS_S: Final = 5.0  # between two messages
BOTH_ENDED_S: Final = 5.0  # both sides end within a moment of each other
NO_ANSWER_S_MAX: Final = 30.0  # a node daemon that is restarted is back by then


@dataclass(frozen=True, slots=True)
class Place:
    """One end of a copy: a node, and the disk or file there in the form that the node takes.

    Source: node_rpc.json, ED_IMPEXP_IO.
    """

    node: Node
    io: tuple[str, Sequence[object]]


def whole_disk(view: InstanceView, node: Node, disk: Disk) -> Place:
    """Return a disk as it is, byte for byte."""
    return Place(node, ("raw", [view.disk_wire(disk, node).to_wire()]))


def disk_by_script(view: InstanceView, index: int) -> Place:
    """Return a disk as the scripts of the instance's operating system read and write it."""
    wire = view.disk_wire(view.disks[index], view.primary).to_wire()
    return Place(view.primary, ("script", [wire, index]))


def disk_snapshot(view: InstanceView, disk: Disk) -> Place:
    """Return a disk of the running instance as it was when its snapshots were made."""
    return Place(view.primary, ("snapshot", [disk.uuid]))


def kept_disk(view: InstanceView, disk: Disk, snapshot: str) -> Place:
    """Return a disk as a snapshot keeps it, whether the instance runs or not."""
    return Place(view.primary, ("kept", [view.disk_wire(disk, view.primary).to_wire(), snapshot]))


def dump_file(node: Node, path: str, sha256: str = "") -> Place:
    """Return a file of an export."""
    return Place(node, ("file", [path, sha256] if sha256 else [path]))


def check_compression(name: str) -> None:
    """Refuse ways to compress that are not built.

    Raises:
        OpPrereqError: names the ways that are built.
    """
    if name not in DISK_COMPRESSIONS:
        raise OpPrereqError(
            f"compression {name!r} is not supported for copies of disks; use one of"
            f" {', '.join(DISK_COMPRESSIONS)}"
        )


def copy_disk(
    context: JobContext,
    view: InstanceView,
    index: int,
    *,
    source: Place,
    target: Place,
    compress: str = "none",
) -> None:
    """Copy the contents of a disk over another one, which must exist, or to or from a file.

    Raises:
        OpExecError: it was not copied completely; the message names the node and its error.
        JobCanceled: canceled on the way.
    """
    doing = f"copy disk {index} of instance {view.name!r}"
    options = TransferOptions(compress=compress, magic=context.new_uuid(), form=StreamForm.FRAMES)
    wire, component = view.wire, f"disk{index}"
    started: list[tuple[Node, str]] = []
    try:
        node = target.node
        answer = context.nodes.on(node, doing).import_start(
            options, wire(node), component, target.io
        )
        started.append((node, answer))
        port = transfer_states(context, doing, node, [answer])[0].get("listen_port")
        if not isinstance(port, int):
            raise OpExecError(f"cannot {doing}: node {node.name!r} does not tell the port")
        answer = context.nodes.on(source.node, doing).export_start(
            options, node.secondary_ip, port, wire(source.node), component, source.io
        )
        started.append((source.node, answer))
        context.feedback(
            f"* copying disk {index} ({view.disks[index].size} MiB) from {source.node.name}"
            f" to {target.node.name}"
        )
        received = _follow(context, doing, index, started).get("progress_mbytes")
        if target.io[0] == "increment" and isinstance(received, int | float):
            context.feedback(f"* disk {index}: {received:.1f} MiB are new")
    finally:
        for node, name in reversed(started):
            forget_transfers(context, doing, node, [name])


def _follow(
    context: JobContext, doing: str, index: int, started: list[tuple[Node, str]]
) -> Mapping[str, object]:
    """Wait until both sides have ended; ``started`` is the receiver, then the sender.

    Returns:
        The last state of the receiver.
    """
    patience_s = BOTH_ENDED_S
    for is_due in looks(context, POLL_S, PROGRESS_S):
        states = [
            (node, transfer_states(context, doing, node, [name])[0]) for node, name in started
        ]
        failed = why_failed(states, patient=patience_s > 0)
        if failed is not None:
            raise OpExecError(f"cannot {doing}: {failed}")
        sender = states[-1][1]
        if any(state.get("exit_status") is not None for _, state in states):
            patience_s -= POLL_S
        if all(state.get("exit_status") == 0 for _, state in states):
            break
        if is_due:
            context.feedback(progress_text(index, sender))
    context.feedback(f"* disk {index} copied: {transferred(sender)}")
    return states[0][1]


def looks(
    context: JobContext, poll_s: float, progress_s: float, *, can_stop: bool = True
) -> Iterator[bool]:
    """Yield again and again; tell each time whether a message on the progress is due.

    Args:
        can_stop: the job can be canceled between two looks.

    Raises:
        JobCanceled: canceled meanwhile.
    """
    next_message = context.monotonic() + progress_s
    while True:
        if can_stop:
            context.check_canceled()
        now = context.monotonic()
        is_due = now >= next_message
        if is_due:
            next_message = now + progress_s
        yield is_due
        context.wait(poll_s)


def ask_patiently(
    context: JobContext,
    doing: str,
    call: Callable[Concatenate[NodeCalls, P], R],
    node: Node,
    *args: P.args,
    **named: P.kwargs,
) -> R:
    """Ask a node; a node daemon that is being restarted gets some time.

    Raises:
        OpExecError: the node does not answer.
    """
    deadline = context.monotonic() + NO_ANSWER_S_MAX
    while True:
        result = context.nodes.call_one(call, node, *args, **named)
        if result.error is None:
            return result.payload
        if context.monotonic() >= deadline:
            raise OpExecError(result.explain(doing))
        context.wait(1.0)


def why_failed(states: Sequence[tuple[Node, Mapping[str, object]]], *, patient: bool) -> str | None:
    """Say why a copy failed; None if it did not, or not yet.

    Of two sides that failed one only saw that the other was gone: the receiver counts, unless all
    it saw is that nothing more came.  While one side still runs, the failure of the other may wait.

    Args:
        states: of the receiver, then of the sender.
        patient: wait for the other side.
    """
    failed = [
        (node, state.get("error_message"))
        for node, state in states
        if state.get("exit_status") not in (None, 0)
    ]
    if not failed:
        return None
    knows_why = [
        (node, text) for node, text in failed if node is states[0][0] and text != STREAM_ENDED_EARLY
    ]
    if not knows_why and patient and any(state.get("exit_status") is None for _, state in states):
        return None
    node, text = (knows_why or failed[::-1])[0]
    return f"node {node.name!r}: {text}"


def transfer_states(
    context: JobContext, doing: str, node: Node, names: Sequence[str]
) -> list[Mapping[str, object]]:
    """Ask a node how far its transfers are; as `ask_patiently`.

    Raises:
        OpExecError: the node does not answer, or does not know one of them any more.
    """
    answer = ask_patiently(context, doing, NodeCalls.impexp_status, node, list(names))
    states = answer if isinstance(answer, list) else []
    found: list[Mapping[str, object]] = [state for state in states if isinstance(state, dict)]
    if len(found) != len(names):
        raise OpExecError(
            f"cannot {doing}: node {node.name!r} does not know transfer {', '.join(names)} any more"
        )
    return found


def forget_transfers(context: JobContext, doing: str, node: Node, names: Iterable[str]) -> None:
    """Stop one side of transfers, if it still runs; failures are told."""
    for name in names:
        context.attempt(f"end the attempt to {doing}", NodeCalls.impexp_cleanup, node, name)


def progress_text(index: int, state: Mapping[str, object]) -> str:
    """Say how much of a disk has been copied, how fast, and how long the rest will take."""
    percent, eta = state.get("progress_percent"), state.get("progress_eta")
    if not isinstance(percent, int | float):  # a script does not know how much is to come
        return f"* disk {index}: {transferred(state)}"
    rest = f", {eta:.0f} s left" if isinstance(eta, int | float) else ""
    return f"* disk {index}: {percent:.1f} % ({transferred(state)}{rest})"


def transferred(state: Mapping[str, object]) -> str:
    """Say how much has moved, and how fast."""
    moved, speed = state.get("progress_mbytes"), state.get("progress_throughput")
    parts = []
    if isinstance(moved, int | float):
        parts.append(f"{moved:.1f} MiB of data")
    if isinstance(speed, int | float):
        parts.append(f"{speed:.1f} MiB/s")
    return ", ".join(parts) or "no data yet"
