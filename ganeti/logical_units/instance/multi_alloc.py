"""Make several instances: one job for each, submitted together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError
from ganeti.logical_units.base import LogicalUnit
from ganeti.opcodes.instance import OpInstanceCreate, OpInstanceMultiAlloc
from ganeti.opcodes.registry import decode_opcode

_NEW_INSTANCE: Final = "OP_INSTANCE_CREATE"


class LUInstanceMultiAlloc(LogicalUnit[OpInstanceMultiAlloc]):
    """Submit the jobs that make instances whose nodes are given."""

    def expand_names(self) -> None:
        """Check everything that can be checked without the cluster.

        Raises:
            OpPrereqError: nothing to make, a wrong parameter, or a name given twice.
            NotSupportedError: an allocator is needed.
        """
        self.creations = [_creation(wire) for wire in self.op.instances]
        if not self.creations:
            raise OpPrereqError("no instances are given", ErrorCode.INVAL)
        names = [op.instance_name for op in self.creations]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise OpPrereqError(f"given more than once: {', '.join(twice)}", ErrorCode.INVAL)
        without = [op.instance_name for op in self.creations if not (op.pnode or op.pnode_uuid)]
        if self.op.iallocator is not None or without:
            whom = f" ({', '.join(without)})" if without else ""
            raise NotSupportedError(
                f"placement of instances{whom} by an allocator is not supported yet; give each"
                " its node as pnode"
            )

    def exec(self) -> dict[str, object]:
        """Submit a job for each instance; what is wrong with one does not keep back the others."""
        names = [op.instance_name for op in self.creations]
        job_ids = self.context.submit_jobs([[op] for op in self.creations])
        for name, job_id in zip(names, job_ids, strict=True):
            self.context.info(f"job {job_id} creates instance {name}")
        return {
            "jobs": [(True, job_id) for job_id in job_ids],
            "allocatable": names,
            "failed": [],
        }


def _creation(wire: object) -> OpInstanceCreate:
    """Return one creation from its JSON form, with or without the name of its opcode.

    Raises:
        OpPrereqError: it is something else, or a parameter is wrong.
    """
    if not isinstance(wire, Mapping) or wire.get("OP_ID", _NEW_INSTANCE) != _NEW_INSTANCE:
        raise OpPrereqError(
            f"instances must be a list of parameters of {_NEW_INSTANCE}", ErrorCode.INVAL
        )
    opcode = decode_opcode({**wire, "OP_ID": _NEW_INSTANCE})
    assert isinstance(opcode, OpInstanceCreate)
    return opcode
