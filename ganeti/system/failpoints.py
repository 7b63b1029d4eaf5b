"""Points of a write at which tests have a process killed, stopped, slowed down or refused its disk.

A virtual node whose processes have `VARIABLE` in their environment looks, at each point, for rules
in the directory ``failpoints`` below its root.  A rule is an empty file, ``POINT,FILE,ACTION``, as
``before_rename,config.data,kill``; numbers of jobs are left out: ``job-``.  Whoever comes by first
removes it and obeys, so that each rule counts once.  A file ``clock`` there holds seconds by which
the node's clock is wrong.

Nothing of this is loaded elsewhere, and a real node never is.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

VARIABLE: Final = "GANETI_FAILPOINTS"
DIRECTORY: Final = "failpoints"
CLOCK: Final = "clock"
# In the order in which a write comes by; one that is atomic only passes by those of syncs.
POINTS: Final = ("before_write", "before_fsync", "before_rename", "after_rename", "after_fsync")
DELAY_S: Final = 0.5
_NANOSECONDS: Final = 1_000_000_000


def _signal(number: signal.Signals) -> Callable[[str], None]:
    return lambda _path: os.kill(os.getpid(), number)


def _fail(number: int) -> Callable[[str], NoReturn]:
    def fail(path: str) -> NoReturn:
        raise OSError(number, os.strerror(number), path)

    return fail


ACTIONS: Final[Mapping[str, Callable[[str], None]]] = {
    "kill": _signal(signal.SIGKILL),
    "stop": _signal(signal.SIGSTOP),
    "delay": lambda _path: time.sleep(DELAY_S),
    "enospc": _fail(errno.ENOSPC),
    "eio": _fail(errno.EIO),
}


def directory() -> str:
    """Return the directory of this node's rules; "" on a real node."""
    root = os.environ.get("GANETI_ROOTDIR", "")
    return root and os.path.join(root, DIRECTORY)


def reached(point: str, path: str) -> None:
    """Obey the rules for a point of the write of a file.

    Raises:
        OSError: as a rule wants it.
    """
    place = directory()
    name = os.path.basename(path).rstrip("0123456789")
    if not place or not os.path.isdir(place):
        return
    for action, obey in ACTIONS.items():
        try:
            os.unlink(os.path.join(place, f"{point},{name},{action}"))
        except FileNotFoundError:
            continue
        obey(path)


def wall_clock_ns() -> int:
    """Return the time of this node in nanoseconds since the epoch, as wrong as it is to be."""
    try:
        with open(os.path.join(directory(), CLOCK), encoding="ascii") as file:
            shift_s = int(file.read() or "0")
    except (FileNotFoundError, NotADirectoryError):
        shift_s = 0
    return time.time_ns() + shift_s * _NANOSECONDS
