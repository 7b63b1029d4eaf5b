"""Turns what a client submits into a job record, or says why not.

Source: opcodes.json, "json_form"; luxi.json, "SubmitJob"; config.json, "queue".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ganeti.base.errors import OpPrereqError
from ganeti.base.ids import JobId
from ganeti.base.json import dumps
from ganeti.base.secret import REDACTED
from ganeti.jobs.record import PRIORITY_DEFAULT, QueuedJob, QueuedOp, Timestamp
from ganeti.opcodes.registry import decode_opcode, encode_opcode, redact
from ganeti.opcodes.summary import reason_source

# The largest jobs known come from evacuating a full group: a few hundred opcodes.
OPCODES_PER_JOB_MAX: Final = 5000
JOB_BYTES_MAX: Final = 16 << 20
QUEUE_LENGTH_MAX: Final = 5000  # constants.json, JOB_QUEUE_SIZE_HARD_LIMIT


class Submission(msgspec.Struct, frozen=True):
    """A job that was checked but has no id yet.

    ``inputs`` go into the job file; ``secrets`` has one entry per opcode and stays in memory.
    """

    inputs: tuple[dict[str, object], ...]
    secrets: tuple[dict[str, object] | None, ...]


def check_submission(opcodes: Sequence[Mapping[str, object]]) -> Submission:
    """Check the opcodes of one job.

    Raises:
        OpPrereqError: no opcodes, too many, or too large.
        OpCodeUnknown, OpPrereqError: an opcode is not one; the text names opcode and parameter.
    """
    if not opcodes:
        raise OpPrereqError("a job needs at least one opcode")
    if len(opcodes) > OPCODES_PER_JOB_MAX:
        raise OpPrereqError(
            f"a job of {len(opcodes)} opcodes is too long, {OPCODES_PER_JOB_MAX} are possible"
        )
    inputs, secrets = [], []
    for raw in opcodes:
        op = decode_opcode(raw)
        plain = encode_opcode(op)
        hidden = redact(op)
        inputs.append(hidden)
        secrets.append(_differing(plain, hidden))
    size_bytes = len(dumps(inputs))
    if size_bytes > JOB_BYTES_MAX:
        raise OpPrereqError(
            f"a job of {size_bytes} bytes is too large, {JOB_BYTES_MAX} are possible"
        )
    return Submission(tuple(inputs), tuple(secrets))


def _differing(
    plain: Mapping[str, object], hidden: Mapping[str, object]
) -> dict[str, object] | None:
    """Return the parameters that the job file does not have, or None."""
    return {key: value for key, value in plain.items() if hidden.get(key) != value} or None


def make_job(
    job_id: JobId, inputs: Sequence[Mapping[str, object]], received: Timestamp
) -> QueuedJob:
    """Make the record of a new job; its own step is appended to every reason trail."""
    seconds, microseconds = received
    nanoseconds = (seconds * 1_000_000 + microseconds) * 1000
    ops = []
    for index, item in enumerate(inputs):
        op_id = str(item.get("OP_ID"))
        step = [reason_source(op_id), f"job={job_id};index={index}", nanoseconds]
        trail = item.get("reason")
        reason = [*trail, step] if isinstance(trail, list) else [step]
        ops.append(QueuedOp({**item, "reason": reason}, priority=_priority(item)))
    return QueuedJob(job_id, tuple(ops), received_timestamp=received)


def _priority(item: Mapping[str, object]) -> int:
    priority = item.get("priority")
    return priority if isinstance(priority, int) else PRIORITY_DEFAULT


def has_lost_secrets(job: QueuedJob) -> bool:
    """Tell whether secret parameters were only in the memory of a LuxiD that is gone."""
    return any(_is_redacted(value) for op in job.ops for value in op.input.values())


def _is_redacted(value: object) -> bool:
    if isinstance(value, dict):
        return any(_is_redacted(each) for each in value.values())
    if isinstance(value, list):
        return any(_is_redacted(each) for each in value)
    return value == REDACTED
