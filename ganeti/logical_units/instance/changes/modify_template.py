"""Conversion of an instance to another disk template: new disks, filled with the data of the old.

The old disks go last, when the configuration names the new ones; until then every failure leads
back.  Names and UUIDs of disks stay.

Source: opcodes.json, OP_INSTANCE_SET_PARAMS; constants.json, DTS_NOT_CONVERTIBLE_FROM and _TO.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ganeti.base.errors import OpPrereqError, wrong_state
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.base import check_node_online
from ganeti.logical_units.instance.changes.device_changes import DevicePlan
from ganeti.logical_units.instance.changes.modify_disks import remove_unknown
from ganeti.logical_units.instance.changes.modify_parts import Hotplug, Results
from ganeti.logical_units.instance.storage import disks, planning
from ganeti.logical_units.instance.storage.copying import copy_disk, whole_disk
from ganeti.logical_units.instance.storage.disks import make_directory, make_disk
from ganeti.logical_units.instance.storage.files import directories, file_place
from ganeti.logical_units.instance.storage.planning import check_on_node
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import DiskTemplate, traits_of
from ganeti.objects.model import Disk, Instance
from ganeti.opcodes.instance import OpInstanceSetParams
from ganeti.protocol.wconfd import Change, ObjectKind


def check_conversion(name: str, old: str, new: str) -> None:
    """Refuse conversions that cannot be.

    Raises:
        OpPrereqError: says what to do instead.
    """
    if old == new:
        raise OpPrereqError(f"instance {name!r} has disk template {new!r} already")
    if not traits_of(old).has_disks:
        raise OpPrereqError(
            f"instance {name!r} is diskless, so there is nothing to convert; add disks with"
            f" --disk add:size=...,dev_type={new}"
        )
    if not traits_of(new).can_convert_to:
        hint = (
            "remove its disks with --disk remove"
            if not traits_of(new).has_disks
            else "its devices are adopted, when an instance is made"
        )
        raise OpPrereqError(f"instance {name!r} cannot be converted to {new!r}: {hint}")


class TemplatePart:
    """The conversion of all disks of a stopped instance."""

    def __init__(
        self, context: JobContext, view: InstanceView, op: OpInstanceSetParams, hotplug: Hotplug
    ) -> None:
        self._context = context
        self._view = view
        self._op = op
        self._hotplug = hotplug
        self.results: Results = []
        self.plan: DevicePlan[Disk] = DevicePlan(tuple(view.disks), ())

    @property
    def is_asked(self) -> bool:
        """Whether the opcode names a disk template."""
        return self._op.disk_template is not None

    def check(self, instance: Instance) -> Instance:
        """Refuse conversions that are not possible; `plan` has the disks as they will be."""
        op, view, name = self._op, self._view, instance.name
        if op.disks:
            raise OpPrereqError(
                f"instance {name!r}: a conversion cannot be combined with other changes of disks"
            )
        check_conversion(name, view.template, str(op.disk_template))
        template = planning.choose_template(view.cluster, op.disk_template)
        check_node_online(view.primary, f"primary node of instance {name!r}:")
        if self._hotplug.guest_runs():
            raise wrong_state(
                f"instance {name!r} is running; shut it down before converting its disks"
            )
        planned = [self._convert(template, index) for index in range(len(view.disks))]
        made = check_on_node(self._context, view.primary, planned)
        self.plan = DevicePlan(tuple(made), ())
        return instance

    def _convert(self, template: DiskTemplate, index: int) -> Disk:
        """Return a disk as it will be."""
        op, view = self._op, self._view
        if op.ext_params and not template.traits.has_provider:
            raise OpPrereqError("parameters of a provider are for disk template 'ext' only")
        old = view.disks[index]
        settings = {"size": old.size, "mode": old.mode.value, **op.ext_params}
        new = planning.plan_disk(template, f"disk/{index}", settings)  # type: ignore[arg-type]
        place = file_place(
            view.cluster, template, view.instance.name, op.file_storage_dir, op.file_driver
        )
        made = planning.describe_disk(
            new,
            index=index,
            template=template,
            uuid=old.uuid,
            unique_id=self._context.new_uuid(),
            place=place,
            nodes=planning.nodes_of(template, view.primary.uuid),
        )
        return replace(made, name=old.name, ctime=old.ctime, serial_no=old.serial_no)

    def before_store(self, undo: Undo) -> None:
        """Make the new disks and fill them."""
        view, node = self._view, self._view.primary
        for directory in directories(self.plan.devices):
            make_directory(self._context, node, directory, undo)
        self._made: list[Disk] = []
        for index, planned in enumerate(self.plan.devices):
            self._context.check_canceled()
            self._made.append(make_disk(self._context, view, node, index, planned, undo))
            copy_disk(
                self._context,
                view,
                index,
                source=whole_disk(view, node, view.disks[index]),
                target=whole_disk(view, node, self._made[-1]),
            )

    def store(self, undo: Undo) -> None:
        """Name the new disks in the configuration, all in one step."""
        config, old = self._context.config, self._view.disks
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
        old = [disk for disk in self._view.disks if not disk.traits.must_adopt]
        remove_unknown(self._context, self._view, old)
        gone = set(directories(old)) - set(directories(self._made))
        disks.remove_directories(self._context, self._view.primary, sorted(gone))
        if not self._view.instance.disks_active:
            after = self._context.config.get_instance_context(self._view.instance.uuid)
            disks.deactivate(self._context, InstanceView.of(after), self._view.primary)


def _changes(before: Sequence[Disk], after: Sequence[Disk]) -> list[Change]:
    """Return the changes that replace the disks in the configuration."""
    found: list[Change] = []
    for old, new in zip(before, after, strict=True):
        was, now = old.to_wire(), new.to_wire()
        names = (was.keys() | now.keys()) - {"uuid", "serial_no", "ctime", "mtime", "iv_name"}
        fields = {name: now.get(name) for name in sorted(names) if was.get(name) != now.get(name)}
        found.append((ObjectKind.DISK, old.uuid, fields))
    return found
