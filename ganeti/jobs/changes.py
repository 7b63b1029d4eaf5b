"""Everything that can happen to a job, as functions from one record to the next.

The clock, the process number and the texts are arguments.  A step that the table of
`ganeti.jobs.status` does not know raises: it is our own mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from msgspec.structs import replace

from ganeti.base.errors import JobLost, OpExecError, ProgrammerError, encode_error
from ganeti.base.ids import JobId
from ganeti.jobs.record import LogEntry, LogLine, QueuedJob, QueuedOp, Timestamp
from ganeti.jobs.status import NEXT, Status

LOST_OP_ID: Final = "OP_LOST"  # shown where nobody knows the opcodes
PRECEDING_FAILED: Final = "Preceding opcode failed"


def _with_status(op: QueuedOp, status: Status) -> QueuedOp:
    if status not in NEXT[op.status]:
        raise ProgrammerError(f"an opcode cannot go from {op.status} to {status}")
    return replace(op, status=status)


def _at(job: QueuedJob, index: int, change: Callable[[QueuedOp], QueuedOp]) -> QueuedJob:
    ops = list(job.ops)
    ops[index] = change(ops[index])
    return replace(job, ops=tuple(ops))


def _end_unfinished(
    job: QueuedJob, status: Status, results: Callable[[int], object], now: Timestamp
) -> QueuedJob:
    """Give every opcode that is not final a final status, and so the job."""
    ops = tuple(
        op
        if op.is_final
        else replace(_with_status(op, status), result=results(index), end_timestamp=now)
        for index, op in enumerate(job.ops)
    )
    return replace(job, ops=ops, end_timestamp=now)


def handed_over(job: QueuedJob, *, livelock: str, process_id: int, now: Timestamp) -> QueuedJob:
    """Make the start record: the job belongs to a process, its first opcode waits."""
    index = job.current_index
    if index is None:
        raise ProgrammerError(f"job {job.id} is {job.status} and cannot be started")
    begun = job.start_timestamp or now  # before it stepped back
    started = replace(job, livelock=livelock, process_id=process_id, start_timestamp=begun)
    return op_waiting(started, index, now)


def shown_waiting(job: QueuedJob) -> QueuedJob:
    """Return a queued job with its next opcode as one that waits: for jobs, not yet for locks."""
    index = job.current_index
    if index is None or job.status is not Status.QUEUED:
        return job
    return _at(job, index, partial(_with_status, status=Status.WAITING))


def op_waiting(job: QueuedJob, index: int, now: Timestamp) -> QueuedJob:
    """Begin an opcode: it waits for its locks."""
    return _at(
        job, index, lambda op: replace(_with_status(op, Status.WAITING), start_timestamp=now)
    )


def stepped_back(job: QueuedJob) -> QueuedJob:
    """Note that a job which waits for locks goes back into the queue and has no process."""
    index = job.current_index
    assert index is not None, f"job {job.id} has ended"
    queued = _at(
        job, index, lambda op: replace(_with_status(op, Status.QUEUED), start_timestamp=None)
    )
    return replace(queued, livelock=None, process_id=None)


def op_running(job: QueuedJob, index: int, now: Timestamp) -> QueuedJob:
    """Note that an opcode has its locks and does its work."""
    return _at(job, index, lambda op: replace(_with_status(op, Status.RUNNING), exec_timestamp=now))


def op_succeeded(job: QueuedJob, index: int, result: object, now: Timestamp) -> QueuedJob:
    """Note that an opcode did its work; with the last one the job ends."""
    done = _at(
        job,
        index,
        lambda op: replace(_with_status(op, Status.SUCCESS), result=result, end_timestamp=now),
    )
    return replace(done, end_timestamp=now) if done.is_final else done


def op_failed(job: QueuedJob, index: int, error: BaseException, now: Timestamp) -> QueuedJob:
    """Note that an opcode failed; those after it fail with it."""
    own = encode_error(error)
    rest = encode_error(OpExecError(PRECEDING_FAILED))
    return _end_unfinished(job, Status.ERROR, lambda at: own if at == index else rest, now)


def failed(job: QueuedJob, error: BaseException, now: Timestamp) -> QueuedJob:
    """Note that a job as a whole failed, for instance because its process died."""
    encoded = encode_error(error)
    return _end_unfinished(job, Status.ERROR, lambda _at: encoded, now)


def lost(job_id: JobId, path: str) -> QueuedJob:
    """Make a record in place of one that cannot be read and was set aside."""
    error = JobLost(f"the file of job {job_id} could not be read as one; it is {path} now")
    op = QueuedOp({"OP_ID": LOST_OP_ID}, status=Status.ERROR, result=encode_error(error))
    return QueuedJob(job_id, (op,))


def canceling(job: QueuedJob) -> QueuedJob:
    """Note that a job which waits has been asked to let go."""
    index = job.current_index
    if index is None or job.ops[index].status is not Status.WAITING:
        return job
    return _at(job, index, lambda op: _with_status(op, Status.CANCELING))


def canceled(job: QueuedJob, text: str, now: Timestamp) -> QueuedJob:
    """Cancel the opcodes that have no final status; the text gives the reason."""
    return _end_unfinished(job, Status.CANCELED, lambda _at: text, now)


def with_log_entry(
    job: QueuedJob, index: int, kind: str, payload: object, now: Timestamp
) -> QueuedJob:
    """Append to the log of an opcode; serial numbers count through the whole job."""
    entry = (job.last_log_serial + 1, now, kind, payload)
    return _at(job, index, lambda op: replace(op, log=(*op.log, entry)))


def with_log_lines(job: QueuedJob, lines: Iterable[LogLine]) -> QueuedJob:
    """Add log entries of opcodes, of which the job may have the older ones."""
    serial = job.last_log_serial
    new: dict[int, list[LogEntry]] = {}
    for index, entry in lines:
        if entry[0] > serial and index < len(job.ops):
            new.setdefault(index, []).append(entry)
    for index, entries in new.items():
        job = _at(job, index, partial(_with_log, entries))
    return job


def _with_log(entries: Iterable[LogEntry], op: QueuedOp) -> QueuedOp:
    return replace(op, log=(*op.log, *entries))


def log_lines(job: QueuedJob) -> Iterator[LogLine]:
    """Yield the log entries of all opcodes."""
    for index, op in enumerate(job.ops):
        for entry in op.log:
            yield index, entry


def with_priority(job: QueuedJob, priority: int) -> QueuedJob:
    """Give every opcode that is not final another priority."""
    ops = tuple(op if op.is_final else replace(op, priority=priority) for op in job.ops)
    return replace(job, ops=ops)
