"""Move an instance to another node by copying its disks: for disks that only one node can reach.

    source  the instance is shut down
    target  disks are made and filled                       until here every failure leads back:
            the configuration names the target              the copies go, the instance is started
    source  the old disks are removed                       again where it was
    target  the instance is started, if it is meant to run

The instance runs on the source before the first step only, and on the target after the last one
only, so two copies never run; and the configuration always names the node that has its disks
complete.  What a job that died has left on a target is removed when the move is tried again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, GenericError, OpExecError, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.instance import disks
from ganeti.logical_units.instance.copying import check_compression, copy_disk, whole_disk
from ganeti.logical_units.instance.failover import check_failover
from ganeti.logical_units.instance.making_disks import make_directory, make_disk
from ganeti.logical_units.instance.power import is_running, running_info, start_again
from ganeti.logical_units.instance.subject import InstanceUnit, check_node_online
from ganeti.logical_units.instance.target import locks_for_move, require_target
from ganeti.logical_units.lock_plan import LockLevel, LockNeed
from ganeti.logical_units.node_calls import ask, call_node, failure_text, order
from ganeti.logical_units.undo import Undo
from ganeti.objects.admin_state import AdminState
from ganeti.objects.disk_templates import COPYABLE, FILE_BASED, DiskTemplate
from ganeti.opcodes.instance import OpInstanceMove

if TYPE_CHECKING:
    from ganeti.objects.disk import Disk
    from ganeti.objects.node import Node


class LUInstanceMove(InstanceUnit[OpInstanceMove]):
    """Copy the disks of an instance to another node, and let it live there."""

    def expand_names(self) -> None:
        """Read the instance, and look the target up."""
        super().expand_names()
        self.target = lookup.require_node(
            self.config, self.op.target_node_uuid or self.op.target_node
        )

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the instance exclusively, both nodes shared."""
        return locks_for_move(level, self.subject, self.target)

    def check_prereq(self) -> None:
        """Refuse what cannot be moved, or not there."""
        subject, name = self.subject, self.instance.name
        if subject.template not in COPYABLE:
            hint = (
                "it has no disks, so use 'gnt-instance failover'"
                if subject.template == DiskTemplate.DISKLESS
                else "other nodes reach its disks, so use 'gnt-instance migrate' or 'failover'"
            )
            raise OpPrereqError(
                f"cannot move instance {name!r} of disk template {subject.template!r}: {hint}",
                ErrorCode.STATE,
            )
        check_compression(self.op.compress)
        require_target(subject, self.target)
        check_node_online(subject.primary, f"cannot move instance {name!r} from its")
        check_failover(self.context, subject, self.target, ignore_ipolicy=self.op.ignore_ipolicy)
        self.was_running = is_running(running_info(self.context, subject, subject.primary))
        self._check_disks()

    def _check_disks(self) -> None:
        """Refuse to move what is not there."""
        for index, disk in enumerate(self.subject.disks):
            found = ask(
                self.context,
                self.subject.primary,
                f"look at disk {index} of instance {self.instance.name!r}",
                "blockdev_find",
                self.subject.disk_wire(disk),
            )
            if found is None:
                raise OpPrereqError(
                    f"disk {index} of instance {self.instance.name!r} does not exist on node"
                    f" {self.subject.primary.name!r}; see 'gnt-instance recreate-disks'",
                    ErrorCode.STATE,
                )

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on master, source and target."""
        nodes = [self.master, self.subject.primary, self.target]
        return nodes, nodes

    def own_env(self) -> Mapping[str, object]:
        """Tell where it goes."""
        return {"SHUTDOWN_TIMEOUT": self.op.shutdown_timeout, "TARGET_NODE": self.target.name}

    def exec(self) -> None:
        """Move it."""
        name, target = self.instance.name, self.target
        with Undo(self.context) as undo:
            self._stop(undo)
            made = self._make_copies(undo)
            self._record(made, undo)
            undo.forget()
        self.context.info(f"the disks of instance {name} are on node {target.name} now")
        self._remove_old()
        self._start()

    def _stop(self, undo: Undo) -> None:
        """Shut the instance down; the undo step starts it again if it ran."""
        source, name = self.subject.primary, self.instance.name
        self.context.feedback(f"Shutting down instance {name} on source node {source.name}")
        if self.was_running:
            undo.push(f"start instance {name!r} again where it was", self._start_again)
        result = call_node(
            self.context,
            source,
            "instance_shutdown",
            self.subject.wire(),
            self.op.shutdown_timeout,
            self.op.reason,
        )
        if result.error is not None:
            text = failure_text(f"shut down instance {name!r}", source, "instance_shutdown", result)
            if not self.op.ignore_consistency:
                raise OpExecError(f"{text}; nothing was changed")
            self.context.warn(f"{text}; ignoring, make sure that it does not run there")

    def _start_again(self) -> None:
        if start_again(self.context, self.subject, self.op.reason):
            name, node = self.instance.name, self.subject.primary.name
            self.context.info(f"instance {name} runs on node {node} again")

    def _make_copies(self, undo: Undo) -> list[Disk]:
        """Make the disks on the target and fill them; returns them as they are there."""
        subject, target = self.subject, self.target
        made = []
        if subject.template in FILE_BASED:
            for directory in disks.directories(subject.disks):
                make_directory(self.context, target, directory, undo)
        for index, disk in enumerate(subject.disks):
            self.context.check_canceled()
            planned = replace(disk, nodes=[target.uuid])
            self._remove_leftover(index, planned)
            made.append(make_disk(self.context, subject, target, index, planned, undo))
            copy_disk(
                self.context,
                subject,
                index,
                source=whole_disk(subject, subject.primary, disk),
                target=whole_disk(subject, target, made[-1]),
                compress=self.op.compress,
            )
        return made

    def _remove_leftover(self, index: int, disk: Disk) -> None:
        """Remove what an earlier move that was interrupted has left on the target."""
        wire, target = self.subject.disk_wire(disk), self.target
        doing = f"look for disk {index} of instance {self.instance.name!r}"
        if order(self.context, target, doing, "blockdev_find", wire) is None:
            return
        self.context.info(
            f"node {target.name} has an old copy of disk {index}, which nobody uses; removing it"
        )
        order(self.context, target, f"remove the old copy of disk {index}", "blockdev_remove", wire)

    def _record(self, made: Sequence[Disk], undo: Undo) -> None:
        """Write down, in one step, that instance and disks are on the target.

        When the answer is lost the configuration is asked: nothing may be undone that is recorded.
        """
        changes: list[tuple[str, str, Mapping[str, object]]] = [
            ("instance", self.instance.uuid, {"primary_node": self.target.uuid})
        ]
        changes += [
            ("disk", disk.uuid, {"nodes": [self.target.uuid], "logical_id": disk.logical_id})
            for disk in made
        ]
        try:
            self.config.modify_objects(changes)
        except GenericError as err:
            if not self._is_recorded(undo, err):
                raise

    def _is_recorded(self, undo: Undo, error: GenericError) -> bool:
        try:
            [now] = lookup.present(self.config.get_instances([self.instance.uuid]))
        except GenericError as err:
            undo.forget()
            raise OpExecError(
                f"nobody knows whether the move of instance {self.instance.name!r} was recorded:"
                f" {error}; its disks are complete on both nodes and it is down: see 'gnt-instance"
                " info', then move it again or start it"
            ) from err
        return now.primary_node == self.target.uuid

    def _remove_old(self) -> None:
        source = self.subject.primary
        self.context.feedback(f"Removing the disks on the original node {source.name}")
        if disks.remove(self.context, self.subject):
            self.context.warn(
                f"old disks of instance {self.instance.name} are left on node {source.name}: remove"
                f" them by hand; the instance uses those on {self.target.name}"
            )

    def _start(self) -> None:
        name, target = self.instance.name, self.target
        wire = self.subject.wire(primary_node=target.uuid)
        if self.instance.admin_state is not AdminState.UP:
            disks.deactivate(self.context, self.subject, target)
            return
        self.context.feedback(f"Starting instance {name} on node {target.name}")
        try:
            order(
                self.context,
                target,
                f"start instance {name!r}",
                "instance_start",
                wire,
                False,
                self.op.reason,
            )
        except GenericError as err:
            disks.deactivate(self.context, self.subject, target)
            raise OpExecError(
                f"{err}; the instance and its disks are on node {target.name} now, and it is down:"
                f" start it with 'gnt-instance startup {name}' once that is mended"
            ) from err
