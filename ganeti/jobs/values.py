"""What can be asked about a job: field name to value.

Source: query_fields.json, resource "job".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ganeti.jobs.record import QueuedJob
from ganeti.opcodes.registry import for_people
from ganeti.opcodes.summary import summary

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
