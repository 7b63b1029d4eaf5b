"""The process that runs one job: from its lock file to its end.

It holds its lock file under a temporary name, tells LuxiD that it is ready, and blocks.  With the
job's id it gives the lock file its final name; with the confirmation, and only then, it acts.
When LuxiD goes away before, it removes its lock file and ends, and nothing has happened.

While LuxiD makes the start record durable, it looks at the job already, and loads what is not
loaded yet.

Source: ARCHITECTURE, invariants 1 and 2; luxi.json, "job_process".
"""

from __future__ import annotations

import os
import socket

from ganeti.base.errors import LockError, ProtocolError
from ganeti.base.paths import Paths
from ganeti.jobexec.control import Control, ignore_stray_signals
from ganeti.jobexec.hand import Hand, LuxidGoneError
from ganeti.jobexec.preparation import prepare
from ganeti.protocol.job_start import WARM_LOCK_PREFIX, Assign, Confirm, Named, Ready
from ganeti.system import clock, title
from ganeti.system.filelock import LiveLock


def run(paths: Paths, stream: socket.socket) -> int:
    """Run one job, or none; returns the exit status.

    Args:
        stream: the way to LuxiD.
    """
    ignore_stray_signals()
    title.show_name("gnt-job-warm")
    name = f"{WARM_LOCK_PREFIX}_{os.getpid()}_{clock.now_ns()}"
    with LiveLock.create(f"{paths.livelock_dir}/{name}") as lock:
        try:
            _serve(paths, Hand(stream), lock)
        except (LuxidGoneError, ProtocolError):
            return 1
    return 0


def _serve(paths: Paths, hand: Hand, lock: LiveLock) -> None:
    hand.say(Ready(lock.path, os.getpid()))
    assign = hand.hear()
    assert isinstance(assign, Assign)
    title.show_name(f"gnt-job-{assign.job_id}")
    signals = Control(f"{paths.luxid_message_dir}/{assign.job_id}.prio")
    _name_lock(paths, lock, assign.job_id)
    hand.say(Named(lock.path))
    prepared = prepare(paths, assign.job_id, lock.path)
    confirm = hand.hear()
    assert isinstance(confirm, Confirm)
    prepared.run(confirm, signals, hand)


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
