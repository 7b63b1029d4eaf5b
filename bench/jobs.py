#!/usr/bin/env python3
"""Measures what a job that does nothing costs: time, rate, processor, memory.

    bench/jobs.py [--base BASE] [--nodes 3] [--jobs 100] [--instances 5050]

Without --base a virtual cluster is made below a temporary directory and removed afterwards; all
its nodes are master candidates, so every durable step goes to the two others as well.  The figures
depend on the machine and on what else it does, so beside the targets stand the same moment's load,
the time of a bare interpreter and that of an fsync.
"""

from __future__ import annotations

import argparse
import json
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

from report import LEFT, row  # noqa: E402

from ganeti.base.ids import JobId  # noqa: E402
from ganeti.base.paths import Paths  # noqa: E402
from ganeti.clients.luxi import LuxiClient  # noqa: E402
from ganeti.system import files  # noqa: E402

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
MASTER = "node1.example.com"
NOTHING = {"OP_ID": "OP_TEST_DELAY", "duration": 0.0, "reason": []}
FINAL = ("success", "error", "canceled")
ANSWER_S_MAX = 60.0
JOB_PROCESSES = "job processes"
TEMPLATE = "gnt-job-nursery"
NODE_CALLS = "node daemons' children"
BURST = 200
IDLE_CPU_S = 0.03  # within a second
SETTLE_S_MAX = 60.0


@contextmanager
def virtual_cluster(nodes: int, *options: str) -> Iterator[str]:
    """Make a cluster, with options of ``vcluster create``; at the end it is removed, or left."""
    tool = [sys.executable, f"{CHECKOUT}/tools/vcluster"]
    parent = tempfile.mkdtemp(prefix="gnt")
    base = f"{parent}/vc"
    try:
        create = [*tool, "create", base, "--nodes", str(nodes), *options]
        subprocess.run(create, check=True)
        yield base
    finally:
        left = os.environ.get(LEFT)
        ending = "stop" if left else "destroy"
        subprocess.run([*tool, ending, base], check=False, stdout=subprocess.DEVNULL)
        if left:
            shutil.move(parent, left)
        else:
            shutil.rmtree(parent, ignore_errors=True)


# What the processes of the cluster have used.


class Process:
    """One process of the cluster, as /proc shows it."""

    def __init__(self, pid: int, name: str) -> None:
        self.pid = pid
        self.name = name

    def cpu_s(self) -> tuple[float, float]:
        """Seconds of processor: its own, and those of its children that ended."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        own, children = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
        return own / TICKS_PER_SECOND, children / TICKS_PER_SECOND

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
            with open(f"/proc/{entry}/comm", encoding="utf-8") as file:
                title = file.read().strip()
        except OSError:
            continue
        roots = [e for e in environment if e.startswith(b"GANETI_ROOTDIR=")]
        if roots and roots[0].decode().partition("=")[2].startswith(base + "/"):
            found.append(Process(int(entry), _name_of(title, words, roots[0].decode())))
    return found


def _name_of(title: str, words: list[str], root: str) -> str:
    node = root.rpartition("/")[2].partition(".")[0]
    if any(word.endswith("jobexec/launch.py") for word in words):
        return JOB_PROCESSES if title == TEMPLATE else "a warm job process"
    if title.startswith("noded-"):
        return NODE_CALLS
    program = next((os.path.basename(w) for w in words if "ganeti-" in os.path.basename(w)), "?")
    return f"{program} on {node}"


def cpu_by_daemon(processes: list[Process]) -> dict[str, float]:
    """Return seconds of processor by daemon; those that fork count for their children."""
    used: dict[str, float] = {}
    for each in processes:
        if each.name.startswith((JOB_PROCESSES, NODE_CALLS, "ganeti-")):
            own_s, children_s = each.cpu_s()
            ended_s = children_s if each.name in (JOB_PROCESSES, NODE_CALLS) else 0.0
            used[each.name] = used.get(each.name, 0.0) + own_s + ended_s
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
    """Return the processor time that Python alone costs here and now."""
    argv = [sys.executable, "-I", "-S", "-c", "import time; print(time.process_time())"]
    tries = [
        float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
        for _ in range(9)
    ]
    return statistics.median(tries) * 1000


def fsync_ms(directory: str) -> float:
    """Return how long a write and fsync of 4 KB take where the cluster's files are."""
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(50):
            started = time.perf_counter()
            os.pwrite(file.fileno(), b"x" * 4096, 0)
            os.fsync(file.fileno())
            times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


