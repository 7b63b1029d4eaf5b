"""Load for a cluster whose daemons are killed, and what must be true of it afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from fakes.failing_cluster import FailingCluster
from fakes.waiting import wait_until

from ganeti.base.errors import GenericError
from ganeti.base.ids import JobId
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs.record import QueuedJob, decode_job
from ganeti.jobs.status import Status
from ganeti.store.job_files import JobFiles
from ganeti.system.filelock import is_alive

SETTLE_S = 240.0
HOOK = """#!/bin/sh
echo "$GANETI_GROUP_NAME" >> {path}
"""


def install_hook(cluster: FailingCluster) -> str:
    """Have every node write down which groups are added, each time; returns the file."""
    path = os.path.join(cluster.layout.base, "shared", "ran")
    for node in cluster.nodes:
        directory = f"{cluster.paths_of(node).hooks_dir}/group-add-pre.d"
        os.makedirs(directory, exist_ok=True)
        script = Path(directory, "note")
        script.write_text(HOOK.format(path=path))
        script.chmod(0o755)
    Path(path).touch()
    return path


class Load(threading.Thread):
    """A client that submits jobs all the time, and keeps what it was told of them.

    Each job adds a group of its own; some remove it again.

    Attributes:
        accepted: {job id: name of its group}, of jobs whose id was returned.
    """

    def __init__(self, cluster: FailingCluster, number: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.accepted: dict[int, str] = {}
        self.refusals: Counter[str] = Counter()
        self._cluster = cluster
        self._number = number
        self._count = 0
        self._random = random.Random(seed)
        self._stopping = threading.Event()

    def run(self) -> None:
        master, client = "", None
        while not self._stopping.wait(self._random.uniform(0.05, 0.25)):
            if client is None or master != self._cluster.master:
                master = self._cluster.master
                client = LuxiClient(self._cluster.paths_of(master), connect_timeout_s=0.2)
            try:
                self._submit(client)
            except GenericError as err:  # nothing was promised
                self.refusals[type(err).__name__] += 1
                client = None

    def _submit(self, client: LuxiClient) -> None:
        if self._random.random() < 0.3:
            names = [self._next_name() for _ in range(3)]
            answers = client.submit_many_jobs([self._job(name) for name in names])
            for name, (is_accepted, value) in zip(names, answers, strict=True):
                if is_accepted:
                    self._accept(int(value), name)
        else:
            name = self._next_name()
            self._accept(client.submit_job(self._job(name)), name)

    def _accept(self, job_id: int, name: str) -> None:
        assert job_id not in self.accepted
        self.accepted[job_id] = name

    def _next_name(self) -> str:
        self._count += 1
        stays = "-stays" if self._random.random() < 0.2 else ""
        return f"g{self._number}-{self._count}{stays}"

    def _job(self, name: str) -> list[dict[str, object]]:
        add = {"OP_ID": "OP_GROUP_ADD", "group_name": name}
        wait = {"OP_ID": "OP_TEST_DELAY", "duration": self._random.choice([0.0, 0.0, 0.1])}
        remove = {"OP_ID": "OP_GROUP_REMOVE", "group_name": name}
        return [add, wait] if name.endswith("-stays") else [add, wait, remove]

    def stop(self) -> None:
        self._stopping.set()
        self.join(60)
        assert not self.is_alive()


def wait_for_jobs(loads: Sequence[Load], count: int) -> None:
    """Wait until so many jobs were accepted, whatever the machine needs for them."""
    wait_until(lambda: sum(len(load.accepted) for load in loads) >= count, f"{count} jobs")


class Campaign:
    """Rounds of damage."""

    def __init__(self, cluster: FailingCluster, seed: int) -> None:
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.killed_jobs: set[int] = set()
        self.done: Counter[str] = Counter()

    def play_round(self, *, fails_over: bool) -> None:
        time.sleep(self.chance.uniform(0.05, 0.5))  # this is the random moment
        for damage in self.chance.sample(self._damages(), k=self.chance.randint(1, 3)):
            damage()
        if fails_over:
            self.cluster.fail_over(self.chance.choice(self.cluster.others))
            self.done["failovers"] += 1
        else:
            self.cluster.start_master_daemons()

    def _damages(self) -> list[Callable[[], None]]:
        return [self.kill_luxid, self.kill_wconfd, self.kill_job]

    def kill_luxid(self) -> None:
        self._kill("ganeti-luxid")

    def kill_wconfd(self) -> None:
        self._kill("ganeti-wconfd")

    def _kill(self, daemon: str) -> None:
        for each in self.cluster.processes_of(self.cluster.master):
            if each.command.endswith(f"/daemons/{daemon}"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)
                    self.done[daemon] += 1
        paths = self.cluster.paths
        wait_until(lambda: not is_alive(paths.pid_file(daemon)), f"{daemon} is dead")

    def kill_job(self) -> None:
        """Kill the process of a job that runs."""
        running = [job for job in jobs_on(self.cluster, self.cluster.master) if is_running(job)]
        if not running:
            return
        victim = self.chance.choice(running)
        self.killed_jobs.add(victim.id)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim.process_id or 0, signal.SIGKILL)
            self.done["jobs"] += 1


def is_running(job: QueuedJob) -> bool:
    return job.process_id is not None and not job.is_final and is_alive(job.livelock or "")


def jobs_on(cluster: FailingCluster, node: str) -> list[QueuedJob]:
    """Return the jobs in a node's queue, as their files have them."""
    queue = JobFiles(cluster.paths_of(node))
    found = ((job_id, queue.read(job_id)) for job_id in queue.ids())
    return [decode_job(data, job_id) for job_id, data in found if data is not None]


