"""Jobs that an allocator plans in modes node-evacuate and change-group, made ready and submitted.

What it says was checked already (`answer`); each job checks everything again under its own locks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from ganeti.base.json import JsonValue
from ganeti.logical_units.context import JobContext
from ganeti.objects.model import Instance
from ganeti.opcodes.instance import OpInstanceFailover, OpInstanceMigrate, OpInstanceReplaceDisks
from ganeti.opcodes.opcode import FinalStatus, OpCode
from ganeti.opcodes.registry import decode_opcode
from ganeti.opcodes.summary import summary
from ganeti.protocol.iallocator import EvacuateResult

Jobs = list[list["OpCode"]]

# One after the other, whether or not the one before went well; whoever cancels one stops them.
_AFTER_THE_ONE_BEFORE: Final = [(-1, [FinalStatus.ERROR, FinalStatus.SUCCESS])]


def planned_jobs(
    result: EvacuateResult,
    *,
    reason: list[JsonValue] | None,
    early_release: bool = False,
    force_failover: bool = False,
    sequential: bool = False,
) -> Jobs:
    """Return the jobs of an answer, changed as the operator wants them.

    Args:
        reason: why all this is done; for opcodes that do not say so themselves.
        early_release: free old disks before new ones have all data, where that can be.
        force_failover: fail over instead of migrating.
        sequential: one job after the other.
    """
    _moved, _failed, wires = result
    jobs: Jobs = [[decode_opcode(wire) for wire in job] for job in wires]
    for number, job in enumerate(jobs):
        for index, op in enumerate(job):
            if early_release and isinstance(op, OpInstanceReplaceDisks):
                op = replace(op, early_release=True)
            if force_failover and isinstance(op, OpInstanceMigrate):
                op = _as_failover(op)
            job[index] = op if op.reason else replace(op, reason=reason)
        if sequential and number:
            job[0] = replace(job[0], depends=[*(job[0].depends or []), *_AFTER_THE_ONE_BEFORE])
    return jobs


def _as_failover(op: OpInstanceMigrate) -> OpInstanceFailover:
    return OpInstanceFailover(
        instance_name=op.instance_name,
        instance_uuid=op.instance_uuid,
        target_node=op.target_node,
        target_node_uuid=op.target_node_uuid,
        iallocator=op.iallocator,
        ignore_ipolicy=op.ignore_ipolicy,
        reason=op.reason,
        depends=op.depends,
    )


def refusals(result: EvacuateResult) -> list[str]:
    """Return a line for each instance that the allocator cannot move."""
    return [
        f"instance {name} cannot be moved: {why or 'no reason given'}" for name, why in result[1]
    ]


def stays_planned(instance: Instance) -> str:
    """Return the hint for an instance that is only planned: no job can move it."""
    return (
        f"instance {instance.name} is only planned, so there is nothing to move; make it on another"
        f" node with 'gnt-instance add --commit -n NODE {instance.name}', or drop it with"
        f" 'gnt-instance remove {instance.name}'"
    )


def submit_moves(context: JobContext, result: EvacuateResult, jobs: Jobs) -> dict[str, object]:
    """Submit jobs; returns their ids as opcodes answer them, and the instances without a plan."""
    for name, group, nodes in result[0]:
        context.info(f"instance {name} goes to {', '.join(nodes)} (node group {group})")
    for text in refusals(result):
        context.warn(text)
    return {"jobs": [*submitted(context, jobs), *((False, text) for text in refusals(result))]}


def submitted(context: JobContext, jobs: Sequence[Sequence[OpCode]]) -> list[tuple[bool, int]]:
    """Submit jobs and name them in the log; returns (accepted, job id) of each."""
    job_ids = context.submit_jobs(jobs) if jobs else []
    for job, job_id in zip(jobs, job_ids, strict=True):
        context.info(f"job {job_id}: {', '.join(summary(op) for op in job)}")
    return [(True, job_id) for job_id in job_ids]
