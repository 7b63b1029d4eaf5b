"""Conversion of an instance to another disk template: new disks, filled with the data of the old.

The old disks go last, when the configuration names the new ones; until then every failure leads
back.  Names and UUIDs of disks stay.

Source: opcodes.json, OP_INSTANCE_SET_PARAMS; constants.json, DTS_NOT_CONVERTIBLE_FROM and _TO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units.instance import disks, new_disks
from ganeti.logical_units.instance.copying import copy_disk, whole_disk
from ganeti.logical_units.instance.device_changes import DevicePlan
from ganeti.logical_units.instance.making_disks import make_directory, make_disk
from ganeti.logical_units.instance.modify_disks import remove_unknown
from ganeti.logical_units.instance.modify_parts import Hotplug, Results
from ganeti.logical_units.instance.outside_disks import check_outside
from ganeti.logical_units.instance.subject import Subject, check_node_online
from ganeti.objects.disk_templates import (
    MUST_ADOPT,
    NOT_CONVERTIBLE_FROM,
    NOT_CONVERTIBLE_TO,
    DiskTemplate,
)

if TYPE_CHECKING:
    from ganeti.logical_units.context import JobContext
    from ganeti.logical_units.undo import Undo
    from ganeti.objects.disk import Disk
    from ganeti.objects.instance import Instance
    from ganeti.opcodes.instance import OpInstanceSetParams


def check_conversion(name: str, old: str, new: str) -> None:
    """Refuse conversions that cannot be.

    Raises:
        OpPrereqError: says what to do instead.
    """
    if old == new:
        raise OpPrereqError(f"instance {name!r} has disk template {new!r} already")
    if old in NOT_CONVERTIBLE_FROM:
        raise OpPrereqError(
            f"instance {name!r} is diskless, so there is nothing to convert; add disks with"
            f" --disk add:size=...,dev_type={new}"
        )
    if new in NOT_CONVERTIBLE_TO:
        hint = (
            "remove its disks with --disk remove"
            if new == DiskTemplate.DISKLESS
            else "its devices are adopted, when an instance is made"
        )
        raise OpPrereqError(f"instance {name!r} cannot be converted to {new!r}: {hint}")


class TemplatePart:
    """The conversion of all disks of a stopped instance."""

    def __init__(
        self, context: JobContext, subject: Subject, op: OpInstanceSetParams, hotplug: Hotplug
    ) -> None:
        self._context = context
        self._subject = subject
        self._op = op
        self._hotplug = hotplug
        self.results: Results = []
        self.plan: DevicePlan[Disk] = DevicePlan(tuple(subject.disks), ())

    @property
    def is_asked(self) -> bool:
        """Whether the opcode names a disk template."""
        return self._op.disk_template is not None

    def check(self, instance: Instance) -> Instance:
        """Refuse what cannot be; `plan` has the disks as they will be."""
        op, subject, name = self._op, self._subject, instance.name
        if op.disks:
            raise OpPrereqError(
                f"instance {name!r}: a conversion cannot be combined with other changes of disks"
            )
        check_conversion(name, subject.template, str(op.disk_template))
        template = new_disks.choose_template(subject.cluster, op.disk_template)
        check_node_online(subject.primary, f"primary node of instance {name!r}:")
        if self._hotplug.guest_runs():
            raise OpPrereqError(
                f"instance {name!r} is running; shut it down before converting its disks",
                ErrorCode.STATE,
            )
        planned = [self._convert(template, index) for index in range(len(subject.disks))]
        made = check_outside(self._context, subject.primary, planned)
        self.plan = DevicePlan(tuple(made), ())
        return instance

    def _convert(self, template: DiskTemplate, index: int) -> Disk:
        """Return a disk as it will be."""
        op, subject = self._op, self._subject
        if op.ext_params and template is not DiskTemplate.EXT:
            raise OpPrereqError("parameters of a provider are for disk template 'ext' only")
        old = subject.disks[index]
        settings = {"size": old.size, "mode": old.mode.value, **op.ext_params}
        new = new_disks.plan_disk(template, f"disk/{index}", settings)  # type: ignore[arg-type]
        place = new_disks.file_place(
            subject.cluster,
            template,
            subject.instance.name,
            op.file_storage_dir,
            op.file_driver,
        )
        made = new_disks.make_disk(
            new,
            index=index,
            template=template,
            uuid=old.uuid,
            unique_id=self._context.new_uuid(),
            place=place,
            nodes=new_disks.nodes_of(template, subject.primary.uuid),
        )
        return replace(made, name=old.name, ctime=old.ctime, serial_no=old.serial_no)

    def before_store(self, undo: Undo) -> None:
        """Make the new disks and fill them."""
        subject, node = self._subject, self._subject.primary
        for directory in disks.directories(self.plan.devices):
            make_directory(self._context, node, directory, undo)
        self._made: list[Disk] = []
        for index, planned in enumerate(self.plan.devices):
            self._context.check_canceled()
            self._made.append(make_disk(self._context, subject, node, index, planned, undo))
            copy_disk(
                self._context,
                subject,
                index,
                source=whole_disk(subject, node, subject.disks[index]),
                target=whole_disk(subject, node, self._made[-1]),
            )

    def store(self, undo: Undo) -> None:
        """Name the new disks in the configuration, all in one step."""
        config, old = self._context.config, self._subject.disks
        undo.push(
            "name the old disks in the configuration",
            lambda: config.modify_objects(_changes(self._made, old)),
        )
        config.modify_objects(_changes(old, self._made))
        self.results.append(("disk_template", str(self._op.disk_template)))

    def after_store(self, undo: Undo) -> None:
        """Do nothing: the instance does not run."""

    def finish(self) -> None:
        """Remove the old disks, close the new ones; failures are told."""
        old = [disk for disk in self._subject.disks if disk.dev_type not in MUST_ADOPT]
        remove_unknown(self._context, self._subject, old)
        gone = set(disks.directories(old)) - set(disks.directories(self._made))
        disks.remove_directories(self._context, self._subject.primary, sorted(gone))
        if not self._subject.instance.disks_active:
            after = self._context.config.get_instance_context(self._subject.instance.uuid)
            disks.deactivate(self._context, Subject(after), self._subject.primary)


def _changes(
    before: Sequence[Disk], after: Sequence[Disk]
) -> list[tuple[str, str, Mapping[str, object]]]:
    """Return what makes the disks of the configuration those others."""
    found: list[tuple[str, str, Mapping[str, object]]] = []
    for old, new in zip(before, after, strict=True):
        was, now = old.to_wire(), new.to_wire()
        names = (was.keys() | now.keys()) - {"uuid", "serial_no", "ctime", "mtime", "iv_name"}
        fields = {name: now.get(name) for name in sorted(names) if was.get(name) != now.get(name)}
        found.append(("disk", old.uuid, fields))
    return found
