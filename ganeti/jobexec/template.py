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
from collections.abc import Callable, Iterator
from typing import Final, NoReturn

import msgspec

from ganeti.base.errors import GenericError, JobLost, LockError, ProtocolError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import Target
from ganeti.clients.wconfd import connection_to
from ganeti.daemon import log
from ganeti.jobexec.control import Control, ignore_stray_signals
from ganeti.jobexec.luxid_link import LuxidGoneError, LuxidLink
from ganeti.jobexec.runner import JobRunner
from ganeti.jobs import changes
from ganeti.jobs.record import QueuedJob, decode_job, encode_job
from ganeti.jobs.submission import make_job
from ganeti.logical_units.context import LOG_MESSAGE
from ganeti.logical_units.processor import all_units, load_units, unit_for
from ganeti.objects.record import Record, decode_private, plain
from ganeti.opcodes.opcode import OpCode
from ganeti.opcodes.registry import all_op_ids, decode_opcode
from ganeti.protocol import job_start
from ganeti.protocol.envelope import decode_response_as, encode_success
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import encode_arguments
from ganeti.protocol.service import call_of
from ganeti.protocol.wconfd import ClientId, WConfCalls
from ganeti.store import ssconf
from ganeti.store.job_files import JobFiles
from ganeti.system import clock, environment, nursery
from ganeti.system.filelock import LiveLock
from ganeti.system.process_facts import show_name
from ganeti.transport.curl_pool import CurlPool, CurlRequest, TlsIdentity
from ganeti.transport.unix_client import UnixClient

logger = logging.getLogger(__name__)

# A job that comes just now waits for so long if the node daemon hangs.
_CALL_S_MAX: Final = 1.0

# A process that is needed at once is needed by then.
_BUSY_S: Final = 0.02
_WARM_UPS: Final = 16  # Python 3.11 and later adapt code after eight runs


def main() -> NoReturn:
    """Be the template until LuxiD closes its end of the control socket, our standard input."""
    status = 1
    try:
        show_name("gnt-job-nursery")
        nursery.ignore_signals()
        paths = environment.current_paths()
        log.set_up("ganeti-job", f"{paths.log_dir}/jobs.log", debug=False, console=False)
        with _take_control() as control:
            deque(load_all(), maxlen=0)  # whoever is forked finds nothing missing
            nursery.report_ready(control)
            _nursery(control, paths).run(itertools.chain(rehearse(paths), _tidy_up()))
        status = 0
    finally:
        os._exit(status)  # taking the interpreter apart is of no use to anybody


def be_one() -> NoReturn:
    """Be one job process by itself: our standard input is the way to LuxiD."""
    status = 1
    try:
        show_name("gnt-job-warm")
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

    return nursery.Nursery(control, live, refuse)


def _take_control() -> socket.socket:
    """Return the socket that LuxiD gave us; standard input and output are nothing from here on."""
    control = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return control


# Steps that are slow the first time.


def rehearse(paths: Paths) -> Iterator[str]:
    """Use everything once that most jobs use; yields each step that is done.

    JSON readers are built when the first object is read, and libcurl and its TLS library make their
    tables for the first connection: together a quarter of the time of a short job.  Forked
    processes inherit all of it.  No connection, thread or key is left behind.
    """
    readers: tuple[Callable[[bytes], object], ...] = (decode_job, job_start.decode_message)
    for read in readers:
        with contextlib.suppress(GenericError):  # which they raise after they got ready
            read(b"{}")
    for kind in (*_descendants(Record), *_descendants(OpCode)):
        with contextlib.suppress(msgspec.ValidationError):  # likewise
            msgspec.convert({}, kind, dec_hook=decode_private)
        yield kind.__name__
    decode_response_as(msgspec.Raw, encode_success(None))
    yield "an answer of WConfD"
    for call in (*WConfCalls.calls.values(), *NodeCalls.calls.values()):
        call.prepare()
        yield call.name
    with contextlib.suppress(GenericError):  # a job that needs the files reports the fault
        _call_own_node(paths)
    yield "a call"
    for _ in range(_WARM_UPS):
        _go_through_a_job()
        yield "a job"


