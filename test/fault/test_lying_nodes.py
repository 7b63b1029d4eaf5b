"""A node that answers another master than the others, or has a configuration of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes.failing_cluster import FailingCluster, failing_cluster
from fakes.waiting import wait_until

from ganeti.system import files


@pytest.fixture(scope="module")
def five() -> Iterator[FailingCluster]:
    with failing_cluster(5) as made:
        yield made


def configs_are_equal(cluster: FailingCluster) -> bool:
    found = {files.read_bytes_or_none(cluster.paths_of(n).config_data) for n in cluster.nodes}
    return len(found) == 1


@pytest.mark.parametrize(
    ("named", "newer_by"),
    [("itself", 50_000), ("itself", -1), ("another", 50_000), ("nobody", -1), ("the master", -1)],
)
def test_the_master_starts_whatever_a_single_node_says(
    five: FailingCluster, named: str, newer_by: int
) -> None:
    another, *_, liar = five.others
    names = {"itself": liar, "another": another, "nobody": "none.example.com"}
    tag = f"start-{named.replace(' ', '-')}{newer_by}"
    five.gnt(f"cluster add-tags {tag}")
    five.kill_master_daemons()
    five.let_lie(liar, named=names.get(named, five.master), newer_by=newer_by)
    five.start_master_daemons()
    job_id = five.submit("debug delay 0")
    five.wait_status(job_id, "success")
    assert tag in five.gnt("cluster list-tags").lines
    five.gnt(f"node modify --offline=yes {liar}")  # as an operator does, then it is repaired
    five.gnt(f"node modify --offline=no {liar}")
    five.wait_all_follow()
    wait_until(lambda: configs_are_equal(five), "it has the configuration of the others")


@pytest.mark.parametrize("newer_by", [50_000, -1])
def test_a_failover_takes_what_was_acknowledged_and_not_what_one_node_has(
    five: FailingCluster, newer_by: int
) -> None:
    old, new, *_, liar = [five.master, *five.others]
    tag = f"failover{newer_by}"
    five.gnt(f"cluster add-tags {tag}")
    five.run(f"gnt-job wait {five.submit('debug delay 0')}")
    wait_until(lambda: configs_are_equal(five), "all have it")
    five.let_lie(liar, named=liar, newer_by=newer_by)
    five.kill_node(old)
    outcome = five.fail_over(new)
    assert f"Taking the configuration of {liar}" not in outcome.out
    assert (f"the configuration on {liar}" in outcome.out) == (newer_by > 0), outcome
    assert tag in five.gnt("cluster list-tags").lines
    five.start_noded(old)
    five.wait_all_follow()
    five.wait_status(five.submit("debug delay 0"), "success")
    wait_until(lambda: configs_are_equal(five), "all have the configuration of the new master")


def test_who_believes_to_be_the_master_alone_does_not_start(five: FailingCluster) -> None:
    liar = five.others[0]
    five.let_lie(liar, named=liar, newer_by=60_000)
    for daemon in ("ganeti-wconfd", "ganeti-luxid"):
        outcome = five.start_daemon_by_hand(liar, daemon)
        assert outcome.status == 11, outcome
        assert five.master in outcome.err
    assert five.running(liar) == []
    five.wait_status(five.submit("debug delay 0"), "success")
    five.gnt(f"node modify --offline=yes {liar}")  # it is repaired
    five.gnt(f"node modify --offline=no {liar}")
    wait_until(lambda: configs_are_equal(five), "it has the configuration of the others")


def test_a_follower_that_knows_more_stops_the_master_until_a_failover(five: FailingCluster) -> None:
    """The master's disk may be an old copy, and what it would write over was acknowledged."""
    follower = five.others[-1]
    five.gnt("cluster add-tags known")
    wait_until(lambda: configs_are_equal(five), "all have it")
    five.kill_master_daemons()
    five.let_lie(follower, named=five.master, newer_by=50_000)
    outcome = five.start_daemon_by_hand(five.master, "ganeti-wconfd")
    assert outcome.status == 11, outcome
    assert f"node {follower} has a newer configuration" in outcome.err
    assert "'gnt-cluster master-failover', there or here, takes the newest" in outcome.err
    five.fail_over(follower)
    five.wait_status(five.submit("debug delay 0"), "success")
    assert "known" in five.gnt("cluster list-tags").lines
    five.wait_all_follow()
