"""Disks with copies while their instance moves between its two nodes: who may write, and when both.

A migration needs both nodes to write for a while.  The steps, each on both nodes at once:

    disconnect     the guest goes on alone
    connect        both may write; what was written meanwhile is copied
    wait           until both sides have the same data
    ...            the guest moves
    disconnect, connect, wait    and only the node of the guest may write again

A failure on the way leads back to the last three; `clean_up` does them again at any time.

A node that has lost its own half of a disk reads and writes the data of the other node.  The
connection of such a disk is not given up for a moment, since the guest would get errors: who may
write is changed on the connection as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from ganeti.base.errors import GenericError, OpExecError
from ganeti.clients.node_rpc import RpcResult, Target, target_of
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.copying import looks
from ganeti.logical_units.instance.storage.disks import assemble_copies, deactivate, mirrored
from ganeti.logical_units.instance.storage.generations import (
    doubt,
    sides_of_keeper,
    sides_on,
    sides_or_none,
    tell_risk,
)
from ganeti.logical_units.instance.storage.syncing import SyncState, sync_states
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.model import Disk, Node
from ganeti.objects.rpc_instance import RpcDisk
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import CopySide

POLL_S: Final = 0.5
PROGRESS_S: Final = 5.0


def check_copies(
    context: JobContext, view: InstanceView, target: Node, *, ignore_consistency: bool
) -> None:
    """Refuse a failover to a node whose copies of the disks are not complete, or may not be.

    Disks that are closed are made ready as secondary for that.

    Raises:
        OpExecError: a copy is in doubt, or cannot be looked at; nothing was changed.
    """
    copies = mirrored(view)
    if not copies:
        return
    with only_looking(context, view, target):
        for disk, problem in zip(copies, _doubts(context, view, target, copies), strict=True):
            if problem is not None:
                _refuse(context, view, target, disk, problem, ignore=ignore_consistency)


@contextmanager
def only_looking(context: JobContext, view: InstanceView, node: Node) -> Iterator[None]:
    """Make copies ready as secondary where they are closed; a failure closes them again.

    Args:
        node: the one that must succeed.
    """
    if view.instance.disks_active:
        yield
        return
    try:
        assemble_copies(context, view, node, ignore_secondaries=True)
        yield
    except GenericError:
        deactivate(context, view, node)
        raise


def _refuse(
    context: JobContext, view: InstanceView, target: Node, disk: Disk, problem: str, *, ignore: bool
) -> None:
    name = view.name
    text = f"disk {view.disks.index(disk)} of instance {name!r} on node {target.name!r}: {problem}"
    if ignore:
        context.warn(f"{text}; ignoring")
        return
    raise OpExecError(
        f"cannot fail over: {text}; nothing was changed: connect the disks and wait with"
        f" 'gnt-instance activate-disks --wait-for-sync {name}', or use --ignore-consistency if the"
        " data that the copy lacks may be lost"
    )


def _doubts(
    context: JobContext, view: InstanceView, target: Node, copies: Sequence[Disk]
) -> list[str | None]:
    """Return the reason to doubt each copy, None for one that has all data as far as is known.

    Raises:
        OpExecError: the primary node is marked offline, but uses the disks.
    """
    writer, sides = view.primary, sides_of_keeper(context, view, target, copies)
    states = _states(context, view, target, copies)
    others = sides_or_none(context, view, writer, copies)
    tell_risk(context, target, writer, sides)
    return [
        doubt(target, side, writer, other) if state.is_whole else _why_not_whole(state, side)
        for state, side, other in zip(states, sides, others, strict=True)
    ]


def _why_not_whole(state: SyncState, side: CopySide | None) -> str:
    if side is not None and side.is_outdated:
        return "its data is outdated: the other node was written without it"
    return state.words()


def accept_outdated(context: JobContext, view: InstanceView, target: Node) -> None:
    """Let the copies of a node count although they are known to lack writes.

    Raises:
        OpExecError: the node does not answer, or refuses.
    """
    copies = mirrored(view)
    sides = sides_on(context, view, target, copies)
    outdated = [
        view.disk_wire(disk, target)
        for disk, side in zip(copies, sides, strict=True)
        if side is not None and side.is_outdated
    ]
    if outdated:
        doing = f"take the outdated copies of instance {view.name!r}"
        context.nodes.on(target, doing).drbd_accept(outdated)


def _states(
    context: JobContext, view: InstanceView, node: Node, disks: Sequence[Disk]
) -> list[SyncState]:
    return sync_states(context, view, node, disks, f"look at the disks of instance {view.name!r}")


@dataclass(frozen=True, slots=True)
class BothWrite:
    """The disks with copies of an instance that migrates.

    Attributes:
        view: its nodes are those of the instance before the migration.
    """

    context: JobContext
    view: InstanceView

    @property
    def _disks(self) -> list[Disk]:
        return mirrored(self.view)

    @property
    def _nodes(self) -> list[Node]:
        uuids = {uuid for disk in self._disks for uuid in disk.nodes}
        return [node for node in self.view.nodes if node.uuid in uuids]

    def _wires(self, node: Node) -> list[RpcDisk]:
        return [self.view.disk_wire(disk, node) for disk in self._disks]

    def check(self) -> None:
        """Refuse copies that are not connected or not complete.

        A primary node that has lost its own half is let go, if the other node has all data.

        Raises:
            OpExecError: names the disk; nothing was changed.
        """
        found = {
            node.uuid: _states(self.context, self.view, node, self._disks) for node in self._nodes
        }
        lost = [each.is_lost for each in found.get(self.view.primary.uuid, [])]
        for node in self._nodes:
            is_primary = node.uuid == self.view.primary.uuid
            for disk, state, alone in zip(self._disks, found[node.uuid], lost, strict=True):
                is_fit = is_primary or state.is_whole if alone else state.is_complete
                if not is_fit:
                    self._refuse(disk, node, state.words())
            if any(lost) and not is_primary:
                self._check_connected(node)

    def _refuse(self, disk: Disk, node: Node, problem: str) -> NoReturn:
        name = self.view.name
        raise OpExecError(
            f"cannot migrate: disk {self.view.disks.index(disk)} of instance {name!r}"
            f" on node {node.name!r}: {problem}; nothing was changed: connect the"
            f" disks with 'gnt-instance activate-disks --wait-for-sync {name}' first"
        )

    def _check_connected(self, node: Node) -> None:
        """Refuse copies that are not connected, on the node that has the only data."""
        try:
            doing = f"look at the disks of instance {self.view.name!r}"
            self.context.nodes.on(node, doing).drbd_wait_sync(self._wires(node))
        except GenericError as err:
            raise OpExecError(f"cannot migrate: {err.message}; nothing was changed") from err
        self.context.info(
            f"node {self.view.primary.name} has lost disks of the instance; those of node"
            f" {node.name} are used over the network until it is there"
        )

    def allow(self, target: Node) -> None:
        """Let both nodes write.

        Raises:
            OpExecError: a step failed; `forbid` leads back.
        """
        if not self._disks:
            return
        self.context.feedback("* changing disks into dual-master mode")
        self._close(target)
        self._reconnect(both_write=True)

    def forbid(self, writer: Node) -> bool:
        """Let only one node write again; failures are told.  Returns whether it was done."""
        if not self._disks:
            return True
        self.context.feedback("* changing disks into single-master mode")
        try:
            for node in self._nodes:
                if node.uuid != writer.uuid and not node.offline:
                    self._close(node)
            self._reconnect(both_write=False)
        except GenericError as err:
            self.context.warn(
                f"{err}; connect the disks again with 'gnt-instance activate-disks"
                f" {self.view.name}'"
            )
            return False
        return True

    def _close(self, node: Node) -> None:
        doing = f"close the disks of instance {self.view.name!r}"
        self.context.nodes.on(node, doing).blockdev_close(self.view.name, self._wires(node))

    def _reconnect(self, *, both_write: bool) -> None:
        name, online = self.view.name, [node for node in self._nodes if not node.offline]
        wires = {target_of(node): self._wires(node) for node in online}
        nodes, each = self.context.nodes, NodeCalls
        if not self._has_lost_half(wires):
            doing = f"disconnect the disks of instance {name!r}"
            results = nodes.call_each(each.drbd_disconnect_net, {t: (w,) for t, w in wires.items()})
            _check(doing, results.values())
        doing = f"connect the disks of instance {name!r}"
        attached = nodes.call_each(
            each.drbd_attach_net, {target: (disks, both_write) for target, disks in wires.items()}
        )
        _check(doing, attached.values())
        self._wait(online)

    def _has_lost_half(self, wires: Mapping[Target, Sequence[RpcDisk]]) -> bool:
        """Tell whether a node works with the data of the other one.

        Raises:
            OpExecError: a node does not tell; nothing may be disconnected then.
        """
        doing = f"look at the disks of instance {self.view.name!r}"
        looked = self.context.nodes.call_each(
            NodeCalls.blockdev_getmirrorstatus_multi, {t: (w,) for t, w in wires.items()}
        )
        _check(doing, looked.values())
        answers = [answer for result in looked.values() for answer in result.payload or ()]
        return any(SyncState.of(answer).is_lost for answer in answers)

    def _wait(self, nodes: Sequence[Node]) -> None:
        """Wait until both sides have the same data; not canceled, the guest must not stay so."""
        doing = f"wait for the copies of the disks of instance {self.view.name!r}"
        for is_due in looks(self.context, POLL_S, PROGRESS_S, can_stop=False):
            answers = [
                self.context.nodes.on(node, doing).drbd_wait_sync(self._wires(node))
                for node in nodes
            ]
            if all(is_done for is_done, _percent in answers):
                return
            if is_due:
                percent = min(percent for _is_done, percent in answers)
                self.context.feedback(f"- copies: {percent:.2f}% done")


def _check(doing: str, results: Iterable[RpcResult[Any]]) -> None:
    failures = [result.explain(doing) for result in results if result.error is not None]
    if failures:
        raise OpExecError("; ".join(failures))
