import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.base.ids import JobId
from ganeti.jobs.record import QueuedJob, QueuedOp
from ganeti.jobs.status import Status
from ganeti.jobs.submission import Dependency, check_known, dependencies_of, resolve_relative


def job_with(*depends: object) -> QueuedJob:
    return QueuedJob(JobId(9), tuple(QueuedOp({"depends": each}) for each in depends))


def test_no_statuses_means_success() -> None:
    (found,) = dependencies_of(job_with([[3, []]]))
    assert found == Dependency(JobId(3), frozenset({Status.SUCCESS}))
    assert found.refusal(Status.SUCCESS) is None
    assert found.refusal(Status.ERROR) == (
        "job 3, which this one depends on, ended in error, not in success"
    )


def test_two_opcodes_that_name_the_same_job_narrow_what_is_good_enough() -> None:
    (found,) = dependencies_of(job_with([["3", ["success", "error"]]], [[3, ["error"]]], None))
    assert found.accepted == {Status.ERROR}


@pytest.mark.parametrize(
    "element",
    [
        *(3, [3], ["x", []], [True, []], [3, ["running"]], [3, ["?"]]),
        *(["9" * 5000, []], ["9" * 19, []], ["\N{ARABIC-INDIC DIGIT THREE}", []]),
        *([2**62 + 1, []], [10**300, []], [3, ["x" * 5000]]),
    ],
)
def test_malformed_dependencies_are_refused(element: object) -> None:
    with pytest.raises(OpPrereqError) as caught:
        dependencies_of(job_with([element]))
    assert len(str(caught.value)) < 500
    with pytest.raises(OpPrereqError):
        resolve_relative([{"depends": [element]}], [])


@pytest.mark.shows("backend/jobs/depends-submitted")
def test_relative_ids_count_back_in_the_submission() -> None:
    earlier = [JobId(10), None, JobId(12)]
    (resolved,) = resolve_relative([{"depends": [[-1, ["error"]], [-3, []], [4, []]]}], earlier)
    assert resolved["depends"] == [[12, ["error"]], [10, []], [4, []]]


@pytest.mark.parametrize("number", [-2, -4])
def test_relative_ids_of_refused_or_missing_jobs(number: int) -> None:
    with pytest.raises(OpPrereqError, match=f"relative dependency {number}"):
        resolve_relative([{"depends": [[number, []]]}], [JobId(10), None, JobId(12)])


@pytest.mark.parametrize("other", [9, 10, 4])
def test_a_job_cannot_wait_for_itself_or_for_what_is_not_there(other: int) -> None:
    dependencies = dependencies_of(job_with([[other, []]]))
    with pytest.raises(OpPrereqError, match="does not exist"):
        check_known(JobId(9), dependencies, {JobId(3): Status.QUEUED, JobId(9): Status.QUEUED})
