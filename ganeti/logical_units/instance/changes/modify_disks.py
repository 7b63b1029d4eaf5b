"""Changes of the disks of an instance: add, attach, modify, detach, remove, convert.

Files and volumes are made before the configuration names them, and removed after it has forgotten
them, when nothing can fail any more.

A conversion to another disk template makes new disks and fills them with the data of the old.  The
old disks go last, when the configuration names the new ones; until then every failure leads back.
Names and UUIDs of disks stay.

Source: opcodes.json, OP_INSTANCE_SET_PARAMS; constants.json, "MODIFIABLE_IDISK_PARAMS",
DTS_NOT_CONVERTIBLE_FROM and _TO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Self

from msgspec import structs

from ganeti.base.errors import ErrorCode, GenericError, OpPrereqError, wrong_state
from ganeti.logical_units import lookup
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.instance.base import check_primary_online
from ganeti.logical_units.instance.changes.convert_pair import PairPart, plan_alone, plan_pair
from ganeti.logical_units.instance.changes.device_changes import (
    DISKS,
    DevicePlan,
    DeviceStep,
    Settings,
    plan_changes,
)
from ganeti.logical_units.instance.changes.modify_parts import ModifyPart, Results, Work
from ganeti.logical_units.instance.parameters import device_name
from ganeti.logical_units.instance.storage import disks, planning
from ganeti.logical_units.instance.storage.copying import copy_disk, whole_disk
from ganeti.logical_units.instance.storage.disks import holders, make_directory, make_disk, why_left
from ganeti.logical_units.instance.storage.files import (
    directories,
    file_place,
    own_directories,
    usual_format,
)
from ganeti.logical_units.instance.storage.planner import DEV_TYPE, FilePlace
from ganeti.logical_units.instance.storage.snapshots import check_without_snapshots
from ganeti.logical_units.instance.view import InstanceView, changed_fields
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import FORMAT, DeviceAction, DiskTemplate, FileDriver, traits_of
from ganeti.objects.model import Disk, Node
from ganeti.opcodes.instance import OpInstanceSetParams
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.wconfd import Change, ObjectKind

_ADD, _ATTACH = DeviceAction.ADD, DeviceAction.ATTACH
_DETACH, _REMOVE, _MODIFY = DeviceAction.DETACH, DeviceAction.REMOVE, DeviceAction.MODIFY
MODIFIABLE: Final = ("mode", "name")
_ATTACH_BY: Final = ("name", "uuid")
_DISK: Final = "disk"


class DiskMakers:
    """How new and changed disks of one instance come about."""

    def __init__(self, work: Work) -> None:
        self._context, self._view, self._op = work.context, work.view, work.op
        self._hotplugs = work.hotplugs

    def add(self, what: str, index: int, settings: Settings) -> Disk:
        """Return a disk to be made."""
        template, view = self._template(what, settings), self._view
        new = planning.plan_disk(view.cluster, template, what, settings, view.group)  # type: ignore[arg-type]
        place, nodes = self._place(template), view.nodes
        made = planning.describe_disk(new, index, place, nodes, self._context.new_uuid)
        planning.check_formats(self._view.instance.hypervisor, [made])
        [checked] = planning.check_on_nodes(self._context, nodes, [made])
        adopted = [made.uuid] if "adopt" in settings else []
        planning.check_spindles(self._context, view.primary, [checked], adopted)
        return planning.settle(self._context, checked)

    def _template(self, what: str, settings: Settings) -> DiskTemplate:
        """Return the template of a new disk: the one asked for, or that of all others.

        Raises:
            OpPrereqError: nothing says which it is to be, or the instance has one node only.
        """
        view, asked = self._view, settings.get(DEV_TYPE)
        if asked is None and len(view.templates) != 1:
            has = f"has disks of {' and '.join(view.templates)}" if view.disks else "is diskless"
            raise OpPrereqError(
                f"{what}: instance {view.name!r} {has}; say what kind of disk it is to be with"
                " dev_type=..."
            )
        template = planning.choose_template(view.cluster, str(asked or view.template))
        if template.traits.mirrored and not view.needs_own_nodes:
            raise wrong_state(
                f"{what}: a disk of template {str(template)!r} has a copy on a second node, which"
                f" instance {view.name!r} does not have; convert all its disks with 'gnt-instance"
                f" modify -t {template} -n NODE {view.name}'"
            )
        return template

    def _place(self, template: DiskTemplate) -> FilePlace | None:
        op = self._op
        like = [disk for disk in self._view.disks if disk.dev_type == template]
        own = own_directories(self._view.with_instance(self._view.instance, like))
        if template.traits.is_file and own and not (op.file_storage_dir or op.file_driver):
            driver = str(like[0].logical_id[0])
            usual = usual_format(self._view.cluster, self._view.group, template)
            return FilePlace(own[0], FileDriver(driver), usual)
        return _file_place(self._view, template, op)

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
        planning.check_formats(self._view.instance.hypervisor, [disk])
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
        """Refuse a disk that is not where the instance is, or binds it to other nodes than now."""
        view, primary = self._view, self._view.primary
        if disk.nodes and primary.uuid not in disk.nodes:
            raise wrong_state(
                f"{what}: disk {disk.uuid} is not on node {primary.name!r}, where the instance is"
            )
        others = set(disk.nodes) - {node.uuid for node in view.nodes}
        if not (disk.traits.mirrored and others):
            return
        if view.needs_own_nodes:
            raise wrong_state(
                f"{what}: disk {disk.uuid} has its copy on another node than the disks that the"
                f" instance has, {view.nodes[1].name!r}; bring them together first with"
                " 'gnt-instance replace-disks -n NODE'"
            )
        if self._hotplugs:
            raise wrong_state(
                f"{what}: disk {disk.uuid} has a copy on a second node, which instance"
                f" {view.name!r} does not have yet; shut it down first"
            )

    def modify(self, what: str, index: int, device: Disk, settings: Settings) -> Disk:
        """Return the disk with another name, mode or parameters."""
        if "size" in settings:
            raise OpPrereqError(
                f"{what}: the size is changed by 'gnt-instance grow-disk"
                f" {self._view.name} {index} AMOUNT'"
            )
        planner = planning.planner_of(device.dev_type)
        of_disk = [name for name, spec in planner.own.items() if not spec.fixed]
        planning.check_changeable(what, settings, (*MODIFIABLE, *of_disk))
        params = planner.own_params(what, settings, device.params)
        changed = structs.replace(device, params=params)
        if "name" in settings:
            changed = structs.replace(changed, name=device_name(what, settings["name"]))
        if "mode" in settings:
            changed = structs.replace(changed, mode=planning.disk_mode(what, settings["mode"]))
        return changed


@dataclass(frozen=True, slots=True)
class DiskPart(ModifyPart):
    """Disks that are added, attached, modified, detached and removed.

    Attributes:
        made: the new disks, once they are made, by UUID.
    """

    plan: DevicePlan[Disk]
    made: Mapping[str, Disk] = field(default_factory=dict)

    @property
    def disks(self) -> Sequence[Disk]:
        """The disks as they will be."""
        return self.plan.devices

    @property
    def results(self) -> Results:
        return [row for step in self.plan.steps for row in self._told(step)]

    def _told(self, step: DeviceStep[Disk]) -> Results:
        if step.action is _MODIFY:
            disk = step.device
            new = {**(disk.params or {}), "mode": disk.mode.value, "name": disk.name}
            return [(f"disk.{name}/{step.index}", new.get(name)) for name in sorted(step.settings)]
        disk, said = self._now(step), step.action.value
        if step.action in (_ADD, _ATTACH):
            said = f"{said}:size={disk.size},mode={disk.mode.value}"
        return [(f"disk/{step.index}", said)]

    def _now(self, step: DeviceStep[Disk]) -> Disk:
        """Return the disk of a step as it is by now."""
        return self.made.get(step.device.uuid, step.device)

    def before_store(self, undo: Undo) -> Self:
        """Make the new disks, unplug the removed ones."""
        work, added = self.work, self.plan.of(_ADD)
        own = own_directories(work.view)
        new = [step.device for step in added if "adopt" not in step.settings]
        for directory in directories(new):
            if directory not in own:
                make_directory(work.context, work.view.primary, directory, undo)
        made: dict[str, Disk] = {}
        for step in added:
            work.context.check_canceled()
            work.context.feedback(f"* creating disk {step.index}...")
            adopt = "adopt" in step.settings and not step.device.traits.must_adopt
            made[step.device.uuid] = make_disk(
                *(work.context, work.view, work.view.primary, step.index, step.device, undo),
                adopt=adopt,
            )
        for step in self.plan.of(_REMOVE, _DETACH) if work.hotplugs else ():
            if step.device.uuid not in made:
                index = step.index
                wire = work.view.disk_wire(step.device, work.view.primary).to_wire()
                back = f"give disk {index} back to the running instance"
                undo.push(back, partial(work.hotplug, back, "hotadd", _DISK, wire, index))
                work.unplug(_DISK, _DISK, wire, index)
        return replace(self, made=made)

    def store(self, undo: Undo) -> None:
        """Change the configuration step by step, each with its inverse."""
        for step in self.plan.steps:
            if step.action is _MODIFY:
                self._store_settings(step, undo)
            else:
                self._store_place(step, undo)

    def _store_place(self, step: DeviceStep[Disk], undo: Undo) -> None:
        config, owner = self.work.context.config, self.work.view.instance.uuid
        disk = self._now(step)
        uuid, comes = disk.uuid, step.action in (_ADD, _ATTACH)
        add = partial(config.add_disk, owner, disk.to_wire(), step.index)
        attach = partial(config.attach_disk, owner, uuid, step.index)
        detach = partial(config.detach_disk, owner, uuid)
        remove = partial(config.remove_disk, owner, uuid)
        do, back = {
            _ADD: (add, remove),
            _ATTACH: (attach, detach),
            _DETACH: (detach, attach),
            _REMOVE: (remove, add),
        }[step.action]

        def undone() -> None:
            found = lookup.present(config.get_instances([owner]))
            if any(uuid in one.disks for one in found) is comes:
                back()

        # Pushed first: the answer may be lost when the change is made.
        undo.push(_undo_of(step), undone)
        do()

    def _store_settings(self, step: DeviceStep[Disk], undo: Undo) -> None:
        context, (before, after) = self.work.context, (step.before, step.after)
        assert before is not None
        assert after is not None
        new, old = changed_fields(before, after), changed_fields(after, before)
        if "mode" in new:
            context.info("a changed mode is seen when the instance is started next")
        if "params" in new:
            context.info("changed parameters are used when the disks are activated next")
        if new:
            modify = partial(context.config.modify, ObjectKind.DISK, after.uuid)
            modify(new)
            undo.push(_undo_of(step), partial(modify, old))

    def after_store(self, undo: Undo) -> None:
        """Plug the new disks in; disks that nobody uses yet are closed."""
        work, stay = self.work, {disk.uuid for disk in self.disks}
        for step in self.plan.of(_ADD, _ATTACH):
            disk, index = self._now(step), step.index
            if disk.uuid not in stay:
                continue
            if work.hotplugs:
                wire = work.view.disk_wire(disk, work.view.primary).to_wire()
                back = f"take disk {index} from the running instance again"
                undo.push(back, partial(work.hotplug, back, "hotremove", _DISK, wire, index))
                work.plug(_DISK, "hotadd", _DISK, wire, index)
            elif not work.view.instance.disks_active and step.action is _ADD:
                self._close(disk, index)

    def _close(self, disk: Disk, index: int) -> None:
        """Close a disk; a failure is told."""
        view, call = self.work.view, NodeCalls.blockdev_shutdown
        for node in holders(view, disk, view.primary):
            wire = view.disk_wire(disk, node)
            self.work.context.attempt(f"close disk {index}", call, node, wire)

    def finish(self) -> None:
        """Remove disks without an owner, close detached ones; failures are told."""
        for step in self.plan.of(_DETACH):
            self._close(step.device, step.index)
        removed = [step.device for step in self.plan.of(_REMOVE)]
        remove_unknown(self.work.context, self.work.view, removed)


def _undo_of(step: DeviceStep[Disk]) -> str:
    return f"undo the change of disk/{step.index} in the configuration"


def plan_disk_changes(work: Work) -> DiskPart:
    """Refuse changes that are not possible."""
    check_primary_online(work.view)
    plan = plan_changes(DISKS, work.view.disks, work.op.disks, DiskMakers(work))
    if plan.of(_REMOVE, _DETACH) and not work.hotplugs and work.guest_runs():
        raise wrong_state(
            f"instance {work.view.name!r} is running and uses its disks; shut it down"
            " first, or use --hotplug"
        )
    return DiskPart(work, plan)


def remove_unknown(context: JobContext, view: InstanceView, disks: Sequence[Disk]) -> None:
    """Remove disks that are not in the configuration any more; each failure names the disk."""
    for disk in disks:
        for node in holders(view, disk, view.primary):
            if disk.children:
                why_left(context, view, disk, node, f"remove disk {disk.uuid}")
            else:
                _remove_alone(context, view, disk, node)


def _remove_alone(context: JobContext, view: InstanceView, disk: Disk, node: Node) -> None:
    doing, call = f"remove disk {disk.uuid}", NodeCalls.blockdev_remove
    try:
        failure = context.failure(doing, call, node, view.disk_wire(disk, node))
    except GenericError as err:
        failure = str(err)
    if failure is not None:
        place = " ".join(map(str, disk.logical_id))
        context.warn(f"{failure}; remove it by hand: {disk.dev_type} {place}")


def check_conversion(name: str, old: str, new: str, *, format_changes: bool = False) -> None:
    """Refuse conversions that cannot be.

    Args:
        format_changes: the files get another format.

    Raises:
        OpPrereqError: the message names another way.
    """
    if old == new and not format_changes:
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


@dataclass(frozen=True, slots=True)
class TemplatePart(ModifyPart):
    """The conversion of disks of a stopped instance by copying their data.

    Attributes:
        disks: the disks as they will be, or as they are once they are made; those that are not
        converted are the same as before.
        closes: the new disks are closed at the end, unless the instance is to have them.
    """

    disks: Sequence[Disk]
    closes: bool = True

    def before_store(self, undo: Undo) -> Self:
        """Make the new disks and fill them."""
        context, view, node = self.work.context, self.work.view, self.work.view.primary
        there = set(directories(view.disks))
        for directory in directories(self.disks):
            if directory not in there:
                make_directory(context, node, directory, undo)
        made: list[Disk] = []
        for index, planned in enumerate(self.disks):
            context.check_canceled()
            if planned is view.disks[index]:
                made.append(planned)
                continue
            made.append(make_disk(context, view, node, index, planned, undo))
            source = whole_disk(view, node, view.disks[index])
            target = whole_disk(view, node, made[-1])
            copy_disk(context, view, index, source=source, target=target)
        return replace(self, disks=made)

    def store(self, undo: Undo) -> None:
        """Name the new disks in the configuration, all in one step."""
        modify, old = self.work.context.config.modify_objects, self.work.view.disks
        undo.push(
            "name the old disks in the configuration", lambda: modify(_changes(self.disks, old))
        )
        modify(_changes(old, self.disks))

    def finish(self) -> None:
        """Remove the old disks, close the new ones; failures are told."""
        context, view = self.work.context, self.work.view
        converted = zip(view.disks, self.disks, strict=True)
        old = [disk for disk, new in converted if disk is not new and not disk.traits.must_adopt]
        remove_unknown(context, view, old)
        gone = set(directories(old)) - set(directories(self.disks))
        disks.remove_directories(context, view.primary, sorted(gone))
        if self.closes and not view.instance.disks_active:
            after = context.config.get_instance_context(view.instance.uuid)
            disks.deactivate(context, InstanceView.of(after), view.primary)


def plan_conversion(work: Work, secondary: Node | None) -> list[TemplatePart | PairPart]:
    """Refuse conversions that are not possible; returns the steps of one that is.

    To copies on a second node, and away from them, the way is by volumes on one: these stay where
    they are.  So both steps are work of one job, and either both are done or none.

    Args:
        secondary: the node for copies of the disks, if one was given.
    """
    op, view, name = work.op, work.view, work.view.name
    if op.disks:
        raise OpPrereqError(
            f"instance {name!r}: a conversion cannot be combined with other changes of disks"
        )
    wanted = op.ext_params.get(FORMAT)
    changes = wanted is not None and any(disk.format != wanted for disk in view.disks)
    check_conversion(name, view.template, str(op.disk_template), format_changes=changes)
    template = planning.choose_template(view.cluster, op.disk_template)
    check_primary_online(view)
    if work.guest_runs():
        raise wrong_state(f"instance {name!r} is running; shut it down before converting its disks")
    is_own = op.ext_params.keys() <= planning.planner_of(template).own.keys()
    if not is_own and not template.traits.has_provider:
        raise OpPrereqError("parameters of a provider are for disk template 'ext' only")
    check_without_snapshots(work.context, view, f"convert the disks of instance {name!r}")
    if template.traits.mirrored:
        copied = _plan_copies(work, DiskTemplate.PLAIN, wanted, closes=False)
        there = [disk for disk in view.disks if disk.dev_type == DiskTemplate.PLAIN]
        return [*copied, plan_pair(_after(work, copied), secondary, there)]
    if secondary is not None:
        raise OpPrereqError(f"instance {name!r}: disks of template {template} have one node")
    alone = [plan_alone(work)] if view.needs_own_nodes else []
    return [*alone, *_plan_copies(_after(work, alone), template, wanted, closes=True)]


def _after(work: Work, steps: Sequence[TemplatePart | PairPart]) -> Work:
    """Return the work as it is after these steps."""
    if not steps:
        return work
    return replace(work, view=work.view.with_instance(work.view.instance, [*steps[-1].disks]))


def _plan_copies(
    work: Work, template: DiskTemplate, wanted: object, *, closes: bool
) -> list[TemplatePart]:
    """Return the step that copies the disks of other templates, if there are any.

    Args:
        wanted: another format of files, if one is asked for.
    """
    view, disks = work.view, work.view.disks
    kept = {DiskTemplate(template)} | ({DiskTemplate.DRBD} if not closes else set())
    moved = {
        index: _converted(work, template, index, old)
        for index, old in enumerate(disks)
        if old.dev_type not in kept or (wanted is not None and old.format != wanted)
    }
    if not moved:
        return []
    planning.check_formats(view.instance.hypervisor, moved.values())
    checked = planning.check_on_nodes(work.context, view.nodes, list(moved.values()))
    new = dict(zip(moved, checked, strict=True))
    return [TemplatePart(work, [new.get(i, old) for i, old in enumerate(disks)], closes)]


def _converted(work: Work, template: DiskTemplate, index: int, old: Disk) -> Disk:
    """Return a disk as it will be."""
    op, view, new_uuid = work.op, work.view, work.context.new_uuid
    given = op.ext_params if template == op.disk_template else {}
    settings = {"size": old.size, "mode": old.mode.value, **given}
    new = planning.plan_disk(view.cluster, template, f"disk/{index}", settings, view.group)  # type: ignore[arg-type]
    place = _file_place(view, template, op)
    made = planning.describe_disk(new, index, place, view.nodes, new_uuid, uuid=old.uuid)
    return structs.replace(made, name=old.name, ctime=old.ctime, serial_no=old.serial_no)


def _file_place(
    view: InstanceView, template: DiskTemplate, op: OpInstanceSetParams
) -> FilePlace | None:
    """Return where the files of new disks go, as `file_place`."""
    directory, driver = op.file_storage_dir, op.file_driver
    return file_place(view.cluster, view.group, template, view.name, directory, driver)


def _changes(before: Sequence[Disk], after: Sequence[Disk]) -> list[Change]:
    """Return the changes that replace the disks in the configuration."""
    found: list[Change] = []
    for old, new in zip(before, after, strict=True):
        fields = changed_fields(old, new)
        kept = {"uuid", "serial_no", "ctime", "mtime", "iv_name"}
        changed = {name: value for name, value in fields.items() if name not in kept}
        if changed:
            found.append((ObjectKind.DISK, old.uuid, changed))
    return found
