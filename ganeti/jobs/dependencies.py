"""Jobs that wait for other jobs.

An opcode may name jobs that must have ended, each with the final statuses that are good enough
(an empty list means success).  A negative number counts back in the same submission: -1 is the
job just before this one.

Source: opcodes.json, "depends_element".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.jobs.record import QueuedJob
from ganeti.jobs.status import FINAL, Status


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
            number = int(job) if isinstance(job, str) and job.isdecimal() else job
            if isinstance(number, int) and not isinstance(number, bool):
                try:
                    accepted = frozenset(Status(str(name)) for name in names)
                except ValueError as err:
                    raise OpPrereqError(f"dependency {element!r}: {err}") from err
                if accepted <= FINAL:
                    return number, accepted or frozenset({Status.SUCCESS})
    raise OpPrereqError(f"{element!r} is not a dependency: [job id, [final statuses]] is needed")


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
    """Return what a job waits for, each job once.

    Two opcodes that name the same job narrow what is good enough.

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
