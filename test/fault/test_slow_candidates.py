"""Candidates that hang or were away: what has its quorum waits for nobody, and nobody stays behind.

``GANETI_TEST_ROUNDS=200`` plays longer.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator

import pytest
from fakes.chance import seed
from fakes.failing_cluster import FailingCluster, failing_cluster
from fakes.waiting import wait_until

from ganeti.clients.luxi import LuxiClient
from ganeti.system import daemon_control, files

ROUNDS = int(os.environ.get("GANETI_TEST_ROUNDS", "20")) // 2
JOBS = 20
BEHIND_S_MAX = 2.0
SLOW_S_MAX = 1.0
BUSY_S = 3.0  # the machine may have other things to do


@pytest.fixture(scope="module")
def three() -> Iterator[FailingCluster]:
    with failing_cluster(3) as made:
        yield made


def add_tag(client: LuxiClient, tag: str) -> None:
    tags = {"OP_ID": "OP_TAGS_SET", "kind": "cluster", "name": None, "tags": [tag]}
    job_id = client.submit_job([tags])
    status: list[object] | None = None
    while status != ["success"]:
        change = client.wait_for_job_change(job_id, ["status"], status, 1 << 40, 60.0)
        assert change is not None
        status = change.fields
        assert status not in (["error"], ["canceled"])


def time_of_jobs(cluster: FailingCluster, label: str) -> float:
    started = time.monotonic()
    with cluster.luxi() as client:
        for number in range(JOBS):
            add_tag(client, f"{label}{number}")
    return time.monotonic() - started


def assert_catches_up(cluster: FailingCluster, node: str) -> None:
    """A candidate that has just come back has the newest configuration soon."""

    def is_current() -> bool:
        theirs = files.read_bytes(cluster.paths_of(node).config_data)
        return theirs == files.read_bytes(cluster.paths.config_data)

    wait_until(is_current, f"{node} to be up to date", timeout_s=BEHIND_S_MAX + BUSY_S)


def test_a_candidate_that_hangs_costs_one_job_a_second(three: FailingCluster) -> None:
    hung = three.others[0]
    usual_s = time_of_jobs(three, "well")
    three.signal_node(hung, signal.SIGSTOP)
    try:
        hung_s = time_of_jobs(three, "hung")
    finally:
        three.signal_node(hung, signal.SIGCONT)
    assert hung_s < 1.5 * usual_s + SLOW_S_MAX + BUSY_S
    assert_catches_up(three, hung)


def test_a_candidate_that_was_killed_does_not_stay_behind(three: FailingCluster) -> None:
    chance = random.Random(seed())
    with three.luxi() as client:
        for number in range(ROUNDS):
            node = chance.choice(three.others)
            pid = daemon_control.running_pid(three.paths_of(node), "ganeti-noded")
            assert pid is not None
            dies_with = chance.randrange(4)
            for part in range(4):
                if part == dies_with:
                    os.kill(pid, signal.SIGKILL)
                add_tag(client, f"round{number}-{part}")
            three.start_noded(node)
            assert_catches_up(three, node)


@pytest.mark.parametrize("how", ["stopped", "hung"])
def test_a_candidate_that_was_away_while_wconfd_started_does_not_stay_behind(
    three: FailingCluster, how: str
) -> None:
    node = three.others[1]
    if how == "hung":
        three.signal_node(node, signal.SIGSTOP)
    else:
        three.stop_noded(node)
    three.gnt(f"cluster add-tags {how}")
    three.kill_master_daemons()
    three.start_master_daemons()
    log = three.paths.log_file("ganeti-wconfd")

    def is_missed() -> bool:
        return files.read_bytes(log).decode().count(f"configuration to node {node}") >= 1

    wait_until(is_missed, "WConfD to miss it")
    if how == "hung":
        three.signal_node(node, signal.SIGCONT)
    else:
        three.start_noded(node)
    assert_catches_up(three, node)
