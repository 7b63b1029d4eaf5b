"""LuxiD and WConfD look after each other: one that hangs is replaced within seconds.

Each touches its pid file again and again, from its event loop, also while it starts and asks for
votes.  The other one counts its own looks at that file, so after a machine stood still as a whole
nobody is taken to hang.  A process that computes, waits for the disk or is traced by a debugger is
left alone.  Where the daemons are units of systemd, its watchdog does this.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from dataclasses import dataclass
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.daemon.context import DaemonContext
from ganeti.system import daemon_control, filelock, process, process_facts, systemd

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.8
LOOKS_MAX: Final = 4  # without a sign of life
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
    if systemd.unit_of(context.paths, partner) is not None:
        return
    patience, pid_file = Patience(), context.paths.pid_file(partner)
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            sight = _look(pid_file)
            if patience.ends(sight):
                assert sight is not None
                patience = Patience()
                await asyncio.to_thread(_replace, context, partner, sight.pid)
        except (GenericError, OSError) as err:
            logger.warning("Cannot look after %s: %s; ignoring", partner, err)


def _look(pid_file: str) -> Sight | None:
    pid = filelock.running_pid(pid_file)
    return None if pid is None else look(pid, os.stat(pid_file).st_mtime_ns)


def look(pid: int, touched_ns: int = 0) -> Sight | None:
    """Look at a process; None if it is gone."""
    facts = process_facts.read(pid)
    return None if facts is None else Sight(pid, touched_ns, facts.cpu_s, facts.state)


def _replace(context: DaemonContext, name: str, pid: int) -> None:
    """Kill a daemon and start it as it was started; who started it in the foreground does that."""
    args = process_facts.arguments(pid)[2:]  # behind the interpreter and the program
    logger.warning("%s (process %d) hangs, it is killed", name, pid)
    os.kill(pid, signal.SIGKILL)
    if not process.wait_gone(pid, _KILL_S):
        raise GenericError(f"process {pid} does not end")
    if _FOREGROUND.isdisjoint(args):
        daemon_control.start_daemon(context.paths, name, args, hostname=context.hostname)
        logger.warning("Started %s again", name)
