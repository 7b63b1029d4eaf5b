"""The jobs in memory: which are the newest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.ids import JobId
from ganeti.jobs.record import QueuedJob, QueuedOp
from ganeti.luxid.queue.known_jobs import KnownJob, KnownJobs, Phase


def entry(number: int) -> KnownJob:
    return KnownJob(QueuedJob(JobId(number), (QueuedOp({"OP_ID": "OP_X"}),)), Phase.QUEUED)


@given(
    added=st.lists(st.integers(1, 30), unique=True),
    removed=st.sets(st.integers(1, 30)),
    limit=st.integers(0, 40),
    before=st.none() | st.integers(0, 40),
)
def test_the_newest_are_those_of_the_sorted_list(
    added: list[int], removed: set[int], limit: int, before: int | None
) -> None:
    entries = KnownJobs()
    for number in added:
        entries.add(entry(number))
    for number in removed:
        entries.remove(JobId(number))
    left = [n for n in sorted(set(added) - removed) if before is None or n < before]
    found = entries.latest(limit, None if before is None else JobId(before))
    assert [each.job.id for each in found] == left[max(0, len(left) - limit) :]


def test_the_jobs_of_each_phase_are_known() -> None:
    known_jobs = KnownJobs()
    for number in (3, 1, 2):
        known_jobs.add(entry(number))
    first = known_jobs.require(JobId(1))
    first.set_phase(Phase.STARTING)
    first.set_phase(Phase.RUNNING)
    assert [each.job.id for each in known_jobs.in_phase(Phase.QUEUED)] == [3, 2]
    assert known_jobs.in_phase(Phase.RUNNING) == [first]
    known_jobs.remove(JobId(1))
    assert known_jobs.in_phase(Phase.RUNNING) == []
    first.set_phase(Phase.ENDED)
    assert known_jobs.in_phase(Phase.ENDED) == []
