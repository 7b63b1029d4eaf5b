"""What users of the job queue of Ganeti 3.0 suffered from, each test named after the symptom."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator, Sequence

import pytest
from fakes.virtual_cluster import TestCluster, own_cluster
from fakes.waiting import PROMPT_S, wait_until

from ganeti.base.errors import GenericError
from ganeti.base.ids import JobId
from ganeti.clients.luxi import LuxiClient
from ganeti.system import daemon_control

FINAL = ("success", "error", "canceled")
START_JOBS = 200
START_S_P99 = 15.0  # 30 s in 3.0; ours take 10 ms, on a machine that does nothing else
CHAIN = 20
LEAK_JOBS = 300
DESCRIPTORS_SPARE = (
    20  # connections and processes that come and go; each kind of job is done 50 times
)
ANSWER_S = 60.0


@pytest.fixture(scope="module")
def painful() -> Iterator[TestCluster]:
    with own_cluster() as cluster:
        yield cluster


@pytest.fixture
def client(painful: TestCluster) -> Iterator[LuxiClient]:
    with painful.client() as connected:
        yield connected


def delay(seconds: float = 0.0, **params: object) -> dict[str, object]:
    return {"OP_ID": "OP_TEST_DELAY", "duration": seconds, "reason": [], **params}


def locking(seconds: float = 0.0, **params: object) -> dict[str, object]:
    """Return an opcode that holds the lock of node2."""
    return delay(seconds, on_nodes=["node2"], on_master=True, no_locks=False, **params)


def end_of(client: LuxiClient, job_id: int) -> str:
    """Wait for a job's end; returns its status."""
    previous: list[object] | None = None
    deadline = time.monotonic() + ANSWER_S
    while previous is None or previous[0] not in FINAL:
        assert time.monotonic() < deadline, f"job {job_id} is {previous}"
        change = client.wait_for_job_change(JobId(job_id), ["status"], previous, 1 << 40, ANSWER_S)
        previous = change.fields if change is not None else previous
    return str(previous[0])


def wait_status(client: LuxiClient, job_id: int, status: str) -> None:
    wait_until(
        lambda: client.query_jobs([JobId(job_id)], ["status"]) == [[status]],
        f"job {job_id} to be {status}",
    )


def times(client: LuxiClient, job_ids: Sequence[int], *fields: str) -> list[list[float]]:
    """Return times of jobs in seconds."""
    rows = client.query_jobs([JobId(job_id) for job_id in job_ids], fields)
    return [[stamp[0] + stamp[1] / 1e6 for stamp in row] for row in rows]  # type: ignore[index]


def submit_all(client: LuxiClient, jobs: Sequence[Sequence[dict[str, object]]]) -> list[int]:
    answers = client.submit_many_jobs(jobs)
    assert all(accepted for accepted, _ in answers), answers
    return [int(said) for _, said in answers]


@pytest.mark.shows("backend/life/at-once")
def test_sporadic_delays_at_job_start(client: LuxiClient) -> None:
    jobs = []
    for _ in range(START_JOBS):
        jobs.append(client.submit_job([delay()]))
        assert end_of(client, jobs[-1]) == "success"
    waited_s = sorted(
        start - received for received, start in times(client, jobs, "received_ts", "start_ts")
    )
    assert waited_s[int(len(waited_s) * 0.99) - 1] < START_S_P99, waited_s[-5:]
    client.auto_archive_jobs(-1, 30)


def test_dependents_that_wait_for_a_timer(client: LuxiClient) -> None:
    chain: list[list[dict[str, object]]] = [[delay()]]
    chain += [[delay(depends=[[-1, ["success"]]])] for _ in range(CHAIN)]
    jobs = submit_all(client, chain)
    assert end_of(client, jobs[-1]) == "success"
    rows = times(client, jobs, "start_ts", "end_ts")
    gaps_s = [later[0] - earlier[1] for earlier, later in itertools.pairwise(rows)]
    assert min(gaps_s) >= 0
    assert max(gaps_s) < START_S_P99, gaps_s


def test_a_killed_jobs_locks_are_held_for_minutes(client: LuxiClient) -> None:
    killed = client.submit_job([locking(3600)])
    wait_status(client, killed, "running")
    next_one = client.submit_job([locking()])
    wait_status(client, next_one, "waiting")
    started = time.monotonic()
    assert client.cancel_job(killed, kill=True)[0]
    assert end_of(client, next_one) == "success"
    assert time.monotonic() - started < PROMPT_S
    assert client.query_jobs([killed], ["status"]) == [["error"]]


def descriptors(cluster: TestCluster) -> dict[str, int]:
    """Return how many descriptors each daemon has open, by node and program."""
    found: dict[str, int] = {}
    for each in cluster.processes():
        if "ganeti-" in each.command or "noded" in each.command:
            name = f"{os.path.basename(each.root)} {each.command.split()[-1]} {each.pid}"
            with contextlib.suppress(OSError):  # it has just ended
                found[name] = len(os.listdir(f"/proc/{each.pid}/fd"))
    return found


