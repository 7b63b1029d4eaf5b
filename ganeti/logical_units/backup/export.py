"""Export an instance: its disks and its settings, to files on a node.

    source   the instance is shut down (its disks cannot be read while it writes to them), or its
             hypervisor keeps what all disks hold at one instant, and it goes on
    target   each disk is dumped to a file in a directory that is not the export yet
    source   the instance is started again, if it ran, or what was kept is dropped
    target   the description is written, and the directory becomes the export in one step

Whatever fails leaves the instance as it was and an earlier export untouched.  A job that is killed
leaves the instance shut down, which its status shows, or running with snapshots, which the next
export, migration or change of its disks drops; and a directory beside the export that the next
export of the instance removes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ganeti.base.errors import (
    ErrorCode,
    GenericError,
    NotSupportedError,
    OpExecError,
    OpPrereqError,
)
from ganeti.logical_units import lookup
from ganeti.logical_units.backup.finding import EXPORT_DIR, nodes_with_export
from ganeti.logical_units.instance import disks
from ganeti.logical_units.instance.copying import (
    check_compression,
    copy_disk,
    disk_by_script,
    disk_snapshot,
    dump_file,
)
from ganeti.logical_units.instance.power import is_running, running_info, start_again
from ganeti.logical_units.instance.remove import remove_instance
from ganeti.logical_units.instance.subject import InstanceUnit, check_node_online
from ganeti.logical_units.lock_plan import LockLevel, LockNeed, exclusive, shared
from ganeti.logical_units.node_calls import ask, call_node, failure_text, order
from ganeti.logical_units.undo import Undo
from ganeti.opcodes.backup import OpBackupExport
from ganeti.protocol.export_description import PARTIAL_SUFFIX, ReadMethod, dump_name

if TYPE_CHECKING:
    from ganeti.objects.node import Node


class LUBackupExport(InstanceUnit[OpBackupExport]):
    """Write the disks and settings of an instance to a node."""

    def expand_names(self) -> None:
        """Read the instance, and look the target up."""
        super().expand_names()
        op = self.op
        if not isinstance(op.target_node, str):
            raise OpPrereqError("the target of a local export is a node, not a list of disks")
        self.target = lookup.require_node(self.config, op.target_node_uuid or op.target_node)

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the instance exclusively, both nodes shared."""
        if level is LockLevel.INSTANCE:
            return exclusive(level, [self.instance.name])
        if level is LockLevel.NODE:
            return shared(level, {self.target.uuid, *(node.uuid for node in self.subject.nodes)})
        return {}

    def check_prereq(self) -> None:
        """Refuse what cannot be exported as things stand."""
        op, name = self.op, self.instance.name
        check_compression(op.compress)
        if op.zero_free_space:
            raise NotSupportedError("filling free space with zeroes is not supported yet")
        check_node_online(self.subject.primary, f"cannot export instance {name!r} from its")
        if self.target.offline:
            raise OpPrereqError(f"node {self.target.name!r} is marked offline", ErrorCode.STATE)
        self.was_running = is_running(
            running_info(self.context, self.subject, self.subject.primary)
        )
        self.goes_on = self.was_running and not op.shutdown
        if self.goes_on:
            ask(
                self.context,
                self.subject.primary,
                f"export instance {name!r} while it runs (leave --noshutdown out to stop it)",
                "instance_snapshot_supported",
                self.subject.wire(),
                ecode=ErrorCode.STATE,
            )
        if op.remove_instance and not op.shutdown:
            raise OpPrereqError(
                "an instance is removed only after it was shut down; leave --noshutdown out"
            )

    def hooks_nodes(self) -> tuple[Sequence[Node], Sequence[Node]]:
        """Run hooks on master, source and target."""
        nodes = [self.master, self.subject.primary, self.target]
        return nodes, nodes

    def own_env(self) -> Mapping[str, object]:
        """Tell how and where it is exported."""
        return {
            "EXPORT_MODE": self.op.mode.value,
            "EXPORT_NODE": self.target.name,
            "EXPORT_DO_SHUTDOWN": self.op.shutdown,
            "SHUTDOWN_TIMEOUT": self.op.shutdown_timeout,
            "REMOVE_INSTANCE": self.op.remove_instance,
        }

    def hooks_env_after(self) -> Mapping[str, object]:
        """Tell about the instance as it is, or was."""
        return self.hooks_env() if self.op.remove_instance else super().hooks_env_after()

    def exec(self) -> tuple[bool, list[bool]]:
        """Export it; returns whether the export is complete, and whether each disk is."""
        with Undo(self.context) as undo:
            self._clear()
            undo.push(f"remove the incomplete export of {self.instance.name!r}", self._clear)
            if self.goes_on:
                self._take_snapshots(undo)
            elif self.was_running:
                self._stop(undo)
            self._note()
            self._dump()
            if self.goes_on:
                self._drop_snapshots()
            failure = None if self.op.remove_instance else self._why_not_started()
            self._finalize()
            undo.forget()
        self._remove_older()
        if self.op.remove_instance:
            remove_instance(
                self.context,
                self.subject,
                shutdown_timeout_s=self.op.shutdown_timeout,
                ignore_failures=self.op.ignore_remove_failures,
                reason=self.op.reason,
            )
        if failure is not None:
            raise OpExecError(f"instance {self.instance.name!r} is exported, but {failure}")
        return True, [True] * len(self.subject.disks)

    def _clear(self) -> None:
        """Remove what an export that was broken off has left on the target."""
        left = f"{self.instance.name}{PARTIAL_SUFFIX}"
        if nodes_with_export(self.context, [self.target], left):
            order(self.context, self.target, f"remove {left!r}", "export_remove", left)

    def _stop(self, undo: Undo) -> None:
        source, name = self.subject.primary, self.instance.name
        self.context.feedback(f"Shutting down instance {name}")
        what = f"start instance {name!r} again"
        undo.push(what, self._start_again)
        order(
            self.context,
            source,
            f"shut down instance {name!r}",
            "instance_shutdown",
            self.subject.wire(),
            self.op.shutdown_timeout,
            self.op.reason,
        )

    def _take_snapshots(self, undo: Undo) -> None:
        subject, name = self.subject, self.instance.name
        self.context.feedback(f"Taking snapshots of the disks of {name}, which goes on")
        undo.push(f"drop the snapshots of instance {name!r}", self._drop_snapshots)
        doing = f"take snapshots of instance {name!r}"
        order(self.context, subject.primary, doing, "instance_snapshot", subject.wire())

    def _drop_snapshots(self) -> None:
        """Drop the snapshots; if that fails they cost room, and the instance goes on."""
        subject, name = self.subject, self.instance.name
        result = call_node(self.context, subject.primary, "instance_snapshot_drop", subject.wire())
        if result.error is not None:
            doing = f"drop the snapshots of instance {name!r} (its next export will)"
            self.context.warn(
                failure_text(doing, subject.primary, "instance_snapshot_drop", result)
            )

    def _note(self) -> None:
        """Note on the target how the disks are read."""
        export = f"{self.instance.name}{PARTIAL_SUFFIX}"
        method = ReadMethod.SNAPSHOT if self.goes_on else ReadMethod.STOPPED
        doing = f"begin the export of instance {self.instance.name!r}"
        order(self.context, self.target, doing, "export_note", export, method.value)

    def _why_not_started(self) -> GenericError | None:
        """Start the instance again, if it ran; what was dumped is kept if it cannot be."""
        try:
            if self.was_running and not self.goes_on:
                self._start_again()
        except GenericError as err:
            return err
        return None

    def _start_again(self) -> None:
        self.context.feedback(f"Starting instance {self.instance.name}")
        start_again(self.context, self.subject, self.op.reason)

    def _dump(self) -> None:
        """Dump every disk to a file; the disks are closed again if the instance is not to run."""
        subject = self.subject
        directory = f"{EXPORT_DIR}/{self.instance.name}{PARTIAL_SUFFIX}"
        try:
            for index, disk in enumerate(subject.disks):
                self.context.check_canceled()
                copy_disk(
                    self.context,
                    subject,
                    index,
                    source=(
                        disk_snapshot(subject, disk)
                        if self.goes_on
                        else disk_by_script(subject, index)
                    ),
                    target=dump_file(self.target, f"{directory}/{dump_name(disk.uuid)}"),
                    compress=self.op.compress,
                )
        finally:
            if not self.instance.disks_active:
                disks.deactivate(self.context, subject, subject.primary)

    def _finalize(self) -> None:
        subject = self.subject
        self.context.feedback(f"Finalizing export on {self.target.name}")
        result = call_node(
            self.context,
            self.target,
            "finalize_export",
            subject.wire(),
            [subject.disk_wire(disk) for disk in subject.disks],
        )
        if result.error is not None:
            doing = f"finish the export of instance {self.instance.name!r}"
            raise OpExecError(failure_text(doing, self.target, "finalize_export", result))

    def _remove_older(self) -> None:
        """Remove exports of the instance that other nodes have: there is one, the newest."""
        name = self.instance.name
        others = [n for n in lookup.all_nodes(self.config) if n.uuid != self.target.uuid]
        for node in nodes_with_export(self.context, others, name):
            result = call_node(self.context, node, "export_remove", name)
            if result.error is not None:
                doing = f"remove the older export of instance {name!r}"
                self.context.warn(failure_text(doing, node, "export_remove", result))
