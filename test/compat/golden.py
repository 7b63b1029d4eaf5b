"""Plays recorded command lines of Ganeti 3.0.2 on a virtual cluster and compares the answers.

    .venv/bin/python test/compat/golden.py [--show]     # `make golden`

Compared are the exit status and, with times, UUIDs, addresses, directories and the sizes of the
machine replaced by a word, the lines on standard output.  Blanks between columns do not count, as
their number depends on the length of names; the blanks before a line do, as scripts read them.

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

RECORD = Path(__file__).resolve().parents[1] / "data" / "cli_output.json"
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
    (re.compile(r"^-{8,}$"), "--------"),
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


def play(cluster: VirtualCluster, commands: Sequence[Mapping[str, Any]]) -> Iterator[Difference]:
    """Play the command lines one after the other on the master."""
    environment = lifecycle.command_environment(cluster, cluster.first_node)
    places = {cluster.base: "<base>"}
    for number, each in enumerate(commands):
        command = each["command"]
        done = process.run(["bash", "-c", command], timeout_s=TIMEOUT_S, env=environment, stdin=b"")
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        answer = (done.status, normalised(lines, places))
        # Where nothing is recorded there was nothing to be parsed, only a message.
        wanted = (each["exit"], normalised(each["stdout"], {}) if "stdout" in each else answer[1])
        if answer != wanted:
            yield Difference(number, command, wanted, answer)


def make_cluster(base: str) -> VirtualCluster:
    """Make a cluster like the recorded one: three nodes, fake hypervisor, an OS ``noop``."""
    cluster = lifecycle.plan(base, 3, "fake", without=_UNUSED_FACES)
    options = ["--enabled-disk-templates=diskless,file", "--nic-parameters=link=xen-br0"]
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
