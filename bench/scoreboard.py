#!/usr/bin/env python3
"""All measurements in one run: a table (Markdown, JSON) and a picture of each growth curve.

`SECTIONS` has the programs, the arguments of the whole form and those of the quick one.  The whole
form takes half an hour on two cores, and its figures are worth something on a quiet machine only:
each row has the load at its moment.  The quick form shows within minutes that all of it works.
What sections measured that are not run now stays in the table.

Clusters are not removed before the end: for minutes after thousands of files were, ext4 makes new
ones slowly, as it passes over their inodes one by one, and a job makes a file on each candidate.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from report import LEFT, RECORD, Figure

HERE: Final = Path(__file__).resolve().parent


class Section(NamedTuple):
    """A program of this directory; ``quick`` is None for one that has no quick form."""

    program: str
    title: str
    whole: str = ""
    quick: str | None = None


SECTIONS: Final = (
    Section("jobs", "jobs", "--instances 20000", "--jobs 5 --instances 0"),
    Section(
        "tags", "a small change, by size", "--sizes 1,100,1000,5000,20000", "--sizes 1,50 --jobs 4"
    ),
    Section("instances", "instances"),
    Section("query", "questions, by size", "--instances 50 1000 5000 20000"),
    Section("nodes", "nodes that answer", "", "--sizes 5x10"),
    Section("wconfd", "locks and configuration"),
    Section("waiting", "jobs that wait"),
    Section("watcher", "watcher"),
    Section("faces", "confd, monitoring, remote API"),
    Section("dashboard", "dashboard"),
    Section("maintd", "maintenance"),
    Section("availability", "loss of nodes", "", "--rounds 1"),
    Section("allocation", "placement"),
    Section("planning", "plans of hbal"),
)


def run(section: Section, arguments: str, record: str, left: str) -> int:
    """Run one program; what it prints goes to the terminal."""
    print(f"--- {section.title}: bench/{section.program}.py {arguments}".rstrip(), flush=True)
    argv = [sys.executable, str(HERE / f"{section.program}.py"), *arguments.split()]
    environment = {**os.environ, RECORD: record, LEFT: left}
    return subprocess.run(argv, env=environment, check=False).returncode


def figures_in(path: str) -> list[Figure]:
    """Return what the program recorded."""
    with open(path, encoding="utf-8") as file:
        return [Figure(**json.loads(line)) for line in file]


def known_in(directory: Path) -> dict[str, list[Figure]]:
    """Return the table that is there, by the title of the section."""
    known: dict[str, list[Figure]] = {}
    path = directory / "figures.json"
    for row in json.loads(path.read_text(encoding="utf-8")) if path.exists() else ():
        known.setdefault(row.pop("section"), []).append(Figure(**row))
    return known


def markdown(found: Iterable[tuple[str, Figure]], curves: Iterable[str]) -> str:
    """Return the page."""
    machine = f"{platform.machine()}, {os.cpu_count()} processors, Linux {platform.release()}"
    lines = ["---", "orphan: true", "---", "# Measurements", ""]
    lines += [
        f"Written by `make bench` on {machine}, Python {platform.python_version()}.  The load"
    ]
    lines += ["is the machine's at the end of each measurement, which is a part of it.", ""]
    lines += ["| section | figure | reached | aim | load |", "|---|---|---:|---:|---:|"]
    for title, each in found:
        cells = (title, each.text.strip(), each.value, each.aim, f"{each.load:.1f}")
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    for name in curves:
        lines += ["", f"![{name}]({file_of(name)})"]
    return "\n".join(lines) + "\n"


def file_of(curve: str) -> str:
    """Return the name of a curve's picture."""
    return "".join(letter if letter.isalnum() else "-" for letter in curve.lower()) + ".svg"


_WIDTH, _HEIGHT, _EDGE = 560, 320, 50


def picture(name: str, lines: dict[str, list[tuple[float, float]]]) -> str:
    """Return a growth curve as SVG, from zero on both axes, a line for each series."""
    points = [point for each in lines.values() for point in each]
    x_max, y_max = (max(point[axis] for point in points) or 1.0 for axis in (0, 1))
    colours = ("#1f5fbf", "#bf5f1f", "#2f8f4f", "#7f3fbf")

    def at(x: float, y: float) -> str:
        across = _EDGE + x / x_max * (_WIDTH - 2 * _EDGE)
        return f"{across:.1f},{_HEIGHT - _EDGE - y / y_max * (_HEIGHT - 2 * _EDGE):.1f}"

    floor = _HEIGHT - _EDGE
    body = [
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        f'<text x="{_WIDTH / 2}" y="20" text-anchor="middle" font-weight="bold">{name}</text>',
        f'<path d="M{_EDGE} {_EDGE}V{floor}H{_WIDTH - _EDGE}" fill="none" stroke="#445"/>',
        f'<text x="{_WIDTH - _EDGE}" y="{floor + 18}" text-anchor="end">{x_max:g}</text>',
        f'<text x="{_EDGE - 4}" y="{_EDGE + 4}" text-anchor="end">{y_max:.3g}</text>',
    ]
    for number, (title, series) in enumerate(lines.items()):
        colour = colours[number % len(colours)]
        path = " ".join(at(x, y) for x, y in sorted(series))
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        place = f'x="{_EDGE + 10}" y="{_EDGE + 16 * number}"'
        body.append(f'<text {place} fill="{colour}">{title}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    return f'{head} font-family="sans-serif" font-size="12">\n' + "\n".join(body) + "\n</svg>\n"


def write(found: list[tuple[str, Figure]], directory: Path) -> None:
    """Write table and pictures."""
    directory.mkdir(parents=True, exist_ok=True)
    curves: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for _title, each in found:
        if each.curve:
            name, _, series = each.curve.partition(": ")
            curves[name][series].append((each.x, each.y))
    for name, lines in curves.items():
        (directory / file_of(name)).write_text(picture(name, lines), encoding="utf-8")
    rows = [{"section": title, **vars(each)} for title, each in found]
    (directory / "figures.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (directory / "figures.md").write_text(markdown(found, curves), encoding="utf-8")
    print(f"{directory}/figures.md")


def main() -> int:
    """Run the sections, and write what they recorded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, only what is quick")
    parser.add_argument("--into", default="build/performance", help="directory of the table")
    parser.add_argument("sections", nargs="*", help=", ".join(each.program for each in SECTIONS))
    options = parser.parse_args()
    known = known_in(Path(options.into))
    left = tempfile.mkdtemp(prefix="bench-left-")
    try:
        failed = measure(options, known, left)
    finally:
        shutil.rmtree(left)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def measure(
    options: argparse.Namespace, known: dict[str, list[Figure]], left: str
) -> Sequence[str]:
    """Run the sections that are wanted, and write the table after each; returns what failed."""
    failed = []
    for section in SECTIONS:
        arguments = section.quick if options.quick else section.whole
        if arguments is None or (options.sections and section.program not in options.sections):
            continue
        with tempfile.NamedTemporaryFile(prefix="bench-") as record:
            if run(section, arguments, record.name, left):
                failed.append(section.program)
            known[section.title] = figures_in(record.name)
        titles = [each.title for each in SECTIONS]
        found = [(title, each) for title in titles for each in known.get(title, ())]
        write(found, Path(options.into))  # what is there counts if a later one is cut off
    return failed


if __name__ == "__main__":
    sys.exit(main())
