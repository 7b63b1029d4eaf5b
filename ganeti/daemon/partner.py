"""LuxiD and WConfD look after each other: one that hangs is replaced within seconds.

Each touches its pid file again and again, from its event loop, also while it starts and asks for
votes.  The other one counts its own looks at that file, so after a machine stood still as a whole
nobody is taken to hang.  A process that computes, waits for the disk or is traced by a debugger is
left alone.  The node daemon replaces one whose partner cannot: it hangs as well, or does not run.

A daemon that was started by its unit is only killed: systemd starts it again.  The watchdog of the
unit is left for a machine on which nobody of these looks any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.daemon.context import DaemonContext
from ganeti.system import daemon_control, filelock, process, process_facts

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.6
LOOKS_MAX: Final = 4  # without a sign of life; with one more before them, and a start, below 5 s
_KILL_S: Final = 5.0
_PATIENT_STATES: Final = frozenset("RDt")  # running, waiting for the disk, traced: proc(5)
_FOREGROUND: Final = frozenset({"-f", "--foreground"})


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at a daemon: its process, when it last touched its file, what it has worked."""

    pid: int
    touched_ns: int
    cpu_s: float
    state: str


@dataclass(slots=True)
class Patience:
    """Counts looks at a daemon without any sign of life."""

    _last: Sight | None = None
    _looks: int = 0

    def ends(self, sight: Sight | None) -> bool:
        """Take note of a look; tell whether the daemon hangs.

        Args:
            sight: None if it does not run.
        """
        is_silent = sight is not None and sight == self._last and sight.state not in _PATIENT_STATES
        self._looks = self._looks + 1 if is_silent else 0
        self._last = sight
        return self._looks >= LOOKS_MAX


async def give_signs_of_life(context: DaemonContext, own: str) -> None:
    """Touch the daemon's own pid file for ever; to be begun as the first thing."""
    path = context.paths.pid_file(own)
    while True:
        try:
            os.utime(path)
        except OSError as err:
            logger.warning("Cannot touch %s: %s; ignoring", path, err)
        await asyncio.sleep(LOOK_S)


async def look_after(context: DaemonContext, partner: str) -> None:
    """Replace the partner, for ever, when it gives no sign of life."""
    patience = Patience()
    while True:
        await asyncio.sleep(LOOK_S)
        with _ignored(partner):
            sight = _look(context, partner)
            if patience.ends(sight):
                patience = Patience()
                await _replace(context, partner, sight)


async def look_after_pair(context: DaemonContext, names: Sequence[str]) -> None:
    """Replace partners, for ever, that give no sign of life and have nobody to replace them."""
    patience = {name: Patience() for name in names}
    while True:
        await asyncio.sleep(LOOK_S)
        with _ignored(" and ".join(names)):
            sights = {name: _look(context, name) for name in names}
            hung = {name for name, sight in sights.items() if patience[name].ends(sight)}
            if hung and all(name in hung or sights[name] is None for name in names):
                patience = {name: Patience() for name in names}
                await asyncio.gather(*(_replace(context, name, sights[name]) for name in hung))


@contextlib.contextmanager
def _ignored(whom: str) -> Iterator[None]:
    try:
        yield
    except (GenericError, OSError) as err:
        logger.warning("Cannot look after %s: %s; ignoring", whom, err)


def _look(context: DaemonContext, name: str) -> Sight | None:
    pid_file = context.paths.pid_file(name)
    pid = filelock.running_pid(pid_file)
    return None if pid is None else look(pid, os.stat(pid_file).st_mtime_ns)


def look(pid: int, touched_ns: int = 0) -> Sight | None:
    """Look at a process; None if it is gone."""
    facts = process_facts.read(pid)
    return None if facts is None else Sight(pid, touched_ns, facts.cpu_s, facts.state)


async def _replace(context: DaemonContext, name: str, sight: Sight | None) -> None:
    assert sight is not None, "one that does not run does not hang"
    await asyncio.to_thread(_kill_and_start, context, name, sight.pid)


def _kill_and_start(context: DaemonContext, name: str, pid: int) -> None:
    """Kill a daemon and start it as it was started; who started it in the foreground does that."""
    args = process_facts.arguments(pid)[2:]  # behind the interpreter and the program
    logger.warning("%s (process %d) hangs, it is killed", name, pid)
    os.kill(pid, signal.SIGKILL)
    if not process.wait_gone(pid, _KILL_S):
        raise GenericError(f"process {pid} does not end")
    if _FOREGROUND.isdisjoint(args):
        daemon_control.start_daemon(context.paths, name, args, hostname=context.hostname)
        logger.warning("Started %s again", name)
