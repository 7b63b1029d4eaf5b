"""The record of one job, as it stands in its job file.

Records are values: every change makes a new one (`ganeti.jobs.changes`).  The opcodes stay plain
JSON objects here, so that a queue written by another release is kept as it is.

Source: config.json, "queue" (example_job_file, log_entry, timestamps).
"""

import contextlib
from typing import Final

import msgspec

from ganeti.base.errors import JobFileCorrupted, ProtocolError
from ganeti.base.ids import JobId
from ganeti.base.json import dumps, loads, loads_as
from ganeti.jobs.status import FINAL, Status, combined_status

PRIORITY_DEFAULT: Final = 0
PRIORITY_MOST_URGENT: Final = -20
PRIORITY_LEAST_URGENT: Final = 19

LARGE_RESULT_BYTES: Final = 1 << 16  # a larger one is kept encoded: nobody looks into it
_LARGE_BYTES: Final = 1 << 20  # of a job file

# Opcodes that mend a lack of candidates, so they are accepted with fewer copies.
_MENDING_OPS: Final = frozenset({"OP_NODE_SET_PARAMS"})
_MENDING_PARAMETERS: Final = ("offline", "master_candidate", "drained")

Timestamp = tuple[int, int]  # seconds, microseconds
LogEntry = tuple[int, Timestamp, str, object]  # serial from 1, time, log type, payload
LogLine = tuple[int, LogEntry]  # index of the opcode


# Annotations here are values, not text: a process that reads a Struct for the first time would have
# to evaluate the text.


class QueuedOp(msgspec.Struct, frozen=True):
    """One opcode of a job, with its status, result, log and times.

    Attributes:
        result: what it returned, or its error; a large one may be a `msgspec.Raw`.
    """

    input: dict[str, object]
    status: Status = Status.QUEUED
    result: object = None
    log: tuple[LogEntry, ...] = ()
    start_timestamp: Timestamp | None = None
    exec_timestamp: Timestamp | None = None
    end_timestamp: Timestamp | None = None
    priority: int = PRIORITY_DEFAULT

    @property
    def is_final(self) -> bool:
        """True once nothing more happens to the opcode."""
        return self.status in FINAL

    @property
    def op_id(self) -> str:
        """The name of the operation, e.g. OP_INSTANCE_CREATE."""
        return str(self.input.get("OP_ID", ""))

    @property
    def mends(self) -> bool:
        """Whether it does nothing but change which nodes are candidates or offline."""
        return self.op_id in _MENDING_OPS and any(
            self.input.get(key) is not None for key in _MENDING_PARAMETERS
        )


class QueuedJob(msgspec.Struct, frozen=True):
    """One job."""

    id: JobId
    ops: tuple[QueuedOp, ...]
    start_timestamp: Timestamp | None = None
    end_timestamp: Timestamp | None = None
    received_timestamp: Timestamp | None = None
    livelock: str | None = None
    process_id: int | None = None

    @property
    def status(self) -> Status:
        """The status that the opcodes add up to."""
        return combined_status([op.status for op in self.ops])

    @property
    def is_final(self) -> bool:
        """True once nothing more happens to the job."""
        return self.status in FINAL

    @property
    def mends(self) -> bool:
        """Whether all its opcodes mend a lack of candidates."""
        return all(op.mends for op in self.ops)

    @property
    def current_index(self) -> int | None:
        """Index of the first opcode that is not final, or None."""
        return next((index for index, op in enumerate(self.ops) if not op.is_final), None)

    @property
    def priority(self) -> int:
        """The priority of the first opcode that is not final."""
        index = self.current_index
        return PRIORITY_DEFAULT if index is None else self.ops[index].priority

    @property
    def last_log_serial(self) -> int:
        """Serial number of the newest log entry, 0 if there is none."""
        return max((op.log[-1][0] for op in self.ops if op.log), default=0)

    def log_after(self, serial: int) -> list[LogEntry]:
        """Return the log entries of all opcodes that are newer than a serial number."""
        return [entry for op in self.ops for entry in op.log if entry[0] > serial]


class _LargeOp(QueuedOp, frozen=True):
    result: msgspec.Raw = msgspec.Raw(b"null")

    def plain(self) -> QueuedOp:
        """Return the record itself, with a small result decoded."""
        values = {name: getattr(self, name) for name in QueuedOp.__struct_fields__}
        if memoryview(self.result).nbytes <= LARGE_RESULT_BYTES:
            values["result"] = loads(bytes(self.result))
        return QueuedOp(**values)


class _LargeJob(QueuedJob, frozen=True):
    ops: tuple[_LargeOp, ...] = ()

    def plain(self) -> QueuedJob:
        values = {name: getattr(self, name) for name in QueuedJob.__struct_fields__}
        return QueuedJob(**(values | {"ops": tuple(op.plain() for op in self.ops)}))


def _decode_large(data: bytes) -> QueuedJob:
    """Decode a large file; what is large in it stays as it is, for those who want just that."""
    try:
        return msgspec.json.decode(data, type=_LargeJob).plain()
    except (msgspec.DecodeError, RecursionError, UnicodeError) as err:
        raise ProtocolError(str(err)) from err


def decode_job(data: bytes, job_id: int | None = None) -> QueuedJob:
    """Read a job file.

    Args:
        job_id: the number in the name of the file.

    Raises:
        JobFileCorrupted: not a job record, or that of another job.
    """
    try:
        job = loads_as(QueuedJob, data) if len(data) < _LARGE_BYTES else _decode_large(data)
    except ProtocolError as err:
        raise JobFileCorrupted(f"job file: {err.message}") from err
    if job_id is not None and job.id != job_id:
        raise JobFileCorrupted(f"the file of job {job_id} holds job {job.id}")
    if not job.ops:
        raise JobFileCorrupted(f"job {job.id} has no opcodes")
    return job


def encode_job(job: QueuedJob) -> bytes:
    """Return the content of the job file."""
    return dumps(job)


class _Line(msgspec.Struct, frozen=True, array_like=True):
    index: int
    entry: LogEntry


def encode_log_line(line: LogLine) -> bytes:
    """Return a line of the log that a running job keeps beside its file."""
    return dumps(line) + b"\n"


def decode_log_lines(data: bytes) -> list[LogLine]:
    """Read such lines; those that make no sense, as on a full disk, are left out."""
    found: list[LogLine] = []
    for line in data.split(b"\n"):
        with contextlib.suppress(ProtocolError):
            read = loads_as(_Line, line)
            found.append((read.index, read.entry))
    return found
