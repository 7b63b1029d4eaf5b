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
from dataclasses import dataclass

from ganeti.base.errors import (
    ErrorCode,
    GenericError,
    NotSupportedError,
    OpExecError,
    OpPrereqError,
    wrong_state,
)
from ganeti.logical_units import lookup
from ganeti.logical_units.backup.finding import EXPORT_DIR, nodes_with_export
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.base import AnyInstanceUnit, OnInstance, check_node_online
from ganeti.logical_units.instance.life.power import is_running, running_info, start_again
from ganeti.logical_units.instance.life.remove import remove_instance
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.storage.copying import (
    check_compression,
    copy_disk,
    disk_by_script,
    disk_snapshot,
    dump_file,
)
from ganeti.logical_units.locks import LockLevel, LockNeed, shared
from ganeti.logical_units.undo import Undo
from ganeti.objects.model import Node
from ganeti.opcodes.backup import OpBackupExport
from ganeti.protocol.export_description import PARTIAL_SUFFIX, ReadMethod, dump_name
from ganeti.protocol.node_calls import NodeCalls


@dataclass(frozen=True, slots=True)
class ExportTarget(OnInstance):
    """An instance and the node that its export goes to."""

    target: Node


@dataclass(frozen=True, slots=True)
class ExportPlan(ExportTarget):
    """How an instance is exported.

    Attributes:
        goes_on: it is exported while it runs.
    """

    was_running: bool
    goes_on: bool


class LUBackupExport(AnyInstanceUnit[OpBackupExport, ExportTarget, ExportPlan]):
    """Write the disks and settings of an instance to a node."""

    hooks = HookPoint("instance-export", ObjectType.INSTANCE)

    def resolve(self) -> ExportTarget:
        """Read the instance, and look the target up."""
        view, op = self.read_instance(), self.op
        if not isinstance(op.target_node, str):
            raise OpPrereqError("the target of a local export is a node, not a list of disks")
        target = lookup.require_node(self.config, op.target_node_uuid or op.target_node)
        return ExportTarget(view, target)

    def locks(self, found: ExportTarget) -> LockNeed:
        """Lock the instance exclusively, its nodes and the target shared."""
        return super().locks(found) | shared(LockLevel.NODE, [found.target.uuid])

    def plan(self, found: ExportTarget) -> ExportPlan:
        """Refuse an instance that cannot be exported as things stand."""
        op, view, target = self.op, found.view, found.target
        name = view.instance.name
        check_compression(op.compress)
        if op.zero_free_space:
            raise NotSupportedError("filling free space with zeroes is not supported yet")
        check_node_online(view.primary, f"cannot export instance {name!r} from its")
        if target.offline:
            raise wrong_state(f"node {target.name!r} is marked offline")
        was_running = is_running(running_info(self.context, view, view.primary))
        goes_on = was_running and not op.shutdown
        if goes_on:
            self.context.nodes.check(
                view.primary,
                f"export instance {name!r} while it runs (leave --noshutdown out to stop it)",
                ErrorCode.STATE,
            ).instance_snapshot_supported(view.wire())
        if op.remove_instance and not op.shutdown:
            raise OpPrereqError(
                "an instance is removed only after it was shut down; leave --noshutdown out"
            )
        return ExportPlan(view, target, was_running, goes_on)

    def hook_nodes(self, plan: ExportPlan) -> Sequence[Node]:
        """Run hooks on master, source and target."""
        return [self.master, plan.view.primary, plan.target]

    def own_values(self, plan: ExportPlan) -> Mapping[str, object]:
        return export_values(self.op, plan.target.name)

    def hook_values_after(self, plan: ExportPlan) -> Mapping[str, object]:
        """Tell about the instance as it is, or was if it is removed."""
        return (
            self.hook_values(plan) if self.op.remove_instance else super().hook_values_after(plan)
        )

    def execute(self, plan: ExportPlan) -> tuple[bool, list[bool]]:
        """Export it; returns whether the export is complete, and whether each disk is."""
        _Export(self.context, self.op, plan).run()
        return True, [True] * len(plan.view.disks)


def export_values(op: OpBackupExport, node_name: str) -> dict[str, object]:
    """Return how and where an instance is exported, as hooks are told it."""
    return {
        "EXPORT_MODE": op.mode.value,
        "EXPORT_NODE": node_name,
        "EXPORT_DO_SHUTDOWN": op.shutdown,
        "SHUTDOWN_TIMEOUT": op.shutdown_timeout,
        "REMOVE_INSTANCE": op.remove_instance,
    }


