from collections.abc import Callable

import pytest

from ganeti.base.errors import OpExecError, OpPrereqError, ProgrammerError
from ganeti.base.ids import JobId
from ganeti.jobs import changes
from ganeti.jobs.record import QueuedJob, QueuedOp
from ganeti.jobs.status import Status

T1, T2, T3, T4 = (1, 1), (2, 2), (3, 3), (4, 4)


def job_of(count: int) -> QueuedJob:
    return QueuedJob(JobId(5), tuple(QueuedOp({"OP_ID": f"OP_{n}"}) for n in range(count)))


def started(count: int = 2) -> QueuedJob:
    return changes.handed_over(job_of(count), livelock="/l", process_id=9, now=T1)


@pytest.mark.shows("2.12/execution/in-job-file")
def test_start_record_names_process_and_lock_file() -> None:
    job = started()
    assert (job.livelock, job.process_id, job.status) == ("/l", 9, Status.WAITING)
    assert job.start_timestamp == job.ops[0].start_timestamp == T1
    assert job.ops[1].status is Status.QUEUED


def test_a_job_that_waits_for_others_is_shown_as_waiting() -> None:
    shown = changes.shown_waiting(job_of(2))
    assert [op.status for op in shown.ops] == [Status.WAITING, Status.QUEUED]
    assert (shown.status, shown.start_timestamp) == (Status.WAITING, None)
    for job in (started(), changes.canceled(job_of(1), "", T1)):
        assert changes.shown_waiting(job) == job


@pytest.mark.shows("backend/jobs/success", "2.0/queue-status/states")
def test_a_job_runs_through_to_success() -> None:
    job = changes.op_running(started(), 0, T2)
    job = changes.op_succeeded(job, 0, "one", T3)
    assert job.end_timestamp is None
    job = changes.op_waiting(job, 1, T3)
    job = changes.op_running(job, 1, T3)
    job = changes.op_succeeded(job, 1, "two", T4)
    assert job.status is Status.SUCCESS
    assert job.end_timestamp == T4
    assert [op.result for op in job.ops] == ["one", "two"]
    assert [op.exec_timestamp for op in job.ops] == [T2, T3]


@pytest.mark.shows("backend/jobs/first-failure")
def test_opcodes_after_a_failed_one_fail_with_it() -> None:
    job = changes.op_running(started(3), 0, T2)
    job = changes.op_waiting(changes.op_succeeded(job, 0, None, T2), 1, T2)
    job = changes.op_failed(job, 1, OpPrereqError("no such node", "unknown_entity"), T3)
    assert [op.status for op in job.ops] == [Status.SUCCESS, Status.ERROR, Status.ERROR]
    assert job.ops[1].result == ["OpPrereqError", ["no such node", "unknown_entity"]]
    assert job.ops[2].result == ["OpExecError", ["Preceding opcode failed"]]
    assert job.end_timestamp == T3


@pytest.mark.shows("backend/jobs/error")
@pytest.mark.parametrize("status", [Status.QUEUED, Status.WAITING, Status.RUNNING])
def test_a_dead_job_is_in_error_whatever_it_did(status: Status) -> None:
    job = started() if status is not Status.QUEUED else job_of(2)
    if status is Status.RUNNING:
        job = changes.op_running(job, 0, T2)
    dead = changes.failed(job, OpExecError("Job process died"), T4)
    assert dead.status is Status.ERROR
    assert {op.status for op in dead.ops} == {Status.ERROR}
    assert dead.ops[0].result == ["OpExecError", ["Job process died"]]


@pytest.mark.shows("backend/jobs/canceled")
def test_cancel_of_a_waiting_job() -> None:
    job = changes.canceling(started())
    assert job.status is Status.CANCELING
    job = changes.canceled(job, "because", T3)
    assert job.status is Status.CANCELED
    assert [op.result for op in job.ops] == ["because", "because"]


def test_cancel_keeps_what_was_done() -> None:
    job = changes.op_running(started(), 0, T2)
    job = changes.op_succeeded(job, 0, 42, T2)
    job = changes.canceled(job, "because", T3)
    assert job.ops[0].result == 42
    assert job.status is Status.CANCELED


def test_log_serials_count_through_the_job() -> None:
    job = changes.with_log_entry(started(), 0, "message", "a", T1)
    job = changes.with_log_entry(job, 0, "message", "b", T2)
    job = changes.with_log_entry(job, 1, "message", {"c": 1}, T3)
    assert job.log_after(0) == [
        (1, T1, "message", "a"),
        (2, T2, "message", "b"),
        (3, T3, "message", {"c": 1}),
    ]
    assert job.log_after(2) == [(3, T3, "message", {"c": 1})]


def test_priority_changes_what_has_not_ended() -> None:
    job = changes.op_running(started(), 0, T2)
    job = changes.op_succeeded(job, 0, None, T2)
    job = changes.with_priority(job, -5)
    assert [op.priority for op in job.ops] == [0, -5]


@pytest.mark.parametrize(
    "step",
    [
        lambda job: changes.op_running(job, 0, T1),
        lambda job: changes.op_succeeded(job, 0, None, T1),
    ],
)
def test_steps_out_of_order_are_our_own_mistake(step: Callable[[QueuedJob], QueuedJob]) -> None:
    with pytest.raises(ProgrammerError):
        step(job_of(1))


def test_an_ended_job_is_not_started_again() -> None:
    ended = changes.canceled(job_of(1), "x", T1)
    with pytest.raises(ProgrammerError):
        changes.handed_over(ended, livelock="/l", process_id=1, now=T1)
