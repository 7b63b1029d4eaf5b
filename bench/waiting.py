#!/usr/bin/env python3
"""Measures how long a job takes while others wait for one lock, and what these keep in memory.

    bench/waiting.py [--jobs 30] [--waiting 0,20,200]

On a virtual cluster one job holds a node's lock, and so many others wait for it.  Meanwhile urgent
jobs that do not want it are run one after the other, and then jobs of the same priority as those
that wait, which have to wait for their turn where more wait than may have a process.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from jobs import FINAL, MASTER, NOTHING, Process, virtual_cluster

from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs.record import decode_job
from ganeti.jobs.scheduler import TRACKED_MAX_DEFAULT
from ganeti.store.job_files import JobFiles

HOLDS_LOCK = {**NOTHING, "on_nodes": [MASTER], "on_master": False, "no_locks": False}
HOURS_S = 7200.0
FEW = 3


def wait_for(client: LuxiClient, job_id: int, is_wanted: Callable[[str], bool]) -> None:
    """Return once the status of a job is as wanted."""
    previous: list[object] | None = None
    while True:
        change = client.wait_for_job_change(JobId(job_id), ["status"], previous, 1 << 40, 600.0)
        if change is not None and change.fields is not None:
            previous = change.fields
            if is_wanted(str(previous[0])):
                return


def latency_ms(client: LuxiClient, priority: int) -> float:
    """Run one job that wants nothing."""
    begun = time.monotonic()
    job_id = client.submit_job([{**NOTHING, "priority": priority}])
    wait_for(client, job_id, FINAL.__contains__)
    return (time.monotonic() - begun) * 1000


def statuses(client: LuxiClient, jobs: list[int]) -> list[str]:
    """Return the statuses of jobs."""
    rows = client.query_jobs(jobs, ["status"])
    return [str(row[0]) for row in rows if row]


def memory_mib(pid: int) -> float:
    """Return the memory that a process has to itself; none if it has just made room."""
    try:
        return Process(pid, "").memory_kib()[1] / 1024
    except FileNotFoundError:
        return 0.0


def measure(paths: Paths, client: LuxiClient, count: int, *, jobs: int, tracked_max: int) -> None:
    """Print one line for so many jobs that wait."""
    holder = client.submit_job([{**HOLDS_LOCK, "duration": HOURS_S}])
    wait_for(client, holder, "running".__eq__)
    waiting: list[int] = [client.submit_job([HOLDS_LOCK]) for _ in range(count)]
    while statuses(client, waiting).count("waiting") < min(count, tracked_max - 1):
        time.sleep(0.1)
    for _ in range(FEW):
        latency_ms(client, -10)
    urgent = [latency_ms(client, -10) for _ in range(jobs)]
    files = JobFiles(paths)
    records = [decode_job(files.read(JobId(job_id)) or b"") for job_id in waiting]
    pids = [job.process_id for job in records if job.process_id]
    memory = sum(map(memory_mib, pids))
    equal = [latency_ms(client, 0) for _ in range(FEW if count >= tracked_max else jobs)]
    print(
        f"{count:4} wait, {len(pids):3} with a process ({memory:6.1f} MiB):"
        f" urgent {statistics.median(urgent):7.1f} ms (worst {max(urgent):7.1f}),"
        f" equally urgent {statistics.median(equal):8.1f} ms (worst {max(equal):8.1f})"
    )
    for job_id in [*reversed(waiting), holder]:
        client.cancel_job(job_id, True)
    for job_id in waiting:
        wait_for(client, job_id, FINAL.__contains__)


def main() -> None:
    """Read the arguments and print a line for each number of jobs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=30)
    parser.add_argument("--waiting", default="0,20,200")
    options = parser.parse_args()
    with virtual_cluster(3) as base:
        os.environ["GANETI_HOSTNAME"] = MASTER
        paths = Paths(f"{base}/{MASTER}")
        with LuxiClient(paths) as client:
            for count in map(int, options.waiting.split(",")):
                measure(paths, client, count, jobs=options.jobs, tracked_max=TRACKED_MAX_DEFAULT)


if __name__ == "__main__":
    main()
