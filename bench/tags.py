#!/usr/bin/env python3
"""Measures a job that sets a tag, by the number of instances, with and without a journal.

    bench/tags.py [--sizes 1,5000,20000] [--jobs 30] [--json]

A virtual cluster of three nodes, all of them master candidates, is made below a temporary directory
and removed afterwards.  The tag is the cluster's, so a job touches nothing that grows.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass

from jobs import (
    MASTER,
    cpu_by_daemon,
    fsync_ms,
    grow,
    processes_of,
    quantile,
    virtual_cluster,
    wait_end,
)
from report import record

from ganeti.base.paths import Paths
from ganeti.clients.luxi import LuxiClient
from ganeti.system import daemon_control

WCONFD = "ganeti-wconfd"
WAYS = {"file": (), "journal": ("--config-journal",)}
TARGETS = {"file": "150 ms with 20000", "journal": "1.5 times that with 1"}


@dataclass(frozen=True)
class Row:
    """What was reached with one size, in ms."""

    way: str
    instances: int
    median: float
    p95: float
    processor: float  # of all daemons and job processes, for each job
    load: float
    fsync: float


def tag_ms(client: LuxiClient, turn: int) -> float:
    """Return how long a job takes that sets a tag, or takes it away."""
    op = {
        "OP_ID": "OP_TAGS_DEL" if turn % 2 else "OP_TAGS_SET",
        "kind": "cluster",
        "name": "",
        "tags": ["bench"],
        "reason": [],
    }
    started = time.perf_counter()
    job_id = client.submit_job([op])
    status = wait_end(client, job_id)
    assert status == "success", client.query_jobs([job_id], ["id", "status", "opresult"])
    return (time.perf_counter() - started) * 1000


def measure(base: str, paths: Paths, way: str, instances: int, jobs: int) -> Row:
    """Measure one way with the instances that are there."""
    daemon_control.stop_daemon(paths, WCONFD)
    daemon_control.start_daemon(paths, WCONFD, WAYS[way], hostname=MASTER)
    with LuxiClient(paths) as client:
        for turn in range(6):  # connections, caches, the first copy of the whole
            tag_ms(client, turn)
        time.sleep(1.0)
        before = cpu_by_daemon(processes_of(base))
        times = [tag_ms(client, turn) for turn in range(jobs)]
        used = cpu_by_daemon(processes_of(base))
    cpu_s = sum(seconds - before.get(name, 0.0) for name, seconds in used.items())
    return Row(
        way,
        instances,
        statistics.median(times),
        quantile(times, 0.95),
        cpu_s * 1000 / jobs,
        os.getloadavg()[0],
        fsync_ms(base),
    )


def show(rows: list[Row]) -> None:
    """Print the table, Markdown."""
    print("| | instances | median, ms | p95, ms | of that with the first | processor, ms | load |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        first = next(each for each in rows if each.way == row.way)
        print(
            f"| {row.way} | {row.instances} | {row.median:.1f} | {row.p95:.1f} |"
            f" {row.median / first.median:.2f} | {row.processor:.0f} | {row.load:.1f} |"
        )
    print("\nWanted: " + "; ".join(f"{way}: {text}" for way, text in TARGETS.items()))


def main() -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1,5000,20000")
    parser.add_argument("--jobs", type=int, default=30, help="jobs for each row")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows = []
    with virtual_cluster(3, "--hypervisor", "fake") as base:
        paths = Paths(f"{base}/{MASTER}")
        os.environ["GANETI_ROOTDIR"] = paths.root
        os.environ["GANETI_HOSTNAME"] = MASTER
        for size in map(int, options.sizes.split(",")):
            grow(paths, size)
            for way in WAYS:
                rows.append(measure(base, paths, way, size, options.jobs))
                reached = rows[-1].median
                point = (f"A tag, ms, by instances: {way}", float(size), reached)
                text = f"tag, {way}, {size} instances"
                record(text, f"{reached:.1f} ms", TARGETS.get(way, ""), point=point)
                print(rows[-1], file=sys.stderr)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        show(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
