#!/usr/bin/env python3
"""Measures what a job that does nothing costs: time, rate, processor, memory.

    bench/jobs.py [--base BASE] [--nodes 3] [--jobs 50]

Without --base a virtual cluster is made below a temporary directory and removed afterwards; all
its nodes are master candidates, so every durable step goes to the two others as well.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, CHECKOUT)

from ganeti.base.ids import JobId  # noqa: E402
from ganeti.base.paths import Paths  # noqa: E402
from ganeti.clients.luxi import LuxiClient  # noqa: E402

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
MASTER = "node1.example.com"
NOTHING = {"OP_ID": "OP_TEST_DELAY", "duration": 0.0, "reason": []}
FINAL = ("success", "error", "canceled")
ANSWER_S_MAX = 60.0


@contextmanager
def virtual_cluster(nodes: int, *options: str) -> Iterator[str]:
    """Make a cluster, with options of ``vcluster create``; remove it at the end."""
    tool = [sys.executable, f"{CHECKOUT}/tools/vcluster"]
    parent = tempfile.mkdtemp(prefix="gnt")
    base = f"{parent}/vc"
    try:
        create = [*tool, "create", base, "--nodes", str(nodes), *options]
        subprocess.run(create, check=True)
        yield base
    finally:
        subprocess.run([*tool, "destroy", base], check=False, stdout=subprocess.DEVNULL)
        shutil.rmtree(parent, ignore_errors=True)


# What the processes of the cluster have used.


class Process:
    """One process of the cluster, as /proc shows it."""

    def __init__(self, pid: int, name: str) -> None:
        self.pid = pid
        self.name = name

    def cpu_s(self) -> float:
        """Seconds of processor, ended children included."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS_PER_SECOND

    def memory_kib(self) -> tuple[int, int]:
        """Resident memory, and the part of it that is not shared with others."""
        sizes = {}
        with open(f"/proc/{self.pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                words = line.split()
                if words[0] in ("Rss:", "Pss:"):
                    sizes[words[0]] = int(words[1])
        return sizes["Rss:"], sizes["Pss:"]


def processes_of(base: str) -> list[Process]:
    """Find the processes whose root directory lies below the base."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                environment = file.read().split(b"\0")
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        roots = [e for e in environment if e.startswith(b"GANETI_ROOTDIR=")]
        if roots and roots[0].decode().partition("=")[2].startswith(base + "/"):
            found.append(Process(int(entry), _name_of(words, roots[0].decode())))
    return found


def _name_of(words: list[str], root: str) -> str:
    node = root.rpartition("/")[2].partition(".")[0]
    if any(word.endswith("jobexec/launch.py") for word in words):
        return "job process, warm"
    program = next((os.path.basename(w) for w in words if "ganeti-" in os.path.basename(w)), "?")
    return f"{program} on {node}"


def cpu_by_daemon(processes: list[Process]) -> dict[str, float]:
    """Return seconds of processor by daemon; job processes count for LuxiD once they ended."""
    used: dict[str, float] = {}
    for each in processes:
        if each.name.startswith("ganeti-"):
            used[each.name] = used.get(each.name, 0.0) + each.cpu_s()
    return used


# Measurements.


def wait_end(client: LuxiClient, job_id: JobId) -> str:
    """Wait until a job has ended; returns its status."""
    previous: list[object] | None = None
    while previous is None or previous[0] not in FINAL:
        change = client.wait_for_job_change(job_id, ["status"], previous, 1 << 40, ANSWER_S_MAX)
        if change is not None:
            previous = change.fields
    return str(previous[0])


def measure_latency(
    client: LuxiClient, count: int, pause_s: float
) -> tuple[list[float], list[float]]:
    """Return the times of the submit call, and from submission to success, in milliseconds."""
    submits, totals = [], []
    for _ in range(count):
        started = time.perf_counter()
        job_id = client.submit_job([NOTHING])
        submitted = time.perf_counter()
        assert wait_end(client, job_id) == "success"
        submits.append((submitted - started) * 1000)
        totals.append((time.perf_counter() - started) * 1000)
        time.sleep(pause_s)
    return submits, totals


def measure_rate(client: LuxiClient, count: int) -> tuple[float, float]:
    """Return how long it took to take in so many jobs, and to run them all."""
    started = time.perf_counter()
    answers = client.submit_many_jobs([[NOTHING]] * count)
    taken_in = time.perf_counter()
    for accepted, job_id in answers:
        assert accepted, job_id
        assert wait_end(client, JobId(int(job_id))) == "success"
    return taken_in - started, time.perf_counter() - started


def bare_interpreter_ms() -> float:
    """Return what starting Python alone costs on this machine, as busy as it is now."""
    argv = [sys.executable, "-I", "-S", "-c", "import time; print(time.process_time())"]
    tries = [
        float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
        for _ in range(9)
    ]
    return statistics.median(tries) * 1000


def quantile(values: list[float], share: float) -> float:
    """Return the value below which that share lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def row(text: str, value: str) -> None:
    """Print one line of the table."""
    print(f"{text:<52}{value:>24}")


def run(base: str, jobs: int) -> None:
    """Measure, and print a table."""
    os.environ["GANETI_ROOTDIR"] = f"{base}/{MASTER}"
    os.environ["GANETI_HOSTNAME"] = MASTER
    client = LuxiClient(Paths(os.environ["GANETI_ROOTDIR"]))
    measure_latency(client, 5, 0.2)  # connections, caches
    time.sleep(1.0)
    row("load average before", f"{os.getloadavg()[0]:.2f}")
    row("a bare interpreter's processor, for comparison", f"{bare_interpreter_ms():.1f} ms")

    submits, totals = measure_latency(client, jobs, 0.25)
    row("one job at a time, submit call: median, p95", _pair(submits))
    row("one job at a time, submit to success: median, p95", _pair(totals))
    submits, totals = measure_latency(client, jobs, 0.0)
    row("the same without a pause between jobs: median, p95", _pair(totals))
    daemons = processes_of(base)
    before = cpu_by_daemon(daemons)
    taken_in_s, total_s = measure_rate(client, 2 * jobs)
    time.sleep(0.5)  # until the last processes are collected
    used = {name: cpu_s - before[name] for name, cpu_s in cpu_by_daemon(daemons).items()}
    row(f"{2 * jobs} jobs in one message: taken in", f"{taken_in_s:.2f} s")
    row("jobs per second", f"{2 * jobs / total_s:.1f}")
    row("processor per job, whole cluster", f"{sum(used.values()) / (2 * jobs) * 1000:.0f} ms")
    for name, cpu_s in sorted(used.items()):
        note = ", job processes included" if "luxid" in name else ""
        row(f"  {name}{note}", f"{cpu_s / (2 * jobs) * 1000:.1f} ms")
    time.sleep(1.0)
    print("memory: resident, and proportional share")
    for each in sorted(processes_of(base), key=lambda process: process.name):
        resident, share = each.memory_kib()
        row(f"  {each.name}", f"{resident / 1024:.1f} MB, {share / 1024:.1f} MB")
    row("load average after", f"{os.getloadavg()[0]:.2f}")


def _pair(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ms, {quantile(values, 0.95):.1f} ms"


def main() -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", help="a running virtual cluster to measure on")
    parser.add_argument("--nodes", type=int, default=3, help="nodes of the cluster made")
    parser.add_argument("--jobs", type=int, default=50, help="jobs per measurement")
    options = parser.parse_args()
    if options.base:
        run(os.path.abspath(options.base), options.jobs)
        return 0
    with virtual_cluster(options.nodes) as base:
        run(base, options.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
