"""Jobs: followed, canceled, killed, and what the queue remembers."""

from __future__ import annotations

import json
import os
import signal

import pytest
from fakes.held_jobs import DEADLINE_S, HELD, let_go, wait_held
from fakes.virtual_cluster import TestCluster
from fakes.waiting import wait_until

from ganeti.base.errors import JobLost
from ganeti.base.ids import JobId
from ganeti.bootstrap.virtual import lifecycle
from ganeti.system import daemon_control, process
from ganeti.system.files import read_bytes


def process_of(cluster: TestCluster, job_id: int) -> int:
    """Return the process that runs a job, once it does."""

    def find() -> int | None:
        wire = json.loads(read_bytes(cluster.paths.job_file(job_id)))
        pid = wire.get("process_id")
        return pid if wire["ops"][0]["status"] == "running" else None

    wait_until(lambda: find() is not None, f"job {job_id} to run")
    pid = find()
    assert pid is not None
    return pid


def held_job(cluster: TestCluster) -> tuple[int, str]:
    """Begin a job that runs until `let_go`; returns its number, and what to give to that."""
    with cluster.client() as client:
        job_id = client.submit_job([HELD])
        return job_id, wait_held(client, job_id)


@pytest.mark.shows("backend/jobs/followed", "backend/masterd/two-sources")
def test_job_is_followed_to_its_end(cluster: TestCluster) -> None:
    cluster.gnt("debug delay 0.1")
    [line] = cluster.gnt("job list --no-headers -o id,status,summary").lines[-1:]
    assert line.split()[1:] == ["success", "TEST_DELAY(0.1)"]


@pytest.mark.shows("backend/jobs/followed")
def test_watch_shows_what_a_job_says(cluster: TestCluster) -> None:
    job_id = cluster.submit(
        "instance add --no-name-check --no-ip-check -t diskless -H fake"
        " --no-install -o test -n node1 watched.example.com"
    )
    outcome = cluster.gnt(f"job watch {job_id}")
    assert "adding instance watched.example.com" in outcome.out
    assert cluster.job_status(job_id) == "success"
    info = cluster.gnt(f"job info {job_id}").out
    assert "OP_INSTANCE_CREATE" in info
    assert "adding instance watched.example.com" in info


@pytest.mark.shows("2.0/queue-life/result")
def test_failed_job_tells_why_and_how_it_ended(cluster: TestCluster) -> None:
    outcome = cluster.run("gnt-instance startup --submit ghost.example.com")
    number, name = outcome.out.split(": ")
    assert name == "ghost.example.com\n"
    watched = cluster.run(f"gnt-job watch {number}")
    assert watched.status == 1
    assert "ghost.example.com" in watched.err
    ended = cluster.run(f"gnt-job wait {number}")
    assert (ended.status, ended.out, ended.err) == (1, "", watched.err)
    assert cluster.job_status(number) == "error"


def test_waiting_for_an_archived_job_tells_how_it_ended(cluster: TestCluster) -> None:
    failed, done = cluster.submit("debug delay -n nowhere 0"), cluster.submit("debug delay 0")
    cluster.refused(f"job wait {failed}", "nowhere")
    assert cluster.gnt(f"job wait {done}").out == ""
    cluster.gnt(f"job archive {failed} {done}")
    assert cluster.gnt(f"job wait {done}").out == ""
    cluster.refused(f"job wait {failed}", "node 'nowhere' is not known")
    cluster.refused("job wait 999999", "999999")


@pytest.mark.shows("2.12/wconfd/frees")
def test_killed_job_ends_in_error_and_frees_its_locks(cluster: TestCluster) -> None:
    job_id = cluster.submit("debug delay -n node2 3600")
    pid = process_of(cluster, job_id)
    assert f"job{job_id}" in cluster.gnt("debug locks --no-headers -o name,owner").out
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: cluster.job_status(job_id) == "error", "the job's error")
    wait_until(
        lambda: cluster.gnt("debug locks --no-headers -o name").lines == [], "locks to be free"
    )
    wait_until(
        lambda: not any(f"job_{job_id:06d}" in n for n in os.listdir(cluster.paths.livelock_dir)),
        "its lock file to go",
    )
    info = cluster.gnt(f"job list --no-headers -o opresult {job_id}").out
    assert len(info) > 20
    cluster.gnt("debug delay -n node2 0")


@pytest.mark.shows("2.12/death/after-restart", "2.0/queue-status/aborted")
def test_killed_job_is_found_though_luxid_was_away(cluster: TestCluster) -> None:
    job_id = cluster.submit("debug delay 3600")
    pid = process_of(cluster, job_id)
    daemon_control.stop_daemon(cluster.paths, "ganeti-luxid")
    os.kill(pid, signal.SIGKILL)
    lifecycle.start(cluster.layout, lambda _text: None)
    wait_until(lambda: cluster.job_status(job_id) == "error", "the job's error")


@pytest.mark.shows("2.12/noded/restart-luxid")
def test_running_job_survives_a_restart_of_luxid(cluster: TestCluster) -> None:
    job_id, place = held_job(cluster)
    daemon_control.stop_daemon(cluster.paths, "ganeti-luxid")
    os.kill(process_of(cluster, job_id), 0)
    lifecycle.start(cluster.layout, lambda _text: None)
    let_go(place)
    cluster.gnt(f"job wait {job_id}")
    assert cluster.job_status(job_id) == "success"


