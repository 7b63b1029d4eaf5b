"""Make lost disks of an instance anew, empty, where they were or on another node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Self

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.instance import disks, new_disks
from ganeti.logical_units.instance.making_disks import make_directory, make_disk
from ganeti.logical_units.instance.power import is_running, running_info
from ganeti.logical_units.instance.subject import InstanceUnit, Subject, check_node_online
from ganeti.logical_units.instance.target import check_target, locks_for_move
from ganeti.logical_units.lock_plan import LockLevel, LockNeed
from ganeti.logical_units.node_calls import ask
from ganeti.logical_units.undo import Undo
from ganeti.objects.disk_templates import MUST_ADOPT, DiskTemplate
from ganeti.opcodes.instance import OpInstanceRecreateDisks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ganeti.base.ids import NodeUuid
    from ganeti.objects.disk import Disk
    from ganeti.objects.node import Node

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
        wanted[index] = replace(
            disk,
            size=new_disks.disk_size(what, settings.get("size", disk.size)),
            mode=new_disks.disk_mode(what, settings.get("mode", disk.mode.value)),
        )
    return wanted


class LUInstanceRecreateDisks(InstanceUnit[OpInstanceRecreateDisks]):
    """Make the disks of a stopped instance anew."""

    chosen: NodeUuid | None = None  # by an allocator

    def expand_names(self) -> None:
        """Read the instance, and look up the node where its disks are to be."""
        super().expand_names()
        names = self.op.node_uuids or self.op.nodes
        if len(names) > 1:
            raise OpPrereqError(
                f"instance {self.instance.name!r}: disk template {self.subject.template!r} has its"
                f" disks on one node, {len(names)} were given"
            )
        found = [lookup.require_node(self.config, name) for name in names]
        if self.op.iallocator is not None:
            found = [self._by_allocator(found)]
        self.node: Node = found[0] if found else self.subject.primary

    def take_over(self, earlier: Self) -> None:
        """Stay with the node that the allocator chose; space on it is reserved."""
        self.chosen = earlier.node.uuid if self.op.iallocator else None

    def _by_allocator(self, named: Sequence[Node]) -> Node:
        from ganeti.logical_units.allocator.placing import still_usable
        from ganeti.logical_units.instance.choosing import check_one_way, choose_for_disks

        what = f"instance {self.instance.name!r}"
        node_name = named[0].name if named else None
        check_one_way(what, node=node_name, iallocator=self.op.iallocator)
        self._check_template()
        wanted = plan_recreation(self.subject.disks, self.op.disks)
        made = [wanted.get(index, disk) for index, disk in enumerate(self.subject.disks)]
        chosen = still_usable(self.config, self.chosen)
        return chosen or choose_for_disks(self.context, self.subject, made, str(self.op.iallocator))

    @property
    def goes_elsewhere(self) -> bool:
        """Whether the instance gets another primary node."""
        return self.node.uuid != self.subject.primary.uuid

    def declare_locks(self, level: LockLevel) -> LockNeed:
        """Lock the instance exclusively, old and new node shared."""
        return locks_for_move(level, self.subject, self.node)

    def check_prereq(self) -> None:
        """Refuse while the instance runs, and where disks are still there."""
        subject, name = self.subject, self.instance.name
        self._check_template()
        self.wanted = plan_recreation(subject.disks, self.op.disks)
        if self.goes_elsewhere and len(self.wanted) < len(subject.disks):
            raise OpPrereqError(
                f"instance {name!r}: on another node all disks must be made anew, not some"
            )
        if not subject.primary.offline:
            self._check_not_running()
        elif not self.goes_elsewhere:
            check_node_online(subject.primary, f"primary node of instance {name!r}:")
        if self.goes_elsewhere:
            check_target(self.context, subject, self.node, ignore_ipolicy=False)
        self._check_gone()

    def _check_template(self) -> None:
        template = self.subject.template
        if template == DiskTemplate.DISKLESS or template in MUST_ADOPT:
            raise OpPrereqError(
                f"instance {self.instance.name!r}: disks of template {template!r} cannot be made"
                " anew",
                ErrorCode.INVAL,
            )

    def _check_not_running(self) -> None:
        primary, name = self.subject.primary, self.instance.name
        if is_running(running_info(self.context, self.subject, primary)):
            raise OpPrereqError(
                f"instance {name!r} is running on node {primary.name!r}; shut it down first",
                ErrorCode.STATE,
            )

    def _check_gone(self) -> None:
        """Refuse to make a disk that is there: its data would be lost."""
        for index, disk in self.wanted.items():
            found = ask(
                self.context,
                self.node,
                f"look for disk {index} of instance {self.instance.name!r}",
                "blockdev_find",
                self.subject.disk_wire(disk),
            )
            if found is not None:
                raise OpPrereqError(
                    f"disk {index} of instance {self.instance.name!r} exists on node"
                    f" {self.node.name!r}; name only the disks that are lost (--disk N)",
                    ErrorCode.STATE,
                )

    def exec(self) -> None:
        """Make the disks, then write down what has changed."""
        subject = self.subject
        nodes = new_disks.nodes_of(DiskTemplate(subject.template), self.node.uuid)
        with Undo(self.context) as undo:
            for directory in disks.directories(list(self.wanted.values())):
                make_directory(self.context, self.node, directory, undo)
            made = {}
            for index, disk in self.wanted.items():
                self.context.check_canceled()
                self.context.feedback(f"* creating disk {index}...")
                planned = replace(disk, nodes=nodes)
                made[index] = make_disk(self.context, subject, self.node, index, planned, undo)
            self._record(made)
            undo.forget()
        after = Subject(self.config.get_instance_context(self.instance.uuid))
        if not after.instance.disks_active:
            disks.deactivate(self.context, after, after.primary)

    def _record(self, made: Mapping[int, Disk]) -> None:
        changes: list[tuple[str, str, Mapping[str, object]]] = []
        if self.goes_elsewhere:
            changes.append(("instance", self.instance.uuid, {"primary_node": self.node.uuid}))
        for index, disk in made.items():
            old, new = self.subject.disks[index].to_wire(), disk.to_wire()
            fields = {name: value for name, value in new.items() if old.get(name) != value}
            if fields:
                changes.append(("disk", disk.uuid, fields))
        if changes:
            self.config.modify_objects(changes)
