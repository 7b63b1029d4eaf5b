"""LuxiD and the copies on other candidates: behind, ahead, left over, of another opinion."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.held_jobs import HELD, let_go, wait_held
from fakes.luxid_cluster import LuxidCluster
from fakes.luxid_node import DEADLINE_S, delay, is_final, wait_status
from fakes.noded_node import NodedNode
from fakes.waiting import wait_until

from ganeti.base.errors import GenericError, JobQueueError
from ganeti.base.ids import JobId
from ganeti.jobs.record import decode_job, encode_job
from ganeti.jobs.status import Status
from ganeti.jobs.submission import make_job
from ganeti.store import ssconf
from ganeti.store.job_files import JobFiles

EXIT_NOTMASTER = 11


@pytest.fixture
def cluster() -> Iterator[LuxidCluster]:
    with LuxidCluster() as made:
        yield made


def archived(node: NodedNode) -> list[int]:
    return [int(job_id) for job_id in JobFiles(node.paths).archived_ids()]


def queued(node: NodedNode) -> list[int]:
    return [int(job_id) for job_id in JobFiles(node.paths).ids()]


def start_refused(cluster: LuxidCluster) -> tuple[int | None, str]:
    """Start LuxiD, which is to end by itself; returns exit status and what it logged."""
    with pytest.raises(AssertionError):
        cluster.master.start()
    process = cluster.master.process
    assert process is not None
    status = process.wait(DEADLINE_S)
    cluster.master.process = None
    return status, cluster.master.log()


# Behind.


def test_jobs_archived_while_a_candidate_was_away_do_not_pile_up_there(
    cluster: LuxidCluster,
) -> None:
    """Reported to Ganeti as #1266: thousands of stale job files on candidates."""
    late, _ = cluster.others
    client = cluster.master.start()
    ids = [client.submit_job([delay()]) for _ in range(3)]
    for job_id in ids:
        wait_status(client, job_id, "success")
    wait_until(lambda: queued(late) == ids, "the jobs are there")
    running = client.submit_job([HELD])
    place = wait_held(client, running)
    late.stop()
    let_go(place)
    wait_status(client, running, "success")
    ids.append(running)
    for job_id in ids:
        client.archive_job(job_id)
    late.start()
    assert queued(late) == ids
    last = client.submit_job([delay()])
    wait_status(client, last, "success")
    wait_until(lambda: archived(late) == ids and queued(late) == [last], "they are archived")
    data = JobFiles(late.paths).read_archived(JobId(running))
    assert data == cluster.master.files.read_archived(JobId(running)), "with its end"


@pytest.mark.shows("2.0/queue-life/consistency")
def test_what_is_left_over_is_put_away_at_start(cluster: LuxidCluster) -> None:
    one, _ = cluster.others
    queue = JobFiles(one.paths)
    for job_id in (1, 2):
        queue.write_durable(JobId(job_id), encode_job(make_job(JobId(job_id), [delay()], (1, 1))))
    queue.set_drained(True)
    own = cluster.master.files
    own.write_durable(JobId(2), encode_job(make_job(JobId(2), [delay(60)], (1, 1))))
    own.write_serial(5)
    client = cluster.master.start()
    wait_until(lambda: archived(one) == [1], "a job that nobody knows any more is archived")
    data = queue.read_archived(JobId(1))
    assert data is not None
    assert decode_job(data).status is Status.CANCELED, "nobody may ever run it"
    wait_until(lambda: not queue.is_drained(), "it is not drained any more")
    # Its status may differ: that a job is running is not copied.
    wanted = cluster.master.job(2).ops[0].input
    wait_until(
        lambda: (copy := cluster.copy_of(one, 2)) is not None and copy.ops[0].input == wanted,
        "the old version was replaced",
    )
    client.cancel_job(JobId(2), kill=True)


# Ahead.


@pytest.mark.shows("2.0/startup/newest-jobs", "2.0/queue-life/consistency")
def test_jobs_that_only_others_know_are_taken_over(cluster: LuxidCluster) -> None:
    one, _ = cluster.others
    job = make_job(JobId(50), [delay()], (1, 1))
    JobFiles(one.paths).write_durable(job.id, encode_job(job))
    client = cluster.master.start()
    assert wait_status(client, 50, is_final) == "success"
    assert client.submit_job([delay()]) == 51


def test_ids_that_only_others_know_are_not_given_again(cluster: LuxidCluster) -> None:
    JobFiles(cluster.others[0].paths).write_serial(70)
    assert cluster.master.start().submit_job([delay()]) == 71


