"""Make lost disks of an instance anew, empty, where they were or on another node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from ganeti.base.errors import OpPrereqError, wrong_state
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.placing import still_usable
from ganeti.logical_units.hooks import HookPoint, ObjectType
from ganeti.logical_units.instance.base import AnyInstanceUnit, check_node_online
from ganeti.logical_units.instance.creation.choosing import check_one_way, choose_for_disks
from ganeti.logical_units.instance.life.power import check_not_running
from ganeti.logical_units.instance.moving.target import Move, check_target, locks_of_move
from ganeti.logical_units.instance.storage import disks, planning
from ganeti.logical_units.instance.storage.disks import make_directory, make_disk
from ganeti.logical_units.instance.storage.files import directories
from ganeti.logical_units.instance.storage.planner import disk_size
from ganeti.logical_units.instance.view import InstanceView
from ganeti.logical_units.locks import LockNeed
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.model import Disk
from ganeti.opcodes.instance import OpInstanceRecreateDisks
from ganeti.protocol.wconfd import Change, ObjectKind

CHANGEABLE: Final = ("mode", "size")


def plan_recreation(
    disks: Sequence[Disk], asked: Sequence[int | tuple[int, Mapping[str, object]]]
) -> dict[int, Disk]:
    """Return {index: disk as it is to be} of the disks to be made; all of them if none is named.

    Raises:
        OpPrereqError: no such disk, named twice, or a setting that cannot be changed.
    """
    given = [(one, {}) if isinstance(one, int) else one for one in asked]
    wanted: dict[int, Disk] = {}
    for index, settings in given or [(index, {}) for index in range(len(disks))]:
        if index >= len(disks):
            raise OpPrereqError(f"disk {index} not found: the instance has {len(disks)} disk(s)")
        if index in wanted:
            raise OpPrereqError(f"disk {index} is named twice")
        unknown = sorted(set(settings) - set(CHANGEABLE))
        if unknown:
            raise OpPrereqError(
                f"disk/{index}: {', '.join(unknown)} cannot be changed; what can is"
                f" {' and '.join(CHANGEABLE)}"
            )
        disk, what = disks[index], f"disk/{index}"
        wanted[index] = structs.replace(
            disk,
            size=disk_size(what, settings.get("size", disk.size)),
            mode=planning.disk_mode(what, settings.get("mode", disk.mode.value)),
        )
    return wanted


@dataclass(frozen=True, slots=True)
class Recreation(Move):
    """The disks to be made anew, as they are to be, by index; the target is their node."""

    wanted: Mapping[int, Disk]

    @property
    def goes_elsewhere(self) -> bool:
        """Whether the instance gets another primary node."""
        return self.goal.uuid != self.view.primary.uuid


class LUInstanceRecreateDisks(AnyInstanceUnit[OpInstanceRecreateDisks, Move, Recreation]):
    """Make the disks of a stopped instance anew."""

    hooks = HookPoint("instance-recreate-disks", ObjectType.INSTANCE)

    def resolve(self) -> Move:
        """Read the instance, and look up the node where its disks are to be."""
        view, names = self.read_instance(), self.op.node_uuids or self.op.nodes
        what = f"instance {view.instance.name!r}"
        if len(names) > 1:
            raise OpPrereqError(
                f"{what}: disk template {view.template!r} has its disks on one node, {len(names)}"
                " were given"
            )
        named = [lookup.require_node(self.config, name) for name in names]
        if self.op.iallocator is None:
            return Move(view, named[0] if named else view.primary)
        node_name = named[0].name if named else None
        check_one_way(what, node=node_name, iallocator=self.op.iallocator)
        return Move(view, None)

    def place(self, found: Move, earlier: Move | None) -> Move:
        """Have an allocator choose the node, if one is given; space there is reserved."""
        if found.target is not None:
            return found
        view = found.view
        _check_template(view)
        wanted = plan_recreation(view.disks, self.op.disks)
        made = [wanted.get(index, disk) for index, disk in enumerate(view.disks)]
        chosen = still_usable(self.config, earlier.goal.uuid) if earlier else None
        if chosen is None:
            chosen = choose_for_disks(self.context, view, made, str(self.op.iallocator))
        return Move(view, chosen)

    def locks(self, found: Move) -> LockNeed:
        """Lock the instance exclusively, old and new node shared."""
        return locks_of_move(found)

    def plan(self, found: Move) -> Recreation:
        """Refuse while the instance runs, and where disks are still there."""
        view, name = found.view, found.view.instance.name
        _check_template(view)
        plan = Recreation(view, found.target, plan_recreation(view.disks, self.op.disks))
        if plan.goes_elsewhere and len(plan.wanted) < len(view.disks):
            raise OpPrereqError(
                f"instance {name!r}: on another node all disks must be made anew, not some"
            )
        if not view.primary.offline:
            check_not_running(self.context, view)
        elif not plan.goes_elsewhere:
            check_node_online(view.primary, f"primary node of instance {name!r}:")
        if plan.goes_elsewhere:
            check_target(self.context, view, plan.goal, ignore_ipolicy=False)
        self._check_gone(plan)
        return plan

    def _check_gone(self, plan: Recreation) -> None:
        """Refuse to make a disk that is there: its data would be lost."""
        name, node = plan.view.instance.name, plan.goal
        for index, disk in plan.wanted.items():
            found = self.context.nodes.check(
                node, f"look for disk {index} of instance {name!r}"
            ).blockdev_find(plan.view.disk_wire(disk))
            if found is not None:
                raise wrong_state(
                    f"disk {index} of instance {name!r} exists on node {node.name!r}; name only"
                    " the disks that are lost (--disk N)"
                )

    def execute(self, plan: Recreation) -> None:
        """Make the disks, then record the changes."""
        view, node = plan.view, plan.goal
        nodes = planning.nodes_of(DiskTemplate(view.template), node.uuid)
        with Undo(self.context) as undo:
            for directory in directories(list(plan.wanted.values())):
                make_directory(self.context, node, directory, undo)
            made = {}
            for index, disk in plan.wanted.items():
                self.context.check_canceled()
                self.context.feedback(f"* creating disk {index}...")
                planned = structs.replace(disk, nodes=nodes)
                made[index] = make_disk(self.context, view, node, index, planned, undo)
            self._record(plan, made)
            undo.forget()
        after = InstanceView.of(self.config.get_instance_context(view.instance.uuid))
        if not after.instance.disks_active:
            disks.deactivate(self.context, after, after.primary)

    def _record(self, plan: Recreation, made: Mapping[int, Disk]) -> None:
        changes: list[Change] = []
        if plan.goes_elsewhere:
            changes.append(
                (ObjectKind.INSTANCE, plan.view.instance.uuid, {"primary_node": plan.goal.uuid})
            )
        for index, disk in made.items():
            old, new = plan.view.disks[index].to_wire(), disk.to_wire()
            fields = {name: value for name, value in new.items() if old.get(name) != value}
            if fields:
                changes.append((ObjectKind.DISK, disk.uuid, fields))
        if changes:
            self.config.modify_objects(changes)


def _check_template(view: InstanceView) -> None:
    template, traits = view.template, view.traits
    if not traits.has_disks or traits.must_adopt:
        raise OpPrereqError(
            f"instance {view.instance.name!r}: disks of template {template!r} cannot be made anew"
        )
