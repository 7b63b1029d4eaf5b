"""Make several instances: one job for each, submitted together.

Those without a node are placed by one question to an allocator, which sees them together.  Each job
checks its node again under its own locks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from msgspec import structs

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.asking import (
    Allocator,
    ask_allocator,
    choose_allocator,
    read_snapshot,
)
from ganeti.logical_units.allocator.moves import submitted
from ganeti.logical_units.allocator.placing import nodes_to_choose_from
from ganeti.logical_units.allocator.question import request_for_new
from ganeti.logical_units.base import LogicalUnit
from ganeti.objects.allocation_modes import IAllocatorMode
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceMultiAlloc
from ganeti.opcodes.registry import decode_opcode
from ganeti.protocol.iallocator import MultiAllocate, MultiAllocateResult, NewInstance

_NEW_INSTANCE: Final = "OP_INSTANCE_CREATE"


@dataclass(frozen=True, slots=True)
class Creations:
    """Instances to be made.

    Attributes:
        allocator: it chooses a node for each instance without one; None if all have one.
        failed: names of instances that fit nowhere.
    """

    creations: Sequence[OpInstanceCreate]
    allocator: Allocator | None
    failed: Sequence[str] = ()


class LUInstanceMultiAlloc(LogicalUnit[OpInstanceMultiAlloc, Creations, Creations]):
    """Submit the jobs that make instances."""

    def resolve(self) -> Creations:
        """Make the checks that need no allocator.

        Raises:
            OpPrereqError: nothing to make, a wrong parameter, a name given twice or taken, or an
                allocator is needed and there is none.
        """
        creations = [_creation(wire) for wire in self.op.instances]
        if not creations:
            raise OpPrereqError("no instances are given")
        names = [op.instance_name for op in creations]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise OpPrereqError(f"given more than once: {', '.join(twice)}")
        first = next((op.instance_name for op in creations if not _has_node(op)), None)
        if first is not None:
            allocator = choose_allocator(
                self.cluster,
                self.op.iallocator,
                f"instance {first!r}",
                IAllocatorMode.MULTI_ALLOCATE,
            )
            return Creations(creations, allocator)
        if self.op.iallocator is not None:
            raise OpPrereqError(
                f"allocator {self.op.iallocator!r} has nothing to do: every instance has its node"
            )
        return Creations(creations, None)

    def place(self, found: Creations, earlier: Creations | None) -> Creations:
        """Have a node chosen for each instance that has none; no room is reserved there."""
        if found.allocator is None or earlier is not None:
            return earlier or found
        placeless = [op for op in found.creations if not _has_node(op)]
        nodes, failed = self._ask(found.allocator, placeless)
        placed = [
            op if _has_node(op) else _with_nodes(op, nodes[op.instance_name])
            for op in found.creations
            if op.instance_name not in failed
        ]
        return Creations(placed, found.allocator, failed)

    def plan(self, found: Creations) -> Creations:
        return found

    def _ask(
        self, allocator: Allocator, placeless: Sequence[OpInstanceCreate]
    ) -> tuple[dict[str, Sequence[str]], list[str]]:
        """Return the nodes by instance, the primary first, and the instances that fit nowhere."""
        taken = lookup.present(self.config.get_instances([op.instance_name for op in placeless]))
        if taken:
            raise OpPrereqError(
                f"instance {taken[0].name!r} is already in the cluster", ErrorCode.EXISTS
            )
        requests = [self._request(op) for op in placeless]
        what, only_free = f"instance {requests[0].name!r}", self.op.opportunistic_locking
        with nodes_to_choose_from(self.context, what, only_free=only_free) as names:
            wanted = MultiAllocate(
                instances=[structs.replace(each, restrict_to_nodes=names) for each in requests]
            )
            by, result = ask_allocator(self.context, allocator, wanted, read_snapshot(self.config))
        placed, failed = cast(MultiAllocateResult, result)
        for name, nodes in placed:
            self.context.info(f"allocator {by} chose {', '.join(nodes)} for {name}")
        return dict(placed), failed

    def _request(self, op: OpInstanceCreate) -> NewInstance:
        """Return the request for a place.

        Raises:
            OpPrereqError: a setting cannot be; the text names the instance.
        """
        what = f"instance {op.instance_name!r}"
        try:
            return request_for_new(self.config, self.cluster, op, op.instance_name)
        except OpPrereqError as err:
            if err.message.startswith(what):
                raise
            raise OpPrereqError(f"{what}: {err.message}", err.ecode) from err

    def execute(self, plan: Creations) -> dict[str, object]:
        """Submit a job for each instance; an error of one does not keep back the others."""
        for name in plan.failed:
            self.context.warn(f"the allocator finds no place for instance {name}")
        return {
            "jobs": submitted(self.context, [[op] for op in plan.creations]),
            "allocatable": [op.instance_name for op in plan.creations],
            "failed": list(plan.failed),
        }


def _has_node(op: OpInstanceCreate) -> bool:
    return bool(op.pnode or op.pnode_uuid)


def _creation(wire: object) -> OpInstanceCreate:
    """Return one creation from its JSON form, with or without the name of its opcode.

    Raises:
        OpPrereqError: it is something else, a parameter is wrong, or it names an allocator.
    """
    if not isinstance(wire, Mapping) or wire.get("OP_ID", _NEW_INSTANCE) != _NEW_INSTANCE:
        raise OpPrereqError(f"instances must be a list of parameters of {_NEW_INSTANCE}")
    opcode = decode_opcode({**wire, "OP_ID": _NEW_INSTANCE})
    assert isinstance(opcode, OpInstanceCreate)
    if opcode.iallocator is not None:
        raise OpPrereqError(
            f"instance {opcode.instance_name!r}: one allocator places all instances together; name"
            " it once, not with an instance"
        )
    return opcode


def _with_nodes(op: OpInstanceCreate, nodes: Sequence[str]) -> OpInstanceCreate:
    primary, *others = nodes
    second = next(iter(others), None)
    return structs.replace(
        op, pnode=primary, snode=second, opportunistic_locking=False, explain=False
    )
