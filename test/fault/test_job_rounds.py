"""LuxiD and job processes killed at random moments under load: nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter

import pytest
from fakes.chance import seed
from fakes.luxid_node import DEADLINE_S, LuxidNode, delay
from fakes.waiting import wait_until

from ganeti.base.errors import GenericError
from ganeti.jobs.record import QueuedJob
from ganeti.jobs.status import FINAL, Status

ROUNDS = 8
JOBS_PER_ROUND = 3
END_S = 300.0  # for all jobs to end
SEED = seed()


class Load(threading.Thread):
    """A client that submits jobs all the time, and keeps the ids that it was told."""

    def __init__(self, node: LuxidNode, seed: int) -> None:
        super().__init__(daemon=True)
        self.ids: list[int] = []
        self._node = node
        self._random = random.Random(seed)
        self._stopping = threading.Event()

    def run(self) -> None:
        with self._node.client() as client:
            while not self._stopping.wait(self._random.uniform(0, 0.05)):
                try:
                    if self._random.random() < 0.3:
                        answers = client.submit_many_jobs([[self.job()] for _ in range(3)])
                        self.ids += [int(value) for accepted, value in answers if accepted]
                    else:
                        self.ids.append(client.submit_job([self.job() for _ in range(2)]))
                except GenericError:
                    continue  # LuxiD was killed before it answered: nothing was promised

    def job(self) -> dict[str, object]:
        return delay(self._random.choice([0.0, 0.0, 0.02, 0.1]))

    def stop(self) -> None:
        self._stopping.set()
        self.join(DEADLINE_S)
        assert not self.is_alive()


def kill_a_job(node: LuxidNode, chance: random.Random) -> int | None:
    """Kill the process of a running job; returns its id."""
    running = [job for job in node.jobs_on_disk() if job.process_id and not job.is_final]
    if not running:
        return None
    victim = chance.choice(running)
    try:
        os.kill(victim.process_id or 0, signal.SIGKILL)
    except ProcessLookupError:
        return None
    return victim.id


def wait_for_promises(loads: list[Load], count: int) -> None:
    """Wait until so many jobs were accepted: a slow machine takes its time."""
    wait_until(lambda: sum(len(load.ids) for load in loads) >= count, "jobs to be accepted")


def steps_back(job: QueuedJob) -> int:
    """Return how often a job waited for locks in vain and went back to the queue."""
    return sum("waits in the queue again" in str(entry) for op in job.ops for entry in op.log)


def wait_all_final(node: LuxidNode) -> None:
    def all_final() -> bool:
        return all(job.is_final for job in node.jobs_on_disk()) and not node.livelocks()

    wait_until(all_final, "all jobs to end", timeout_s=END_S)


@pytest.mark.shows("backend/masterd/hard-stop", "2.12/further/no-race", "2.0/queue-locking/safe")
def test_random_rounds(caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(SEED)
    killed: set[int] = set()
    with LuxidNode() as node:
        loads = [Load(node, chance.randrange(1 << 30)) for _ in range(3)]
        node.start()
        for load in loads:
            load.start()
        for number in range(ROUNDS):
            wait_for_promises(loads, (number + 1) * JOBS_PER_ROUND)
            time.sleep(chance.uniform(0.05, 0.4))
            if chance.random() < 0.5:
                victim = kill_a_job(node, chance)
                killed |= {victim} - {None}  # type: ignore[arg-type]
            node.stop(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
            time.sleep(chance.uniform(0, 0.1))
            node.start()
        for load in loads:
            load.stop()
        wait_all_final(node)
        jobs = {job.id: job for job in node.jobs_on_disk()}
        promised = {job_id for load in loads for job_id in load.ids}
        how = f"GANETI_TEST_SEED={SEED}"
        assert promised <= jobs.keys(), f"jobs are missing; {how}"
        assert all(job.status in FINAL for job in jobs.values())
        died = {job.id for job in jobs.values() if job.status is not Status.SUCCESS}
        # Apart from those killed, a job dies only when LuxiD does between start record and
        # confirmation, and then it has not begun.
        begun = Counter(args[0][0] for method, args in node.wconfd.calls if method == "waitLocks")
        for job_id in died - killed:
            assert begun[job_id] <= steps_back(jobs[job_id]), f"job {job_id} ran, but failed; {how}"
        for job_id, job in jobs.items():
            most = len(job.ops) + steps_back(job)
            assert begun[job_id] <= most, f"job {job_id} ran twice; {how}"
        assert not node.wconfd.holders().keys() - {
            lock for lock, owners in node.wconfd.holders().items() if set(owners) & killed
        }, f"locks are left; {how}"
        leftover = [n for n in os.listdir(node.paths.livelock_dir) if n.startswith("job_")]
        assert leftover == []
