"""The programs of LXC, for the containers of one node.

All containers of a node lie in one directory, which every program is told; so virtual nodes do
not see each other's.

Source: lxc-start(1), lxc-info(1), lxc-stop(1), lxc-cgroup(1), lxc-console(1).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ganeti.base.errors import HypervisorError, failing_as
from ganeti.system import process

_TIMEOUT_S: Final = 30.0
_STOP_MARGIN_S: Final = 60.0
PROGRAMS: Final = (
    *("lxc-start", "lxc-stop", "lxc-info", "lxc-console", "lxc-cgroup"),
    *("lxc-freeze", "mount", "umount"),
)


class State(StrEnum):
    """The states that LXC tells of; others are on the way to one of these."""

    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    FROZEN = "FROZEN"


@dataclass(frozen=True, slots=True)
class Found:
    """One container: its state, and its first process while it runs."""

    state: str
    pid: int | None

    @property
    def runs(self) -> bool:
        """Whether it has processes, be it that they stand still."""
        return self.state != State.STOPPED


def parse_info(text: str) -> Found:
    """Read the output of ``lxc-info -s -p``."""
    fields = dict(re.findall(r"^(\w+):\s*(\S+)$", text, re.MULTILINE))
    pid = fields.get("PID", "")
    return Found(fields.get("State", State.STOPPED), int(pid) if pid.isdigit() else None)


class Lxc:
    """The programs, for one directory of containers."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def argv(self, program: str, name: str, *words: str) -> list[str]:
        """Return a command about a container."""
        return [program, "-P", self._directory, "-n", name, *words]

    def _run(
        self, program: str, name: str, *words: str, timeout_s: float = _TIMEOUT_S
    ) -> process.CommandResult:
        return process.run(self.argv(program, name, *words), timeout_s=timeout_s)

    def info(self, name: str) -> Found:
        """Look at a container; one that was never made is stopped.

        Raises:
            HypervisorError: LXC does not answer, so it may run.
        """
        done = self._run("lxc-info", name, "-s", "-p")
        if done.timed_out or done.status < 0:
            how = process.describe_end(done)
            raise HypervisorError(f"instance {name!r} may run or not: lxc-info {how}")
        return parse_info(done.stdout.decode("utf-8", "replace") if done.status == 0 else "")

    def start(self, name: str, log: str, timeout_s: float) -> None:
        """Start a container; returns when it runs.

        Raises:
            CommandError: it does not.
        """
        words = ("-d", "-o", log, "-l", "INFO")
        self._run("lxc-start", name, *words, timeout_s=timeout_s).check()

    def freeze(self, name: str) -> None:
        """Let a container stand still."""
        with failing_as(HypervisorError, f"instance {name!r} cannot be paused"):
            self._run("lxc-freeze", name).check()

    def kill(self, name: str) -> None:
        """End all processes of a container; one that does not run is left alone."""
        self._run("lxc-stop", name, "-k")

    def shut_down(self, name: str, timeout_s: float) -> None:
        """Ask a container to shut down, and end it when it has not in time."""
        seconds = max(1, round(timeout_s))
        limit_s = seconds + _STOP_MARGIN_S
        self._run("lxc-stop", name, "-t", str(seconds), timeout_s=limit_s)

    def reboot(self, name: str, timeout_s: float) -> bool:
        """Ask a container to reboot; returns whether it has."""
        seconds = max(1, round(timeout_s))
        limit_s = seconds + _STOP_MARGIN_S
        words = ("-r", "-t", str(seconds))
        done = self._run("lxc-stop", name, *words, timeout_s=limit_s)
        return done.status == 0 and self.info(name).state == State.RUNNING

    def set(self, name: str, settings: Sequence[tuple[str, str]]) -> bool:
        """Change settings of a running container's groups in turn; returns whether all took."""
        return all(self._run("lxc-cgroup", name, *each).status == 0 for each in settings)
