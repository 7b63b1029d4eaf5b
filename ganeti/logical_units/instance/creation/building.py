"""The work of making an instance that was planned, each step with its undo."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from ganeti.base.errors import GenericError, JobCanceled, OpExecError
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance import metadata
from ganeti.logical_units.instance.creation.sources import (
    Export,
    clear_remains,
    plan_again,
    restore,
)
from ganeti.logical_units.instance.guest import why_os_not_renamed
from ganeti.logical_units.instance.isolated import Limits, install_os
from ganeti.logical_units.instance.storage import disks
from ganeti.logical_units.instance.storage.disks import make_directory, make_disk, mirrored
from ganeti.logical_units.instance.storage.files import directories
from ganeti.logical_units.instance.storage.syncing import check_syncing, wait_for_sync
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.locks import release_resources, share_resources
from ganeti.logical_units.undo import Undo
from ganeti.objects.hypervisors import Hypervisor
from ganeti.objects.model import Disk, Instance
from ganeti.objects.record import PrivateParams
from ganeti.opcodes.instance import OpInstanceCreate
from ganeti.protocol.wconfd import ObjectKind

RECORD_S_MAX: Final = 600.0  # time to make room on the master's disk
_RECORD_AGAIN_S: Final = 5.0
_DESTROY: Final = "'gnt-instance reinstall', 'add --commit' and 'remove' destroy its data"

# Fills the disks from elsewhere, and forgets the undo steps when this may be the only copy.
Fill = Callable[[JobContext, InstanceView, Undo], None]


@dataclass(frozen=True, slots=True)
class Creation:
    """Everything about an instance to be made.

    Attributes:
        view: the instance as it is to be.
        op: the opcode, its unset parameters taken from the export or the planned instance.
        osparams: all three kinds, filled.
        isolated: of the machine of its own that installs its operating system, if one does.
        export: the disks are filled from it, if there is one.
        fill: fills the disks from another source, and records that.
        planned: the forthcoming instance whose place it takes.
        adopted: the UUIDs of disks that are there already.
    """

    view: InstanceView
    op: OpInstanceCreate
    osparams: PrivateParams
    install: bool
    start: bool
    isolated: Limits | None = None
    export: Export | None = None
    fill: Fill | None = None
    planned: InstanceView | None = None
    adopted: Collection[str] = ()

    @property
    def is_to_be_filled(self) -> bool:
        """Whether the disks are of no use as they are made."""
        return self.install or self.export is not None or self.fill is not None


@dataclass(slots=True)
class _Port:
    """The network port of an instance, which goes back once when the creation fails."""

    number: int | None = None
    goes_with_instance: bool = False  # the configuration takes it back with the instance


def build(context: JobContext, plan: Creation) -> None:
    """Make the instance: disks, configuration, operating system, start.

    Raises:
        OpExecError: a step failed; the disks and files made before are gone again, unless another
            cluster has filled them all, or may have.
    """
    with Undo(context) as undo:
        if plan.planned is not None:
            clear_remains(context, plan.planned)
        port = _take_port(context, plan.view.instance, undo)
        # Copies that nobody waits for are made while the disks are ready.
        goes_on = bool(mirrored(plan.view)) and not plan.op.wait_for_sync
        disks_made = _make_disks(context, plan, undo)
        if mirrored(plan.view):
            share_resources(context.config)
        instance = structs.replace(
            plan.view.instance, network_port=port.number, disks_active=plan.start or goes_on
        )
        view = plan.view.with_instance(instance, disks_made)
        _add_to_configuration(context, plan, view, port, undo)
        context.check_canceled()
        _sync(context, plan, view)
        release_resources(context.config)
        if plan.is_to_be_filled or plan.start:
            # Also ends the processes that fill the disks where the node daemon that began them has
            # died.
            what = f"stop instance {view.name!r}"
            shutdown = context.nodes.on(view.primary, what).instance_shutdown
            undo.push(what, lambda: shutdown(view.wire(view.primary), 0, plan.op.reason or []))
        if plan.is_to_be_filled:
            _fill(context, plan, view, undo)
        if plan.fill is None:
            context.check_canceled()
        if plan.start:
            context.feedback("* starting instance...")
            _start(context, plan, view)
        elif plan.is_to_be_filled and not goes_on:
            disks.deactivate(context, view, view.primary)
        undo.forget()


def _sync(context: JobContext, plan: Creation, view: InstanceView) -> None:
    """Wait until disks with copies have complete ones; only until they are being made, if asked."""
    if plan.op.wait_for_sync:
        wait_for_sync(context, view)
    else:
        check_syncing(context, view)


def _take_port(context: JobContext, instance: Instance, undo: Undo) -> _Port:
    if not Hypervisor(instance.hypervisor).traits.needs_network_port:
        return _Port(instance.network_port)
    number = context.config.allocate_instance_port()
    port = _Port(number)

    def give_back() -> None:
        if not port.goes_with_instance:
            context.config.release_instance_port(number)

    undo.push(f"give back port {number}", give_back)
    return port


def _make_disks(context: JobContext, plan: Creation, undo: Undo) -> list[Disk]:
    """Make the disks on the primary node, in a directory of their own if they are files."""
    view = plan.view
    if not view.disks:
        return []
    context.feedback("* creating instance disks...")
    for directory in directories([disk for disk in view.disks if disk.uuid not in plan.adopted]):
        make_directory(context, view.primary, directory, undo)
    made = []
    for index, disk in enumerate(view.disks):
        context.check_canceled()
        adopt = disk.uuid in plan.adopted and not disk.traits.must_adopt
        made.append(make_disk(context, view, view.primary, index, disk, undo, adopt=adopt))
    return made


def _add_to_configuration(
    context: JobContext, plan: Creation, view: InstanceView, port: _Port, undo: Undo
) -> None:
    instance = view.instance
    context.feedback(f"adding instance {instance.name} to cluster config")
    # Planned only, so far: a job that dies while it fills the disks leaves nothing that can start.
    stored = structs.replace(instance, forthcoming=plan.is_to_be_filled)
    # Pushed first: an answer that is lost on its way must not leave the instance behind.
    undo.push(
        f"remove instance {instance.name!r} from the configuration",
        lambda: _remove_from_configuration(context, plan, instance, port),
    )
    disk_wires = [disk.to_wire() for disk in view.disks]
    if plan.planned is not None:
        context.config.put_instance(instance.uuid, stored.to_wire(), disk_wires)
    else:
        context.config.create_instance(stored.to_wire(), disk_wires)


def _remove_from_configuration(
    context: JobContext, plan: Creation, instance: Instance, port: _Port
) -> None:
    [found] = context.config.get_instances([instance.uuid])
    if found is None:
        return
    port.goes_with_instance = found.network_port == instance.network_port
    if plan.planned is not None:
        plan_again(context, plan.planned)
    else:
        context.config.delete(ObjectKind.INSTANCE, instance.uuid)


def _fill(context: JobContext, plan: Creation, view: InstanceView, undo: Undo) -> None:
    """Put something onto the disks; the instance is a real one after that."""
    if plan.install:
        context.feedback("* running the instance OS create scripts...")
        slowed = [] if plan.op.wait_for_sync else view.disks
        with disks.sync_paused(context, view, view.primary, slowed, "its system is installed"):
            install_os(
                context,
                view,
                plan.osparams,
                plan.op.debug_level,
                reinstall=False,
                isolated=plan.isolated,
                reason=plan.op.reason or [],
            )
    if plan.export is not None:
        _restore(context, plan, view, plan.export)
    if plan.fill is not None:
        plan.fill(context, view, undo)
    else:
        _record_made(context, view)


def _record_made(context: JobContext, view: InstanceView) -> None:
    context.config.modify(ObjectKind.INSTANCE, view.instance.uuid, {"forthcoming": None})


def keep_received(context: JobContext, view: InstanceView, undo: Undo) -> None:
    """Record an instance that came from another cluster, which may have removed it there.

    Nothing is undone any more, as this may be the only copy.

    Raises:
        OpExecError: it could not be recorded all the time; the disks stay.
        JobCanceled: canceled in that time.
    """
    undo.forget()
    deadline_s, is_told = context.monotonic() + RECORD_S_MAX, False
    while (failure := _why_not_recorded(context, view)) is not None:
        text = (
            f"instance {view.name!r} has been received completely, but that cannot be recorded:"
            f" {failure}; until it is, it counts as not complete, and {_DESTROY}"
        )
        if context.monotonic() >= deadline_s:
            raise OpExecError(text)
        if not is_told:
            context.warn(f"{text}; trying again for {RECORD_S_MAX / 60:.0f} minutes")
            is_told = True
        context.wait(_RECORD_AGAIN_S)


def keep_in_doubt(view: InstanceView, undo: Undo, why: str) -> OpExecError:
    """Keep an instance of which nobody knows whether all of it came from another cluster.

    Returns:
        The error that tells what was kept, and what to do.
    """
    undo.forget()
    name, node = view.name, view.primary.name
    return OpExecError(
        f"instance {name!r} may have been received completely, and be gone from the other cluster:"
        f" node {node!r} does not tell ({why}); its disks there and the planned instance are kept;"
        f" if the other cluster still has it, use 'gnt-instance remove {name}' here and move it"
        f" again; if not, this is the only copy, and {_DESTROY}: first copy or rename its disks on"
        " the node, then remove it, and make it from them by 'gnt-instance add' with adopt= for"
        " each disk"
    )


def _why_not_recorded(context: JobContext, view: InstanceView) -> GenericError | None:
    try:
        _record_made(context, view)
    except GenericError as err:
        return err
    return None


def tell_received_name(
    context: JobContext, view: InstanceView, old_name: str, debug_level: int | None
) -> None:
    """As `tell_new_name`, of an instance that stays whatever happens; a cancel is told, too."""
    try:
        tell_new_name(context, view, old_name, debug_level)
    except JobCanceled as err:
        context.warn(
            f"{err}, but instance {view.name!r} has been received completely: it stays, although"
            " its operating system was not told of its new name"
        )


def _restore(context: JobContext, plan: Creation, view: InstanceView, export: Export) -> None:
    """Fill the disks from an export; the operating system is told of a new name."""
    old_name = export.description.name
    context.feedback(f"* filling the disks from the export of {old_name}...")
    restore(context, view, export, plan.op.compress)
    tell_new_name(context, view, old_name, plan.op.debug_level)


def tell_new_name(
    context: JobContext, view: InstanceView, old_name: str, debug_level: int | None
) -> None:
    """Let the operating system know if it has another name than before; a failure is told."""
    if view.instance.os and view.name != old_name:
        failure = why_os_not_renamed(context, view, old_name, debug_level)
        if failure:
            context.warn(f"{failure}; ignoring")


def _start(context: JobContext, plan: Creation, view: InstanceView) -> None:
    metadata.bring(context, view, view.primary)
    nodes = context.nodes.on(view.primary, f"start instance {view.name!r}")
    nodes.instance_start(view.wire(view.primary), startup_paused=False, reason=plan.op.reason or [])