@pytest.mark.shows("2.12/noded/restart-wconfd")
def test_running_job_survives_a_restart_of_wconfd(cluster: TestCluster) -> None:
    job_id, place = held_job(cluster)
    held = cluster.gnt("debug locks --no-headers -o name,owner").out
    assert f"job{job_id}" in held
    daemon_control.stop_daemon(cluster.paths, "ganeti-wconfd")
    lifecycle.start(cluster.layout, lambda _text: None)
    assert cluster.gnt("debug locks --no-headers -o name,owner").out == held
    let_go(place)
    cluster.gnt(f"job wait {job_id}")
    assert cluster.job_status(job_id) == "success"
    wait_until(
        lambda: cluster.gnt("debug locks --no-headers -o name").lines == [], "locks to be free"
    )


@pytest.mark.shows("2.12/luxid/ended-alone", "2.0/queue-client/cancel")
def test_cancel_and_kill(cluster: TestCluster) -> None:
    first = cluster.submit("debug delay -n node2 3600")
    process_of(cluster, first)
    second = cluster.submit("debug delay -n node2 3600")
    wait_until(lambda: cluster.job_status(second) == "waiting", "the second job to wait")
    cluster.gnt(f"job cancel {second}")
    wait_until(lambda: cluster.job_status(second) == "canceled", "the second job's end")
    cluster.refused(f"job cancel --kill {first}", "--yes-do-it")
    cluster.gnt(f"job cancel --kill --yes-do-it {first}")
    wait_until(lambda: cluster.job_status(first) in ("error", "canceled"), "the first job's end")


@pytest.mark.shows("backend/jobs/drained-flag", "2.0/queue-updates/closed")
def test_drained_queue_takes_no_jobs(cluster: TestCluster) -> None:
    cluster.gnt("cluster queue drain")
    try:
        assert "set" in cluster.gnt("cluster queue info").out
        outcome = cluster.run("gnt-debug delay 0")
        assert outcome.status == 1
        assert "drain" in outcome.err.lower()
    finally:
        cluster.gnt("cluster queue undrain")
    cluster.gnt("debug delay 0")


@pytest.mark.shows("backend/life/archive")
def test_archived_jobs_leave_the_queue_on_every_candidate(cluster: TestCluster) -> None:
    job_id = cluster.submit("debug delay 0")
    cluster.gnt(f"job wait {job_id}")
    cluster.gnt(f"job archive {job_id}")
    for node in cluster.nodes:
        paths = cluster.paths_of(node)
        wait_until(lambda p=paths: not os.path.exists(p.job_file(job_id)), node)  # type: ignore[misc]
        wait_until(lambda p=paths: os.path.exists(p.archived_job_file(job_id)), node)  # type: ignore[misc]
    cluster.refused(f"job archive {job_id}", "Failed to archive")
    assert "Archived" in cluster.gnt("job autoarchive all").out
    assert cluster.gnt("job list --no-headers -o id").lines == []


def test_pause_of_the_watcher(cluster: TestCluster) -> None:
    assert "is paused until" in cluster.gnt("cluster watcher pause 1h").out
    assert "is paused until" in cluster.gnt("cluster watcher info").out
    cluster.gnt("cluster watcher continue")
    assert "not paused" in cluster.gnt("cluster watcher info").out


def test_filters_hold_jobs(cluster: TestCluster) -> None:
    predicates = '[["opcode", ["=", "OP_ID", "OP_TEST_DELAY"]]]'
    uuid = cluster.gnt(
        ["filter", "add", "--action=REJECT", f"--predicates={predicates}", "--reason=testing"]
    ).out.strip()
    try:
        assert uuid in cluster.gnt("filter list -o uuid").out
        assert "REJECT" in cluster.gnt(f"filter info {uuid}").out
    finally:
        cluster.gnt(f"filter delete {uuid}")
    assert cluster.gnt("filter list --no-headers -o uuid").lines == []


def test_submit_job_from_a_file(
    cluster: TestCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("jobs") / "ops.json"
    path.write_text(json.dumps([{"OP_ID": "OP_TEST_DELAY", "duration": 0}] * 2))
    outcome = cluster.gnt(["debug", "submit-job", "--job-repeat=3", "--timing-stats", str(path)])
    assert "C:job       3" in outcome.out
    path.write_text("{")
    cluster.refused(["debug", "submit-job", str(path)], str(path))
    cluster.refused(["debug", "submit-job", "/nowhere"], "/nowhere")


def test_unknown_job(cluster: TestCluster) -> None:
    assert cluster.gnt("job info 999999").lines == ["- Job ID 999999 not found"]
    cluster.refused("job watch 999999", "999999")
    cluster.refused("job cancel 999999", "999999")
    cluster.refused("job info x", "not a job number")
    with cluster.client() as client, pytest.raises(JobLost):
        client.wait_for_job_change(JobId(999999), ["status"], None, None, 1)


def test_a_job_ends_at_once_while_wconfd_is_away(cluster: TestCluster) -> None:
    job_id, place = held_job(cluster)
    pid = daemon_control.running_pid(cluster.paths, "ganeti-wconfd")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert process.wait_gone(pid, DEADLINE_S)
    try:
        let_go(place)
        wait_until(
            lambda: cluster.job_status(job_id) == "success", "the end of the job", timeout_s=15.0
        )
    finally:
        daemon_control.start_daemon(cluster.paths, "ganeti-wconfd", hostname=cluster.master)
    cluster.gnt("debug delay 0")  # nobody holds the locks of the job that ended
    assert f"job{job_id}" not in cluster.gnt("debug locks").out
