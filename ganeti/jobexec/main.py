"""The process that runs one job: from its lock file to its end.

It holds its lock file under a temporary name, tells LuxiD that it is ready, and blocks.  With the
job's id it gives the lock file its final name; with the confirmation, and only then, it acts.
When LuxiD goes away before, it removes its lock file and ends, and nothing has happened.

Source: ARCHITECTURE, invariants 1 and 2; luxi.json, "job_process".
"""

from __future__ import annotations

import os
import socket

from ganeti.base.errors import JobLost, LockError, ProtocolError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.daemon import log
from ganeti.jobexec.control import Control, ignore_stray_signals
from ganeti.jobexec.luxid_link import LuxidGoneError, LuxidLink
from ganeti.jobexec.runner import JobRunner
from ganeti.jobs.record import QueuedJob, decode_job
from ganeti.logical_units.registry import all_units
from ganeti.protocol.job_start import WARM_LOCK_PREFIX, Assign, Confirm, Named, Ready
from ganeti.protocol.wconfd import ClientId
from ganeti.store.job_files import JobFiles
from ganeti.system import clock
from ganeti.system.filelock import LiveLock
from ganeti.system.process_facts import show_name


def run(paths: Paths, stream: socket.socket) -> int:
    """Run one job, or none; returns the exit status.

    Args:
        stream: the way to LuxiD.
    """
    ignore_stray_signals()
    show_name("gnt-job-warm")
    name = f"{WARM_LOCK_PREFIX}_{os.getpid()}_{clock.now_ns()}"
    with LiveLock.create(f"{paths.livelock_dir}/{name}") as lock:
        try:
            _serve(paths, LuxidLink(stream), lock)
        except (LuxidGoneError, ProtocolError):
            return 1
    return 0


def _serve(paths: Paths, link: LuxidLink, lock: LiveLock) -> None:
    link.say(Ready(lock.path, os.getpid()))
    assign = link.hear()
    assert isinstance(assign, Assign)
    show_name(f"gnt-job-{assign.job_id}")
    signals = Control(f"{paths.luxid_message_dir}/{assign.job_id}.prio")
    _name_lock(paths, lock, assign.job_id)
    link.say(Named(lock.path))
    log.set_job(assign.job_id)
    all_units()  # for a job that came before the template had loaded everything
    confirm = link.hear()
    assert isinstance(confirm, Confirm)
    job = read_job(paths, assign.job_id)  # as of the start record
    owner = ClientId(assign.job_id, lock.path, os.getpid())
    JobRunner(paths, job, owner, confirm, signals, link).run()


def read_job(paths: Paths, job_id: int) -> QueuedJob:
    """Return the job as its file has it.

    Raises:
        JobLost: there is no such file.
        JobFileCorrupted: it cannot be understood.
    """
    data = JobFiles(paths).read(JobId(job_id))
    if data is None:
        raise JobLost(f"the file of job {job_id} is gone")
    return decode_job(data, job_id)


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
