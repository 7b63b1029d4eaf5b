import pytest

from ganeti.base.ids import JobId
from ganeti.jobs import changes
from ganeti.jobs.record import QueuedJob, QueuedOp
from ganeti.query.resources.job import JOB_VALUES

JOB = QueuedJob(
    JobId(3),
    (
        QueuedOp({"OP_ID": "OP_TEST_DELAY", "duration": 2.0}, priority=-5),
        QueuedOp({"OP_ID": "OP_X"}),
    ),
    received_timestamp=(1, 2),
)


@pytest.mark.shows(
    "backend/jobs/queued",
    "backend/jobs/job-fields",
    "backend/jobs/op-times",
    "2.0/queue-client/query",
)
def test_every_field_of_a_queued_job() -> None:
    values = {name: value(JOB) for name, value in JOB_VALUES.items()}
    assert values == {
        "id": 3,
        "status": "queued",
        "priority": -5,
        "received_ts": (1, 2),
        "start_ts": None,
        "end_ts": None,
        "summary": ["TEST_DELAY(2.0)", "X"],
        "ops": [{"OP_ID": "OP_TEST_DELAY", "duration": 2.0}, {"OP_ID": "OP_X"}],
        "opresult": [None, None],
        "opstatus": ["queued", "queued"],
        "oplog": [(), ()],
        "opstart": [None, None],
        "opexec": [None, None],
        "opend": [None, None],
        "oppriority": [-5, 0],
    }


def test_private_parameters_of_a_job_are_not_answered() -> None:
    wire = {"OP_ID": "OP_INSTANCE_REINSTALL", "osparams_private": {"key": "PRIVATE"}}
    job = QueuedJob(JobId(4), (QueuedOp(wire),))
    assert JOB_VALUES["ops"](job) == [{**wire, "osparams_private": {"key": "<redacted>"}}]
    assert job.ops[0].input == wire


@pytest.mark.shows("backend/jobs/running", "backend/jobs/op-times")
def test_a_job_that_runs() -> None:
    job = changes.handed_over(JOB, livelock="/l", process_id=1, now=(5, 5))
    job = changes.op_running(job, 0, (6, 6))
    assert JOB_VALUES["status"](job) == "running"
    assert JOB_VALUES["opexec"](job) == [(6, 6), None]
    assert JOB_VALUES["start_ts"](job) == (5, 5)
