"""The work of making an instance that was planned, each step with its undo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ganeti.base.errors import OpExecError
from ganeti.logical_units.instance import disks
from ganeti.logical_units.instance.forthcoming import clear_remains, plan_again
from ganeti.logical_units.instance.making_disks import make_directory, make_disk
from ganeti.logical_units.instance.os_scripts import INSTALL, RENAME, run_script
from ganeti.logical_units.instance.subject import Subject
from ganeti.logical_units.node_calls import failure_text, order
from ganeti.logical_units.undo import Undo
from ganeti.objects.hypervisors import NEED_NETWORK_PORT

if TYPE_CHECKING:
    from ganeti.logical_units.context import JobContext
    from ganeti.logical_units.instance.importing import Export
    from ganeti.logical_units.instance.new_disks import FilePlace
    from ganeti.objects.private import PrivateParams


@dataclass(slots=True)
class Plan:
    """Everything about an instance to be made.

    ``osparams`` are all three kinds, filled; the disks are filled from ``export`` if there is one,
    or by ``fill``, which comes from wherever else.  ``planned`` is the forthcoming instance whose
    place it takes.
    """

    subject: Subject
    place: FilePlace | None
    osparams: PrivateParams
    install: bool
    start: bool
    reason: object
    debug_level: int
    export: Export | None = None
    compress: str = "none"
    fill: Callable[[JobContext, Subject], None] | None = None
    planned: Subject | None = None
    was_registered: bool = False

    @property
    def is_to_be_filled(self) -> bool:
        """Whether the disks are of no use as they are made."""
        return self.install or self.export is not None or self.fill is not None


def build(context: JobContext, plan: Plan) -> None:
    """Make the instance: disks, configuration, operating system, start.

    Raises:
        OpExecError: a step failed; what was made before is gone again.
    """
    with Undo(context) as undo:
        if plan.planned is not None:
            clear_remains(context, plan.planned)
        _take_port(context, plan, undo)
        make_disks(context, plan, undo)
        _add_to_configuration(context, plan, undo)
        context.check_canceled()
        if plan.is_to_be_filled:
            _fill(context, plan)
        context.check_canceled()
        if plan.start:
            context.feedback("* starting instance...")
            _start(context, plan, undo)
        elif plan.is_to_be_filled:
            disks.deactivate(context, plan.subject, plan.subject.primary)
        undo.forget()


def _take_port(context: JobContext, plan: Plan, undo: Undo) -> None:
    subject = plan.subject
    if subject.instance.hypervisor not in NEED_NETWORK_PORT:
        return
    port = context.config.allocate_instance_port()
    undo.push(f"give back port {port}", lambda: _give_back_port(context, plan, port))
    subject.instance = replace(subject.instance, network_port=port)


def _give_back_port(context: JobContext, plan: Plan, port: int) -> None:
    if not plan.was_registered:  # else it went back when the instance was forgotten
        context.config.release_instance_port(port)


def make_disks(context: JobContext, plan: Plan, undo: Undo) -> None:
    """Make the disks on the primary node, in a directory of their own if they are files."""
    subject = plan.subject
    if not subject.disks:
        return
    context.feedback("* creating instance disks...")
    if plan.place is not None:
        make_directory(context, subject.primary, plan.place.directory, undo)
    for index, disk in enumerate(subject.disks):
        context.check_canceled()
        subject.disks[index] = make_disk(context, subject, subject.primary, index, disk, undo)


def _add_to_configuration(context: JobContext, plan: Plan, undo: Undo) -> None:
    subject = plan.subject
    instance = subject.instance
    context.feedback(f"adding instance {instance.name} to cluster config")
    instance = subject.instance = replace(instance, disks_active=plan.start)
    # Planned only, so far: a job that dies while it fills the disks leaves nothing that can start.
    stored = replace(instance, forthcoming=plan.is_to_be_filled)
    # Pushed first: an answer that is lost on its way must not leave the instance behind.
    undo.push(
        f"remove instance {instance.name!r} from the configuration",
        lambda: _forget(context, plan),
    )
    disk_wires = [disk.to_wire() for disk in subject.disks]
    if plan.planned is not None:
        context.config.put_instance(instance.uuid, stored.to_wire(), disk_wires)
    else:
        context.config.create_instance(stored.to_wire(), disk_wires)


def _forget(context: JobContext, plan: Plan) -> None:
    instance = plan.subject.instance
    [found] = context.config.get_instances([instance.uuid])
    if found is None:
        return
    plan.was_registered = found.network_port == instance.network_port
    if plan.planned is not None:
        plan_again(context, plan.planned)
    else:
        context.config.delete_instance(instance.uuid)


def _fill(context: JobContext, plan: Plan) -> None:
    """Put something onto the disks; the instance is a real one after that."""
    if plan.install:
        context.feedback("* running the instance OS create scripts...")
        _install(context, plan)
    if plan.export is not None:
        _restore(context, plan, plan.export)
    if plan.fill is not None:
        plan.fill(context, plan.subject)
    context.config.modify_instance(plan.subject.instance.uuid, {"forthcoming": None})


def _install(context: JobContext, plan: Plan) -> None:
    subject = plan.subject
    wire = subject.wire(osp=plan.osparams)
    result = run_script(context, subject, INSTALL, wire, False, plan.debug_level)
    if result.error is not None:
        doing = f"install operating system {subject.instance.os!r} for instance"
        text = failure_text(f"{doing} {subject.instance.name!r}", subject.primary, INSTALL, result)
        raise OpExecError(text)


def _restore(context: JobContext, plan: Plan, export: Export) -> None:
    """Fill the disks from an export; what has another name than before is told so."""
    from ganeti.logical_units.instance.importing import restore

    subject, old_name = plan.subject, export.description.name
    name, os_name = subject.instance.name, subject.instance.os
    context.feedback(f"* filling the disks from the export of {old_name}...")
    restore(context, subject, export, plan.compress)
    if os_name and name != old_name:
        doing = f"run the rename script of operating system {os_name!r} for instance {name!r}"
        wire = subject.wire()
        result = run_script(context, subject, RENAME, wire, old_name, plan.debug_level)
        if result.error is not None:
            context.warn(f"{failure_text(doing, subject.primary, RENAME, result)}; ignoring")


def _start(context: JobContext, plan: Plan, undo: Undo) -> None:
    subject = plan.subject
    name = subject.instance.name
    what = f"stop instance {name!r}"
    undo.push(
        what,
        lambda: order(
            context, subject.primary, what, "instance_shutdown", subject.wire(), 0, plan.reason
        ),
    )
    order(
        context,
        subject.primary,
        f"start instance {name!r}",
        "instance_start",
        subject.wire(),
        False,
        plan.reason,
    )