def test_file_descriptors_leak(painful: TestCluster, client: LuxiClient) -> None:
    def some_jobs(count: int) -> None:
        kinds = [
            [delay()],
            [locking()],
            [delay(on_nodes=["node1", "node3"], on_master=False)],
            [{"OP_ID": "OP_TEST_JQUEUE", "fail": True, "reason": []}],
            [{"OP_ID": "OP_TAGS_SET", "kind": "cluster", "tags": ["x"], "reason": []}],
            [{"OP_ID": "OP_OS_DIAGNOSE", "output_fields": ["name"], "reason": []}],
        ]
        jobs = submit_all(client, [kinds[n % len(kinds)] for n in range(count)])
        for job_id in jobs:
            end_of(client, job_id)

    some_jobs(30)  # until everybody has the connections that stay
    before = descriptors(painful)
    assert len(before) >= 5
    some_jobs(LEAK_JOBS)

    def leaked() -> dict[str, int]:
        now = descriptors(painful)
        return {
            name: now.get(name, 0) - count
            for name, count in before.items()
            if now.get(name, 0) > count + DESCRIPTORS_SPARE
        }

    wait_until(lambda: not leaked(), f"descriptors to be closed: {leaked()}")
    client.auto_archive_jobs(-1, 60)


def queue_of(cluster: TestCluster, node: str) -> set[str]:
    """Return the names of the job files in the queue of a node."""
    return {name for name in os.listdir(cluster.paths_of(node).queue_dir) if name[:4] == "job-"}


def test_stale_job_files_pile_up_on_candidates(painful: TestCluster, client: LuxiClient) -> None:
    """Whether a candidate hears of the archiving or was away meanwhile."""
    away = painful.nodes[2]
    for is_away in (False, True):
        jobs = submit_all(client, [[delay()] for _ in range(50)])
        for job_id in jobs:
            end_of(client, job_id)
        wait_until(lambda: len(queue_of(painful, away)) >= 50, "the candidate to have the jobs")
        if is_away:
            daemon_control.stop_daemon(painful.paths_of(away), "ganeti-noded")
        archived, left = client.auto_archive_jobs(-1, 60)
        assert archived >= 50
        assert left == 0
        if is_away:
            daemon_control.start_daemon(painful.paths_of(away), "ganeti-noded", hostname=away)
            end_of(client, client.submit_job([delay()]))
            client.auto_archive_jobs(-1, 60)
        for node in painful.nodes:
            wait_until(
                lambda: queue_of(painful, node) == set(),  # noqa: B023 - called in this round only
                f"no job files on {node}: {sorted(queue_of(painful, node))}",
            )
            last = painful.paths_of(node).archived_job_file(jobs[-1])
            wait_until(lambda: os.path.exists(last), last)  # noqa: B023


def test_a_change_of_priority_that_does_not_reach_the_lock_queue(client: LuxiClient) -> None:
    holder = client.submit_job([locking(3600)])
    wait_status(client, holder, "running")
    waiting: list[JobId] = []
    while len(waiting) < 3:
        waiting.append(client.submit_job([locking(0.05)]))
        wait_until(lambda: waiters(client) == len(waiting), f"{waiting} to be in the lock queue")
    done, text = client.change_job_priority(waiting[2], -10)
    assert done, text
    assert client.cancel_job(holder, kill=True)[0]
    assert [end_of(client, job_id) for job_id in waiting] == ["success"] * 3
    began = [row[0] for row in times_of_first_opcode(client, waiting)]
    assert sorted(waiting, key=dict(zip(waiting, began, strict=True)).__getitem__) == [
        waiting[2],
        waiting[0],
        waiting[1],
    ]


def waiters(client: LuxiClient) -> int:
    """Return how many requests wait for the lock of node2."""
    rows = client.query("lock", ["name", "pending"], None).data
    names = [
        name
        for (_, lock), (_, pending) in rows
        if lock.startswith("node/")
        for _, requests in pending or ()
        for name in requests
    ]
    return len(set(names))


def times_of_first_opcode(client: LuxiClient, job_ids: Sequence[int]) -> list[list[float]]:
    """Return when the first opcode of each job had its locks."""
    rows = client.query_jobs([JobId(job_id) for job_id in job_ids], ["opexec"])
    return [[stamps[0][0] + stamps[0][1] / 1e6] for (stamps,) in rows]  # type: ignore[index]


def test_an_error_with_an_empty_text(client: LuxiClient) -> None:
    texts = []
    for job in (
        [],
        [{}],
        [delay("long")],  # type: ignore[arg-type]  # on purpose
        [delay(priority=99)],
        [delay(depends=[[10**9, []]])],
    ):
        with pytest.raises(GenericError) as raised:
            client.submit_job(job)
        texts.append(raised.value.message)
    killed = client.submit_job([delay(60), delay()])
    wait_status(client, killed, "running")
    texts.append(client.cancel_job(killed, kill=True)[1])
    texts.append(client.cancel_job(killed)[1])
    failed = client.submit_job([{"OP_ID": "OP_TEST_JQUEUE", "fail": True, "reason": []}])
    unknown = client.submit_job([delay(on_nodes=["nowhere"])])
    for job_id in (killed, failed, unknown):
        assert end_of(client, job_id) == "error"
        [[results]] = client.query_jobs([JobId(job_id)], ["opresult"])
        texts += [arguments[0] for _, arguments in results]  # type: ignore[union-attr]
    assert len(texts) >= 9
    assert all(isinstance(text, str) and len(text.strip()) > 8 for text in texts), texts
