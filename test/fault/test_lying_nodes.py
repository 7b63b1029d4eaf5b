"""A node that answers another master than the others, or has a configuration of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from fakes.failing_cluster import FailingCluster, failing_cluster
from fakes.waiting import wait_until

from ganeti.base import json
from ganeti.store import ssconf
from ganeti.system import files


@pytest.fixture(scope="module")
def five() -> Iterator[FailingCluster]:
    with failing_cluster(5) as made:
        yield made


def lie(cluster: FailingCluster, node: str, *, named: str, newer_by: int) -> None:
    """Let a node name a master, with a configuration that is newer, or older, than it was."""
    cluster.stop_noded(node)
    paths = cluster.paths_of(node)
    config = json.loads_as(dict[str, object], files.read_bytes(paths.config_data))
    assert isinstance(config["serial_no"], int)
    config["serial_no"] += newer_by
    files.write_durable(paths.config_data, json.dumps(config))
    os.unlink(paths.ssconf_file("master_node"))
    ssconf.write_values(paths, {"master_node": named})
    cluster.start_noded(node)


def configs_are_equal(cluster: FailingCluster) -> bool:
    found = {files.read_bytes_or_none(cluster.paths_of(n).config_data) for n in cluster.nodes}
    return len(found) == 1


@pytest.mark.parametrize("newer_by", [50_000, -1])
def test_the_master_starts_whatever_a_single_node_says(five: FailingCluster, newer_by: int) -> None:
    liar = five.others[-1]
    five.gnt(f"cluster add-tags start{newer_by}")
    five.kill_master_daemons()
    lie(five, liar, named=liar, newer_by=newer_by)
    five.start_master_daemons()
    job_id = five.submit("debug delay 0")
    five.wait_status(job_id, "success")
    assert f"start{newer_by}" in five.gnt("cluster list-tags").lines
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
    lie(five, liar, named=liar, newer_by=newer_by)
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
    lie(five, liar, named=liar, newer_by=60_000)
    for daemon in ("ganeti-wconfd", "ganeti-luxid"):
        outcome = five.start_daemon_by_hand(liar, daemon)
        assert outcome.status == 11, outcome
        assert five.master in outcome.err
    assert five.running(liar) == []
    five.wait_status(five.submit("debug delay 0"), "success")
