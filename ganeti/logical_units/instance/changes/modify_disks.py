"""Changes of the disks of an instance: add, attach, modify, detach, remove.

Files and volumes are made before the configuration names them, and removed after it has forgotten
them, when nothing can fail any more.

Source: opcodes.json, OP_INSTANCE_SET_PARAMS; constants.json, "MODIFIABLE_IDISK_PARAMS".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import (
    ErrorCode,
    GenericError,
    NotSupportedError,
    OpExecError,
    OpPrereqError,
    wrong_state,
)
from ganeti.logical_units import lookup
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.base import check_node_online
from ganeti.logical_units.instance.changes.device_changes import (
    DISKS,
    DevicePlan,
    DeviceStep,
    Settings,
    plan_changes,
)
from ganeti.logical_units.instance.changes.modify_parts import Hotplug, Results
from ganeti.logical_units.instance.parameters import device_name
from ganeti.logical_units.instance.storage import planning
from ganeti.logical_units.instance.storage.disks import make_directory, make_disk
from ganeti.logical_units.instance.storage.files import file_place, own_directories
from ganeti.logical_units.instance.storage.planner import FilePlace
from ganeti.logical_units.instance.storage.planning import check_on_node
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import DeviceAction, DiskTemplate, FileDriver
from ganeti.objects.model import Disk, Instance
from ganeti.opcodes.instance import OpInstanceSetParams
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.wconfd import ObjectKind

_ADD, _ATTACH = DeviceAction.ADD, DeviceAction.ATTACH
_DETACH, _REMOVE, _MODIFY = DeviceAction.DETACH, DeviceAction.REMOVE, DeviceAction.MODIFY
MODIFIABLE: Final = ("mode", "name")
_ATTACH_BY: Final = ("name", "uuid")
_DEV_TYPE: Final = "dev_type"


class DiskMakers:
    """How new and changed disks of one instance come about."""

    def __init__(self, context: JobContext, view: InstanceView, op: OpInstanceSetParams) -> None:
        self._context = context
        self._view = view
        self._op = op
        self.directory: str | None = None  # where new files go

    def add(self, what: str, index: int, settings: Settings) -> Disk:
        """Return a disk to be made."""
        template = self._template(what, settings)
        rest = {name: value for name, value in settings.items() if name != _DEV_TYPE}
        new = planning.plan_disk(template, what, rest)  # type: ignore[arg-type]
        place = self._place(template)
        self.directory = place.directory if place else None
        made = planning.describe_disk(
            new,
            index=index,
            template=template,
            uuid=self._context.new_uuid(),
            unique_id=self._context.new_uuid(),
            place=place,
            nodes=planning.nodes_of(template, self._view.primary.uuid),
        )
        return check_on_node(self._context, self._view.primary, [made])[0]

    def _template(self, what: str, settings: Settings) -> DiskTemplate:
        """Return the template of a new disk: that of the others, of which there must be some."""
        has, asked = self._view.template, settings.get(_DEV_TYPE)
        if not self._view.traits.has_disks:
            if asked is None:
                raise OpPrereqError(
                    f"{what}: instance {self._view.instance.name!r} is diskless; say what kind"
                    " of disk it is to be with dev_type=..."
                )
            return planning.choose_template(self._view.cluster, str(asked))
        if asked not in (None, has):
            raise NotSupportedError(
                f"{what}: the other disks are of template {has!r}; disks of several templates in"
                " one instance are not supported"
            )
        return planning.choose_template(self._view.cluster, has)

    def _place(self, template: DiskTemplate) -> FilePlace | None:
        op, own = self._op, own_directories(self._view)
        if template.traits.is_file and own and not (op.file_storage_dir or op.file_driver):
            driver = str(self._view.disks[0].logical_id[0])
            return FilePlace(own[0], FileDriver(driver))
        return file_place(
            self._view.cluster,
            template,
            self._view.instance.name,
            op.file_storage_dir,
            op.file_driver,
        )

    def attach(self, what: str, index: int, settings: Settings) -> Disk:
        """Return the disk named in the settings, which must not belong to an instance."""
        by = [name for name in _ATTACH_BY if name in settings]
        unknown = sorted(set(settings) - set(_ATTACH_BY))
        if len(by) != 1 or unknown:
            raise OpPrereqError(f"{what}: a disk is attached by name=... or uuid=..., one of them")
        disk = self._existing(what, by[0], str(settings[by[0]]))
        if disk.uuid in self._view.instance.disks:
            raise OpPrereqError(f"{what}: the instance has disk {disk.uuid} already")
        for owner in lookup.present(self._context.config.get_instances(None)):
            if disk.uuid in owner.disks:
                raise wrong_state(
                    f"{what}: disk {settings[by[0]]!r} belongs to instance {owner.name!r}; detach"
                    f" it there first with 'gnt-instance modify --disk {disk.uuid}:detach"
                    f" {owner.name}'"
                )
        self._check_reachable(what, disk)
        return disk

    def _existing(self, what: str, by: str, value: str) -> Disk:
        config = self._context.config
        known = lookup.present(config.get_disks([value] if by == "uuid" else None))
        found = [disk for disk in known if getattr(disk, by) == value]
        if not found:
            raise OpPrereqError(f"{what}: there is no disk with {by} {value!r}", ErrorCode.NOENT)
        if len(found) > 1:
            uuids = ", ".join(disk.uuid for disk in found)
            raise OpPrereqError(f"{what}: several disks are called {value!r}; give uuid=: {uuids}")
        return found[0]

    def _check_reachable(self, what: str, disk: Disk) -> None:
        primary, has = self._view.primary, self._view.template
        if disk.nodes and primary.uuid not in disk.nodes:
            raise wrong_state(
                f"{what}: disk {disk.uuid} is not on node {primary.name!r}, where the instance is"
            )
        if self._view.disks and has != disk.dev_type:
            raise NotSupportedError(
                f"{what}: disk {disk.uuid} is of template {disk.dev_type!r}, the others of {has!r};"
                " disks of several templates in one instance are not supported"
            )

    def modify(self, what: str, index: int, device: Disk, settings: Settings) -> Disk:
        """Return the disk with another name or mode."""
        if "size" in settings:
            raise OpPrereqError(
                f"{what}: the size is changed by 'gnt-instance grow-disk"
                f" {self._view.instance.name} {index} AMOUNT'"
            )
        unknown = sorted(set(settings) - set(MODIFIABLE))
        if unknown:
            raise OpPrereqError(
                f"{what}: {', '.join(unknown)} cannot be changed; what can is"
                f" {' and '.join(MODIFIABLE)}"
            )
        changed = device
        if "name" in settings:
            changed = replace(changed, name=device_name(what, settings["name"]))
        if "mode" in settings:
            changed = replace(changed, mode=planning.disk_mode(what, settings["mode"]))
        return changed


class DiskPart:
    """The changes of disks; `store` and `finish` are the steps that it has beyond other parts."""

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
        """Whether the opcode names disks."""
        return bool(self._op.disks)

    def check(self, instance: Instance) -> Instance:
        """Refuse changes that are not possible; `plan` has the disks as they will be."""
        view = self._view
        check_node_online(view.primary, f"primary node of instance {instance.name!r}:")
        self._makers = DiskMakers(self._context, view, self._op)
        self.plan = plan_changes(DISKS, view.disks, self._op.disks, self._makers)
        if self.plan.of(_REMOVE, _DETACH) and not self._hotplug.is_on:
            self._check_not_in_use()
        return instance

    def _check_not_in_use(self) -> None:
        """Refuse to take disks from a guest that goes on writing to them."""
        if self._hotplug.guest_runs():
            name = self._view.instance.name
            raise wrong_state(
                f"instance {name!r} is running and uses its disks; shut it down first, or use"
                " --hotplug"
            )

    # Before the configuration is changed

    def before_store(self, undo: Undo) -> None:
        """Make the new disks, unplug those that go."""
        added = self.plan.of(_ADD)
        primary = self._view.primary
        directory = self._makers.directory
        if added and directory is not None and directory not in own_directories(self._view):
            make_directory(self._context, primary, directory, undo)
        self._made: dict[str, Disk] = {}
        for step in added:
            self._context.check_canceled()
            self._context.feedback(f"* creating disk {step.index}...")
            self._made[step.device.uuid] = make_disk(
                self._context, self._view, primary, step.index, step.device, undo
            )
        for step in self.plan.of(_REMOVE, _DETACH):
            if self._hotplug.is_on and step.device.uuid not in self._made:
                self._unplug(step, undo)

    def _unplug(self, step: DeviceStep[Disk], undo: Undo) -> None:
        disk = self._view.disk_wire(step.device).to_wire()
        doing = f"hotplug: take disk {step.index} from the running instance"
        back = f"give disk {step.index} back to the running instance"
        undo.push(back, lambda: self._hotplug.device(back, "hotadd", "disk", disk, seq=step.index))
        self._hotplug.device(doing, "hotremove", "disk", disk, seq=step.index)
        self._context.info(f"disk {step.index} was taken from the running instance")

    # The configuration

    def store(self, undo: Undo) -> None:
        """Change the configuration step by step, each with its inverse."""
        for step in self.plan.steps:
            self._store_one(step, undo)

    def _store_one(self, step: DeviceStep[Disk], undo: Undo) -> None:
        config, owner = self._context.config, self._view.instance.uuid
        disk = self._made.get(step.device.uuid, step.device)
        uuid, index, what = disk.uuid, step.index, f"disk/{step.index}"

        def has() -> bool:
            return any(uuid in one.disks for one in lookup.present(config.get_instances([owner])))

        def add() -> object:
            return config.add_disk(owner, disk.to_wire(), index)

        def attach() -> object:
            return config.attach_disk(owner, uuid, index)

        def detach() -> object:
            return config.detach_disk(owner, uuid)

        def remove() -> object:
            return config.remove_disk(owner, uuid)

        if step.action is _MODIFY:
            self._store_settings(step, undo)
            return
        comes = step.action in (_ADD, _ATTACH)
        settings = f"size={disk.size},mode={disk.mode.value}"
        do, back, said = {
            _ADD: (add, remove, f"add:{settings}"),
            _ATTACH: (attach, detach, f"attach:{settings}"),
            _DETACH: (detach, attach, "detach"),
            _REMOVE: (remove, add, "remove"),
        }[step.action]
        # Pushed first: the answer may be lost when the change is made.
        undo.push(
            f"undo the change of {what} in the configuration",
            lambda: back() if has() is comes else None,
        )
        do()
        self.results.append((what, said))

    def _store_settings(self, step: DeviceStep[Disk], undo: Undo) -> None:
        config = self._context.config
        before, after = step.before, step.after
        assert before is not None
        assert after is not None
        old, new = before.to_wire(), after.to_wire()
        names = [name for name in MODIFIABLE if old.get(name) != new.get(name)]
        if "mode" in names:
            self._context.info("a changed mode is seen when the instance is started next")
        if names:
            config.modify(ObjectKind.DISK, after.uuid, {name: new.get(name) for name in names})
            undo.push(
                f"undo the change of disk/{step.index} in the configuration",
                lambda: config.modify(
                    ObjectKind.DISK, after.uuid, {name: old.get(name) for name in names}
                ),
            )
        self.results += [
            (f"disk.{name}/{step.index}", new.get(name))
            for name in MODIFIABLE
            if name in step.settings
        ]

    # After the configuration was changed

    def after_store(self, undo: Undo) -> None:
        """Plug the disks that came; those that nobody uses yet are closed."""
        stay = {disk.uuid for disk in self.plan.devices}
        for step in self.plan.of(_ADD, _ATTACH):
            disk = self._made.get(step.device.uuid, step.device)
            if disk.uuid not in stay:
                continue
            if self._hotplug.is_on:
                self._plug(disk, step.index, undo)
            elif not self._view.instance.disks_active and step.action is _ADD:
                self._close(disk, step.index)

    def _plug(self, disk: Disk, index: int, undo: Undo) -> None:
        wire = self._view.disk_wire(disk).to_wire()
        what = f"take disk {index} from the running instance again"
        undo.push(what, lambda: self._hotplug.device(what, "hotremove", "disk", wire, seq=index))
        doing = f"hotplug: give disk {index} to the running instance"
        try:
            place = self._hotplug.device(doing, "hotadd", "disk", wire, seq=index)
        except OpExecError as err:
            if not self._op.hotplug_if_possible:
                raise
            self._context.warn(f"{err}; the instance sees the disk when it is restarted")
            return
        where = f" at {place}" if place else ""
        self._context.info(f"disk {index} was given to the running instance{where}")

    def _close(self, disk: Disk, index: int) -> None:
        """Close a disk; a failure is told."""
        primary = self._view.primary
        result = self._context.nodes.call_one(
            NodeCalls.blockdev_shutdown, primary, self._view.disk_wire(disk)
        )
        if result.error is not None:
            text = result.explain(f"close disk {index}")
            self._context.warn(text)

    def finish(self) -> None:
        """Remove disks without an owner, close detached ones; failures are told."""
        for step in self.plan.of(_DETACH):
            self._close(step.device, step.index)
        removed = [step.device for step in self.plan.of(_REMOVE)]
        remove_unknown(self._context, self._view, removed)


def remove_unknown(context: JobContext, view: InstanceView, disks: Sequence[Disk]) -> None:
    """Remove disks that are not in the configuration any more; each failure names the disk."""
    node = view.primary
    for disk in disks:
        try:
            result = context.nodes.call_one(NodeCalls.blockdev_remove, node, view.disk_wire(disk))
        except GenericError as err:
            context.warn(f"{err}; {_left(disk)}")
            continue
        if result.error is not None:
            text = result.explain(f"remove disk {disk.uuid}")
            context.warn(f"{text}; {_left(disk)}")


def _left(disk: Disk) -> str:
    return f"remove it by hand: {disk.dev_type} {' '.join(map(str, disk.logical_id))}"
