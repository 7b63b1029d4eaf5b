"""``OP_TEST_ALLOCATOR``: show what an allocator would be asked, or ask it and show its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.asking import (
    choose_allocator,
    make_question,
    read_snapshot,
    run_allocator,
)
from ganeti.logical_units.allocator.groups import find_targets
from ganeti.logical_units.allocator.placing import relocation
from ganeti.logical_units.allocator.wishes import wish_for_new
from ganeti.logical_units.base import LogicalUnit
from ganeti.objects.allocation_modes import EvacMode, IAllocatorDirection, IAllocatorMode
from ganeti.opcodes.instance import OpInstanceCreate
from ganeti.opcodes.registry import decode_opcode
from ganeti.opcodes.test import OpTestAllocator
from ganeti.protocol.iallocator import (
    Allocate,
    AllocateSecondary,
    ChangeGroup,
    MultiAllocate,
    NewInstance,
    NodeEvacuate,
    Wanted,
    encode_request,
)

COUNT_MAX: Final = 1000


class LUTestAllocator(LogicalUnit[OpTestAllocator]):
    """Make a question about the cluster as it is; nothing is locked and nothing is changed."""

    def check_prereq(self) -> None:
        """Make the question.

        Raises:
            OpPrereqError: a parameter that the mode needs is missing, or names nothing.
        """
        self.snapshot = read_snapshot(self.config)
        self.wanted = _WISHES[self.op.mode](self)
        if self.op.direction is IAllocatorDirection.OUT:
            self.allocator = choose_allocator(self.cluster, self.op.iallocator, "this test")

    def exec(self) -> str:
        """Return the question (direction ``in``) or what the allocator prints (``out``)."""
        hypervisor = str(self.op.hypervisor) if self.op.hypervisor else None
        question = make_question(self.context, self.snapshot, self.wanted, hypervisor=hypervisor)
        if self.op.direction is IAllocatorDirection.IN:
            return encode_request(question)
        return run_allocator(self.context, self.allocator, question)

    # What each mode asks.

    def wish(self, name: str) -> NewInstance:
        """Return the wish for a new instance of a name, from the parameters of the opcode."""
        op = self.op
        beparams: dict[str, object] = {"spindle_use": op.spindle_use}
        for key, value in (("memory", op.memory), ("vcpus", op.vcpus)):
            if value is None:
                raise _missing(op, key)
            beparams[key] = value
        creation = decode_opcode(
            {
                "OP_ID": "OP_INSTANCE_CREATE",
                "instance_name": name,
                "mode": "create",
                "disks": self._disks(),
                "disk_template": op.disk_template and op.disk_template.value,
                "nics": [{k: v for k, v in nic.items() if v is not None} for nic in op.nics or []],
                "beparams": beparams,
                "os_type": op.os,
                "tags": op.tags,
                "group_name": op.group_name,
                "hypervisor": op.hypervisor and op.hypervisor.value,
            }
        )
        assert isinstance(creation, OpInstanceCreate)
        return wish_for_new(self.config, self.cluster, creation, name)

    def _disks(self) -> list[Mapping[str, object]]:
        disks = self.op.disks or []
        if not all(isinstance(disk, Mapping) for disk in disks):
            raise OpPrereqError(f"each of the disks must be an object, got {disks!r}")
        return [disk for disk in disks if isinstance(disk, Mapping)]

    def allocate(self) -> Wanted:
        """Ask for a place for a new instance."""
        if lookup.present(self.config.get_instances([self.op.name])):
            raise OpPrereqError(
                f"instance {self.op.name!r} is already in the cluster", ErrorCode.EXISTS
            )
        wish = self.wish(self.op.name)
        return Allocate(**{name: getattr(wish, name) for name in NewInstance.__struct_fields__})

    def multi_allocate(self) -> Wanted:
        """Ask for places for several new instances, which are alike but for a number."""
        count = self.op.count
        if not 0 < count <= COUNT_MAX:
            raise OpPrereqError(f"count: {count} is not between 1 and {COUNT_MAX}")
        wishes = [self.wish(f"{self.op.name}{number}") for number in range(count)]
        return MultiAllocate(instances=wishes)

    def relocate(self) -> Wanted:
        """Ask for another node for an instance."""
        instance = lookup.require_instance(self.config, self.op.name)
        return relocation(instance.name)(self.snapshot)

    def allocate_secondary(self) -> Wanted:
        """Ask for a secondary node for an instance."""
        instance = lookup.require_instance(self.config, self.op.name)
        return AllocateSecondary(name=instance.name)

    def node_evacuate(self) -> Wanted:
        """Ask how instances are to leave their nodes."""
        return NodeEvacuate(
            instances=self._instances(), evac_mode=self.op.evac_mode or EvacMode.ALL
        )

    def change_group(self) -> Wanted:
        """Ask how instances are to leave their groups."""
        targets = find_targets(self.config, self.op.target_groups, {}, "this test")
        uuids: list[str] = [group.uuid for group in targets] if self.op.target_groups else []
        return ChangeGroup(instances=self._instances(), target_groups=uuids)

    def _instances(self) -> list[str]:
        if not self.op.instances:
            raise _missing(self.op, "instances")
        return [each.name for each in lookup.require_instances(self.config, self.op.instances)]


def _missing(op: OpTestAllocator, key: str) -> OpPrereqError:
    return OpPrereqError(f"mode {op.mode.value} needs {key!r}", ErrorCode.INVAL)


_WISHES: Final[Mapping[IAllocatorMode, Callable[[LUTestAllocator], Wanted]]] = {
    IAllocatorMode.ALLOCATE: LUTestAllocator.allocate,
    IAllocatorMode.ALLOCATE_SECONDARY: LUTestAllocator.allocate_secondary,
    IAllocatorMode.CHANGE_GROUP: LUTestAllocator.change_group,
    IAllocatorMode.MULTI_ALLOCATE: LUTestAllocator.multi_allocate,
    IAllocatorMode.NODE_EVACUATE: LUTestAllocator.node_evacuate,
    IAllocatorMode.RELOCATE: LUTestAllocator.relocate,
}
