#!/usr/bin/env python3
"""Measures the tools for placement on clusters of growing size, beside Debian's where installed.

    bench/allocation.py [--clusters 20/300 200/2000] [--rounds 3] [--limit 20] [--their-limit 20]
                        [--only hail] [--table FILE] [--json FILE]
    bench/allocation.py --clusters 20/300 80/1500 200/2000 1000/10000 --limit 200 --their-limit 60 \
                        --table doc/balancing.md

A cluster is nodes/instances, with more of them on the first nodes.  A run of hail answers one
question about a new instance.  A run that takes more of the processor than its limit (seconds) is
given up, and larger clusters are not tried by a program that was given up; Debian's `hbal -l 20`
may take three times --their-limit.  Time is wall clock from exec to end, the median of the rounds;
memory is the most that the process held; "times" compares the processor time with ours, and
"growth" that of ours with the cluster above.  --table puts the table between the two marks in a
Markdown file.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Final

CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(CHECKOUT, "test"))

from fakes import debian_htools  # noqa: E402
from fakes.allocator_questions import Json, instance, new, node, question  # noqa: E402

TEMPLATES: Final = ("drbd", "ext")
MEMORY, DISK, CPUS, SPINDLES = 128_000, 4_000_000, 32, 4
_FINAL_SCORE: Final = re.compile(r"^Cluster score improved from \S+ to (\S+)$", re.MULTILINE)
PATIENCE: Final = {"hbal -l 20": 3}  # 3.0.2 needs 152 s with 80 nodes, which is worth waiting for
WAITING: Final = 4  # times the limit of a program on the clock, on a machine with other work
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
        limits = f"|{SPECS}|{self.template}|4.0|32.0"
        sections: tuple[list[str], ...]
        policies = [limits, f"default{limits}"]  # Debian's give a group nothing of the cluster's
        sections = (["default|uuid-1|preferred||"], nodes, instances, [], policies)
        return "\n".join("".join(f"{line}\n" for line in section) for section in sections)


def made_up(count: int, total: int, template: str) -> Cluster:
    """Return a cluster of so many nodes and instances, the same each time."""
    draw = random.Random(count)
    names = [f"node{number}" for number in range(count)]
    memory, disk, vcpus = (dict.fromkeys(names, 0) for _ in range(3))
    instances: list[Instance] = []
    while len(instances) < total:
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
    """The figures of some runs; no ``wall_s`` if they were given up, or not tried."""

    wall_s: float | None
    cpu_s: float = 0.0
    memory_mb: float = 0.0
    score: float | None = None


def run(command: Sequence[str], limit_s: float) -> Figures:
    """Run a program once."""
    with tempfile.TemporaryFile() as out:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        most = math.ceil(limit_s)
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (most, most))
        killer = threading.Timer(limit_s * WAITING, process.kill)
        killer.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        killer.cancel()
        process.returncode = status
        cpu = usage.ru_utime + usage.ru_stime
        if os.WIFSIGNALED(status):
            return Figures(None, cpu)
        assert status == 0, (command, status)
        out.seek(0)
        score = _FINAL_SCORE.search(out.read().decode())
    return Figures(wall, cpu, usage.ru_maxrss / 1024, float(score[1]) if score else None)


def measured(command: Sequence[str], rounds: int, limit_s: float) -> Figures:
    """Return the medians of some runs; one that takes long is run once."""
    found: list[Figures] = []
    for _ in range(rounds):
        one = run(command, limit_s)
        if one.wall_s is None:
            return one
        found.append(one)
        if one.cpu_s > limit_s / 10:
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


def cell(found: Figures | None) -> str:
    """Return figures as they stand in the table."""
    if found is None:
        return "-"
    if found.wall_s is None:
        return f"over {found.cpu_s:.0f} s of CPU" if found.cpu_s else "given up before"
    time_text = f"{found.wall_s:.2f} s" if found.wall_s >= 1 else f"{found.wall_s * 1000:.0f} ms"
    score = "" if found.score is None else f", score {found.score:.4f}"
    return f"{time_text} (CPU {found.cpu_s:.2f} s), {found.memory_mb:.0f} MB{score}"


def times(own: Figures, other: Figures | None) -> str:
    """Return how many times the processor time of ours another one takes."""
    if other is None or own.wall_s is None or not other.cpu_s:
        return ""
    return f"{'over ' * (other.wall_s is None)}{other.cpu_s / own.cpu_s:.1f}"


HEAD: Final = (
    "| nodes, instances | | ours | growth | Debian's | times |",
    "|---|---|---|---|---|---|",
)
MARKS: Final = "<!-- written by bench/allocation.py -->", "<!-- end of the table -->"


def write_table(path: str, lines: Sequence[str]) -> None:
    """Put the table between the marks of a file, or into a new one."""
    text = "\n".join(MARKS)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
    head, _, rest = text.partition(MARKS[0])
    _, end, tail = rest.partition(MARKS[1])
    assert end, f"{path}: there is no {MARKS[0]} before {MARKS[1]}"
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join((head + MARKS[0], "", *lines, "", MARKS[1] + tail)))


def size_of(text: str) -> tuple[int, int]:
    """Return the numbers of nodes and instances that a word on the command line means."""
    nodes, _, instances = text.partition("/")
    return int(nodes), int(instances or int(nodes) * 15)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clusters", nargs="+", type=size_of, default=[(20, 300), (200, 2000)])
    parser.add_argument("--templates", nargs="+", default=["drbd"], choices=TEMPLATES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds")
    parser.add_argument("--their-limit", type=float, help="that of Debian's, if another")
    parser.add_argument("--only", help="what to measure: names that begin so")
    parser.add_argument("--table", metavar="FILE", help="write the table into this file too")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file too")
    options = parser.parse_args()
    bare = run([sys.executable, "-c", ""], 60)
    introduction = (
        f"Load {os.getloadavg()[0]:.1f} at the beginning;"
        f" a bare interpreter takes {bare.cpu_s * 1000:.0f} ms of the processor."
    )
    lines: list[str] = []

    def tell(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    for line in (introduction, "", *HEAD):
        tell(line)
    rows = list(measured_rows(options, tell))
    for line in ("", f"Load {os.getloadavg()[0]:.1f} at the end."):
        tell(line)
    if options.table:
        write_table(options.table, lines)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"rows": rows}, file, indent=1)


def measured_rows(options: argparse.Namespace, tell: Callable[[str], None]) -> Iterator[Json]:
    """Measure all programs with all clusters: tell each row of the table, return its figures."""
    has_debians = debian_htools.are_there()
    their_limit_s = options.their_limit or options.limit
    smaller: dict[str, Figures] = {}
    given_up: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="bench-allocation-") as directory:
        question_path, text_path = (os.path.join(directory, name) for name in ("question", "text"))
        for template, (nodes, instances) in product(options.templates, options.clusters):
            cluster = made_up(nodes, instances, template)
            with open(question_path, "w", encoding="utf-8") as file:
                json.dump(cluster.question(), file)
            with open(text_path, "w", encoding="utf-8") as file:
                file.write(cluster.text())
            for name, (ours, theirs) in commands(question_path, text_path).items():
                if options.only and not name.startswith(options.only):
                    continue
                key = f"{name}, {template}"
                own = measured(ours, options.rounds, options.limit)
                other = Figures(None) if has_debians else None
                if has_debians and key not in given_up:
                    other = measured(theirs, options.rounds, their_limit_s * PATIENCE.get(name, 1))
                    if other.wall_s is None:
                        given_up.add(key)
                before = smaller.get(key)
                known = before is not None and before.wall_s and own.wall_s
                growth = f"{own.cpu_s / before.cpu_s:.1f}" if before and known else ""
                size = f"{nodes:,}, {instances:,} {template}"
                cells = size, name, cell(own), growth, cell(other), times(own, other)
                tell(f"| {' | '.join(cells)} |")
                smaller[key] = own
                yield {
                    "nodes": nodes,
                    "instances": instances,
                    "template": template,
                    "what": name,
                    "ours": asdict(own),
                    "debians": asdict(other) if other else None,
                }


if __name__ == "__main__":
    main()
