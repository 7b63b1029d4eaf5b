"""Debian's htools as they are installed, beside ours in tests: run, and their output read."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import machine

DIRECTORY = "/usr/bin"
SIGN = "/usr/lib/ganeti/iallocators/hail"
TIMEOUT_S = 300
_OVERALL = re.compile(r"(?:Initial coefficients: overall|Cluster score:)\s*(\S+)")
_ROW = re.compile(r"   (\w+) +(\S+) +x(\S+)$")


def are_there() -> bool:
    """Tell whether they are Debian's, and not ours in their place."""
    if machine.hides() or not os.access(SIGN, os.X_OK):
        return False
    with open(SIGN, "rb") as file:
        return file.read(4) == b"\x7fELF"


REASON = "the package ganeti-htools is not there"


def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one of them."""
    return subprocess.run(
        [f"{DIRECTORY}/{program}", *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={"LANG": "C.UTF-8"},
    )


def ask_allocator(*words: str) -> dict[str, Any]:
    """Return the answer of their allocator; the words are its arguments."""
    command = [SIGN, *words, "--static-kvm-node-memory=0"]
    done = subprocess.run(
        command, capture_output=True, timeout=TIMEOUT_S, check=True, env={"LANG": "C.UTF-8"}
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def components(text: str, path: Path, *words: str) -> dict[str, float]:
    """Return the components of the score of a cluster before balancing, by name."""
    path.write_text(text)
    done = run("hbal", "-t", str(path), "-l", "0", "-C", *["-v"] * 4, *words)
    assert done.returncode == 0, (done.stdout, done.stderr)
    found: dict[str, float] = {}
    for line in done.stdout.splitlines():
        overall, row = _OVERALL.match(line), _ROW.match(line)
        if overall and not found:
            found["overall"] = float(overall[1])
        elif row and found and row[1] not in found:
            found[row[1]] = float(row[2])
    return found
