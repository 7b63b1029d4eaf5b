"""The template: the process that job processes are forked from, so that none pays for its imports.

LuxiD execs one; it loads all that jobs need, before the first of them and from files that belong
together, never runs a job itself, and holds neither lock files nor connections.  Every job has a
process of its own, forked for it alone: invariants 1 and 2 of ARCHITECTURE.md know no difference
between a fork and an exec.

A job process (`run`) holds its lock file under a temporary name, tells LuxiD that it is ready, and
blocks.  With the job's id it gives the lock file its final name; with the confirmation, and only
then, it acts.  When LuxiD goes away before, it removes its lock file and ends, and nothing has
happened.

Source: ARCHITECTURE, "The life of a job"; luxi.json, "job_process";
doc/design.md for the departure from one exec per job.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import socket
from collections import deque
from collections.abc import Iterator
from typing import Final, NoReturn

from ganeti.base.errors import GenericError, JobLost, LockError, ProtocolError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.clients.wconfd import connection_to
from ganeti.daemon import log
from ganeti.jobexec.control import STRAY_SIGNALS, Control, ignore_stray_signals
from ganeti.jobexec.luxid_link import LuxidGoneError, LuxidLink
from ganeti.jobexec.rehearsal import play, rehearse
from ganeti.jobexec.runner import JobRunner
from ganeti.jobs.record import QueuedJob, decode_job
from ganeti.logical_units.processor import all_units, load_units
from ganeti.opcodes.registry import all_op_ids
from ganeti.protocol import job_start
from ganeti.protocol.wconfd import ClientId
from ganeti.store.job_files import JobFiles
from ganeti.system import clock, environment, nursery
from ganeti.system.filelock import LiveLock
from ganeti.system.process_facts import show_name
from ganeti.transport.unix_client import UnixClient

logger = logging.getLogger(__name__)

# A process that is needed at once is needed by then; to get ready would only take the processor
# from those at work.
_BUSY_S: Final = 0.1


def main() -> NoReturn:
    """Be the template until LuxiD closes its end of the control socket, our standard input."""
    status = 1
    try:
        show_name("gnt-job-nursery")
        nursery.ignore_signals()
        ignore_stray_signals()  # once, for all job processes
        paths = environment.current_paths()
        log.set_up("ganeti-job", f"{paths.log_dir}/jobs.log", debug=False, console=False)
        with _take_control() as control:
            deque(load_all(), maxlen=0)  # whoever is forked finds nothing missing
            nursery.report_ready(control)
            _nursery(control, paths).run(itertools.chain(rehearse(paths, run), _tidy_up()))
        status = 0
    finally:
        os._exit(status)  # taking the interpreter apart is of no use to anybody


def be_one() -> NoReturn:
    """Be one job process by itself: our standard input is the way to LuxiD."""
    status = 1
    try:
        show_name("gnt-job-warm")
        ignore_stray_signals()
        paths = environment.current_paths()
        log.set_up("ganeti-job", f"{paths.log_dir}/jobs.log", debug=False, console=False)
        with _take_control() as channel:
            deque(load_all(), maxlen=0)
            status = run(paths, channel)
    finally:
        os._exit(status)


def load_all() -> Iterator[str]:
    """Import the modules of all logical units, one after the other; yields each that is done."""
    yield from load_units()
    all_units()
    yield "the table of units"
    all_op_ids()
    yield "the table of opcodes"


def _tidy_up() -> Iterator[str]:
    """Free the garbage of the preparation, before the job processes share the memory."""
    gc.collect()
    yield "tidy"


def _nursery(control: socket.socket, paths: Paths) -> nursery.Nursery:
    def live(channel: socket.socket) -> NoReturn:
        os._exit(run(paths, channel))

    def refuse(_channel: socket.socket, _err: OSError) -> None:
        """LuxiD sees the channel close, and the log says why."""

    return nursery.Nursery(control, live, refuse, ignored=STRAY_SIGNALS)


def _take_control() -> socket.socket:
    """Return the socket that LuxiD gave us; standard input and output are nothing from here on."""
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return control


def run(paths: Paths, stream: socket.socket, wconfd: UnixClient | None = None) -> int:
    """Run one job, or none; returns the exit status.

    Args:
        stream: the way to LuxiD.
        wconfd: the connection to WConfD, if not to the daemon of this node.
    """
    show_name("gnt-job-warm")
    name = f"{job_start.WARM_LOCK_PREFIX}_{os.getpid()}_{clock.now_ns()}"
    with LiveLock.create(f"{paths.livelock_dir}/{name}") as lock:
        try:
            _serve(paths, LuxidLink(stream), lock, wconfd or connection_to(paths))
        except (LuxidGoneError, ProtocolError):
            return 1
    return 0


def _serve(paths: Paths, link: LuxidLink, lock: LiveLock, wconfd: UnixClient) -> None:
    link.say(job_start.Ready(lock.path, os.getpid()))
    if not link.is_spoken_to(_BUSY_S):
        _get_ready(paths, wconfd)
    assign = link.hear()
    assert isinstance(assign, job_start.Assign)
    show_name(f"gnt-job-{assign.job_id}")
    control = Control(f"{paths.luxid_message_dir}/{assign.job_id}.prio")
    _name_lock(paths, lock, assign.job_id)
    link.say(job_start.Named(lock.path))
    log.set_job(assign.job_id)
    confirm = link.hear()
    assert isinstance(confirm, job_start.Confirm)
    job = read_job(paths, assign.job_id)  # as of the start record
    owner = ClientId(assign.job_id, lock.path, os.getpid())
    with contextlib.closing(control):
        JobRunner(paths, job, owner, confirm, control, link, wconfd).run()


def _get_ready(paths: Paths, wconfd: UnixClient) -> None:
    """Do ahead of need what a job would wait for.

    The pages that a job writes to are this process's own after that, and WConfD is connected.
    """
    with contextlib.suppress(GenericError, OSError):  # the job itself says what is amiss
        play(paths, run)
    with contextlib.suppress(GenericError):  # the job waits for it
        wconfd.open()


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
