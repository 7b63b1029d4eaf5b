#!/usr/bin/env python3
"""Measures the tools for placement on clusters of growing size, beside Debian's where installed.

    bench/allocation.py [--nodes 20 200 1000] [--rounds 3] [--limit 20] [--json FILE]

Each cluster has 15 instances for each node, more on the first ones.  A run of hail answers one
question about a new instance.  A run that takes longer than --limit seconds is given up.  Time is
wall clock from exec to end, the median of the rounds; memory is the most that the process held.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(CHECKOUT, "test"))

from fakes import debian_htools  # noqa: E402
from fakes.allocator_questions import Json, instance, new, node, question  # noqa: E402

TEMPLATES: Final = ("drbd", "ext")
MEMORY, DISK, CPUS, SPINDLES = 128_000, 4_000_000, 32, 4
PER_NODE: Final = 15
_FINAL_SCORE: Final = re.compile(r"^Cluster score improved from \S+ to (\S+)$", re.MULTILINE)
SPECS: Final = "128,1,1024,1,1,1|1,1,0,0,0,1;32768,8,1048576,16,8,12"


@dataclass(frozen=True)
class Instance:
    name: str
    nodes: tuple[str, ...]
    memory: int
    disk: int
    vcpus: int


@dataclass(frozen=True)
class Cluster:
    """A made-up cluster, as a question to an allocator and as a text file."""

    free: Mapping[str, tuple[int, int]]  # memory and disk of each node
    instances: Sequence[Instance]
    template: str

    def question(self) -> Json:
        nodes = {}
        for name, (memory, disk) in self.free.items():
            nodes[name] = node(
                total_memory=MEMORY,
                free_memory=memory,
                total_disk=DISK,
                free_disk=disk,
                total_cpus=CPUS,
            )
        instances = {
            each.name: instance(list(each.nodes), self.template, each.memory, each.disk)
            for each in self.instances
        }
        return question(new(template=self.template, memory=2000), nodes, instances)

    def text(self) -> str:
        nodes: list[str] = []
        instances: list[str] = []
        for name, (memory, disk) in self.free.items():
            row = (name, MEMORY, 0, memory, DISK, disk, CPUS, "N", "uuid-1", SPINDLES)
            nodes.append("|".join(map(str, row)))
        for each in self.instances:
            secondary = each.nodes[1] if len(each.nodes) > 1 else ""
            columns = (each.memory, each.disk, each.vcpus, "running", "Y", each.nodes[0])
            instances.append(
                "|".join(map(str, (each.name, *columns, secondary, self.template, "", 1)))
            )
        policy = f"|{SPECS}|{self.template}|4.0|32.0"
        sections: tuple[list[str], ...]
        sections = (["default|uuid-1|preferred||"], nodes, instances, [], [policy])
        return "\n".join("".join(f"{line}\n" for line in section) for section in sections)


def made_up(count: int, template: str) -> Cluster:
    """Return a cluster of so many nodes, the same each time."""
    draw = random.Random(count)
    names = [f"node{number}" for number in range(count)]
    memory, disk, vcpus = (dict.fromkeys(names, 0) for _ in range(3))
    instances: list[Instance] = []
    while len(instances) < count * PER_NODE:
        first = names[int(count * draw.random() ** 1.3)]
        others = [draw.choice(names)]
        size, room = draw.choice((512, 1024, 2048, 4096)), draw.choice((5000, 10000, 20000))
        nodes = (first, *others) if template == "drbd" else (first,)
        cpus = draw.choice((1, 1, 2, 4))
        if (
            others == [first]
            or memory[first] + size > MEMORY * 0.8
            or vcpus[first] + cpus > CPUS * 4
        ):
            continue
        if any(disk[name] + room > DISK * 0.9 for name in nodes):
            continue
        memory[first] += size
        vcpus[first] += cpus
        for name in nodes:
            disk[name] += room
        instances.append(Instance(f"instance{len(instances)}", nodes, size, room, cpus))
    local = template == "drbd"
    free = {name: (MEMORY - memory[name], DISK - disk[name] * local) for name in names}
    return Cluster(free, instances, template)


@dataclass(frozen=True)
class Figures:
    """The figures of some runs; no time if they took too long."""

    wall_s: float | None
    cpu_s: float = 0.0
    memory_mb: float = 0.0
    score: float | None = None


def run(command: Sequence[str], limit_s: float) -> Figures:
    """Run a program once."""
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        killer = threading.Timer(limit_s, process.kill)
        killer.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        killer.cancel()
        process.returncode = status
        if os.WIFSIGNALED(status):
            return Figures(None)
        assert status == 0, (command, status)
        out.seek(0)
        score = _FINAL_SCORE.search(out.read().decode())
    cpu = usage.ru_utime + usage.ru_stime
    return Figures(wall, cpu, usage.ru_maxrss / 1024, float(score[1]) if score else None)


def measured(command: Sequence[str], rounds: int, limit_s: float) -> Figures:
    """Return the medians of some runs; one that takes long is run once."""
    found: list[Figures] = []
    for _ in range(rounds):
        one = run(command, limit_s)
        if one.wall_s is None:
            return one
        found.append(one)
        if one.wall_s > limit_s / 4:
            break
    return Figures(
        statistics.median(each.wall_s or 0 for each in found),
        statistics.median(each.cpu_s for each in found),
        max(each.memory_mb for each in found),
        found[0].score,
    )


def commands(question_path: str, text_path: str) -> Mapping[str, tuple[list[str], list[str]]]:
    """Return for each thing that is measured our command and Debian's."""
    ours = [sys.executable, os.path.join(CHECKOUT, "tools")]
    rows = {
        "hail, a new instance": ("hail", [question_path, "--static-kvm-node-memory=0"]),
        "hbal -l 20": ("hbal", ["-t", text_path, "-l", "20"]),
        "hbal to the end": ("hbal", ["-t", text_path]),
        "hspace": ("hspace", ["-t", text_path]),
    }
    found = {}
    for name, (program, words) in rows.items():
        place = "iallocators/hail" if program == "hail" else program
        theirs = debian_htools.SIGN if program == "hail" else f"{debian_htools.DIRECTORY}/{program}"
        found[name] = ([ours[0], os.path.join(ours[1], place), *words], [theirs, *words])
    return found


