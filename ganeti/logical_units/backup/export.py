"""Export an instance: to files on a node, or to another cluster that waits for its disks.

To files:

    source   the instance is shut down (its disks cannot be read while it writes to them), or its
             hypervisor keeps the contents of all disks at one instant, and it goes on
    target   each disk is dumped to a file in a directory that is not the export yet
    source   the instance is started again, if it ran, or its snapshots are dropped; with disks of
             which there are snapshots it was started before they were read (not with --long-sleep)
    target   the description is written, and the directory becomes the export in one step

With --incremental the directory becomes the next point of a chain instead (`chains`).

Any failure leaves the instance as it was and an earlier export untouched.  A job that is killed
leaves the instance shut down, which its status shows, or running with snapshots, which the next
export, migration or change of its disks drops; and snapshots of its volumes, and a directory beside
the export, which the next export of the instance removes.

To another cluster:

    prepare  a certificate is made on the primary node, and handed out with signatures which show
             that this cluster knows the domain secret
    export   the instance is shut down, all its disks are sent to the places where the other cluster
             waits for them; then it is started again, or removed

A disk counts as sent once the other side has said that all of it is on its disk; a cluster of 3.0
only says that it has read all of it.  A failure before all disks are sent leaves the instance as it
was.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ganeti.base.errors import (
    ErrorCode,
    GenericError,
    OpExecError,
    OpPrereqError,
    ProtocolError,
    refusing,
    wrong_state,
)
from ganeti.logical_units import lookup
from ganeti.logical_units.backup import remote, volume_snapshots, zeroing
from ganeti.logical_units.backup.chains import (
    NO_POINT,
    NewPoint,
    disk_changes,
    plan_point,
    points_of,
)
from ganeti.logical_units.backup.exports import EXPORT_DIR, nodes_with_export, policy_of
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance import guest
from ganeti.logical_units.instance.base import (
    AnyInstanceUnit,
    FoundOnInstance,
    InstanceUnit,
    OnInstance,
    PlanOnInstance,
    WithTarget,
    check_primary_online,
)
from ganeti.logical_units.instance.life.units import remove_instance
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.storage.copying import (
    Place,
    check_compression,
    copy_disk,
    disk_by_script,
    disk_snapshot,
    dump_file,
    forget_transfers,
    kept_disk,
)
from ganeti.logical_units.instance.storage.snapshots import (
    check_without_snapshots,
    read_snapshots,
    require_whole,
)
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.locks import LockLevel, LockNeed, shared
from ganeti.logical_units.undo import Undo
from ganeti.opcodes.backup import OpBackupExport, OpBackupPrepare
from ganeti.protocol import remote_move
from ganeti.protocol.export_description import PARTIAL_SUFFIX, ReadMethod, dump_name
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import StreamForm, TransferOptions
from ganeti.protocol.remote_move import AwaitedDisk, Secret
from ganeti.protocol.wconfd import LockMode


class AnyExport(AnyInstanceUnit[OpBackupExport, FoundOnInstance, PlanOnInstance]):
    """An export, here or to another cluster."""

    hooks = HookPoint("instance-export", ObjectType.INSTANCE)
    told = ("shutdown_timeout", "remove_instance")
    resources = LockMode.SHARED

    def check_options(self, view: InstanceView) -> None:
        """Refuse options that contradict, or that the cluster cannot obey."""
        check_compression(self.op.compress)
        zeroing.check_options(self.context, view, self.op)
        if self.op.remove_instance:
            doing = f"remove instance {view.name!r} after its export"
            check_without_snapshots(self.context, view, doing)

    def target_name(self, plan: PlanOnInstance) -> str:
        """Return the node that the export goes to; "" if it is none of this cluster."""
        return ""

    def own_values(self, plan: PlanOnInstance) -> Mapping[str, object]:
        return {
            **super().own_values(plan),
            "EXPORT_MODE": self.op.mode,
            "EXPORT_NODE": self.target_name(plan),
            "EXPORT_DO_SHUTDOWN": self.op.shutdown,
        }

    def hook_values_after(self, plan: PlanOnInstance) -> Mapping[str, object]:
        """Tell about the instance as it is, or was if it is removed."""
        is_gone = self.op.remove_instance
        return self.hook_values(plan) if is_gone else super().hook_values_after(plan)

    def execute(self, plan: PlanOnInstance) -> tuple[bool, list[bool]]:
        """Export it; returns whether the export is complete, and whether each disk is."""
        self.export(plan)
        return True, [True] * len(plan.view.disks)

    def export(self, plan: PlanOnInstance) -> None:
        """Do the work."""
        raise NotImplementedError

    def stop(self, plan: PlanOnInstance, undo: Undo) -> None:
        """Shut the instance down; the undo step starts it again."""
        op, view, name = self.op, plan.view, plan.view.name
        self.context.feedback(f"Shutting down instance {name}")
        undo.push(f"start instance {name!r} again", partial(self.start_again, plan))
        nodes = self.context.nodes.on(view.primary, f"shut down instance {name!r}")
        nodes.instance_shutdown(view.wire(view.primary), op.shutdown_timeout, op.reason or [])

    def fill_free_space(self, plan: PlanOnInstance) -> None:
        """Fill free space on the disks of the stopped instance with zeroes, if that is wanted."""
        if self.op.zero_free_space:
            zeroing.fill(self.context, plan.view, self.op)

    def start_again(self, plan: PlanOnInstance) -> None:
        """Start the instance that was stopped for the export."""
        self.context.feedback(f"Starting instance {plan.view.name}")
        guest.start_again(self.context, plan.view, self.op.reason or [])

    def remove(self, plan: PlanOnInstance) -> None:
        """Remove the instance, which is exported."""
        op, reason = self.op, self.op.reason or []
        ignore_failures = op.ignore_remove_failures
        remove_instance(self.context, plan.view, op.shutdown_timeout, ignore_failures, reason)


@dataclass(frozen=True, slots=True)
class ExportPlan(WithTarget):
    """How an instance is exported.

    Attributes:
        was_running: it is stopped for the export.
        goes_on: it is exported while it runs.
        point: of the chain that it belongs to, if any.
        kept: the snapshot of its disks that is exported, whether it runs or not; "" for none.
    """

    was_running: bool
    goes_on: bool
    point: NewPoint | None = None
    kept: str = ""


class LUBackupExport(AnyExport[WithTarget, ExportPlan]):
    """Write the disks and settings of an instance to a node."""

    def resolve(self) -> WithTarget:
        """Read the instance, and look the target up."""
        view, op = self.read_instance(), self.op
        if not isinstance(op.target_node, str):
            raise OpPrereqError("the target of a local export is a node, not a list of disks")
        target = lookup.require_node(self.config, op.target_node_uuid or op.target_node)
        return WithTarget(view, target)

    def plan(self, found: WithTarget) -> ExportPlan:
        """Refuse an instance that cannot be exported as things stand."""
        op, view, name = self.op, found.view, found.view.name
        check_primary_online(view, f"export instance {name!r}")
        self.check_options(view)
        if found.goal.offline:
            raise wrong_state(f"node {found.goal.name!r} is marked offline")
        if view.instance.os and view.disks and not op.incremental:
            guest.check_os_scripts(self.context, view.primary, view.instance.os, "export")
        if op.snapshot is not None:
            return self._plan_kept(found, op.snapshot)
        was_running = guest.runs(self.context, view)
        goes_on = was_running and not op.shutdown
        if op.quiesce and not goes_on:
            raise wrong_state(
                f"instance {name!r} is not exported while it runs, so there is nothing to quiesce;"
                " leave --quiesce out, or give --noshutdown for a running one"
            )
        if goes_on:
            doing = f"export instance {name!r} while it runs (leave --noshutdown out to stop it)"
            nodes = self.context.nodes.check(view.primary, doing, ErrorCode.STATE)
            nodes.instance_snapshot_supported(view.wire(view.primary))
        if op.remove_instance and not op.shutdown:
            raise OpPrereqError(
                "an instance is removed only after it was shut down; leave --noshutdown out"
            )
        others = [n for n in lookup.all_nodes(self.config) if n.uuid != found.goal.uuid]
        point = plan_point(self.context, view, found.goal, others) if op.incremental else None
        return ExportPlan(view, found.target, was_running, goes_on, point)

    def _plan_kept(self, found: WithTarget, snapshot: str) -> ExportPlan:
        """Refuse a snapshot that not all disks have, and options that it makes no sense with."""
        for option in ("remove_instance", "quiesce", "incremental"):
            if getattr(self.op, option):
                words = f"--{option.replace('_', '-')} does not go with --snapshot"
                raise OpPrereqError(f"{words}: that is of an earlier time")
        require_whole(found.view, read_snapshots(self.context, found.view), snapshot)
        return ExportPlan(found.view, found.target, was_running=False, goes_on=False, kept=snapshot)

    def target_name(self, plan: ExportPlan) -> str:
        return plan.goal.name

    def export(self, plan: ExportPlan) -> None:
        """Export it, then remove it if that is asked for.

        Raises:
            OpExecError: nothing is exported; or it is, and the instance was not started again.
        """
        name = plan.view.name
        try:
            failure = self._export(plan)
        except OpExecError as err:
            if plan.point is None:
                raise
            raise OpExecError(f"{err.message}; {self._how_to_go_on(plan, plan.point)}") from err
        self._remove_older(plan)
        if self.op.remove_instance:
            self.remove(plan)
        if failure is not None:
            raise OpExecError(f"instance {name!r} is exported, but {failure}")

    def _export(self, plan: ExportPlan) -> GenericError | None:
        """Export it; returns why it was not started again."""
        name, recorded = plan.view.name, list[str]()
        with Undo(self.context) as undo:
            clear = partial(self._clear, plan)
            clear()
            undo.push(f"remove the incomplete export of {name!r}", clear)
            volume_snapshots.remove_left(self.context, plan.view)
            if plan.goes_on:
                recorded = self._take_snapshots(plan, undo)
            elif plan.was_running:
                self.stop(plan, undo)
            self.fill_free_space(plan)
            frozen, failure = self._freeze(plan, undo)
            self._note(plan)
            self._dump(plan, frozen or plan.view, recorded)
            if plan.goes_on:
                self._drop_snapshots(plan)
            if frozen is not None:
                volume_snapshots.drop(self.context, plan.view, frozen)
            elif not self.op.remove_instance:
                failure = self._why_not_started(plan)
            self._finalize(plan)
            undo.forget()
        if plan.goes_on:
            self._forget_records(plan)
        return failure

    def _freeze(
        self, plan: ExportPlan, undo: Undo
    ) -> tuple[InstanceView | None, GenericError | None]:
        """Start an instance on volumes again before they are dumped, from snapshots.

        Returns:
            The instance with the snapshots in the place of its disks, None without them; and why it
            was not started again.
        """
        op = self.op
        stays_down = op.long_sleep or op.remove_instance or not plan.was_running or plan.goes_on
        if stays_down or plan.point is not None or not volume_snapshots.can_be_taken(plan.view):
            return None, None
        self.context.feedback(f"Taking snapshots of the disks of {plan.view.name}")
        frozen = volume_snapshots.take(self.context, plan.view, undo)
        return frozen, None if frozen is None else self._why_not_started(plan)

    def _how_to_go_on(self, plan: ExportPlan, point: NewPoint) -> str:
        live = " --noshutdown" if plan.goes_on else ""
        command = f"gnt-backup export --incremental{live} -n {plan.goal.name} {plan.view.name}"
        kept = f"the chain is as it was, up to point {point.number - 1}; " if point.number else ""
        return f"{kept}try again with '{command}'; without --incremental it begins anew"

    def _clear(self, plan: ExportPlan) -> None:
        """Remove the remains of an interrupted export from the target."""
        left = f"{plan.view.name}{PARTIAL_SUFFIX}"
        if nodes_with_export(self.context, [plan.goal], left):
            self.context.nodes.on(plan.goal, f"remove {left!r}").export_remove(left)

    def _take_snapshots(self, plan: ExportPlan, undo: Undo) -> list[str]:
        """Take them; returns the disks of which it is known where they were written."""
        view, name = plan.view, plan.view.name
        self.context.feedback(f"Taking snapshots of the disks of {name}, which goes on")
        drop = partial(self._drop_snapshots, plan)
        undo.push(f"drop the snapshots of instance {name!r}", drop)
        doing = f"take snapshots of instance {name!r}"
        nodes = self.context.nodes.on(view.primary, doing)
        point = plan.point or NO_POINT
        quiesce = bool(self.op.quiesce)
        wire = view.wire(view.primary)
        return nodes.instance_snapshot(wire, point.since, point.uuid, quiesce=quiesce)

    def _forget_records(self, plan: ExportPlan) -> None:
        """Forget what was written before this export; if that fails it costs some memory."""
        view, point = plan.view, (plan.point or NO_POINT).uuid
        doing = (
            f"forget where the disks of {view.name!r} were written before (its next export will)"
        )
        call = NodeCalls.instance_record_since
        self.context.attempt(doing, call, view.primary, view.wire(view.primary), point)

    def _drop_snapshots(self, plan: ExportPlan) -> None:
        """Drop the snapshots; if that fails they cost room, and the instance goes on."""
        view, call = plan.view, NodeCalls.instance_snapshot_drop
        doing = f"drop the snapshots of instance {view.name!r} (its next export will)"
        self.context.attempt(doing, call, view.primary, view.wire(view.primary))

    def _note(self, plan: ExportPlan) -> None:
        """Note on the target how the disks are read."""
        name = plan.view.name
        method = ReadMethod.SNAPSHOT if plan.goes_on else ReadMethod.STOPPED
        method = ReadMethod.KEPT if plan.kept else method
        nodes = self.context.nodes.on(plan.goal, f"begin the export of instance {name!r}")
        point = plan.point or NO_POINT
        nodes.export_note(f"{name}{PARTIAL_SUFFIX}", method.value, point.uuid, point.number)

    def _why_not_started(self, plan: ExportPlan) -> GenericError | None:
        """Start the instance again, if it ran; a failure leaves the dumps."""
        try:
            if plan.was_running and not plan.goes_on:
                self.start_again(plan)
        except GenericError as err:
            return err
        return None

    def _dump(self, plan: ExportPlan, frozen: InstanceView, recorded: Collection[str]) -> None:
        """Dump every disk to a file; the disks are closed again if the instance is not to run.

        Args:
            frozen: the instance with the disks that are read, which may be snapshots.
        """
        context, view, compress = self.context, plan.view, self.op.compress
        if plan.point is not None:
            plan.point.tell_what_is_read(context, view, recorded)
        try:
            if frozen is view and not (plan.goes_on or plan.kept):
                disks.open_for_script(context, view)
            for index, disk in enumerate(view.disks):
                context.check_canceled()
                source, target = self._ends(plan, frozen, index, is_recorded=disk.uuid in recorded)
                copy_disk(context, view, index, source=source, target=target, compress=compress)
        finally:
            if not view.instance.disks_active:
                disks.deactivate(context, view, view.primary)

    def _ends(
        self, plan: ExportPlan, frozen: InstanceView, index: int, *, is_recorded: bool
    ) -> tuple[Place, Place]:
        """Return the disk, and the file that it is dumped to."""
        view, disk = plan.view, plan.view.disks[index]
        if plan.point is not None:
            source = disk_changes(view, disk, is_live=plan.goes_on, is_recorded=is_recorded)
            return source, plan.point.target(plan.goal, view.name, disk)
        by_script = disk_by_script(frozen, index)
        directory = f"{EXPORT_DIR}/{view.name}{PARTIAL_SUFFIX}"
        target = dump_file(plan.goal, f"{directory}/{dump_name(disk.uuid)}")
        if plan.kept:
            return kept_disk(view, disk, plan.kept), target
        return disk_snapshot(view, disk) if plan.goes_on else by_script, target

    def _finalize(self, plan: ExportPlan) -> None:
        view, name = plan.view, plan.view.name
        self.context.feedback(f"Finalizing export on {plan.goal.name}")
        goal, doing = plan.goal, f"finish the export of instance {name!r}"
        wires = [view.disk_wire(disk, goal) for disk in view.disks]
        self.context.nodes.on(goal, doing).finalize_export(view.wire(goal), wires)

    def _remove_older(self, plan: ExportPlan) -> None:
        """Remove exports of the instance that other nodes have: there is one, the newest.

        They stay until it has as many points as the policy of backups wants to be kept.
        """
        name, goal, context = plan.view.name, plan.goal, self.context
        others = [n for n in lookup.all_nodes(self.config) if n.uuid != goal.uuid]
        having = nodes_with_export(context, others, name)
        policy = policy_of(plan.view)
        if having and policy is not None and policy.keep:
            older = ", ".join(node.name for node in having)
            try:
                count = len(points_of(context, goal, name))
            except OpPrereqError as err:
                context.warn(f"the older export on {older} stays: {err.message}")
                return
            if count < policy.keep:
                context.info(
                    f"the older export on {older} stays until the one on {goal.name} has"
                    f" {policy.keep} points, as the policy of backups wants; it has {count}"
                )
                return
        for node in having:
            doing = f"remove the older export of instance {name!r}"
            context.attempt(doing, NodeCalls.export_remove, node, name)


_CONNECT_TIMEOUT_S: Final = 60  # the other side listens already


@dataclass(frozen=True, slots=True)
class Preparation(OnInstance):
    """An instance that is to be exported, and the secret that both clusters have."""

    secret: Secret


class LUBackupPrepareRemote(InstanceUnit[OpBackupPrepare, Preparation]):
    """Make a certificate for an export to another cluster, and return its words for that one."""

    mode = "remote"

    def locks(self, found: OnInstance) -> LockNeed:
        """Lock the instance and its nodes shared: nothing is done to them."""
        return super().locks(found) | shared(LockLevel.INSTANCE, [found.view.name])

    def plan(self, found: OnInstance) -> Preparation:
        """Refuse an instance that cannot be exported."""
        view, name = found.view, found.view.name
        check_primary_online(view, f"export instance {name!r}")
        return Preparation(view, remote.domain_secret(self.context.paths))

    def execute(self, plan: Preparation) -> Mapping[str, object]:
        """Make it; returns the values that the other cluster and the export need."""
        secret, salt = plan.secret, self.context.new_uuid
        name, pem = remote.make_certificate(self.context, plan.view.primary)
        return {
            "instance": plan.view.name,
            "handshake": remote_move.handshake(secret, salt()),
            "x509_key_name": remote_move.signed_key_name(secret, salt(), name),
            "x509_ca": remote_move.signed_certificate(secret, salt(), pem),
        }


@dataclass(frozen=True, slots=True)
class Sending(OnInstance):
    """How an instance is sent.

    Attributes:
        key_name: our certificate, on the primary node.
        peer: the certificate of the other cluster, as PEM.
        awaited: where the other cluster waits for each disk, and in which form.
    """

    key_name: str
    peer: str
    awaited: Sequence[tuple[AwaitedDisk, StreamForm]]
    was_running: bool


class LUBackupExportRemote(AnyExport[OnInstance, Sending]):
    """Send the disks of an instance to another cluster, which is waiting for them."""

    mode = "remote"

    def resolve(self) -> OnInstance:
        return OnInstance(self.read_instance())

    def plan(self, found: OnInstance) -> Sending:
        """Refuse an instance that cannot be sent as things stand."""
        op, view, name = self.op, found.view, found.view.name
        doing = f"send instance {name!r}"
        check_primary_online(view, doing)
        self.check_options(view)
        if op.incremental:
            raise OpPrereqError(
                f"cannot {doing}: only exports to a node are incremental, one to another cluster is"
                " always full"
            )
        if op.snapshot is not None or op.quiesce:
            raise OpPrereqError(f"cannot {doing}: snapshots are exported within the cluster only")
        secret = remote.domain_secret(self.context.paths)
        awaited = op.target_node
        if isinstance(awaited, str):
            raise OpPrereqError(f"cannot {doing}: the target is a node, not a list of disks")
        with refusing(ProtocolError, prefix=f"cannot {doing}: "):
            key_name = remote_move.read_key_name(secret, op.x509_key_name)
            said = op.destination_x509_ca
            peer = remote.peer_certificate(self.context, secret, said, "the receiving cluster")
            places = remote_move.read_disks(secret, awaited, len(view.disks))
        if view.instance.os and view.disks and not op.incremental:
            guest.check_os_scripts(self.context, view.primary, view.instance.os, "export")
        was_running = guest.runs(self.context, view)
        if was_running and not op.shutdown:
            raise wrong_state(
                f"instance {name!r} runs: its disks cannot be sent while it writes to them; shut it"
                " down, or let it be shut down"
            )
        return Sending(view, key_name, peer, places, was_running)

    def export(self, plan: Sending) -> None:
        """Send it, then start it again, or remove it."""
        try:
            with Undo(self.context) as undo:
                if plan.was_running:
                    self.stop(plan, undo)
                self.fill_free_space(plan)
                self._send(plan)
                undo.forget()
        finally:
            remote.remove_certificate(self.context, plan.view.primary, plan.key_name)
        if self.op.remove_instance:
            self.remove(plan)
        elif plan.was_running:
            try:
                self.start_again(plan)
            except GenericError as err:
                name = plan.view.name
                raise OpExecError(f"instance {name!r} was sent, but {err}") from err

    def stop(self, plan: Sending, undo: Undo) -> None:
        super().stop(plan, undo)
        disks.deactivate(self.context, plan.view, plan.view.primary)

    def _send(self, plan: Sending) -> None:
        """Send all disks at once; they are closed again, unless the instance is to have them."""
        context, view, node = self.context, plan.view, plan.view.primary
        doing = f"send instance {view.name!r} to another cluster"
        names: list[str] = []
        try:
            disks.open_for_script(context, view)
            for index, (disk, (awaited, form)) in enumerate(
                zip(view.disks, plan.awaited, strict=True)
            ):
                context.check_canceled()
                names.append(self._start_sending(plan, index, awaited, form))
                context.feedback(f"* sending disk {index} ({disk.size} MiB) to {awaited.host}")
            remote.follow(context, doing, node, names, "sent")
        finally:
            forget_transfers(context, doing, node, names)
            if plan.was_running or not view.instance.disks_active:
                disks.deactivate(context, view, node)

    def _start_sending(
        self, plan: Sending, index: int, awaited: AwaitedDisk, form: StreamForm
    ) -> str:
        view, host, port = plan.view, awaited.host, awaited.port
        options = TransferOptions(
            key_name=plan.key_name,
            ca_pem=plan.peer,
            compress=self.op.compress,
            magic=awaited.magic,
            ipv6=":" in host,
            connect_timeout=_CONNECT_TIMEOUT_S,
            form=form,
        )
        doing = f"send disk {index} of instance {view.name!r}"
        nodes, io = self.context.nodes.on(view.primary, doing), disk_by_script(view, index).io
        wire = view.wire(view.primary)
        return str(nodes.export_start(options, host, port, wire, f"disk{index}", io))
