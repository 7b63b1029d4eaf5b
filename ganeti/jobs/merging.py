"""Several copies of the job queue made into one that lacks nothing.

Every record that was acknowledged is on one of the copies, but no copy need have them all, and a
copy may be behind.  Of each job the record that got furthest counts; a job that is archived
anywhere has ended.

Source: ARCHITECTURE, invariant 9.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from ganeti.base.errors import JobFileCorrupted
from ganeti.jobs.record import LogEntry, QueuedJob, decode_job
from ganeti.jobs.status import FINAL, Status
from ganeti.protocol.node_rpc_values import QueueListing

_DIGEST_BYTES: Final = 16

# The begin of the log entry by which a job of the queue has got another priority.
PRIORITY_NOTE: Final = " - INFO: has priority "

# The progress of an opcode; one that has ended is further than all of these.
_STEPS: Final = (Status.QUEUED, Status.WAITING, Status.CANCELING, Status.RUNNING)


class QueuePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that bring one copy of the queue up to date from others.

    Attributes:
        compare: jobs of which there are other versions elsewhere: the nodes that have one each.
        archive: jobs of this copy that are archived elsewhere: a node to take the record from.
        fetch_archived: jobs that this copy lacks and that are archived elsewhere: the same.
    """

    compare: Mapping[int, tuple[str, ...]]
    archive: Mapping[int, str]
    fetch_archived: Mapping[int, str]


def digest(data: bytes) -> str:
    """Return a digest that tells one content of a job file from another."""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


def plan_merge(own: QueueListing, others: Mapping[str, QueueListing]) -> QueuePlan:
    """Compare this copy of the queue with others and plan the changes to it."""
    archived_at = {job_id: name for name, listing in others.items() for job_id in listing.archived}
    archived_here = frozenset(own.archived)
    compare: dict[int, dict[str, str]] = {}  # job: {digest: node}
    for name, listing in others.items():
        for job_id, its_digest in listing.jobs.items():
            if job_id in archived_at or job_id in archived_here:
                continue
            if own.jobs.get(job_id) != its_digest:
                compare.setdefault(job_id, {}).setdefault(its_digest, name)
    return QueuePlan(
        compare={job_id: tuple(found.values()) for job_id, found in sorted(compare.items())},
        archive={job_id: archived_at[job_id] for job_id in own.jobs if job_id in archived_at},
        fetch_archived={
            job_id: name
            for job_id, name in sorted(archived_at.items())
            if job_id not in archived_here and job_id not in own.jobs
        },
    )


class CopyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that make a candidate's queue equal to the master's.

    Attributes:
        send: jobs with a file that it lacks or has in another version.
        archive: jobs that it still has in the queue, and the master has not.
    """

    send: tuple[int, ...]
    archive: tuple[int, ...]


def plan_copy(own: QueueListing, theirs: QueueListing) -> CopyPlan:
    """Compare a candidate's queue with the master's and plan the changes to it."""
    return CopyPlan(
        send=tuple(
            job_id
            for job_id, its_digest in sorted(own.jobs.items())
            if theirs.jobs.get(job_id) != its_digest
        ),
        archive=tuple(sorted(theirs.jobs.keys() - own.jobs.keys())),
    )


def furthest(job_id: int, versions: Iterable[bytes]) -> bytes | None:
    """Return the version of a job's file that got furthest; broken ones do not count.

    Of equally far ones the first counts.
    """
    best: tuple[tuple[int, ...], bytes] | None = None
    for data in versions:
        try:
            key = _progress(decode_job(data, job_id))
        except JobFileCorrupted:
            continue
        if best is None or key > best[0]:
            best = (key, data)
    return None if best is None else best[1]


def _progress(job: QueuedJob) -> tuple[int, ...]:
    """Return how far a job got, as something to compare.

    A note of a priority, which a start record may lack, makes a difference only where all else is
    the same: a job that has begun must not be queued again by it.
    """
    log = [entry for op in job.ops for entry in op.log if not _is_priority_note(entry)]
    return (
        int(job.is_final),
        sum(op.status in FINAL for op in job.ops),
        # A job that steps back is queued again, with one more entry.
        max((serial for serial, _time, _kind, _message in log), default=0),
        sum(len(_STEPS) if op.is_final else _STEPS.index(op.status) for op in job.ops),
        int(job.livelock is not None),
        job.last_log_serial,
    )


def _is_priority_note(entry: LogEntry) -> bool:
    message = entry[3]
    return isinstance(message, str) and message.startswith(PRIORITY_NOTE)
