"""The fields of jobs.

Source: query_fields.json, "job".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ganeti.jobs.record import QueuedJob
from ganeti.objects.query_words import FieldKind, QueryResource
from ganeti.opcodes.registry import for_people
from ganeti.opcodes.summary import summary
from ganeti.query.context import RunContext
from ganeti.query.fields import Comparison, FieldSpec, Resource, Source, field_table, or_unavailable
from ganeti.query.view import JobItem

JobValue = Callable[[QueuedJob], object]

JOB_VALUES: Final[Mapping[str, JobValue]] = {
    "id": lambda job: job.id,
    "status": lambda job: job.status,
    "priority": lambda job: job.priority,
    "received_ts": lambda job: job.received_timestamp,
    "start_ts": lambda job: job.start_timestamp,
    "end_ts": lambda job: job.end_timestamp,
    "summary": lambda job: [summary(op.input) for op in job.ops],
    "ops": lambda job: [for_people(op.input) for op in job.ops],
    "opresult": lambda job: [op.result for op in job.ops],
    "opstatus": lambda job: [op.status for op in job.ops],
    "oplog": lambda job: [op.log for op in job.ops],
    "opstart": lambda job: [op.start_timestamp for op in job.ops],
    "opexec": lambda job: [op.exec_timestamp for op in job.ops],
    "opend": lambda job: [op.end_timestamp for op in job.ops],
    "oppriority": lambda job: [op.priority for op in job.ops],
}
"""All fields but ``archived``, which is where the job was found and not in the job itself."""

ARCHIVED_FIELD: Final = "archived"

_K = FieldKind

_DESCRIPTIONS: Final[tuple[tuple[str, str, FieldKind, str], ...]] = (
    ("id", "ID", _K.NUMBER, "Number of the job"),
    ("status", "Status", _K.TEXT, "Status of the job"),
    ("priority", "Priority", _K.NUMBER, "Priority now; smaller is more urgent"),
    ("received_ts", "Received", _K.OTHER, "When the job was received"),
    ("start_ts", "Start", _K.OTHER, "When the job was started"),
    ("end_ts", "End", _K.OTHER, "When the job ended"),
    ("summary", "Summary", _K.OTHER, "One text for each opcode"),
    ("ops", "OpCodes", _K.OTHER, "All opcodes"),
    ("opresult", "OpCode_result", _K.OTHER, "Result of each opcode"),
    ("opstatus", "OpCode_status", _K.OTHER, "Status of each opcode"),
    ("oplog", "OpCode_log", _K.OTHER, "Messages of each opcode"),
    ("opstart", "OpCode_start", _K.OTHER, "When each opcode began to wait for its locks"),
    ("opexec", "OpCode_exec", _K.OTHER, "When each opcode had its locks"),
    ("opend", "OpCode_end", _K.OTHER, "When each opcode ended"),
    ("oppriority", "OpCode_prio", _K.OTHER, "Priority of each opcode"),
)
_TIMES: Final = frozenset({"received_ts", "start_ts", "end_ts"})


def _get(name: str) -> Callable[[JobItem, RunContext], object]:
    value = JOB_VALUES[name]
    return lambda item, _context: or_unavailable(value(item.job))


_FIELDS: Final[list[FieldSpec[JobItem]]] = [
    *(
        FieldSpec(
            name,
            title,
            kind,
            doc,
            _get(name),
            comparison=Comparison.TIMESTAMP if name in _TIMES else Comparison.PLAIN,
        )
        for name, title, kind, doc in _DESCRIPTIONS
    ),
    FieldSpec(
        ARCHIVED_FIELD,
        "Archived",
        _K.BOOL,
        "Whether the job is archived",
        lambda item, _context: item.archived,
    ),
]

RESOURCE: Final = Resource(
    name=QueryResource.JOB,
    fields=field_table(_FIELDS),
    items=lambda context: context.view.jobs,
    name_field="id",
    sort_key=lambda item, _context: item.job.id,
    source=Source.JOBS,
)