class _Export:
    """The work of one export."""

    def __init__(self, context: JobContext, op: OpBackupExport, plan: ExportPlan) -> None:
        self.context = context
        self.op = op
        self.view = plan.view
        self.instance = plan.view.instance
        self.target = plan.target
        self.was_running = plan.was_running
        self.goes_on = plan.goes_on

    def run(self) -> None:
        """Export it, then remove it if that is asked for.

        Raises:
            OpExecError: nothing is exported; or it is, and the instance was not started again.
        """
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
                self.view,
                shutdown_timeout_s=self.op.shutdown_timeout,
                ignore_failures=self.op.ignore_remove_failures,
                reason=self.op.reason or [],
            )
        if failure is not None:
            raise OpExecError(f"instance {self.instance.name!r} is exported, but {failure}")

    def _clear(self) -> None:
        """Remove the remains of an interrupted export from the target."""
        left = f"{self.instance.name}{PARTIAL_SUFFIX}"
        if nodes_with_export(self.context, [self.target], left):
            self.context.nodes.on(self.target, f"remove {left!r}").export_remove(left)

    def _stop(self, undo: Undo) -> None:
        source, name = self.view.primary, self.instance.name
        self.context.feedback(f"Shutting down instance {name}")
        what = f"start instance {name!r} again"
        undo.push(what, self._start_again)
        self.context.nodes.on(source, f"shut down instance {name!r}").instance_shutdown(
            self.view.wire(), self.op.shutdown_timeout, self.op.reason or []
        )

    def _take_snapshots(self, undo: Undo) -> None:
        view, name = self.view, self.instance.name
        self.context.feedback(f"Taking snapshots of the disks of {name}, which goes on")
        undo.push(f"drop the snapshots of instance {name!r}", self._drop_snapshots)
        doing = f"take snapshots of instance {name!r}"
        self.context.nodes.on(view.primary, doing).instance_snapshot(view.wire())

    def _drop_snapshots(self) -> None:
        """Drop the snapshots; if that fails they cost room, and the instance goes on."""
        view, name = self.view, self.instance.name
        result = self.context.nodes.call_one(
            NodeCalls.instance_snapshot_drop, view.primary, view.wire()
        )
        if result.error is not None:
            doing = f"drop the snapshots of instance {name!r} (its next export will)"
            self.context.warn(result.explain(doing))

    def _note(self) -> None:
        """Note on the target how the disks are read."""
        export = f"{self.instance.name}{PARTIAL_SUFFIX}"
        method = ReadMethod.SNAPSHOT if self.goes_on else ReadMethod.STOPPED
        doing = f"begin the export of instance {self.instance.name!r}"
        self.context.nodes.on(self.target, doing).export_note(export, method.value)

    def _why_not_started(self) -> GenericError | None:
        """Start the instance again, if it ran; a failure leaves the dumps."""
        try:
            if self.was_running and not self.goes_on:
                self._start_again()
        except GenericError as err:
            return err
        return None

    def _start_again(self) -> None:
        self.context.feedback(f"Starting instance {self.instance.name}")
        start_again(self.context, self.view, self.op.reason or [])

    def _dump(self) -> None:
        """Dump every disk to a file; the disks are closed again if the instance is not to run."""
        view = self.view
        directory = f"{EXPORT_DIR}/{self.instance.name}{PARTIAL_SUFFIX}"
        try:
            for index, disk in enumerate(view.disks):
                self.context.check_canceled()
                copy_disk(
                    self.context,
                    view,
                    index,
                    source=(
                        disk_snapshot(view, disk) if self.goes_on else disk_by_script(view, index)
                    ),
                    target=dump_file(self.target, f"{directory}/{dump_name(disk.uuid)}"),
                    compress=self.op.compress,
                )
        finally:
            if not self.instance.disks_active:
                disks.deactivate(self.context, view, view.primary)

    def _finalize(self) -> None:
        view = self.view
        self.context.feedback(f"Finalizing export on {self.target.name}")
        result = self.context.nodes.call_one(
            NodeCalls.finalize_export,
            self.target,
            view.wire(),
            [view.disk_wire(disk) for disk in view.disks],
        )
        if result.error is not None:
            doing = f"finish the export of instance {self.instance.name!r}"
            raise OpExecError(result.explain(doing))

    def _remove_older(self) -> None:
        """Remove exports of the instance that other nodes have: there is one, the newest."""
        name = self.instance.name
        others = [n for n in lookup.all_nodes(self.context.config) if n.uuid != self.target.uuid]
        for node in nodes_with_export(self.context, others, name):
            result = self.context.nodes.call_one(NodeCalls.export_remove, node, name)
            if result.error is not None:
                doing = f"remove the older export of instance {name!r}"
                self.context.warn(result.explain(doing))
