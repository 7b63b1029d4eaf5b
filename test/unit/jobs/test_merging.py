"""Copies of the queue put together: nothing that was acknowledged is lost, nothing goes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import OpExecError
from ganeti.base.ids import JobId
from ganeti.copies.quorum import copies_needed
from ganeti.jobs import changes
from ganeti.jobs.merging import digest, furthest, plan_copy, plan_merge
from ganeti.jobs.record import QueuedJob, encode_job
from ganeti.jobs.submission import make_job
from ganeti.protocol.node_rpc_values import QueueListing

NOW = (1, 2)


def life(job_id: int) -> list[QueuedJob]:
    """Return the records that a job has one after the other."""
    queued = make_job(JobId(job_id), [{"OP_ID": "OP_TEST_DELAY"}] * 2, NOW)
    started = changes.handed_over(queued, livelock="/l/job_1_2", process_id=3, now=NOW)
    running = changes.op_running(started, 0, NOW)
    logged = changes.with_log_entry(running, 0, "message", "text", NOW)
    first = changes.op_succeeded(logged, 0, None, NOW)
    waiting = changes.op_waiting(first, 1, NOW)
    told = changes.with_log_entry(waiting, 1, "message", "waits in the queue again", NOW)
    back = changes.stepped_back(told)
    again = changes.handed_over(back, livelock="/l/job_1_3", process_id=4, now=NOW)
    ended = changes.op_succeeded(changes.op_running(again, 1, NOW), 1, True, NOW)
    return [queued, started, running, logged, first, waiting, back, again, ended]


RECORDS = [encode_job(job) for job in life(5)]


@given(st.lists(st.sampled_from(RECORDS), min_size=1))
def test_of_two_records_the_later_one_counts(versions: list[bytes]) -> None:
    assert furthest(5, versions) == RECORDS[max(map(RECORDS.index, versions))]


def test_a_job_that_failed_has_ended() -> None:
    failed = encode_job(changes.failed(life(5)[2], OpExecError("died"), NOW))
    assert furthest(5, [RECORDS[5], failed, RECORDS[0]]) == failed


def test_broken_files_and_those_of_other_jobs_do_not_count() -> None:
    assert furthest(5, [b"{", RECORDS[1], encode_job(life(6)[6])]) == RECORDS[1]
    assert furthest(5, [b"", b"[]"]) is None


def test_of_equal_ones_the_first_counts() -> None:
    queued = life(5)[0]
    urgent = encode_job(changes.with_priority(queued, -5))
    assert furthest(5, [urgent, encode_job(queued)]) == urgent


@pytest.mark.shows("2.0/queue-storage/compared")
def test_only_what_differs_is_fetched() -> None:
    own = QueueListing(jobs={1: "a", 2: "b", 4: "d", 6: "f"}, archived=(3,))
    others = {
        "n2": QueueListing(jobs={1: "a", 2: "x", 3: "c", 5: "e"}, archived=(4,)),
        "n3": QueueListing(jobs={1: "a", 2: "y", 5: "e", 4: "z"}, archived=(3, 7)),
        "n4": QueueListing(jobs={2: "x"}),
    }
    plan = plan_merge(own, others)
    assert plan.compare == {2: ("n2", "n3"), 5: ("n2",)}
    assert plan.archive == {4: "n2"}
    assert plan.fetch_archived == {7: "n3"}


@pytest.mark.shows("2.0/queue-storage/compared")
def test_a_candidate_gets_what_it_lacks_and_archives_what_is_over() -> None:
    own = QueueListing(jobs={1: "a", 2: "b", 3: "c"}, archived=(7,))
    plan = plan_copy(own, QueueListing(jobs={1: "a", 2: "old", 7: "x", 8: "withdrawn"}))
    assert plan.send == (2, 3)
    assert plan.archive == (7, 8)
    nothing = plan_copy(own, QueueListing(jobs=own.jobs))
    assert (nothing.send, nothing.archive) == ((), ())


@st.composite
def queues(draw: st.DrawFn) -> tuple[int, dict[str, dict[int, int]], dict[int, int], list[str]]:
    """Return copies of a queue on candidates, what was acknowledged, and who answers."""
    count = draw(st.integers(1, 6))
    names = [f"n{number}" for number in range(1, count + 1)]
    copies: dict[str, dict[int, int]] = {name: {} for name in names}
    acknowledged: dict[int, int] = {}
    for job_id in (1, 2, 3):
        for step in range(draw(st.integers(0, len(RECORDS)))):
            reached = {"n1", *draw(st.lists(st.sampled_from(names), unique=True))}
            for name in reached:
                copies[name][job_id] = step
            if len(reached) >= copies_needed(count):
                acknowledged[job_id] = step
    least = count - copies_needed(count) + 1
    answering = draw(st.lists(st.sampled_from(names), unique=True, min_size=least, max_size=count))
    return count, copies, acknowledged, answering


@given(queues())
def test_the_merged_queue_has_every_acknowledged_record(
    found: tuple[int, dict[str, dict[int, int]], dict[int, int], list[str]],
) -> None:
    _, copies, acknowledged, answering = found
    own_name, *rest = answering
    lives = {job_id: [encode_job(job) for job in life(job_id)] for job_id in (1, 2, 3)}
    files = {
        name: {job_id: lives[job_id][step] for job_id, step in copies[name].items()}
        for name in answering
    }
    listings = {
        name: QueueListing(jobs={job_id: digest(data) for job_id, data in jobs.items()})
        for name, jobs in files.items()
    }
    plan = plan_merge(listings[own_name], {name: listings[name] for name in rest})
    merged = dict(files[own_name])
    for job_id, names in plan.compare.items():
        versions = [files[name][job_id] for name in (own_name, *names) if job_id in files[name]]
        best = furthest(job_id, versions)
        assert best is not None
        merged[job_id] = best
    for job_id, step in acknowledged.items():
        assert lives[job_id].index(merged[job_id]) >= step
