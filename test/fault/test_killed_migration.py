"""A migration whose job is killed after the guest has arrived, with a disk that all nodes reach.

The configuration still names the node that the guest has left; it must not start a second time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.virtual_cluster import TestCluster, own_cluster
from fakes.waiting import wait_until

from ganeti.base.ids import JobId
from ganeti.jobs.record import decode_job
from ganeti.system import daemon_control, failpoints

NAME = "moving.example.com"
NEW = "--no-name-check --no-ip-check -o test -B memory=16 --disk 0:size=8 -t sharedfile"
HINT = f"gnt-instance migrate --cleanup {NAME}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[TestCluster]:
    """A cluster whose instance runs on its first node, before and after each test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(failpoints.VARIABLE, "1")
        with own_cluster(3, without=("ganeti-rapi", "ganeti-maintd", "ganeti-mond")) as made:
            made.gnt(f"instance add {NEW} -n node1 {NAME}")
            yield made


def where_it_runs(cluster: TestCluster) -> list[str]:
    """Ask the nodes, whatever the configuration says."""
    found = []
    for node in cluster.nodes:
        book = Path(cluster.paths_of(node).fake_dir, NAME)
        if book.exists() and '"running"' in book.read_text():
            found.append(node)
    return found


def kill_migration_before_it_is_recorded(cluster: TestCluster) -> None:
    """Kill the job, and WConfD as it begins to write that the instance has moved."""
    rules = Path(cluster.paths.root, failpoints.DIRECTORY)
    rules.mkdir(exist_ok=True)
    rule = rules / "before_write,config.data,stop"
    rule.touch()
    job_id = cluster.submit(f"instance migrate -f -n node2 {NAME}")
    wait_until(lambda: not rule.exists(), "the configuration is about to be written")
    wconfd = daemon_control.running_pid(cluster.paths, "ganeti-wconfd")
    assert wconfd is not None
    job = decode_job(Path(cluster.paths.job_file(JobId(job_id))).read_bytes())
    assert job.process_id is not None
    for pid in (job.process_id, wconfd):
        os.kill(pid, signal.SIGKILL)
    wait_until(
        lambda: daemon_control.running_pid(cluster.paths, "ganeti-wconfd") != wconfd,
        "WConfD has ended",
    )
    if daemon_control.running_pid(cluster.paths, "ganeti-wconfd") is None:
        daemon_control.start_daemon(cluster.paths, "ganeti-wconfd", hostname=cluster.master)
    assert cluster.run(["gnt-job", "watch", str(job_id)]).status == 1


def test_it_runs_once_and_a_clean_up_finds_it(cluster: TestCluster) -> None:
    node1, node2, _node3 = cluster.nodes
    kill_migration_before_it_is_recorded(cluster)
    assert where_it_runs(cluster) == [node2]
    cluster.refused(f"instance startup {NAME}", HINT)
    cluster.refused(f"instance failover -f -n node3 {NAME}", HINT)
    cluster.refused(f"instance remove -f {NAME}", HINT)
    cluster.refused(f"instance reinstall -f {NAME}", HINT)
    cluster.refused(f"instance modify --new-primary=node3 {NAME}", HINT)
    cluster.refused(f"instance deactivate-disks {NAME}", HINT)
    assert where_it_runs(cluster) == [node2]
    cluster.gnt(f"instance migrate -f --cleanup -n node3 {NAME}")  # where it never was
    assert cluster.instance_field(NAME, "pnode,status") == f"{node2}|running"
    assert where_it_runs(cluster) == [node2]
    cluster.gnt(f"instance failover -f -n node1 {NAME}")
    assert cluster.instance_field(NAME, "pnode,status") == f"{node1}|running"
    assert where_it_runs(cluster) == [node1]


def test_when_the_other_node_dies_it_may_start_again(cluster: TestCluster) -> None:
    node1, node2, _node3 = cluster.nodes
    kill_migration_before_it_is_recorded(cluster)
    Path(cluster.paths_of(node2).fake_dir, NAME).unlink()  # as after a restart of that node
    cluster.refused(f"instance startup {NAME}", HINT)
    cluster.gnt(f"instance migrate -f --cleanup {NAME}")
    cluster.gnt(f"instance startup {NAME}")
    assert where_it_runs(cluster) == [node1]


def test_a_migration_that_is_killed_on_the_way_ends_where_it_began(cluster: TestCluster) -> None:
    node1, node2, _node3 = cluster.nodes
    here, there = (Path(cluster.paths_of(node).fake_dir, NAME) for node in (node1, node2))
    book = here.read_text()
    here.write_text(book.replace('"running"', '"sent"'))
    there.write_text(book.replace('"running"', '"incoming"'))
    notes = Path(cluster.paths_of(node1).departures_dir)
    notes.mkdir(exist_ok=True)
    address = cluster.gnt(f"node list --no-headers -o sip {node2}").out.strip()
    (notes / cluster.instance_field(NAME, "uuid")).write_text(f"{address}:8102")
    cluster.gnt(f"instance migrate -f --cleanup {NAME}")
    assert where_it_runs(cluster) == [node1]
    assert not there.exists()
