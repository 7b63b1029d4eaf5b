import pytest

from ganeti.jobs.status import FINAL, NEXT, Status, combined_status

S = Status


@pytest.mark.shows("backend/jobs/status", "2.0/queue-status/states")
@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([S.QUEUED], S.QUEUED),
        ([S.SUCCESS, S.SUCCESS], S.SUCCESS),
        ([S.SUCCESS, S.QUEUED], S.QUEUED),
        ([S.SUCCESS, S.WAITING, S.QUEUED], S.WAITING),
        ([S.SUCCESS, S.RUNNING, S.QUEUED], S.RUNNING),
        ([S.CANCELING, S.QUEUED], S.CANCELING),
        ([S.SUCCESS, S.CANCELED, S.CANCELED], S.CANCELED),
        ([S.SUCCESS, S.ERROR, S.ERROR], S.ERROR),
        ([S.ERROR, S.CANCELED], S.ERROR),
        ([S.CANCELING, S.WAITING], S.CANCELING),
        ([S.WAITING, S.RUNNING], S.WAITING),
    ],
)
def test_status_of_a_job_follows_from_its_opcodes(statuses: list[Status], expected: Status) -> None:
    assert combined_status(statuses) is expected


@pytest.mark.shows("2.0/queue-status/final")
def test_nothing_follows_a_final_status() -> None:
    assert all(not NEXT[status] for status in FINAL)
    assert all(NEXT[status] for status in Status if status not in FINAL)


@pytest.mark.shows("backend/jobs/error")
def test_every_status_that_is_not_final_can_end_in_error() -> None:
    assert all(Status.ERROR in NEXT[status] for status in Status if status not in FINAL)
