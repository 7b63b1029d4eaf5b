#!/usr/bin/env python3
"""Measures how long our allocator takes to find a place, beside Debian's where that is installed.

    bench/allocation.py [--nodes 100 1000] [--instances-per-node 10] [--rounds 3]

Each question is about one new instance in one group whose nodes hold instances of the same kind.
Debian's allocator is given up after --limit seconds.  Time is wall clock from exec to end; CPU is
that of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(CHECKOUT, "test"))

from fakes.allocator_questions import Json, instance, new, node, question  # noqa: E402

OURS = [sys.executable, os.path.join(CHECKOUT, "tools", "iallocators", "hail")]
DEBIANS = "/usr/lib/ganeti/iallocators/hail"
TEMPLATES = ("drbd", "ext")
MEMORY, DISK, CPUS = 128_000, 1_000_000, 32


def made_up(nodes: int, per_node: int, template: str) -> Json:
    """Return a question about a cluster of that size, the same each time."""
    draw = random.Random(nodes)
    names = [f"node{number}" for number in range(nodes)]
    memory, disk = dict.fromkeys(names, MEMORY), dict.fromkeys(names, DISK)
    instances = {}
    for number in range(nodes * per_node):
        where = draw.sample(names, 2 if template == "drbd" else 1)
        made = instance(
            where, template, draw.choice((512, 1024, 2048, 4096)), draw.choice((5000, 10000, 20000))
        )
        memory[where[0]] -= made["memory"]
        for name in where if template == "drbd" else ():
            disk[name] -= made["disk_space_total"]
        instances[f"instance{number}"] = made
    filled = {
        name: node(
            total_memory=MEMORY,
            free_memory=memory[name],
            total_disk=DISK,
            free_disk=disk[name],
            total_cpus=CPUS,
        )
        for name in names
    }
    return question(new(template=template, memory=2000), filled, instances)


def run(command: Sequence[str], limit_s: float) -> tuple[float, float, Json] | None:
    """Return wall clock and CPU seconds and the answer; none when it took too long."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, timeout=limit_s, check=True)
    except subprocess.TimeoutExpired:
        return None
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, json.loads(done.stdout)


def report(name: str, command: Sequence[str], rounds: int, limit_s: float) -> None:
    """Print the medians of some runs; one that takes long is run once."""
    found = []
    for _ in range(rounds):
        one = run(command, limit_s)
        if one is None:
            print(f"    {name:12} more than {limit_s:.0f} s, given up")
            return
        found.append(one)
        if one[0] > limit_s / 4:
            break
    wall = statistics.median(each[0] for each in found) * 1000
    cpu = statistics.median(each[1] for each in found) * 1000
    assert found[0][2]["success"], found[0][2]
    print(f"    {name:12} {wall:9.1f} ms, CPU {cpu:9.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--instances-per-node", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    report_start(options.rounds)
    with tempfile.TemporaryDirectory(prefix="bench-allocation-") as directory:
        path = os.path.join(directory, "question")
        for count in options.nodes:
            for template in TEMPLATES:
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(made_up(count, options.instances_per_node, template), file)
                print(f"{count} nodes, {count * options.instances_per_node} {template} instances")
                report("ours", [*OURS, path], options.rounds, options.limit)
                if os.access(DEBIANS, os.X_OK):
                    debians = [DEBIANS, path, "--static-kvm-node-memory=0"]
                    report("Debian's", debians, options.rounds, options.limit)


def report_start(rounds: int) -> None:
    """Print what a bare interpreter takes, to be compared."""
    times = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", ""], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    print(f"a bare interpreter: CPU {statistics.median(times) * 1000:.1f} ms")


if __name__ == "__main__":
    main()
