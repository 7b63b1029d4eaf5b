"""Master candidates come and go: who has copies of the queue, and what works without them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from fakes.failing_cluster import FailingCluster, failing_cluster
from fakes.waiting import wait_until

from ganeti.store.job_files import JobFiles


@pytest.fixture(scope="module")
def three() -> Iterator[FailingCluster]:
    with failing_cluster(3) as made:
        yield made


def jobs_on(cluster: FailingCluster, node: str) -> list[int]:
    return [int(job_id) for job_id in JobFiles(cluster.paths_of(node)).ids()]


@pytest.mark.shows("2.0/candidate/only-candidates")
def test_who_is_no_candidate_any_more_loses_its_copies(three: FailingCluster) -> None:
    former = three.others[0]
    assert jobs_on(three, former)
    three.gnt(f"node modify --master-candidate=no --auto-promote {former}")
    wait_until(lambda: not jobs_on(three, former), "the copies are gone")
    assert not os.path.exists(three.paths_of(former).config_data)
    job_id = three.submit("debug delay 0")
    three.run(f"gnt-job wait {job_id}")
    assert not jobs_on(three, former)
    # And gets them again.
    three.gnt(f"node modify --master-candidate=yes {former}")
    wait_until(
        lambda: jobs_on(three, former) == jobs_on(three, three.master), "the copies are back"
    )
    wait_until(
        lambda: JobFiles(three.paths_of(former)).last_id() == JobFiles(three.paths).last_id(),
        "with the last id",
    )


def test_copies_left_over_from_before_are_found_at_start(three: FailingCluster) -> None:
    former = three.others[0]
    three.gnt(f"node modify --master-candidate=no --auto-promote {former}")
    wait_until(lambda: not jobs_on(three, former), "the copies are gone")
    JobFiles(three.paths_of(former)).write_serial(3)
    luxid = next(e for e in three.processes_of(three.master) if e.command.endswith("ganeti-luxid"))
    os.kill(luxid.pid, 9)
    wait_until(lambda: "ganeti-luxid" not in three.running(three.master), "LuxiD is dead")
    three.start_master_daemons()
    wait_until(lambda: JobFiles(three.paths_of(former)).read_serial() == 0, "they are gone as well")
    three.gnt(f"node modify --master-candidate=yes {former}")


def test_a_candidate_that_was_away_gets_what_it_missed_without_another_job(
    three: FailingCluster,
) -> None:
    away = three.others[0]
    archived = three.submit("debug delay 0")
    three.run(f"gnt-job wait {archived}")
    three.stop_noded(away)
    missed = three.submit("debug delay 0")
    three.wait_status(missed, "success")
    three.gnt(f"job archive {archived}")
    three.start_noded(away)
    theirs, ours = JobFiles(three.paths_of(away)), JobFiles(three.paths)
    wait_until(lambda: jobs_on(three, away) == jobs_on(three, three.master), "it has the same jobs")
    wait_until(lambda: theirs.read(missed) == ours.read(missed), "with what became of them")
    wait_until(lambda: theirs.last_id() == ours.last_id(), "and the last id")
    assert theirs.read_archived(archived) == ours.read_archived(archived)


def test_without_enough_candidates_only_what_mends_that_is_accepted(three: FailingCluster) -> None:
    gone, other = three.others
    three.stop_noded(gone, other)
    three.refused("cluster add-tags lost", "gnt-node modify --offline=yes")
    three.refused("debug delay 0", f"not reached: {gone}, {other}")
    three.gnt(f"node modify --offline=yes --auto-promote {gone}")
    three.gnt("debug delay 0")
    three.gnt("cluster add-tags kept")
    three.start_noded(other)
    job_id = three.submit("debug delay 0")
    wait_until(
        lambda: jobs_on(three, other) == jobs_on(three, three.master), "the other one catches up"
    )
    three.wait_status(job_id, "success")
    three.start_noded(gone)
    three.gnt(f"node modify --offline=no {gone}")
    wait_until(
        lambda: jobs_on(three, gone) == jobs_on(three, three.master), "and so does the first"
    )
    assert three.gnt("cluster list-tags").lines == ["kept"]
    three.gnt("cluster remove-tags kept")
    assert three.gnt("cluster verify").status == 0


def test_a_lack_of_candidates_is_mended_step_by_step() -> None:
    with failing_cluster(4) as four:
        first, second, third = four.others
        four.stop_noded(first, second, third)
        mended = four.gnt(f"node modify --offline=yes --auto-promote {first}")
        assert "The change is made, but not safe yet" in mended.out + mended.err
        four.refused("debug delay 0", f"{second}, {third}. Repair them")
        mended = four.gnt(f"node modify --offline=yes --auto-promote {second}")
        assert "not safe yet" not in mended.out + mended.err
        four.gnt("debug delay 0")


def test_the_master_starts_with_a_majority_only(three: FailingCluster) -> None:
    gone, _ = three.others
    three.stop_noded(gone)
    three.kill_master_daemons()
    three.start_master_daemons()
    three.gnt("debug delay 0")
    three.start_noded(gone)
