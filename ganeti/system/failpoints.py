"""Points of a write at which tests have a process killed, stopped, slowed down or refused its disk.

A virtual node whose processes have `VARIABLE` in their environment looks, at each point, for rules
in the directory ``failpoints`` below its root.  A rule is an empty file, ``POINT,FILE,ACTION``, as
``before_rename,config.data,kill``; numbers of jobs are left out: ``job-``.  Whoever comes by first
removes it and obeys, so that each rule counts once.  A file ``clock`` there holds seconds by which
the node's clock is wrong.

Everywhere else, on any real node above all, these functions do nothing.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
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
    """Send a signal to this thread: one to the process would let it go on for a while."""
    return lambda _path: signal.pthread_kill(threading.get_ident(), number)


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


_ROOT: Final = os.environ.get("GANETI_ROOTDIR", "")
_PLACE: Final = os.path.join(_ROOT, DIRECTORY)


def _obey(point: str, path: str) -> None:
    name = os.path.basename(path).rstrip("0123456789")
    if not os.path.isdir(_PLACE):
        return
    for action, obey in ACTIONS.items():
        try:
            os.unlink(os.path.join(_PLACE, f"{point},{name},{action}"))
        except FileNotFoundError:
            continue
        obey(path)


def _wrong_clock_ns() -> int:
    try:
        with open(os.path.join(_PLACE, CLOCK), encoding="ascii") as file:
            shift_s = int(file.read() or "0")
    except FileNotFoundError:
        shift_s = 0
    return time.time_ns() + shift_s * _NANOSECONDS


_IS_ON: Final = bool(_ROOT) and VARIABLE in os.environ

reached: Final[Callable[[str, str], None]] = _obey if _IS_ON else lambda _point, _path: None
"""Obeys the rules for a point of the write of a file, which may raise OSError."""

wall_clock_ns: Final[Callable[[], int]] = _wrong_clock_ns if _IS_ON else time.time_ns
"""Returns the time in nanoseconds since the epoch."""