def test_ids_of_a_candidate_that_comes_back_are_not_given_again(cluster: LuxidCluster) -> None:
    """Found by the campaign, seed 302: the new job's file was archived in place of the old one."""
    late, _ = cluster.others
    late.stop()
    client = cluster.master.start()
    first = client.submit_job([delay()])
    job = make_job(JobId(first + 3), [delay()], (1, 1))
    JobFiles(late.paths).write_durable(job.id, encode_job(job))
    late.start()
    wait_until(lambda: archived(late) == [job.id], "what was never accepted is archived")
    assert client.submit_job([delay()]) == job.id + 1


def test_what_is_no_job_file_elsewhere_is_left_out_and_its_id_not_given(
    cluster: LuxidCluster,
) -> None:
    one, _ = cluster.others
    Path(one.paths.job_file(50)).mkdir()
    assert cluster.master.start().submit_job([delay()]) == 51


@pytest.mark.shows("2.0/startup/newest-config")
def test_a_newer_configuration_elsewhere_keeps_it_from_starting(cluster: LuxidCluster) -> None:
    one, _ = cluster.others
    newer = {**cluster.master.config, "serial_no": cluster.master.config["serial_no"] + 1}
    Path(one.paths.config_data).write_text(json.dumps(newer))
    status, log = start_refused(cluster)
    assert status == EXIT_NOTMASTER
    assert f"node {one.name} has a newer configuration" in log


@pytest.mark.shows("backend/masterd/confirms", "2.12/luxid/master-only")
def test_who_is_outvoted_does_not_start_and_says_by_whom(cluster: LuxidCluster) -> None:
    for node in cluster.others:
        os.unlink(node.paths.ssconf_file("master_node"))
        ssconf.write_values(node.paths, {"master_node": "node3.example.com"})
    status, log = start_refused(cluster)
    assert status == EXIT_NOTMASTER
    assert "node2.example.com, node3.example.com name node3.example.com" in log


def test_who_is_outvoted_while_running_ends(cluster: LuxidCluster) -> None:
    client = cluster.master.start()
    wait_status(client, client.submit_job([delay()]), "success")
    process = cluster.master.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    for node in cluster.others:
        os.unlink(node.paths.ssconf_file("master_node"))
        ssconf.write_values(node.paths, {"master_node": "node3.example.com"})
    time.sleep(6.5)  # long enough to notice that it was paused
    process.send_signal(signal.SIGCONT)
    assert process.wait(DEADLINE_S) == EXIT_NOTMASTER
    cluster.master.process = None


def test_a_former_master_gets_nothing_acknowledged(cluster: LuxidCluster) -> None:
    """It was cut off and is back, idle, and has not noticed yet."""
    client = cluster.master.start()
    first = client.submit_job([delay()])
    wait_status(client, first, "success")
    own = cluster.master.job(first)
    wait_until(lambda: all(cluster.copy_of(n, first) == own for n in cluster.others), "all copies")
    process = cluster.master.process
    assert process is not None
    names = [cluster.master.name, *(node.name for node in cluster.others)]
    for node in cluster.others:
        os.unlink(node.paths.ssconf_file("master_node"))
        known = {"master_node": "node3.example.com", "node_list": "\n".join(names)}
        ssconf.write_values(node.paths, known)
    with pytest.raises(GenericError):
        client.submit_job([delay()])
    assert process.wait(DEADLINE_S) == EXIT_NOTMASTER, "their refusal makes it ask who is master"
    cluster.master.process = None
    assert [queued(node) for node in cluster.others] == [[first], [first]]


# Too few.


def test_a_master_that_loses_the_others_starts_nothing_until_one_is_back(
    cluster: LuxidCluster,
) -> None:
    back, _ = cluster.others
    client = cluster.master.start()
    first = client.submit_job([HELD])
    waiting = client.submit_job([delay(depends=[[first, []]])])
    place = wait_held(client, first)
    for node in cluster.others:
        node.stop()
    with pytest.raises(JobQueueError, match=r"gnt-node modify --offline=yes node2"):
        client.submit_job([delay()])
    mend = {
        "OP_ID": "OP_NODE_SET_PARAMS",
        "node_name": "node3.example.com",
        "offline": True,
        "reason": [],
    }
    mending = client.submit_job([mend])
    wait_until(lambda: cluster.master.job(mending).livelock is not None, "it begins")
    let_go(place)
    wait_until(
        lambda: "not safe yet" in str(cluster.master.job(first).log_after(0)), "it has worked"
    )
    assert cluster.master.job(waiting).status is Status.QUEUED
    back.start()
    assert wait_status(client, waiting, is_final) == "success"
    assert wait_status(client, client.submit_job([delay()]), is_final) == "success"
    wait_until(
        lambda: cluster.copy_of(back, waiting) == cluster.master.job(waiting), "it has a copy"
    )
