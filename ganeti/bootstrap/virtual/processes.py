"""Processes of a virtual cluster: found by the environment they were started with.

Every process below a base directory, whatever started it, carries the root directory of its node in
its environment.  That, and nothing else, decides what may be stopped.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Final

from ganeti.system import process
from ganeti.system.environment import ROOTDIR_VARIABLE

KILL_TIMEOUT_S: Final = 10.0
_PREFIX: Final = ROOTDIR_VARIABLE.encode() + b"="


@dataclass(frozen=True, slots=True)
class NodeProcess:
    """A process that runs on a virtual node."""

    pid: int
    root: str
    command: str


def find(base: str) -> list[NodeProcess]:
    """Return the processes of all nodes below a base directory.

    Neither this process nor those that started it count: a shell on a node may stop the cluster.
    Processes of other users are not seen.
    """
    found = []
    own = _own_line()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in own:
            continue
        root = _root_of(int(entry))
        if root is not None and os.path.dirname(root.rstrip("/")) == base:
            found.append(NodeProcess(int(entry), root, _command_of(int(entry))))
    return found


def _own_line() -> set[int]:
    """Return this process and its ancestors."""
    line: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in line:
        line.add(pid)
        fields = _read(pid, "stat").rpartition(b")")[2].split()
        pid = int(fields[1]) if len(fields) > 1 else 0
    return line


def _root_of(pid: int) -> str | None:
    for variable in _read(pid, "environ").split(b"\0"):
        if variable.startswith(_PREFIX):
            return os.fsdecode(variable.removeprefix(_PREFIX))
    return None


def _command_of(pid: int) -> str:
    return _read(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace").strip()


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:  # gone meanwhile, or another user's
        return b""


def end(processes: list[NodeProcess], *, timeout_s: float = KILL_TIMEOUT_S) -> list[NodeProcess]:
    """End processes, first politely; returns those that are still there."""
    for each in processes:
        _signal(each.pid, signal.SIGTERM)
    left = [each for each in processes if not process.wait_gone(each.pid, timeout_s / 2)]
    for each in left:
        _signal(each.pid, signal.SIGKILL)
    return [each for each in left if not process.wait_gone(each.pid, timeout_s / 2)]


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
