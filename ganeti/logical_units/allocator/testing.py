"""``OP_TEST_ALLOCATOR``: show the question for an allocator, or its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.asking import (
    Allocator,
    choose_allocator,
    make_question,
    read_snapshot,
    run_allocator,
)
from ganeti.logical_units.allocator.groups import find_targets
from ganeti.logical_units.allocator.new_instance import request_for_new
from ganeti.logical_units.allocator.placing import relocation
from ganeti.logical_units.allocator.question import Snapshot
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


@dataclass(frozen=True, slots=True)
class Test:
    """A request, and the allocator that it goes to; None if it is only shown."""

    snapshot: Snapshot
    wanted: Wanted
    allocator: Allocator | None


class LUTestAllocator(LogicalUnit[OpTestAllocator, Snapshot, Test]):
    """Make a question about the cluster as it is; nothing is locked and nothing is changed."""

    def resolve(self) -> Snapshot:
        return read_snapshot(self.config)

    def plan(self, found: Snapshot) -> Test:
        """Make the request.

        Raises:
            OpPrereqError: a parameter that the mode needs is missing, or names nothing.
        """
        wanted = _REQUESTS[self.op.mode](self, found)
        if self.op.direction is IAllocatorDirection.IN:
            return Test(found, wanted, None)
        allocator = choose_allocator(self.cluster, self.op.iallocator, "this test")
        return Test(found, wanted, allocator)

    def execute(self, plan: Test) -> str:
        """Return the question (direction ``in``) or the output of the allocator (``out``)."""
        hypervisor = str(self.op.hypervisor) if self.op.hypervisor else None
        question = make_question(self.context, plan.snapshot, plan.wanted, hypervisor=hypervisor)
        if plan.allocator is None:
            return encode_request(question)
        return run_allocator(self.context, plan.allocator, question)

    # The request of each mode.

    def request(self, name: str) -> NewInstance:
        """Return the request for a new instance of a name, from the parameters of the opcode."""
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
        return request_for_new(self.config, self.cluster, creation, name)

    def _disks(self) -> list[Mapping[str, object]]:
        disks = self.op.disks or []
        if not all(isinstance(disk, Mapping) for disk in disks):
            raise OpPrereqError(f"each of the disks must be an object, got {disks!r}")
        return [disk for disk in disks if isinstance(disk, Mapping)]

    def allocate(self, _snapshot: Snapshot) -> Wanted:
        """Ask for a place for a new instance."""
        if lookup.present(self.config.get_instances([self.op.name])):
            raise OpPrereqError(
                f"instance {self.op.name!r} is already in the cluster", ErrorCode.EXISTS
            )
        request = self.request(self.op.name)
        return Allocate(**{name: getattr(request, name) for name in NewInstance.__struct_fields__})

    def multi_allocate(self, _snapshot: Snapshot) -> Wanted:
        """Ask for places for several new instances, which are alike but for a number."""
        count = self.op.count
        if not 0 < count <= COUNT_MAX:
            raise OpPrereqError(f"count: {count} is not between 1 and {COUNT_MAX}")
        requests = [self.request(f"{self.op.name}{number}") for number in range(count)]
        return MultiAllocate(instances=requests)

    def relocate(self, snapshot: Snapshot) -> Wanted:
        """Ask for another node for an instance."""
        instance = lookup.require_instance(self.config, self.op.name)
        return relocation(instance.name)(snapshot)

    def allocate_secondary(self, _snapshot: Snapshot) -> Wanted:
        """Ask for a secondary node for an instance."""
        instance = lookup.require_instance(self.config, self.op.name)
        return AllocateSecondary(name=instance.name)

    def node_evacuate(self, _snapshot: Snapshot) -> Wanted:
        """Ask how instances are to leave their nodes."""
        return NodeEvacuate(
            instances=self._instances(), evac_mode=self.op.evac_mode or EvacMode.ALL
        )

    def change_group(self, _snapshot: Snapshot) -> Wanted:
        """Ask how instances are to leave their groups."""
        targets = find_targets(self.config, self.op.target_groups, {}, "this test")
        uuids: list[str] = [group.uuid for group in targets] if self.op.target_groups else []
        return ChangeGroup(instances=self._instances(), target_groups=uuids)

    def _instances(self) -> list[str]:
        if not self.op.instances:
            raise _missing(self.op, "instances")
        return [each.name for each in lookup.require_instances(self.config, self.op.instances)]


def _missing(op: OpTestAllocator, key: str) -> OpPrereqError:
    return OpPrereqError(f"mode {op.mode.value} needs {key!r}")


_REQUESTS: Final[Mapping[IAllocatorMode, Callable[[LUTestAllocator, Snapshot], Wanted]]] = {
    IAllocatorMode.ALLOCATE: LUTestAllocator.allocate,
    IAllocatorMode.ALLOCATE_SECONDARY: LUTestAllocator.allocate_secondary,
    IAllocatorMode.CHANGE_GROUP: LUTestAllocator.change_group,
    IAllocatorMode.MULTI_ALLOCATE: LUTestAllocator.multi_allocate,
    IAllocatorMode.NODE_EVACUATE: LUTestAllocator.node_evacuate,
    IAllocatorMode.RELOCATE: LUTestAllocator.relocate,
}
