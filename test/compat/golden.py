"""Plays recorded command lines of Ganeti 3.0.2 on a virtual cluster and compares the answers.

    .venv/bin/python test/compat/golden.py [--show]     # `make golden`

Compared are the exit status and the lines on standard output.  What differs from run to run is
replaced by a word: times, UUIDs, addresses, directories, sizes of the machine, numbers of jobs.
Blanks between columns do not count, as their number depends on the length of names; the blanks
before a line do, as scripts read them.  What `MORE` has is ours, and is left out.

Differences that are meant have a row in the table of doc/compatibility.md.

Source: cli_output.json.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ganeti.bootstrap.virtual import lifecycle
from ganeti.bootstrap.virtual.layout import VirtualCluster
from ganeti.system import process

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "test" / "data" / "cli_output.json"
NAMED = ROOT / "doc" / "compatibility.md"
TIMEOUT_S = 180.0
# A command asks on its terminal; played without one, a question counts as "no".
_OS_SCRIPTS = ("create", "import", "export", "rename")
_UNUSED_FACES = ("ganeti-confd", "ganeti-mond", "ganeti-rapi")

_WORDS = (
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?"), "TIME"),
    (re.compile(r"\(delta [\d.]+s\)"), "(delta)"),
    (re.compile(r"\b[\d.]+ seconds\b"), "SECONDS"),
    (re.compile(r"\b1[6-9]\d{17}\b"), "NANOSECONDS"),
    (re.compile(r"\baa:00:00(:[0-9a-f]{2}){3}\b"), "MAC"),
    (re.compile(r"\b127\.\d+\.\d+\.\d+\b|\b192\.0\.2\.1\d\b(?!\d)"), "ADDRESS"),
    (re.compile(r"(<root>|<base>)\S*?(?=/[^/\s']*(['\s]|$))"), "DIRECTORY"),
    (re.compile(r"\b\d+(\.\d+)?[GT]\b|\b\d{3,6}M\b(?=.*\b\d+(\.\d+)?G\b)"), "SIZE"),
    (re.compile(r":\d{4,}:0:\d{4,}:"), ":SIZE:0:SIZE:"),
    (re.compile(r"\b[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\b"), "TIME"),
    (re.compile(r"^\d+$|(?<=^  Watermark: )\d+$"), "JOB"),
    (re.compile(r"(?<=^VCS version: ).*"), "VERSION"),
    (re.compile(r"^-{8,}$"), "--------"),
)
# Directories that the recorded cluster had for itself; ours has them below the root of each node.
_PLACES = {
    "/srv/ganeti/file-storage": "<base>/files",
    "/srv/ganeti/shared-file-storage": "<base>/shared-file-storage",
    "/var/run/ganeti/gluster": "<base>/gluster",
}
_BOUNDS = (
    "--ipolicy-bounds-specs="
    "min:memory-size=4,disk-size=0,disk-count=0,cpu-count=1,nic-count=0,spindle-use=0"
    "/max:memory-size=32768,disk-size=1048576,disk-count=16,cpu-count=8,nic-count=8,spindle-use=12"
)

# What this version shows besides, in normalised lines: the command, and a pattern.
MORE = (
    ("gnt-cluster info", r"^Modify /etc/hosts: .*\n"),
    ("gnt-group info", r"^  (UUID|Allocation policy|Nodes|Primary instances|Tags):.*\n(   .*\n)*"),
    ("gnt-job info", r"^ *- Time: TIME\n *Content: .* has the UUID UUID\]\n"),
    ("gnt-os diagnose", r" \(node\d\)$"),
)


@dataclass(frozen=True)
class Difference:
    """One command line that is answered in another way."""

    number: int
    command: str
    recorded: tuple[int, list[str]]
    played: tuple[int, list[str]]

    def __str__(self) -> str:
        lines = [f"{self.number}: {self.command}"]
        if self.recorded[0] != self.played[0]:
            lines.append(f"  exit status {self.played[0]} instead of {self.recorded[0]}")
        changes = difflib.unified_diff(self.recorded[1], self.played[1], lineterm="", n=1)
        lines += [f"  {line}" for line in list(changes)[2:]]
        return "\n".join(lines)


def recorded() -> list[dict[str, Any]]:
    """Return the recorded command lines."""
    commands: list[dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))["commands"]
    return commands


def normalised(lines: Sequence[str], places: Mapping[str, str]) -> list[str]:
    """Replace the values that differ from run to run, and fold blanks inside lines."""
    found = []
    for line in lines:
        for place, word in places.items():
            line = line.replace(place, word)
        line = line.replace(".example.com", "")
        for pattern, word in _WORDS:
            line = pattern.sub(word, line)
        indent = len(line) - len(line.lstrip(" "))
        found.append(" " * indent + " ".join(line.split()))
    while found and not found[-1]:
        found.pop()
    return found


def without_more(command: str, lines: Sequence[str]) -> list[str]:
    """Leave out of normalised lines what this version shows besides."""
    text = "".join(f"{line}\n" for line in lines)
    for beginning, pattern in MORE:
        if command.startswith(beginning):
            text = re.sub(pattern, "", text, flags=re.MULTILINE)
    return text.splitlines()


def in_order(command: str, lines: Sequence[str]) -> list[str]:
    """Order what 3.0 orders by the UUIDs of nodes, which are random: names of nodes, and rows."""
    names = re.compile(r"\bnode\d(,node\d)+")
    found = [names.sub(lambda each: ",".join(sorted(each[0].split(","))), line) for line in lines]
    return sorted(found) if command.startswith("gnt-node list-storage") else found


def with_ratios_in_order(lines: Sequence[str]) -> list[str]:
    """Order the two ratios of a policy, for which 3.0 has no order."""
    found = list(lines)
    for position in range(len(found) - 1):
        pair = found[position : position + 2]
        if all(line.lstrip().partition(":")[0].endswith("-ratio") for line in pair):
            found[position : position + 2] = sorted(pair)
    return found


def comparable(command: str, lines: Sequence[str], places: Mapping[str, str]) -> list[str]:
    """Return what two answers have in common if scripts read the same in them."""
    found = without_more(command, normalised(lines, places))
    return with_ratios_in_order(in_order(command, found))


def play(cluster: VirtualCluster, commands: Sequence[Mapping[str, Any]]) -> Iterator[Difference]:
    """Play the command lines one after the other on the master."""
    environment = lifecycle.command_environment(cluster, cluster.first_node)
    places = {cluster.base: "<base>", **_PLACES}
    for number, each in enumerate(commands):
        command = each["command"]
        _prepare(cluster, number)
        done = process.run(["bash", "-c", command], timeout_s=TIMEOUT_S, env=environment, stdin=b"")
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        answer = (done.status, comparable(command, lines, places))
        # Where nothing is recorded there was nothing to be parsed, only a message.
        stdout = comparable(command, each["stdout"], {}) if "stdout" in each else answer[1]
        wanted = (each["exit"], stdout)
        if number == _TOO_EARLY:
            wanted, answer = (_without_submitted(each) for each in (wanted, answer))
        if answer != wanted:
            yield Difference(number, command, wanted, answer)
        if "--submit" in command.split():  # what comes next is not to depend on how fast it is
            process.run(["bash", "-c", _WAIT], timeout_s=TIMEOUT_S, env=environment, stdin=b"")


_WAIT = "gnt-job wait $(gnt-job list --no-headers -o id | tail -n 1)"
_TOO_EARLY = 130  # a list while the recorded cluster was still creating inst3


def _without_submitted(answer: tuple[int, list[str]]) -> tuple[int, list[str]]:
    status, lines = answer
    return status, [line for line in lines if not line.startswith("inst3 ")]


_NO_MOVE = 175
_ERRORS_TO_FIND = 256


def _prepare(cluster: VirtualCluster, number: int) -> None:
    """Make what failed on the recorded cluster fail here too: a move, and a verification."""
    paths = cluster.paths_of(cluster.node_names[2])
    disks = Path(paths.localize(next(iter(_PLACES))))
    if number == _NO_MOVE:
        disks.rename(f"{disks}.aside")
        disks.write_bytes(b"")
    elif number == _NO_MOVE + 1:
        disks.unlink()
        Path(f"{disks}.aside").rename(disks)
    elif number == _ERRORS_TO_FIND:
        _remove(Path(paths.os_search_path[0]) / "noop")


def named() -> dict[int, str]:
    """Return the command lines whose answers are meant to differ, by their number."""
    rows = re.findall(r"^\| (\d+) \| `([^`]+)` \| .+ \|$", NAMED.read_text("utf-8"), re.MULTILINE)
    return {int(number): command for number, command in rows}


def make_cluster(base: str) -> VirtualCluster:
    """Make a cluster like the recorded one: three nodes, fake hypervisor, an OS ``noop``."""
    cluster = lifecycle.plan(base, 3, "fake", without=_UNUSED_FACES)
    options = ["--enabled-disk-templates=diskless,file", "--nic-parameters=link=xen-br0", _BOUNDS]
    lifecycle.create(cluster, extra_init=options)
    for name in cluster.node_names:
        directory = Path(cluster.paths_of(name).os_search_path[0])
        for entry in directory.iterdir():
            _remove(entry)
        _write_os(directory / "noop")
    return cluster


def _remove(entry: Path) -> None:
    for path in sorted(entry.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    entry.rmdir()


def _write_os(directory: Path) -> None:
    directory.mkdir()
    for script in _OS_SCRIPTS:
        path = directory / script
        path.write_text("#!/bin/sh\nexit 0\n", encoding="ascii")
        path.chmod(0o755)
    (directory / "ganeti_api_version").write_text("10\n", encoding="ascii")


def differences() -> list[Difference]:
    """Play everything on a cluster of its own."""
    with tempfile.TemporaryDirectory(prefix="gnt-") as parent:
        cluster = make_cluster(os.path.join(parent, "vc"))
        try:
            return list(play(cluster, recorded()))
        finally:
            lifecycle.destroy(cluster)


def main() -> int:
    """Print the differences; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--show", action="store_true", help="show the lines that differ")
    options = parser.parse_args()
    found = differences()
    for each in found:
        print(each if options.show else f"{each.number}: {each.command}")
    print(f"{len(recorded()) - len(found)} of {len(recorded())} command lines are answered alike")
    return 0


if __name__ == "__main__":
    sys.exit(main())
