"""Make several instances: one job for each, submitted together.

Those without a node are placed by one question to an allocator, which sees them together.  Each job
checks its node again under its own locks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.logical_units import lookup
from ganeti.logical_units.allocator.asking import (
    Allocator,
    ask_allocator,
    choose_allocator,
    read_snapshot,
)
from ganeti.logical_units.allocator.moves import submitted
from ganeti.logical_units.allocator.wishes import wish_for_new
from ganeti.logical_units.base import LogicalUnit
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceMultiAlloc
from ganeti.opcodes.registry import decode_opcode
from ganeti.protocol.iallocator import MultiAllocate, MultiAllocateResult

_NEW_INSTANCE: Final = "OP_INSTANCE_CREATE"


class LUInstanceMultiAlloc(LogicalUnit[OpInstanceMultiAlloc]):
    """Submit the jobs that make instances."""

    allocator: Allocator | None

    def expand_names(self) -> None:
        """Check what can be checked before anybody is asked.

        Raises:
            OpPrereqError: nothing to make, a wrong parameter, a name given twice or taken, or an
                allocator is needed and there is none.
        """
        self.creations = [_creation(wire) for wire in self.op.instances]
        if not self.creations:
            raise OpPrereqError("no instances are given", ErrorCode.INVAL)
        names = [op.instance_name for op in self.creations]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise OpPrereqError(f"given more than once: {', '.join(twice)}", ErrorCode.INVAL)
        self.homeless = [op for op in self.creations if not (op.pnode or op.pnode_uuid)]
        self.allocator = None
        if self.homeless:
            first = f"instance {self.homeless[0].instance_name!r}"
            self.allocator = choose_allocator(self.cluster, self.op.iallocator, first)
        elif self.op.iallocator is not None:
            raise OpPrereqError(
                f"allocator {self.op.iallocator!r} has nothing to do: every instance has its node",
                ErrorCode.INVAL,
            )

    def check_prereq(self) -> None:
        """Have a node chosen for each instance that has none."""
        self.placed, self.failed = self.creations, list[str]()
        if self.allocator is not None:
            nodes, self.failed = self._ask(self.allocator)
            self.placed = [
                _with_node(op, nodes[op.instance_name]) if op in self.homeless else op
                for op in self.creations
                if op.instance_name not in self.failed
            ]

    def _ask(self, allocator: Allocator) -> tuple[dict[str, str], list[str]]:
        """Return the primary nodes by instance, and the instances that fit nowhere."""
        names = [op.instance_name for op in self.homeless]
        taken = lookup.present(self.config.get_instances(names))
        if taken:
            raise OpPrereqError(
                f"instance {taken[0].name!r} is already in the cluster", ErrorCode.EXISTS
            )
        wanted = MultiAllocate(
            instances=[
                wish_for_new(
                    self.config,
                    self.cluster,
                    op,
                    op.instance_name,
                    only_free_nodes=self.op.opportunistic_locking,
                )
                for op in self.homeless
            ]
        )
        result: MultiAllocateResult = ask_allocator(
            self.context, allocator, wanted, read_snapshot(self.config)
        )
        placed, failed = result
        for name, nodes in placed:
            self.context.info(f"allocator {allocator.name} chose {', '.join(nodes)} for {name}")
        return {name: nodes[0] for name, nodes in placed}, failed

    def exec(self) -> dict[str, object]:
        """Submit a job for each instance; what is wrong with one does not keep back the others."""
        for name in self.failed:
            self.context.warn(f"the allocator finds no place for instance {name}")
        return {
            "jobs": submitted(self.context, [[op] for op in self.placed]),
            "allocatable": [op.instance_name for op in self.placed],
            "failed": self.failed,
        }


def _creation(wire: object) -> OpInstanceCreate:
    """Return one creation from its JSON form, with or without the name of its opcode.

    Raises:
        OpPrereqError: it is something else, a parameter is wrong, or it names an allocator.
    """
    if not isinstance(wire, Mapping) or wire.get("OP_ID", _NEW_INSTANCE) != _NEW_INSTANCE:
        raise OpPrereqError(
            f"instances must be a list of parameters of {_NEW_INSTANCE}", ErrorCode.INVAL
        )
    opcode = decode_opcode({**wire, "OP_ID": _NEW_INSTANCE})
    assert isinstance(opcode, OpInstanceCreate)
    if opcode.iallocator is not None:
        raise OpPrereqError(
            f"instance {opcode.instance_name!r}: one allocator places all instances together; name"
            " it once, not with an instance",
            ErrorCode.INVAL,
        )
    return opcode


def _with_node(op: OpInstanceCreate, node: str) -> OpInstanceCreate:
    return replace(op, pnode=node, opportunistic_locking=False)
