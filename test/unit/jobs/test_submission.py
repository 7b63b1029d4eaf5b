import pytest

from ganeti.base.errors import OpCodeUnknown, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.jobs.status import Status
from ganeti.jobs.submission import OPCODES_PER_JOB_MAX, check_submission, has_lost_secrets, make_job

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 1, "reason": [["me", "because", 5]]}


@pytest.mark.shows("backend/jobs/priority-default")
def test_defaults_are_filled_in_and_unset_keys_left_out() -> None:
    (found,) = check_submission([DELAY]).inputs
    assert found == {
        "OP_ID": "OP_TEST_DELAY",
        "duration": 1.0,
        "on_master": True,
        "on_nodes": [],
        "repeat": 0,
        "interruptible": False,
        "no_locks": True,
        "priority": 0,
        "depends": None,
        "comment": None,
        "reason": [["me", "because", 5]],
    }


def test_the_job_s_own_step_ends_the_reason_trail() -> None:
    submission = check_submission([DELAY, DELAY])
    job = make_job(JobId(7), submission.inputs, (1795236540, 88384))
    assert job.status is Status.QUEUED
    assert job.received_timestamp == (1795236540, 88384)
    assert job.ops[1].input["reason"] == [
        ["me", "because", 5],
        ["gnt:opcode:test_delay", "job=7;index=1", 1795236540088384000],
    ]


@pytest.mark.shows("backend/jobs/op-priority")
def test_priority_of_an_opcode_is_kept() -> None:
    submission = check_submission([{**DELAY, "priority": -10}])
    job = make_job(JobId(7), submission.inputs, (1, 1))
    assert job.ops[0].priority == job.priority == -10


def test_secrets_stay_out_of_the_record() -> None:
    opcode = {"OP_ID": "OP_TEST_OS_PARAMS", "osparams_secret": {"pw": "geheim"}, "reason": []}
    submission = check_submission([DELAY, opcode])
    assert submission.secrets == (None, {"osparams_secret": {"pw": "geheim"}})
    job = make_job(JobId(7), submission.inputs, (1, 1))
    assert "geheim" not in repr(job)
    assert has_lost_secrets(job)
    assert not has_lost_secrets(make_job(JobId(8), [DELAY], (1, 1)))


@pytest.mark.parametrize(
    ("opcodes", "error", "text"),
    [
        ([], OpPrereqError, "at least one opcode"),
        ([DELAY] * (OPCODES_PER_JOB_MAX + 1), OpPrereqError, "too long"),
        ([{**DELAY, "on_nodes": ["x" * 10**6] * 20}], OpPrereqError, "too large"),
        ([{}], OpCodeUnknown, "OP_ID"),
        ([{"OP_ID": 5}], OpCodeUnknown, "5"),
        ([{**DELAY, "duration": "x"}], OpPrereqError, "duration"),
    ],
)
def test_what_is_refused(opcodes: list[dict[str, object]], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        check_submission(opcodes)