def cell(found: Figures | None, limit_s: float) -> str:
    """Return figures as they stand in the table."""
    if found is None:
        return "-"
    if found.wall_s is None:
        return f"over {limit_s:g} s"
    time_text = f"{found.wall_s:.2f} s" if found.wall_s >= 1 else f"{found.wall_s * 1000:.0f} ms"
    score = "" if found.score is None else f", score {found.score:.4f}"
    return f"{time_text} (CPU {found.cpu_s:.2f} s), {found.memory_mb:.0f} MB{score}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[20, 200])
    parser.add_argument("--templates", nargs="+", default=["drbd"], choices=TEMPLATES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds")
    parser.add_argument("--their-limit", type=float, help="that of Debian's, if another")
    parser.add_argument("--only", help="what to measure: names that begin so")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file too")
    options = parser.parse_args()
    has_debians = debian_htools.are_there()
    their_limit = options.their_limit or options.limit
    bare = run([sys.executable, "-c", ""], 60)
    print(
        f"load {os.getloadavg()[0]:.1f}; a bare interpreter takes CPU {bare.cpu_s * 1000:.0f} ms\n"
    )
    print("| nodes, instances | | ours | Debian's |\n|---|---|---|---|")
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-allocation-") as directory:
        question_path, text_path = (os.path.join(directory, name) for name in ("question", "text"))
        for template in options.templates:
            for count in options.nodes:
                cluster = made_up(count, template)
                with open(question_path, "w", encoding="utf-8") as file:
                    json.dump(cluster.question(), file)
                with open(text_path, "w", encoding="utf-8") as file:
                    file.write(cluster.text())
                size = f"{count:,}, {len(cluster.instances):,} {template}"
                for name, (ours, theirs) in commands(question_path, text_path).items():
                    if options.only and not name.startswith(options.only):
                        continue
                    own = measured(ours, options.rounds, options.limit)
                    other = measured(theirs, options.rounds, their_limit) if has_debians else None
                    cells = (size, name, cell(own, options.limit), cell(other, their_limit))
                    print(f"| {' | '.join(cells)} |", flush=True)
                    rows.append(
                        {
                            "nodes": count,
                            "instances": len(cluster.instances),
                            "template": template,
                            "what": name,
                            "ours": asdict(own),
                            "debians": asdict(other) if other else None,
                        }
                    )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            limits = {"limit_s": options.limit, "their_limit_s": their_limit}
            json.dump({**limits, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
