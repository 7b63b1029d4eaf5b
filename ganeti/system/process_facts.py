"""What the system knows of a running process.

Source: proc(5).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_ZOMBIES: Final = (b"Z", b"X")
_STOPPED: Final = b"T"
# Fields of /proc/PID/stat, counted from the one behind the name.
_STATE, _UTIME, _STIME, _THREADS, _STARTED, _RESIDENT = 0, 11, 12, 17, 19, 21


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One process; ``started_s`` is in seconds since the epoch, as exact as the system tells."""

    pid: int
    is_stopped: bool
    cpu_s: float
    started_s: float
    threads: int
    resident_bytes: int


def read(pid: int) -> ProcessFacts | None:
    """Look at a process; None when there is none, or only its body."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if len(fields) <= _RESIDENT or fields[_STATE] in _ZOMBIES:
        return None
    since_boot_s = int(fields[_STARTED]) / _TICKS_PER_SECOND
    return ProcessFacts(
        pid=pid,
        is_stopped=fields[_STATE] == _STOPPED,
        cpu_s=(int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_SECOND,
        started_s=_boot_s() + since_boot_s,
        threads=int(fields[_THREADS]),
        resident_bytes=int(fields[_RESIDENT]) * _PAGE_BYTES,
    )


def open_files(pid: int) -> int | None:
    """Return how many descriptors a process has; None when it is gone or somebody else's."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None


def _boot_s() -> float:
    """Return when the machine booted; it moves with the clock, as it should."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
