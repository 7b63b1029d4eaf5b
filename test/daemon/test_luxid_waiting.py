"""Jobs that wait for locks keep no others from working; real processes, with room for few.

At most two jobs work at once, and four have a process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from fakes.luxid_node import LuxidNode, delay, is_final, wait_field, wait_status
from fakes.waiting import wait_until

from ganeti.base.ids import JobId
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs.record import Timestamp
from ganeti.jobs.status import Status
from ganeti.luxid.queue.follower import DIED_TEXT

DELAY_S = 0.3
WANTS_LOCK = {"on_nodes": ["node1.example.com"], "on_master": False, "no_locks": False}


@pytest.fixture
def node() -> Iterator[LuxidNode]:
    with LuxidNode(max_running_jobs=2, max_tracked_jobs=4) as made:
        made.start()
        yield made
        assert made.stop() == 0, made.log()


@pytest.fixture
def client(node: LuxidNode) -> Iterator[LuxiClient]:
    with node.client() as connected:
        yield connected


@pytest.fixture
def held_lock(node: LuxidNode) -> Iterator[str]:
    """Let somebody else hold the lock that jobs will want."""
    name = f"node/{node.config['cluster']['master_node']}"
    node.wconfd.hold((name, "exclusive"))
    yield name
    if "test" in node.wconfd.holders().get(name, []):
        node.wconfd.let_go()


def waiters(client: LuxiClient, count: int, priority: int = 0) -> list[JobId]:
    """Submit jobs that wait for the lock."""
    return [client.submit_job([delay(priority=priority, **WANTS_LOCK)]) for _ in range(count)]


def in_status(node: LuxidNode, status: Status) -> list[int]:
    return [job.id for job in node.jobs_on_disk() if job.status is status]


def seconds(stamp: Timestamp | None) -> float:
    assert stamp is not None
    return stamp[0] + stamp[1] / 1e6


def wait_for_work(node: LuxidNode, client: LuxiClient, jobs: list[JobId]) -> None:
    """Wait until these jobs have had their locks; then they fail, as no node daemon is there."""
    for job_id in jobs:
        assert wait_status(client, job_id, is_final) == "error"
        (op,) = node.job(job_id).ops
        assert op.exec_timestamp, op.result
        assert DIED_TEXT not in str(op.result)


def wait_for_waiting(node: LuxidNode, wanted: list[JobId]) -> None:
    """Wait until the requests of exactly these jobs wait for locks."""
    wait_until(lambda: node.wconfd.waiting() == set(wanted), f"{wanted} wait for locks")


@pytest.mark.shows("backend/jobs/back-in-queue")
@pytest.mark.usefixtures("held_lock")
def test_jobs_that_wait_for_a_lock_leave_the_slots_to_others(
    node: LuxidNode, client: LuxiClient
) -> None:
    wait_for_waiting(node, waiters(client, 3))
    assert len(in_status(node, Status.WAITING)) == 3, "more than may work at once"
    other = client.submit_job([delay()])
    assert wait_status(client, other, is_final) == "success"


@pytest.mark.usefixtures("held_lock")
def test_an_urgent_job_has_the_least_urgent_waiter_step_back(
    node: LuxidNode, client: LuxiClient
) -> None:
    jobs = [*waiters(client, 3), *waiters(client, 1, priority=10)]
    wait_for_waiting(node, jobs)
    urgent = client.submit_job([delay(priority=-10)])
    assert wait_status(client, urgent, is_final) == "success"
    wait_for_waiting(node, jobs)  # as there is room again
    node.wconfd.let_go()
    wait_for_work(node, client, jobs)


@pytest.mark.usefixtures("held_lock")
def test_a_job_that_stepped_back_is_queued_without_process(
    node: LuxidNode, client: LuxiClient
) -> None:
    first = waiters(client, 4)
    wait_for_waiting(node, first)
    urgent = waiters(client, 2, priority=-10)
    wait_for_waiting(node, [*first[:2], *urgent])
    for job_id in first[2:]:
        wait_status(client, job_id, "queued")
        job = node.job(job_id)
        assert (job.livelock, job.process_id) == (None, None)
    ok, text = client.cancel_job(first[3], None)
    assert ok, text
    assert node.job(first[3]).status is Status.CANCELED
    ok, text = client.change_job_priority(first[2], -20)
    assert ok, text
    wait_for_waiting(node, [first[0], *urgent, first[2]])
    node.wconfd.let_go()
    wait_for_work(node, client, first[:3])


@pytest.mark.usefixtures("held_lock")
def test_equally_urgent_jobs_get_their_turn(node: LuxidNode, client: LuxiClient) -> None:
    wait_for_waiting(node, waiters(client, 4))
    other = client.submit_job([delay()])
    assert wait_status(client, other, is_final) == "success"


@pytest.mark.shows("backend/jobs/back-in-queue")
def test_an_urgent_job_comes_in_between_two_opcodes(node: LuxidNode, client: LuxiClient) -> None:
    long = [client.submit_job([delay(0.5), delay(0.5), delay(0.5)]) for _ in range(2)]
    for job_id in long:
        wait_status(client, job_id, "running")
    urgent = client.submit_job([delay(priority=-10)])
    assert wait_status(client, urgent, is_final) == "success"
    assert not any(node.job(job_id).is_final for job_id in long)
    assert {wait_status(client, job_id, is_final) for job_id in long} == {"success"}


def test_no_more_jobs_work_at_once_than_may(node: LuxidNode, client: LuxiClient) -> None:
    jobs = [client.submit_job([delay(DELAY_S)]) for _ in range(7)]
    assert {wait_status(client, job_id, is_final) for job_id in jobs} == {"success"}
    starts = [seconds(op.exec_timestamp) for job in node.jobs_on_disk() for op in job.ops]
    for now in starts:  # a job holds its locks for as long as its work lasts at least
        assert sum(begin <= now < begin + DELAY_S for begin in starts) <= 2, starts


@pytest.mark.usefixtures("held_lock")
def test_a_waiter_that_is_killed_fails_and_makes_room(node: LuxidNode, client: LuxiClient) -> None:
    jobs = waiters(client, 5)
    wait_for_waiting(node, jobs[:4])
    pid = node.job(jobs[0]).process_id
    assert pid
    os.kill(pid, signal.SIGKILL)
    assert wait_status(client, jobs[0], is_final) == "error"
    assert DIED_TEXT in str(node.job(jobs[0]).ops[0].result)
    wait_for_waiting(node, jobs[1:])


@pytest.mark.usefixtures("held_lock")
def test_a_new_luxid_knows_who_waits(node: LuxidNode, client: LuxiClient) -> None:
    jobs = waiters(client, 5)
    wait_for_waiting(node, jobs[:4])
    node.stop(signal.SIGKILL)
    with node.start() as again:
        assert wait_field(again, jobs[0], "status", lambda value: value == "waiting")
        urgent = again.submit_job([delay(priority=-10)])
        assert wait_status(again, urgent, is_final) == "success"
        node.wconfd.let_go()
        wait_for_work(node, again, jobs)
