"""The programs of DRBD: their commands, and their failures without the secrets in them.

Source: drbdsetup(8), drbdmeta(8) of DRBD 8.4.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ganeti.base.errors import BlockDeviceError, GenericError
from ganeti.storage.drbd import show
from ganeti.storage.drbd.show import Resource
from ganeti.storage.drbd.status import NOT_LOADED, PROC_DRBD, Status, look, of_this_node
from ganeti.system import clock, process
from ganeti.system.process import CommandResult

_TIMEOUT_S: Final = 60.0  # the driver gives up on a dead peer before
_RELEASE: Final = (8, 4)
_HIDDEN: Final = "--shared-secret="


def run(
    argv: Sequence[str], *, timeout_s: float = _TIMEOUT_S, may_end: frozenset[int] = frozenset({0})
) -> bytes:
    """Run a program of DRBD and return what it printed.

    Args:
        may_end: the exit statuses that are no failures.

    Raises:
        BlockDeviceError: it failed; the text has its last words, and no secret.
    """
    env = {**os.environ, "LC_ALL": "C"}
    try:
        result = process.run(argv, timeout_s=timeout_s, env=env)
    except GenericError as err:
        raise BlockDeviceError(err.message) from err
    if result.status not in may_end or result.timed_out or result.truncated:
        shown = " ".join(_HIDDEN + "***" if each.startswith(_HIDDEN) else each for each in argv)
        last = (result.stderr or result.stdout).decode("utf-8", "replace").strip().splitlines()[-4:]
        said = " ".join(" ".join(last).split())
        end = process.describe_end(result)
        raise BlockDeviceError(f"{shown!r} {end}: {said}" if said else f"{shown!r} {end}")
    return result.stdout


def is_loaded() -> bool:
    """Tell whether this node has DRBD at all."""
    return os.path.exists(of_this_node(PROC_DRBD))


def status() -> Status:
    """Return the state of all devices of this node.

    Raises:
        BlockDeviceError: DRBD is not loaded.
    """
    found = look(run, of_this_node(PROC_DRBD))
    if found is None:
        raise BlockDeviceError(NOT_LOADED)
    return found


def resources() -> list[Resource]:
    """Return all configured resources of this node."""
    return show.parse(run(show.COMMAND).decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class View:
    """All DRBD devices of this node at one moment."""

    status: Status
    resources: Sequence[Resource]

    @property
    def can_change(self) -> bool:
        """Whether the driver's version takes our commands."""
        return self.status.release == _RELEASE


def view() -> View:
    """Look at all devices of this node.

    Raises:
        BlockDeviceError: DRBD is not loaded, or cannot be asked.
    """
    try:
        found = status()
        known = resources() if found.release == _RELEASE else []
    except BlockDeviceError:
        raise
    except GenericError as err:
        raise BlockDeviceError(err.message) from err
    return View(found, known)


# The driver tells in its log why it gave a connection up for good.

_HANDSHAKE: Final = re.compile(
    r"block drbd(?P<minor>\d+): (?P<side>self|peer) (?P<ids>[0-9A-F:]+) "
)
_SPLIT: Final = re.compile(r"block drbd(?P<minor>\d+): Split-Brain detected but unresolved")
_DENIED: Final = re.compile(r"drbd resource(?P<minor>\d+): Authentication of peer failed")
_LOST: Final = re.compile(
    r"\[ *(?P<after_s>\d+\.\d+)\] (block drbd|drbd resource)(?P<minor>\d+): "
    r"peer\( (Primary|Secondary) -> Unknown \)"
)
_GENERATIONS: Final = 4  # now, of the copy that was left behind, and two earlier ones
_LOG_TIMEOUT_S: Final = 10.0


class RunCommand(Protocol):
    """Runs a command to its end: `ganeti.system.process.run`, or a part of it."""

    def __call__(self, argv: Sequence[str], *, timeout_s: float) -> CommandResult:
        """Return its result; raises CommandError if it cannot be started."""


_SPLIT_TEXT: Final = (
    "split brain: the data here is of generation {self}, on the other node of {peer}; each has"
    " changes that the other lacks, and none is thrown away by itself.  'gnt-instance replace-disks"
    " -s INSTANCE' keeps the data of the primary node; to keep that of the secondary, fail the"
    " instance over first"
)
_DENIED_TEXT: Final = (
    "the other node has another secret, so what answers there is not the copy of this disk;"
    " see 'gnt-node list-drbd' for both nodes"
)


def kernel_log(run_command: RunCommand | None = None) -> str:
    """Return the log of the kernel; "" where it cannot be read."""
    try:
        result = (run_command or process.run)(("dmesg",), timeout_s=_LOG_TIMEOUT_S)
    except GenericError:
        return ""
    return result.stdout.decode("utf-8", "replace")


def generations(minor: int) -> list[str]:
    """Return the identifiers of the data of a device, the newest first; none where it has none."""
    try:
        said = run(("drbdsetup", "get-gi", str(minor))).decode("utf-8", "replace")
    except BlockDeviceError:  # it was detached a moment ago
        return []
    return said.strip().rpartition("\n")[2].split(":")[:_GENERATIONS]


def last_seen(log: str, since_boot_s: float) -> dict[int, float]:
    """Return when minors lost their copies, in seconds since 1970, as far as the log knows."""
    found: dict[int, float] = {}
    boot_s = clock.now() - since_boot_s
    for line in log.splitlines():
        if (match := _LOST.match(line)) is not None:
            found[int(match["minor"])] = boot_s + float(match["after_s"])
    return found


def partings(log: str) -> dict[int, str]:
    """Return why minors were parted from their copies for good, when they met the last time."""
    ids: dict[int, dict[str, str]] = {}
    found: dict[int, str] = {}
    for line in log.splitlines():
        if match := _HANDSHAKE.search(line):
            minor = int(match["minor"])
            ids.setdefault(minor, {})[match["side"]] = match["ids"]
            found.pop(minor, None)  # they met again
        elif match := _SPLIT.search(line):
            minor = int(match["minor"])
            sides = {"self": "unknown", "peer": "unknown", **ids.get(minor, {})}
            found[minor] = _SPLIT_TEXT.format_map(sides)
        elif match := _DENIED.search(line):
            found[int(match["minor"])] = _DENIED_TEXT
    return found
