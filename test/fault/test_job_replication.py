"""Invariants 4 and 9: what is acknowledged is on enough candidates, with nodes coming and going."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from fakes.held_jobs import HELD, let_go, wait_held
from fakes.luxid_cluster import LuxidCluster, read_text
from fakes.luxid_node import delay, is_final, messages, wait_status
from fakes.waiting import PROMPT_S, wait_until

from ganeti.base.errors import JobQueueError
from ganeti.base.ids import JobId
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs.status import Status
from ganeti.luxid.queue.replication import LOOK_S_MAX, WRITE_S_MAX
from ganeti.store import ssconf
from ganeti.store.job_files import JobFiles
from ganeti.store.notes import watcher_pause


@pytest.fixture
def cluster() -> Iterator[LuxidCluster]:
    with LuxidCluster() as made:
        yield made


@pytest.mark.shows(
    "backend/jobs/consistent",
    "backend/life/written-first",
    "2.12/luxid/replicated",
    "2.0/queue-life/replicated",
    "2.0/queue-structure/every-change",
)
def test_every_candidate_has_the_job_at_each_durable_step(cluster: LuxidCluster) -> None:
    client = cluster.master.start()
    job_id = client.submit_job([messages("hello")])
    assert wait_status(client, job_id, is_final) == "success"
    own = cluster.master.job(job_id)
    assert own in [cluster.copy_of(node, job_id) for node in cluster.others], "two of three"
    for node in cluster.others:
        wait_until(lambda node=node: cluster.copy_of(node, job_id) == own, "the job did not come")
        wait_until(
            lambda node=node: read_text(node.paths.queue_serial) == f"{job_id}\n",
            "the serial did not come",
        )


def test_what_was_replaced_is_kept_while_the_daemons_run_and_no_longer(
    cluster: LuxidCluster,
) -> None:
    client = cluster.master.start()
    places = [each.paths.queue_dir for each in (cluster.master, *cluster.others)]

    def spares() -> list[int]:
        """Return how many there are on each node."""
        return [len([name for name in os.listdir(place) if ".spare." in name]) for place in places]

    job_id = client.submit_job([delay()])
    for _ in range(3):  # each waits in the queue, so its record is replaced when it starts
        job_id = client.submit_job([delay(depends=[[job_id, ["success"]]])])
    wait_status(client, job_id, "success")
    wait_until(lambda: all(spares()), "nothing is kept")
    assert cluster.master.stop() == 0
    for node in cluster.others:
        node.stop()
    assert spares() == [0, 0, 0]


@pytest.mark.shows("2.12/luxid/replicated")
def test_candidates_archive_and_drain_too(cluster: LuxidCluster) -> None:
    client = cluster.master.start()
    job_id = client.submit_job([delay()])
    wait_status(client, job_id, "success")
    assert client.archive_job(job_id)
    client.set_drain_flag(True)
    for node in cluster.others:
        wait_until(
            lambda node=node: (
                cluster.copy_of(node, job_id) is None
                and os.path.exists(node.paths.archived_job_file(job_id))
                and os.path.exists(node.paths.queue_drain)
            ),
            f"{node.name} does not follow",
        )
    client.set_drain_flag(False)
    wait_until(
        lambda: not any(os.path.exists(node.paths.queue_drain) for node in cluster.others),
        "still drained",
    )


@pytest.mark.shows("backend/life/half-needed")
def test_one_of_two_others_is_enough(cluster: LuxidCluster) -> None:
    dead, alive = cluster.others
    dead.stop()
    client = cluster.master.start()
    started = time.monotonic()
    job_id = client.submit_job([delay()])
    assert wait_status(client, job_id, is_final) == "success"
    assert time.monotonic() - started < PROMPT_S
    copy = cluster.copy_of(alive, job_id)
    assert copy is not None
    assert copy.status is Status.SUCCESS


def test_a_paused_candidate_delays_a_start_only_by_the_patience(cluster: LuxidCluster) -> None:
    paused, alive = cluster.others
    client = cluster.master.start()
    wait_status(client, client.submit_job([delay()]), "success")
    os.kill(paused.pid, signal.SIGSTOP)
    started = time.monotonic()
    job_id = client.submit_job([delay()])
    assert time.monotonic() - started < PROMPT_S, "the submission waited for a candidate too many"
    wait_status(client, job_id, lambda status: status != "queued")
    assert time.monotonic() - started < PROMPT_S
    os.kill(paused.pid, signal.SIGCONT)
    assert wait_status(client, job_id, is_final) == "success"
    wait_until(
        lambda: cluster.copy_of(alive, job_id) == cluster.master.job(job_id),
        "the end of the job is not on the candidate that lives",
    )


@pytest.mark.shows("2.0/candidate/others-fail")
def test_a_hung_candidate_costs_one_job_a_moment_and_then_nobody_anything(
    cluster: LuxidCluster,
) -> None:
    hung, alive = cluster.others
    client = cluster.master.start()
    wait_status(client, client.submit_job([delay()]), "success")
    os.kill(hung.pid, signal.SIGSTOP)
    try:
        first = client.submit_job([delay()])
        assert wait_status(client, first, is_final) == "success"
        ids = [client.submit_job([delay()]) for _ in range(5)]
        for job_id in ids:
            assert wait_status(client, job_id, is_final) == "success"
        own = [cluster.master.job(job_id) for job_id in ids]
        times = [(job.received_timestamp or (0, 0), job.end_timestamp or (0, 0)) for job in own]
        assert all(end[0] - begun[0] < PROMPT_S for begun, end in times)
        assert [cluster.copy_of(alive, job_id) for job_id in ids] == own
    finally:
        os.kill(hung.pid, signal.SIGCONT)
    wait_until(
        lambda: [cluster.copy_of(hung, job_id) for job_id in ids] == own,
        "the candidate does not get what it missed",
    )


@pytest.mark.shows("2.12/further/own-copies")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_a_job_sees_to_its_copies_without_luxid(
    cluster: LuxidCluster, number: signal.Signals
) -> None:
    client = cluster.master.start()
    job_id = client.submit_job([HELD])
    place = wait_held(client, job_id)
    luxid = cluster.master.process
    assert luxid is not None
    luxid.send_signal(number)
    let_go(place)
    wait_until(lambda: cluster.master.job(job_id).is_final, "the job does not end")
    own = cluster.master.job(job_id)
    assert own.status is Status.SUCCESS
    assert own in [cluster.copy_of(node, job_id) for node in cluster.others]
    wait_until(lambda: not cluster.master.livelocks(), "the lock file is left behind")
    luxid.send_signal(signal.SIGCONT)


def test_what_a_luxid_that_stood_still_sends_late_replaces_no_end(cluster: LuxidCluster) -> None:
    """It was told of the end of one opcode, and of the end of the job only in part."""
    hung, alive = cluster.others
    client = cluster.master.start()
    os.kill(hung.pid, signal.SIGSTOP)
    job_id = client.submit_job([HELD, messages(*["x" * 25_000] * 4), messages(*["y" * 10_000])])
    place = wait_held(client, job_id)
    luxid = cluster.master.process
    assert luxid is not None
    luxid.send_signal(signal.SIGSTOP)
    let_go(place)

    def has_end() -> bool:
        job = cluster.copy_of(alive, job_id)
        return job is not None and job.is_final

    wait_until(has_end, "the job does not send its end")
    luxid.send_signal(signal.SIGCONT)
    assert wait_status(client, job_id, is_final) == "success"
    wait_status(client, client.submit_job([delay()]), is_final)
    own = cluster.master.job(job_id)
    wait_until(lambda: cluster.copy_of(alive, job_id) == own, "its copy is of before")


def log_of(cluster: LuxidCluster, job_id: int) -> str:
    return " ".join(str(entry[3]) for op in cluster.master.job(job_id).ops for entry in op.log)


def pending_job(cluster: LuxidCluster, client: LuxiClient) -> JobId:
    """Return a job that has done its work while no other candidate answers."""
    job_id = client.submit_job([HELD])
    place = wait_held(client, job_id)
    for node in cluster.others:
        node.stop()
    let_go(place)
    wait_until(lambda: "not safe yet" in log_of(cluster, job_id), "it does not say what it lacks")
    text = log_of(cluster, job_id)
    assert all(node.name in text for node in cluster.others)
    assert "gnt-node modify --offline=yes" in text
    assert client.query_jobs([job_id], ["status"]) == [["running"]]
    return job_id


def test_success_waits_until_a_candidate_is_back(cluster: LuxidCluster) -> None:
    client = cluster.master.start()
    job_id = pending_job(cluster, client)
    _asked, text = client.cancel_job(job_id)
    assert "running" in text  # what it has done is done: it ends in success all the same
    back = cluster.others[1]
    back.start()
    assert wait_status(client, job_id, is_final) == "success"
    assert cluster.copy_of(back, job_id) == cluster.master.job(job_id)


def test_success_waits_without_luxid_too(cluster: LuxidCluster) -> None:
    client = cluster.master.start()
    job_id = pending_job(cluster, client)
    cluster.master.stop(signal.SIGKILL)
    back = cluster.others[0]
    back.start()
    wait_until(lambda: cluster.master.job(job_id).is_final, "the job does not end")
    assert cluster.master.job(job_id).status is Status.SUCCESS
    assert cluster.copy_of(back, job_id) == cluster.master.job(job_id)


def test_success_waits_until_fewer_copies_are_enough(cluster: LuxidCluster) -> None:
    client = cluster.master.start()
    job_id = pending_job(cluster, client)
    left = cluster.others[0]
    cluster.master.set_candidates({cluster.master.name: "127.0.0.1", left.name: left.address})
    assert wait_status(client, job_id, is_final) == "success"


def test_flags_of_the_cluster_do_not_wait_for_a_hung_candidate(cluster: LuxidCluster) -> None:
    hung, alive = cluster.others
    client = cluster.master.start()
    wait_status(client, client.submit_job([delay()]), "success")
    os.kill(hung.pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        client.set_drain_flag(True)
        client.set_watcher_pause(4_000_000_000.0)
        assert time.monotonic() - started < PROMPT_S
        assert JobFiles(alive.paths).is_drained()
        assert watcher_pause.read(alive.paths)
    finally:
        os.kill(hung.pid, signal.SIGCONT)
    wait_until(
        lambda: JobFiles(hung.paths).is_drained() and watcher_pause.read(hung.paths),
        "the candidate to hear of it",
    )
    client.set_drain_flag(False)
    client.set_watcher_pause(None)
    wait_until(
        lambda: not JobFiles(hung.paths).is_drained() and not watcher_pause.read(hung.paths),
        "the candidate to hear of that too",
    )


def test_submissions_are_refused_soon_when_too_few_candidates_answer(cluster: LuxidCluster) -> None:
    client = cluster.master.start()
    wait_status(client, client.submit_job([delay()]), "success")
    for node in cluster.others:
        os.kill(node.pid, signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(JobQueueError, match=r"is on 1 of the 2 .*gnt-node modify --offline"):
        client.submit_job([delay()])
    assert time.monotonic() - started < WRITE_S_MAX + 2.0
    started = time.monotonic()
    with pytest.raises(JobQueueError):
        client.submit_job([delay()])
    assert time.monotonic() - started < LOOK_S_MAX + 2.0


def test_success_waits_for_a_paused_candidate(cluster: LuxidCluster) -> None:
    client = cluster.master.start()
    job_id = client.submit_job([HELD])
    place = wait_held(client, job_id)
    for node in cluster.others:
        os.kill(node.pid, signal.SIGSTOP)
    let_go(place)
    wait_until(lambda: "not safe yet" in log_of(cluster, job_id), "it does not say what it lacks")
    assert client.query_jobs([job_id], ["status"]) == [["running"]]
    os.kill(cluster.others[1].pid, signal.SIGCONT)
    assert wait_status(client, job_id, is_final) == "success"
    own = cluster.master.job(job_id)
    assert cluster.copy_of(cluster.others[1], job_id) == own


def test_a_job_that_waits_for_candidates_can_be_killed(cluster: LuxidCluster) -> None:
    client = cluster.master.start()
    job_id = pending_job(cluster, client)
    assert client.cancel_job(job_id, kill=True)[0]
    assert cluster.master.job(job_id).status is Status.ERROR
    wait_until(lambda: not cluster.master.livelocks(), "the lock file is left behind")


def test_a_job_leaves_its_end_to_another_master(cluster: LuxidCluster) -> None:
    client = cluster.master.start()
    job_id = pending_job(cluster, client)
    cluster.master.stop(signal.SIGKILL)
    os.unlink(cluster.master.paths.ssconf_file("master_node"))
    ssconf.write_values(cluster.master.paths, {"master_node": cluster.others[0].name})
    wait_until(lambda: not cluster.master.livelocks(), "the process goes on")
    assert cluster.master.job(job_id).status is Status.RUNNING


@pytest.mark.shows("backend/life/half-needed")
def test_without_enough_candidates_jobs_are_refused_with_names(cluster: LuxidCluster) -> None:
    client = cluster.master.start()
    first = client.submit_job([delay()])
    wait_status(client, first, "success")
    for node in cluster.others:
        node.stop()
    with pytest.raises(JobQueueError) as refused:
        client.submit_job([delay()])
    for node in cluster.others:
        assert node.name in refused.value.message
    assert "gnt-node modify --offline=yes" in refused.value.message
    assert client.query_jobs(None, ["id"]) == [[first]], "nothing half-made is left"
    assert cluster.master.files.ids() == [first]


@pytest.mark.shows("backend/jobs/retried", "2.0/queue-life/retry")
def test_what_a_candidate_missed_is_sent_when_it_answers(cluster: LuxidCluster) -> None:
    late, _ = cluster.others
    client = cluster.master.start()
    late.stop()
    missed = client.submit_job([delay()])
    wait_status(client, missed, "success")
    assert cluster.copy_of(late, missed) is None
    late.start()
    wait_until(
        lambda: cluster.copy_of(late, missed) == cluster.master.job(missed),
        "the missed job did not come",
    )


@pytest.mark.shows("2.12/noded/from-luxid")
def test_a_new_candidate_gets_the_queue(cluster: LuxidCluster) -> None:
    new, old = cluster.others
    cluster.master.set_candidates({cluster.master.name: "127.0.0.1", old.name: old.address})
    client = cluster.master.start()
    job_id = client.submit_job([delay()])
    wait_status(client, job_id, "success")
    assert cluster.copy_of(new, job_id) is None
    os.remove(new.paths.queue_version)
    cluster.master.set_candidates(
        {cluster.master.name: "127.0.0.1", old.name: old.address, new.name: new.address}
    )
    wait_until(
        lambda: cluster.copy_of(new, job_id) == cluster.master.job(job_id), "the queue did not come"
    )
    wait_until(lambda: read_text(new.paths.queue_serial) == f"{job_id}\n", "nor the serial")
    wait_until(lambda: read_text(new.paths.queue_version) == "1\n", "nor the version")


def test_a_full_disk_fails_the_submission_and_leaves_nothing(cluster: LuxidCluster) -> None:
    client = cluster.master.start()
    first = client.submit_job([delay()])
    wait_status(client, first, "success")
    queue_dir = cluster.master.paths.queue_dir
    os.rename(queue_dir, f"{queue_dir}.away")  # as root no mode would keep LuxiD out
    try:
        with pytest.raises(JobQueueError):
            client.submit_job([delay()])
    finally:
        os.rename(f"{queue_dir}.away", queue_dir)
    assert client.query_jobs(None, ["id"]) == [[first]]
    assert cluster.master.files.ids() == [first]
    for node in cluster.others:
        wait_until(
            lambda node=node: (
                (copy := cluster.copy_of(node, first + 1)) is None or copy.status is Status.CANCELED
            ),
            "a candidate could run a job that was refused",
        )
    assert wait_status(client, client.submit_job([delay()]), is_final) == "success"
