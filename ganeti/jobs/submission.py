"""Turns the opcodes that a client submits into a job record, or refuses them with a reason.

An opcode may name jobs that must have ended, each with the final statuses that are good enough
(an empty list means success).  A negative number counts back in the same submission: -1 is the
job just before this one.

Source: opcodes.json, "json_form" and "depends_element"; luxi.json, "SubmitJob"; config.json,
"queue".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard

import msgspec

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.base.json import dumps
from ganeti.base.secret import REDACTED
from ganeti.jobs.record import PRIORITY_DEFAULT, QueuedJob, QueuedOp, Timestamp
from ganeti.jobs.status import FINAL, Status
from ganeti.opcodes.registry import decode_opcode, encode_opcode, redact
from ganeti.opcodes.summary import reason_source

_JOB_ID: Final = re.compile("[0-9]{1,18}")
_JOB_NUMBER_MAX: Final = 2**62


class Dependency(msgspec.Struct, frozen=True):
    """A job that must end before, and how."""

    job_id: JobId
    accepted: frozenset[Status]

    def refusal(self, found: Status) -> str | None:
        """Say why a final status is not good enough, or None if it is."""
        if found in self.accepted:
            return None
        wanted = " or ".join(sorted(self.accepted))
        return f"job {self.job_id}, which this one depends on, ended in {found}, not in {wanted}"


def _parse_element(element: object) -> tuple[int, frozenset[Status]]:
    match element:
        case [job, [*names]]:
            number = int(job) if isinstance(job, str) and _JOB_ID.fullmatch(job) else job
            if _is_job_number(number):
                try:
                    accepted = frozenset(Status(str(name)) for name in names)
                except ValueError as err:
                    raise OpPrereqError(f"dependency {element!r:.200}: {err!s:.200}") from err
                if accepted <= FINAL:
                    return number, accepted or frozenset({Status.SUCCESS})
    raise OpPrereqError(
        f"{element!r:.200} is not a dependency: [job id, [final statuses]] is needed"
    )


def _is_job_number(value: object) -> TypeGuard[int]:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return -_JOB_NUMBER_MAX <= value <= _JOB_NUMBER_MAX


def resolve_relative(
    inputs: Sequence[dict[str, object]], earlier: Sequence[JobId | None]
) -> list[dict[str, object]]:
    """Return the opcodes of one job with relative job ids replaced by real ones.

    Args:
        inputs: the opcodes as plain JSON objects.
        earlier: ids of the jobs before this one in the same submission; None for a refused one.

    Raises:
        OpPrereqError: no such job in this submission, or it was refused.
    """
    resolved = []
    for item in inputs:
        depends = item.get("depends")
        if isinstance(depends, list) and depends:
            item = {**item, "depends": [_resolve_element(element, earlier) for element in depends]}
        resolved.append(item)
    return resolved


def _resolve_element(element: object, earlier: Sequence[JobId | None]) -> list[object]:
    number, accepted = _parse_element(element)
    if number < 0:
        if -number > len(earlier):
            raise OpPrereqError(
                f"relative dependency {number}: only {len(earlier)} jobs come before this one"
            )
        found = earlier[number]
        if found is None:
            raise OpPrereqError(f"relative dependency {number}: that job was refused")
        number = found
    names = element[1] if isinstance(element, list) else sorted(accepted)
    return [number, names]


def dependencies_of(job: QueuedJob) -> tuple[Dependency, ...]:
    """Return the dependencies of a job, each other job once.

    Where two opcodes name the same job, both must accept its final status.

    Raises:
        OpPrereqError: a dependency is not well-formed, or relative.
    """
    found: dict[JobId, frozenset[Status]] = {}
    for op in job.ops:
        depends = op.input.get("depends")
        if not isinstance(depends, list):
            continue
        for element in depends:
            number, accepted = _parse_element(element)
            if number < 0:
                raise OpPrereqError(f"relative dependency {number} cannot be resolved any more")
            job_id = JobId(number)
            found[job_id] = found.get(job_id, accepted) & accepted
    return tuple(Dependency(job_id, accepted) for job_id, accepted in found.items())


def check_known(
    job_id: JobId, dependencies: Sequence[Dependency], known: Mapping[JobId, Status]
) -> None:
    """Refuse a job that waits for itself, or for one that is not there.

    Raises:
        OpPrereqError: unknown_entity.
    """
    for dependency in dependencies:
        if dependency.job_id == job_id or dependency.job_id not in known:
            raise OpPrereqError(
                f"depends on job {dependency.job_id}, which does not exist", ErrorCode.NOENT
            )


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
