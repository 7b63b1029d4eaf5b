#!/usr/bin/env python3
"""Measures a round of the maintenance daemon, without the cluster around it.

    bench/maintd.py [--sizes 200x2000 1000x20000] [--group 100] [--disk-moves]

The daemon's part is one look at the reports of all nodes, of which one in a hundred asks to be
emptied, and the plan of a round.  The search's part is what its process does with the answers of
the master daemon: repairs and the first moves of every group.  Each part runs in a process of its
own, whose memory is the greatest that it had.  Aims: 200 nodes within 1 s, 1,000 within 10 s and
200 MB, also if all are one group (--group 1000).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import time
from typing import Any

CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [CHECKOUT, os.path.join(CHECKOUT, "test")]

POLICY = {"vcpu-ratio": 4.0, "spindle-ratio": 32.0}
SICK_SHARE = 100


def main() -> None:
    """Measure, or be one of the measured processes."""
    parser = argparse.ArgumentParser(description="measure a round of the maintenance daemon")
    parser.add_argument("--sizes", nargs="*", default=["200x2000", "1000x20000"])
    parser.add_argument("--group", type=int, default=100, help="nodes of a group")
    parser.add_argument("--disk-moves", action="store_true", help="move disks, too")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for size in options.sizes:
        nodes, instances = map(int, size.split("x"))
        if options.part:
            PARTS[options.part](nodes, instances, options.group, options.disk_moves)
            continue
        print(f"{nodes} nodes, {instances} instances, groups of {options.group}:")
        for part in PARTS:
            command = [sys.executable, __file__, "--sizes", size, "--group", str(options.group)]
            more = ["--disk-moves"] if options.disk_moves else []
            subprocess.run([*command, *more, "--part", part], check=True)


def told(part: str, begun: float, text: str) -> None:
    """Print the figures of a part."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    wall_s, cpu_s = time.perf_counter() - begun, time.process_time()
    print(f"  {part:8} {wall_s:7.2f} s ({cpu_s:.2f} s of CPU with the start)  {used} MB  {text}")


def daemon(nodes: int, instances: int, _group: int, _moves_disks: bool) -> None:
    """Take all reports, and plan a round."""
    from fakes.maintained import FakeMaintained, report

    from ganeti.maintd.acting import Worker

    cluster = FakeMaintained(nodes)
    draw = random.Random(1)
    names = list(cluster.known)
    for number in range(instances):
        cluster.add(f"i{number}", *draw.sample(names, 2))
    uuids = iter(range(10**6))
    worker = Worker(cluster, lambda: cluster.now_s, lambda: str(next(uuids)))

    async def turn() -> None:
        cluster.now_s += 5
        reports = {
            name: report("Ok" if number % SICK_SHARE else "evacuate", cluster.now_s)
            for number, name in enumerate(names, 1)
        }
        await worker.hear(reports)
        await worker.act()

    for _ in range(2):
        asyncio.run(turn())
        cluster.run_jobs()
    begun = time.perf_counter()
    asyncio.run(turn())
    told("daemon", begun, f"{len(cluster.queue)} jobs so far")


def answers(nodes: int, instances: int, group: int) -> bytes:
    """Return what the master daemon answers, as it comes over its socket."""
    draw = random.Random(1)
    groups = [f"g{number}" for number in range((nodes + group - 1) // group)]
    node_rows = [
        {
            "name": f"n{number}",
            "offline": False,
            "drained": False,
            "vm_capable": True,
            "role": "C",
            "ndparams": {},
            "group.uuid": groups[number // group],
            "tags": [],
            "pip": "192.0.2.1",
            "mtotal": 262144,
            "mnode": 1024,
            "mfree": 200000,
            "dtotal": 10**7,
            "dfree": 9**7,
            "ctotal": 64,
            "cnos": 1,
            "sptotal": 1,
            "spfree": 1,
        }
        for number in range(nodes)
    ]
    instance_rows = []
    for number in range(instances):
        primary = int(nodes * draw.random() ** 1.2)
        first = primary - primary % group
        others = [
            n for n in draw.sample(range(first, min(first + group, nodes)), 2) if n != primary
        ]
        instance_rows.append(
            {
                "name": f"i{number}.example.com",
                "status": "running",
                "pnode": f"n{primary}",
                "snodes": [f"n{others[0]}"],
                "disk_template": "drbd",
                "disk_usage": 10240,
                "beparams": {"maxmem": 2048, "vcpus": 2, "spindle_use": 1},
                "tags": [],
                "disk.sizes": [10112],
                "disk.spindles": [None],
                "nic.networks": [None],
                "forthcoming": False,
            }
        )
    group_rows = [
        {"uuid": name, "name": name, "alloc_policy": "preferred", "ipolicy": POLICY, "tags": []}
        for name in groups
    ]
    return json.dumps([group_rows, node_rows, instance_rows]).encode()


def search(nodes: int, instances: int, group: int, moves_disks: bool) -> None:
    """Look for repairs and moves."""
    from ganeti.allocation.sources.listings import from_listings
    from ganeti.base.json import loads_as
    from ganeti.maintd.balance import Answer, Question, choose
    from ganeti.maintd.search import balance, repairs

    # Made in a process of its own, so that its memory is not counted.
    code = f"import sys; sys.path.insert(0, {CHECKOUT + '/bench'!r}); import maintd;"
    code += f"sys.stdout.buffer.write(maintd.answers({nodes}, {instances}, {group}))"
    text = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
    begun = time.perf_counter()
    groups, node_rows, instance_rows = loads_as(list[list[dict[str, Any]]], text)
    about = {"tags": [], "ipolicy": POLICY}
    snapshot = from_listings(about, groups, node_rows, instance_rows)
    cares = repairs(snapshot, {}, 0.0, lambda: "uuid")
    listed_s = time.perf_counter() - begun
    found = balance(snapshot, Question(moves_disks=moves_disks, threshold=0.1))
    late = sum(each.is_late for each in found)
    moves = len(choose(Answer(found), 0.0).moves)
    count = sum(len(each.moves) for each in found)
    told(
        "search",
        begun,
        f"{listed_s:.2f} s to read, {len(cares)} repairs, {count} moves found, {moves} for this"
        f" round; {late} of {len(found)} groups were broken off",
    )


PARTS = {"daemon": daemon, "search": search}

if __name__ == "__main__":
    main()
