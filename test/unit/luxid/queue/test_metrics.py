"""Tests of ganeti/luxid/queue/metrics.py."""

from __future__ import annotations

from fakes.metric_page import values_on
from msgspec.structs import replace

from ganeti.base.ids import JobId
from ganeti.daemon.tally import page
from ganeti.jobs.record import QueuedJob, QueuedOp
from ganeti.jobs.status import Status
from ganeti.luxid.queue.metrics import QueueMetrics

QUEUED = QueuedJob(
    JobId(7),
    (QueuedOp({"OP_ID": "OP_TEST_DELAY"}), QueuedOp({"OP_ID": "OP_TAGS_SET"})),
    received_timestamp=(100, 900_000),
)


def told(metrics: QueueMetrics) -> dict[tuple[str, ...], float]:
    return values_on(page(metrics.lines({Status.QUEUED: 2}, is_drained=True)))


def ended(job: QueuedJob, status: Status) -> QueuedJob:
    return replace(job, ops=tuple(replace(op, status=status) for op in job.ops))


def test_the_life_of_a_job_is_counted() -> None:
    metrics = QueueMetrics()
    metrics.submitted(3, 0.004)
    started = replace(QUEUED, start_timestamp=(101, 100_000))
    metrics.started(started)
    metrics.ended(ended(replace(started, end_timestamp=(131, 0)), Status.SUCCESS))
    found = told(metrics)
    assert found["ganeti_luxid_jobs_submitted_total",] == 3
    assert found["ganeti_luxid_submit_seconds_sum",] == 0.004
    assert found["ganeti_luxid_job_wait_seconds_bucket", "0.1"] == 0
    assert found["ganeti_luxid_job_wait_seconds_bucket", "0.25"] == 1
    assert round(found["ganeti_luxid_job_run_seconds_sum",], 6) == 29.9
    assert found["ganeti_luxid_jobs_ended_total", "success", "OP_TEST_DELAY"] == 1
    assert found["ganeti_luxid_jobs", "queued"] == 2
    assert found["ganeti_luxid_jobs", "running"] == 0
    assert found["ganeti_luxid_queue_drained",] == 1


def test_a_job_that_never_ran_has_no_time_and_a_strange_opcode_no_name() -> None:
    metrics = QueueMetrics()
    metrics.ended(ended(QUEUED, Status.CANCELED))
    strange = replace(QUEUED, ops=(QueuedOp({"OP_ID": 'OP_"}\n'}, Status.ERROR),))
    metrics.ended(strange)
    back = replace(QUEUED, start_timestamp=(99, 0))  # somebody set the clock
    metrics.started(back)
    found = told(metrics)
    assert found["ganeti_luxid_jobs_ended_total", "canceled", "OP_TEST_DELAY"] == 1
    assert found["ganeti_luxid_jobs_ended_total", "error", "other"] == 1
    assert found["ganeti_luxid_job_run_seconds_count",] == 0
    assert found["ganeti_luxid_job_wait_seconds_sum",] == 0
