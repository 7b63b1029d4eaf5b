"""LuxiD where high availability is on: the master's lease, the votes, what may start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fakes.luxid_cluster import LuxidCluster
from fakes.luxid_node import DEADLINE_S, delay, wait_status
from fakes.waiting import wait_until

from ganeti.base.errors import JobQueueError
from ganeti.base.paths import Paths
from ganeti.store import ssconf
from ganeti.store.availability import State, read_reports, write_state
from ganeti.store.job_files import JobFiles
from ganeti.system import clock

EXIT_NOTMASTER = 11


@pytest.fixture
def cluster() -> Iterator[LuxidCluster]:
    with LuxidCluster() as made:
        yield made


def hold_lease(paths: Paths, seconds: float, etcd: str = "") -> None:
    """Say, as the agent would, that the lease of the master is held for so long."""
    Path(paths.high_availability).write_text("{}")
    now_s = clock.monotonic()
    write_state(paths, State(time=now_s, master_until=now_s + seconds, etcd=etcd))


def test_jobs_go_on_when_etcd_is_lost_and_the_nodes_agree(cluster: LuxidCluster) -> None:
    hold_lease(cluster.master.paths, 3600)
    client = cluster.master.start()
    wait_status(client, client.submit_job([delay()]), "success")
    hold_lease(cluster.master.paths, 0, "no member answers")
    wait_status(client, client.submit_job([delay()]), "success")


def test_who_lost_the_lease_to_another_master_starts_nothing_and_ends(
    cluster: LuxidCluster,
) -> None:
    master = cluster.master
    hold_lease(master.paths, 3600)
    client = master.start()
    wait_status(client, client.submit_job([delay()]), "success")
    for node in cluster.others:
        os.unlink(node.paths.ssconf_file("master_node"))
        ssconf.write_values(node.paths, {"master_node": "node3.example.com"})
    hold_lease(master.paths, 0)
    process = master.process
    assert process is not None
    assert process.wait(DEADLINE_S) == EXIT_NOTMASTER
    assert "this node is not the master any more" in master.log().lower()


def test_a_job_waits_while_nobody_confirms_the_master(cluster: LuxidCluster) -> None:
    master = cluster.master
    client = master.start()
    wait_status(client, client.submit_job([delay()]), "success")
    # The copies reach all candidates; but it is three of five nodes that would have to agree.
    names = [master.name, *(node.name for node in cluster.others), "node8", "node9", "node10"]
    os.unlink(master.paths.ssconf_file("node_list"))
    addresses = {node.name: node.address for node in cluster.others}
    lines = [f"{name} {addresses.get(name, '127.99.0.1')}" for name in names]
    values = {"node_list": "\n".join(names), "node_primary_ips": "\n".join(lines)}
    ssconf.write_values(master.paths, values)
    hold_lease(master.paths, 0)
    waiting = client.submit_job([delay()])
    wait_until(
        lambda: "nothing says that this node is still the master" in master.log(), "it waits"
    )
    assert client.query_jobs([waiting], ["status"]) == [["queued"]]
    hold_lease(master.paths, 3600)
    wait_status(client, waiting, "success")


# --- two candidates


@pytest.fixture
def pair() -> Iterator[LuxidCluster]:
    with LuxidCluster(1) as made:
        yield made


def lacking(paths: Paths) -> list[str]:
    """Return the candidates that lack something, as LuxiD told the agent last."""
    return next((list(each.lacking) for each in read_reports(paths)), ["nothing is told"])


def tell(paths: Paths, alone: str = "") -> float:
    """Say, as the agent would, who goes on alone; returns when."""
    now_s = clock.monotonic()
    write_state(paths, State(time=now_s, master_until=now_s + 3600, alone=alone))
    return now_s


def test_a_job_counts_on_both_candidates_until_one_is_alone(pair: LuxidCluster) -> None:
    master, [other] = pair.master, pair.others
    hold_lease(master.paths, 3600)
    client = master.start()
    first = client.submit_job([delay()])
    assert pair.copy_of(other, first) is not None
    wait_status(client, first, "success")
    other.stop()
    with pytest.raises(JobQueueError, match=f"not reached: {other.name}"):
        client.submit_job([delay()])
    known = {int(job_id) for job_id in JobFiles(other.paths).ids()}
    wait_until(lambda: lacking(master.paths) == [other.name], "the report")
    # Somebody waits while the agent finds out that the other one is gone.
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(master.client().submit_job, [delay()])
        tell(master.paths, alone=master.name)
        second = waiting.result()
    wait_status(client, second, "success")
    assert {int(job_id) for job_id in JobFiles(other.paths).ids()} == known
    # It is back, and gets everything; from then on both count again.
    other.start()
    wait_until(lambda: lacking(master.paths) == [], "all to be there")
    told_s = tell(master.paths)
    wait_until(lambda: any(r.seen_s >= told_s for r in read_reports(master.paths)), "the report")
    assert lacking(master.paths) == []
    copy = pair.copy_of(other, second)
    assert copy is not None
    assert copy == master.job(second)
    third = client.submit_job([delay()])
    assert pair.copy_of(other, third) is not None
    wait_status(client, third, "success")
