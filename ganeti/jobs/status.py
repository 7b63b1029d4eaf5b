"""The status of a job: the statuses of its opcodes and the rule that makes one of them.

Theory of operation.  Every opcode is QUEUED until a process has been found for its job.  The
process makes it WAITING while locks are awaited and RUNNING while the work is done; then it is
SUCCESS or ERROR.  One that waits may be QUEUED again, to make room for a more urgent job.  A job
canceled while it waits is CANCELING until its process has let go, then CANCELED.  A queued one is
CANCELED at once.  The last three are final.  When one opcode of a job fails, the later ones fail
too; when a process dies, opcodes without a final status become ERROR.

Source: config.json, "queue" (opcode_status, job_status_rule).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final


class Status(StrEnum):
    """Status of an opcode, and of a job."""

    QUEUED = "queued"
    WAITING = "waiting"
    CANCELING = "canceling"
    RUNNING = "running"
    CANCELED = "canceled"
    SUCCESS = "success"
    ERROR = "error"


FINAL: Final = frozenset({Status.CANCELED, Status.SUCCESS, Status.ERROR})
PENDING: Final = frozenset({Status.QUEUED, Status.WAITING, Status.CANCELING})

NEXT: Final[Mapping[Status, frozenset[Status]]] = {
    Status.QUEUED: frozenset({Status.WAITING, Status.CANCELED, Status.ERROR}),
    Status.WAITING: frozenset(
        {Status.QUEUED, Status.RUNNING, Status.CANCELING, Status.CANCELED, Status.ERROR}
    ),
    Status.CANCELING: frozenset({Status.CANCELED, Status.ERROR}),
    Status.RUNNING: frozenset({Status.SUCCESS, Status.CANCELED, Status.ERROR}),
    Status.CANCELED: frozenset(),
    Status.SUCCESS: frozenset(),
    Status.ERROR: frozenset(),
}

# The first of these that any opcode has is the status of the job.
_STRONGEST_FIRST: Final = (
    Status.ERROR,
    Status.CANCELING,
    Status.WAITING,
    Status.RUNNING,
    Status.CANCELED,
)


def combined_status(statuses: Collection[Status]) -> Status:
    """Return the status of a job from those of its opcodes."""
    if all(status is Status.SUCCESS for status in statuses):
        return Status.SUCCESS
    for status in _STRONGEST_FIRST:
        if status in statuses:
            return status
    return Status.QUEUED