def lock_files(cluster: FailingCluster, node: str) -> list[str]:
    """Return the names of the lock files of a node's processes."""
    try:
        return os.listdir(cluster.paths_of(node).livelock_dir)
    except FileNotFoundError:  # it was cut off, and was not the master since
        return []


def wait_settled(cluster: FailingCluster) -> None:
    """Wait until every job has ended, its process too."""

    def open_jobs() -> list[int]:
        return [job.id for job in jobs_on(cluster, cluster.master) if not job.is_final]

    def settled() -> bool:
        return not open_jobs() and not any(
            name.startswith("job_") for node in cluster.nodes for name in lock_files(cluster, node)
        )

    wait_until(settled, "the jobs end", timeout_s=SETTLE_S, step_s=0.1)


def all_records(cluster: FailingCluster) -> dict[int, QueuedJob]:
    """Return every job that the master knows, archived ones included."""
    records = {int(job.id): job for job in jobs_on(cluster, cluster.master)}
    queue = JobFiles(cluster.paths)
    for job_id in queue.archived_ids():
        data = queue.read_archived(JobId(job_id))
        assert data is not None
        assert job_id not in records, f"job {job_id} is in queue and archive"
        records[int(job_id)] = decode_job(data, job_id)
    return records


def check_promises(
    cluster: FailingCluster,
    accepted: Mapping[int, str],
    ran: Mapping[str, int],
    killed: Collection[int],
) -> Counter[Status]:
    """Check what was promised; returns how many jobs ended how.

    Args:
        ran: how often each group was added.
        killed: jobs whose processes were killed.
    """
    records = all_records(cluster)
    missing = accepted.keys() - records.keys()
    assert not missing, f"jobs {sorted(missing)} are gone"
    unfinished = {job_id: job.status for job_id, job in records.items() if not job.is_final}
    assert not unfinished
    twice = {name: count for name, count in ran.items() if count > 1}
    assert not twice, "they ran twice"
    with cluster.luxi() as client:
        groups = {str(name) for (name,) in client.query("group", ["name"]).rows()}
        rows = client.query_jobs([JobId(job_id) for job_id in accepted], ["id", "status"])
        told = {int(str(job_id)): str(status) for job_id, status in rows}
    for job_id, name in accepted.items():
        job = records[job_id]
        assert told[job_id] == job.status, f"LuxiD says {told[job_id]} of {job}"
        assert job.ops[0].input["group_name"] == name, f"job {job_id} is another one"
        if job.status is Status.SUCCESS:
            # Without its node daemon the master warns, and goes on without the hook that counts.
            assert ran[name] == 1 or "cannot run the pre hooks" in str(job.ops[0].log), (
                f"job {job_id} succeeded without having run"
            )
            assert (name in groups) == name.endswith("-stays"), f"{name} of job {job_id}"
        elif job_id not in killed:  # LuxiD died between its start record and its confirmation
            assert ran[name] == 0, f"job {job_id} ended in {job.status}, and nobody killed it"
    return Counter(records[job_id].status for job_id in accepted)


def check_nothing_left(cluster: FailingCluster) -> None:
    """Check that no lock is held, and that no lock file is there of anybody dead."""
    wait_until(lambda: not cluster.locks_held(), f"no lock is held: {cluster.locks_held()}")
    for node in cluster.nodes:
        directory = cluster.paths_of(node).livelock_dir

        def dead(directory: str = directory, node: str = node) -> list[str]:
            names = lock_files(cluster, node)
            return [name for name in names if not is_alive(os.path.join(directory, name))]

        wait_until(lambda: not dead(), f"no dead lock file on {node}: {dead()}", timeout_s=90)
