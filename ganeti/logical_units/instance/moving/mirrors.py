"""Disks with copies while their instance moves between its two nodes: who may write, and when both.

A migration needs both nodes to write for a while.  The steps, each on both nodes at once:

    disconnect     the guest goes on alone
    connect        both may write; what was written meanwhile is copied
    wait           until both sides have the same data
    ...            the guest moves
    disconnect, connect, wait    and only the node of the guest may write again

A failure on the way leads back to the last three; `clean_up` does them again at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import GenericError, OpExecError
from ganeti.clients.node_rpc import target_of
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.storage.copying import looks
from ganeti.logical_units.instance.storage.disks import assemble_copies, mirrored
from ganeti.logical_units.instance.storage.syncing import SyncState, sync_states
from ganeti.logical_units.instance.view import InstanceView
from ganeti.objects.model import Disk, Node
from ganeti.objects.rpc_instance import RpcDisk
from ganeti.protocol.node_calls import NodeCalls

POLL_S: Final = 0.5
PROGRESS_S: Final = 5.0


def check_copies(
    context: JobContext, view: InstanceView, target: Node, *, ignore_consistency: bool
) -> None:
    """Refuse a failover to a node whose copies of the disks are not complete.

    Disks that are closed are made ready as secondary for that.

    Raises:
        OpExecError: a copy is not complete, or cannot be looked at; nothing was changed.
    """
    copies = mirrored(view)
    if not copies:
        return
    name = view.name
    context.feedback("* checking disk consistency between source and target")
    if not view.instance.disks_active:
        assemble_copies(context, view, target, ignore_secondaries=True)
    states = _states(context, view, target, copies)
    hint = (
        "nothing was changed: connect the disks and wait with 'gnt-instance activate-disks"
        f" --wait-for-sync {name}', or use --ignore-consistency if the data that the copy lacks may"
        " be lost"
    )
    for disk, state in zip(copies, states, strict=True):
        if state.is_whole:
            continue
        index = view.disks.index(disk)
        text = f"disk {index} of instance {name!r} on node {target.name!r}: {state.words()}"
        if not ignore_consistency:
            raise OpExecError(f"cannot fail over: {text}; {hint}")
        context.warn(f"{text}; ignoring")


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

        Raises:
            OpExecError: names the disk; nothing was changed.
        """
        name = self.view.name
        for node in self._nodes:
            states = _states(self.context, self.view, node, self._disks)
            for disk, state in zip(self._disks, states, strict=True):
                if not state.is_whole or state.is_degraded:
                    raise OpExecError(
                        f"cannot migrate: disk {self.view.disks.index(disk)} of instance {name!r}"
                        f" on node {node.name!r}: {state.words()}; nothing was changed: connect the"
                        f" disks with 'gnt-instance activate-disks --wait-for-sync {name}' first"
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
        doing = f"disconnect the disks of instance {name!r}"
        results = nodes.call_each(each.drbd_disconnect_net, {t: (w,) for t, w in wires.items()})
        _check(doing, [result.explain for result in results.values() if result.error is not None])
        doing = f"connect the disks of instance {name!r}"
        attached = nodes.call_each(
            each.drbd_attach_net, {target: (disks, both_write) for target, disks in wires.items()}
        )
        _check(doing, [result.explain for result in attached.values() if result.error is not None])
        self._wait(online)

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


def _check(doing: str, failures: Sequence[Callable[[str], str]]) -> None:
    if failures:
        raise OpExecError("; ".join(explain(doing) for explain in failures))
