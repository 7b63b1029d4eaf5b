"""The process that runs one job: from its lock file to its end.

It holds its lock file under a temporary name, tells LuxiD that it is ready, and blocks.  With the
job's id it gives the lock file its final name; with the confirmation, and only then, it acts.
When LuxiD goes away before, it removes its lock file and ends, and nothing has happened.

What the dialog does not need is imported once LuxiD has been answered: while there is no job yet,
or while LuxiD makes the start record durable.  So keep the imports of this module few.

Source: ARCHITECTURE, invariants 1 and 2; luxi.json, "job_process".
"""

from __future__ import annotations

import _socket
import contextlib
import gc
import os
from types import ModuleType
from typing import Final

from ganeti.base.errors import LockError, ProtocolError
from ganeti.base.paths import Paths
from ganeti.jobexec.control import Control, ignore_stray_signals
from ganeti.jobexec.hand import Hand, LuxidGoneError
from ganeti.protocol.job_start import WARM_LOCK_PREFIX, Assign, Confirm, Named, Ready
from ganeti.system import clock, environment
from ganeti.system.filelock import LiveLock

_COMM_PATH: Final = "/proc/self/comm"


def main() -> int:
    """Run one job, or none; returns the exit status."""
    ignore_stray_signals()
    paths = environment.current_paths()
    _show_name("gnt-job-warm")
    name = f"{WARM_LOCK_PREFIX}_{os.getpid()}_{clock.now_ns()}"
    with LiveLock.create(f"{paths.livelock_dir}/{name}") as lock:
        try:
            _serve(paths, lock)
        except (LuxidGoneError, ProtocolError):
            return 1
    return 0


def _serve(paths: Paths, lock: LiveLock) -> None:
    with contextlib.closing(_socket.socket(fileno=os.dup(0))) as stream:
        hand = Hand(stream)
        hand.say(Ready(lock.path, os.getpid()))
        if not hand.has_heard():
            _load_the_rest()
        assign = hand.hear()
        assert isinstance(assign, Assign)
        _show_name(f"gnt-job-{assign.job_id}")
        signals = Control(f"{paths.luxid_message_dir}/{assign.job_id}.prio")
        _name_lock(paths, lock, assign.job_id)
        hand.say(Named(lock.path))
        prepared = _load_the_rest().prepare(paths, assign.job_id, lock.path)
        confirm = hand.hear()
        assert isinstance(confirm, Confirm)
        _drop_standard_streams()
        prepared.run(confirm, signals, hand)


def _load_the_rest() -> ModuleType:
    """Import what running a job needs."""
    from ganeti.jobexec import lean

    lean.import_logging()

    from ganeti.jobexec import preparation

    if not gc.isenabled():
        gc.enable()
        gc.freeze()  # the modules stay for good: never look at them again
    return preparation


def _name_lock(paths: Paths, lock: LiveLock, job_id: int) -> None:
    """Give the lock file its final name; a name that is taken gets the next second's."""
    seconds = int(clock.now())
    while True:
        try:
            lock.rename(paths.job_livelock(job_id, seconds))
        except LockError:
            seconds += 1
        else:
            return


def _show_name(name: str) -> None:
    """Let ``ps`` and ``top`` show what this process is; 15 characters are kept."""
    with contextlib.suppress(OSError), open(_COMM_PATH, "w", encoding="ascii") as file:
        file.write(name)


def _drop_standard_streams() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
