"""The fields of jobs.

Source: query_fields.json, "job".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Final

from ganeti.jobs.record import QueuedJob, QueuedOp
from ganeti.objects.query_words import FieldKind, QueryResource
from ganeti.opcodes.registry import for_people
from ganeti.opcodes.summary import summary
from ganeti.query.context import RunContext
from ganeti.query.fields import (
    UNAVAIL,
    Comparison,
    FieldSpec,
    Resource,
    Source,
    boolean,
    field_table,
    or_unavailable,
)
from ganeti.query.view import JobItem

JobValue = Callable[[QueuedJob], object]


def _each(what: str | Callable[[QueuedOp], object]) -> JobValue:
    """Read something of each opcode of a job."""
    get = attrgetter(what) if isinstance(what, str) else what
    return lambda job: list(map(get, job.ops))


_K = FieldKind
_own = attrgetter

_TABLE: Final[tuple[tuple[str, str, FieldKind, str, JobValue], ...]] = (
    ("id", "ID", _K.NUMBER, "Number of the job", _own("id")),
    ("status", "Status", _K.TEXT, "Status of the job", _own("status")),
    ("priority", "Priority", _K.NUMBER, "Priority now; smaller is more urgent", _own("priority")),
    ("received_ts", "Received", _K.OTHER, "When the job was received", _own("received_timestamp")),
    ("start_ts", "Start", _K.OTHER, "When the job was started", _own("start_timestamp")),
    ("end_ts", "End", _K.OTHER, "When the job ended", _own("end_timestamp")),
    (
        "summary",
        "Summary",
        _K.OTHER,
        "One text for each opcode",
        _each(lambda op: summary(op.input)),
    ),
    ("ops", "OpCodes", _K.OTHER, "All opcodes", _each(lambda op: for_people(op.input))),
    ("opresult", "OpCode_result", _K.OTHER, "Result of each opcode", _each("result")),
    ("opstatus", "OpCode_status", _K.OTHER, "Status of each opcode", _each("status")),
    ("oplog", "OpCode_log", _K.OTHER, "Messages of each opcode", _each("log")),
    (
        "opstart",
        "OpCode_start",
        _K.OTHER,
        "When each opcode began to wait for its locks",
        _each("start_timestamp"),
    ),
    ("opexec", "OpCode_exec", _K.OTHER, "When each opcode had its locks", _each("exec_timestamp")),
    ("opend", "OpCode_end", _K.OTHER, "When each opcode ended", _each("end_timestamp")),
    ("oppriority", "OpCode_prio", _K.OTHER, "Priority of each opcode", _each("priority")),
)
JOB_VALUES: Final[Mapping[str, JobValue]] = {name: value for name, *_, value in _TABLE}
"""All fields but ``archived``, which is where the job was found and not in the job itself."""

ARCHIVED_FIELD: Final = "archived"
_TIMES: Final = frozenset({"received_ts", "start_ts", "end_ts"})


def _field(name: str, title: str, kind: FieldKind, doc: str, value: JobValue) -> FieldSpec[JobItem]:
    comparison = Comparison.TIMESTAMP if name in _TIMES else Comparison.PLAIN

    def get(item: JobItem, _context: RunContext) -> object:
        if isinstance(item.job, QueuedJob):
            return or_unavailable(value(item.job))
        return item.id if name == "id" else UNAVAIL

    return FieldSpec(name, title, kind, doc, get, comparison=comparison)


_FIELDS: Final[list[FieldSpec[JobItem]]] = [
    *(_field(*row) for row in _TABLE),
    boolean(ARCHIVED_FIELD, "Archived", "Whether the job is archived"),
]

RESOURCE: Final = Resource(
    QueryResource.JOB,
    field_table(_FIELDS),
    lambda context: context.view.jobs,
    name_field="id",
    sort_key=lambda item, _context: item.id,
    source=Source.JOBS,
)