def _go_through_a_job() -> None:
    """Handle the records, messages and lines of a job as its process does, without any effect.

    After some turns Python has replaced instructions by special ones; each process would write to
    the pages that they are in, which are copied then.
    """
    process, luxid = job_start.Dialog("process"), job_start.Dialog("luxid")
    luxid.receive(process.send(job_start.Ready("/lock", 1)))
    process.receive(luxid.send(job_start.Assign(1)))
    luxid.receive(process.send(job_start.Named("/lock")))
    process.receive(luxid.send(job_start.Confirm()))
    now = clock.timestamp()
    queued = make_job(JobId(1), [{"OP_ID": "OP_TEST_DELAY", "duration": 0.0, "reason": []}], now)
    handed_over = changes.handed_over(queued, livelock="/lock", process_id=1, now=now)
    job = decode_job(encode_job(handed_over), 1)
    unit_for(decode_opcode(job.ops[0].input))
    job = changes.with_log_entry(changes.op_running(job, 0, now), 0, LOG_MESSAGE, "text", now)
    job = changes.op_succeeded(decode_job(encode_job(job)), 0, None, now)
    content = encode_job(job).decode()
    luxid.receive(process.send(job_start.Copy(content, 0.0)))
    process.receive(luxid.send(job_start.Copied((), ())))
    for argument in (content, job.status, job.id, ClientId(1, "/lock", 1)):
        plain(argument)
        line = logger.makeRecord(logger.name, logging.INFO, "", 0, "%s", (argument,), None)
        for handler in logging.getLogger().handlers:
            handler.format(line)


def _descendants(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for child in kind.__subclasses__():
        yield child
        yield from _descendants(child)


def _call_own_node(paths: Paths) -> None:
    """Ask this node's daemon for its version; the answer, if any, does not matter."""
    name = ssconf.master_node(paths)
    target = Target(name, ssconf.node_primary_ips(paths).get(name, ""))
    if not target.address:
        return
    identity = TlsIdentity.of_node(paths)
    body = encode_arguments(call_of(NodeCalls.version), [])
    with contextlib.closing(CurlPool(identity)) as pool:
        pool.perform([CurlRequest(target.url("version"), body, _CALL_S_MAX)])


def run(paths: Paths, stream: socket.socket) -> int:
    """Run one job, or none; returns the exit status.

    Args:
        stream: the way to LuxiD.
    """
    ignore_stray_signals()
    show_name("gnt-job-warm")
    name = f"{job_start.WARM_LOCK_PREFIX}_{os.getpid()}_{clock.now_ns()}"
    with LiveLock.create(f"{paths.livelock_dir}/{name}") as lock:
        try:
            _serve(paths, LuxidLink(stream), lock)
        except (LuxidGoneError, ProtocolError):
            return 1
    return 0


def _serve(paths: Paths, link: LuxidLink, lock: LiveLock) -> None:
    link.say(job_start.Ready(lock.path, os.getpid()))
    wconfd = connection_to(paths)
    if not link.is_spoken_to(_BUSY_S):
        _get_ready(wconfd)
    assign = link.hear()
    assert isinstance(assign, job_start.Assign)
    show_name(f"gnt-job-{assign.job_id}")
    signals = Control(f"{paths.luxid_message_dir}/{assign.job_id}.prio")
    _name_lock(paths, lock, assign.job_id)
    link.say(job_start.Named(lock.path))
    log.set_job(assign.job_id)
    confirm = link.hear()
    assert isinstance(confirm, job_start.Confirm)
    job = read_job(paths, assign.job_id)  # as of the start record
    owner = ClientId(assign.job_id, lock.path, os.getpid())
    JobRunner(paths, job, owner, confirm, signals, link, wconfd).run()


def _get_ready(wconfd: UnixClient) -> None:
    """Do ahead of need what a job would wait for.

    The pages that a job writes to are this process's own after that, and WConfD is connected.
    """
    _go_through_a_job()
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