def quantile(values: list[float], share: float) -> float:
    """Return the value below which that share lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


# The tables.


def show_machine(base: str) -> None:
    """Print what the machine can do just now."""
    row("load average", f"{os.getloadavg()[0]:.2f}")
    row("bare interpreter, processor", f"{bare_interpreter_ms():.1f} ms")
    row("write and fsync of 4 KB", f"{fsync_ms(base):.2f} ms")


def measure_one_at_a_time(client: LuxiClient, jobs: int, of: float | None) -> float:
    """Print how long single jobs take; returns the median without pauses, in milliseconds.

    Args:
        of: the median to compare with, if there is one.
    """
    submits, totals = measure_latency(client, jobs, 0.25)
    row("submit call: median, p95", _pair(submits))
    row("job after job with pauses: median, p95", _pair(totals), "12 ms")
    _submits, totals = measure_latency(client, jobs, 0.0)
    median_ms = statistics.median(totals)
    row("job after job: median, p95", _pair(totals), "12 ms")
    if of is not None:
        row("  of that without instances", f"{median_ms / of:.2f} times", "1.2 times")
    return median_ms


def measure_many(client: LuxiClient, base: str) -> None:
    """Print what many jobs at once cost, also as multiples of what Python alone costs meanwhile."""
    bare_ms = bare_interpreter_ms()
    daemons = processes_of(base)
    before = cpu_by_daemon(daemons)
    taken_in_s, total_s = measure_rate(client, BURST)
    time.sleep(0.5)  # until the last processes are collected
    used = {name: cpu_s - before[name] for name, cpu_s in cpu_by_daemon(daemons).items()}
    cpu_ms = sum(used.values()) / BURST * 1000
    bare_ms = (bare_ms + bare_interpreter_ms()) / 2
    row(f"{BURST} jobs in one message: taken in", f"{taken_in_s:.2f} s", "0.5 s")
    row("jobs per second", f"{BURST / total_s:.1f}", "120")
    row("processor per job, whole cluster", f"{cpu_ms:.1f} ms", "16 ms")
    row("  in bare interpreters", f"{cpu_ms / bare_ms:.1f}")
    for name, cpu_s in sorted(used.items()):
        if cpu_s > 0:
            row(f"  {name}", f"{cpu_s / BURST * 1000:.1f} ms")


def settle(base: str) -> None:
    """Wait until the cluster has nothing more to do: a new configuration is read by all daemons."""
    used_s, until_s = 1.0, time.monotonic() + SETTLE_S_MAX
    while used_s > IDLE_CPU_S and time.monotonic() < until_s:
        daemons = processes_of(base)
        before_s = sum(cpu_by_daemon(daemons).values())
        time.sleep(1.0)
        used_s = sum(cpu_by_daemon(daemons).values()) - before_s


def show_memory(base: str) -> None:
    """Print what the processes hold."""
    print("memory: resident, and proportional share")
    for each in sorted(processes_of(base), key=lambda process: process.name):
        resident, share = each.memory_kib()
        row(f"  {each.name}", f"{resident / 1024:.1f} MB, {share / 1024:.1f} MB")


def grow(paths: Paths, instances: int) -> None:
    """Put so many instances into the configuration."""
    from query import start_masters, stop_masters, with_instances

    stop_masters(paths)  # first: with a journal the file is complete only then
    with open(paths.config_data, "rb") as file:
        config = json.load(file)
    content = json.dumps(with_instances(config, instances), separators=(",", ":")).encode()
    files.write_durable(paths.config_data, content)
    start_masters(paths)


def run(base: str, jobs: int, instances: int) -> None:
    """Measure, and print the tables."""
    paths = Paths(f"{base}/{MASTER}")
    os.environ["GANETI_ROOTDIR"] = paths.root
    os.environ["GANETI_HOSTNAME"] = MASTER
    row("", "reached", "at most, or at least")
    show_machine(base)
    median_ms: float | None = None
    for count in dict.fromkeys((0, instances)):
        if count:
            print(f"with {count} instances in the configuration")
            grow(paths, count)
        with LuxiClient(paths) as client:
            measure_latency(client, 5, 0.2)  # connections, caches
            settle(base)
            median_ms = measure_one_at_a_time(client, jobs, median_ms)
            measure_many(client, base)
    time.sleep(1.0)
    show_memory(base)
    show_machine(base)


def _pair(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ms, {quantile(values, 0.95):.1f} ms"


def main() -> int:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", help="a running virtual cluster, which stays as it is")
    parser.add_argument("--nodes", type=int, default=3, help="nodes of the cluster made")
    parser.add_argument("--jobs", type=int, default=100, help="single jobs per measurement")
    parser.add_argument("--instances", type=int, default=5050, help="0: only without any")
    options = parser.parse_args()
    if options.base:
        run(os.path.abspath(options.base), options.jobs, 0)
        return 0
    with virtual_cluster(options.nodes, "--hypervisor", "fake") as base:
        run(base, options.jobs, options.instances)
    return 0


if __name__ == "__main__":
    sys.exit(main())
