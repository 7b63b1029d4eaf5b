"""LuxiD where high availability is on: the master's lease, the votes, what may start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.luxid_cluster import LuxidCluster
from fakes.luxid_node import DEADLINE_S, delay, wait_status
from fakes.waiting import wait_until

from ganeti.base.paths import Paths
from ganeti.store import ssconf
from ganeti.store.availability import State, write_state
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
