"""Steps that are slow the first time, done before there is a job.

JSON readers are built when the first object is read, libcurl and its TLS library make their tables
for the first connection, and Python replaces instructions by special ones, and notes where methods
are found, after some turns.  A job would pay for all of it, and its process would write to pages
that it shares until then, each of which is copied.  So the template takes these steps, and even
*plays* a job that does nothing from beginning to end: its process, WConfD and LuxiD are real code,
only the files lie in a directory of their own, and the answers are there before they are asked for.
"""

from __future__ import annotations

import _socket
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from ganeti.base.errors import GenericError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import NodeRpcClient, Target
from ganeti.daemon import log
from ganeti.jobs import changes
from ganeti.jobs.record import QueuedJob, decode_job, encode_job
from ganeti.jobs.submission import make_job
from ganeti.objects.record import Record, decode_private
from ganeti.opcodes.opcode import OpCode
from ganeti.protocol import job_start
from ganeti.protocol.envelope import ETX, encode_success
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import NodeCall
from ganeti.protocol.wconfd import WConfCalls
from ganeti.store import ssconf
from ganeti.store.job_files import JobFiles
from ganeti.system import clock, process_facts
from ganeti.system.files import ensure_directory, remove_tree
from ganeti.transport.curl_pool import CurlRequest
from ganeti.transport.unix_client import UnixClient

logger = logging.getLogger(__name__)

# A job that comes just now waits for so long if the node daemon hangs.
_CALL_S_MAX: Final = 1.0
_PLAY_S_MAX: Final = 1.0  # milliseconds, unless the disk hangs or has just become full
_PLAYS: Final = 16  # Python 3.11 and later adapt code after eight runs

_JOB: Final = JobId(0)  # jobs of the queue begin with 1
_NOTHING: Final = {"OP_ID": "OP_TEST_DELAY", "duration": 0.0, "reason": []}
_DIRECTORIES: Final = ("queue_dir", "livelock_dir", "luxid_message_dir", "log_dir")
_GRANTED: Final = encode_success(["granted", []])  # where locks are given up, nobody reads it
_READ_BYTES: Final = 65536
_SIGNALS: Final = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)  # `Control` has these

Run = Callable[[Paths, socket.socket, UnixClient], int]
"""A job process: its paths, its way to LuxiD, its connection to WConfD; returns its status."""


def rehearse(paths: Paths, run: Run) -> Iterator[str]:
    """Use everything once that most jobs use; yields each step that is done.

    No connection, thread, key or file is left behind.
    """
    readers: tuple[Callable[[bytes], object], ...] = (decode_job, job_start.decode_message)
    for read in readers:
        with contextlib.suppress(GenericError):  # which they raise after they got ready
            read(b"{}")
    for kind in (*_descendants(Record), *_descendants(OpCode)):
        with contextlib.suppress(msgspec.ValidationError):  # likewise
            msgspec.convert({}, kind, dec_hook=decode_private)
        yield kind.__name__
    for call in (*WConfCalls.calls.values(), *NodeCalls.calls.values()):
        call.prepare()
        yield call.name
    with contextlib.suppress(GenericError), _Calls(paths) as calls:  # a job reports the fault
        for _ in range(_PLAYS):
            if not calls.ask_own_node():
                break
            yield "a call"
    try:
        for _ in range(_PLAYS):
            play(paths, run)
            yield "a job"
    except (GenericError, OSError) as err:
        logger.warning("cannot rehearse a job: %s; the first ones are slower", err)


def _descendants(kind: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    for child in kind.__subclasses__():
        yield child
        yield from _descendants(child)


class _Calls(NodeRpcClient):
    """Calls of the node daemon of this node that give up soon."""

    def ask_own_node(self) -> bool:
        """Ask for its version; returns whether it answered, whatever it said."""
        name = ssconf.master_node(self._paths)
        target = Target(name, ssconf.node_primary_ips(self._paths).get(name, ""))
        return bool(target.address) and self.call_one(NodeCalls.version, target).error is None

    def _request(self, call: NodeCall, target: Target, args: Sequence[object]) -> CurlRequest:
        made = super()._request(call, target, args)
        return msgspec.structs.replace(made, timeout_s=_CALL_S_MAX)


def play(paths: Paths, run: Run) -> QueuedJob:
    """Run a job that does nothing, beside the queue; returns it as it ended.

    Raises:
        GenericError, OSError: its files cannot be written.
    """
    root = f"{paths.luxid_message_dir}/{job_start.REHEARSAL_PREFIX}{os.getpid()}"
    stage = Paths(root)
    try:
        for name in _DIRECTORIES:
            ensure_directory(getattr(stage, name))
        JobFiles(stage).write_atomic(_JOB, encode_job(_started_job(stage)))
        with log.diverted(f"{stage.log_dir}/jobs.log"), _as_before(), _within(_PLAY_S_MAX):
            ours, theirs = socket.socketpair()
            with ours, theirs, contextlib.closing(_PlayedWConfD()) as wconfd:
                ours.sendall(_said_by_luxid())
                run(stage, theirs, wconfd)
        return decode_job(JobFiles(stage).read(_JOB) or b"", _JOB)
    finally:
        remove_tree(root)


def _started_job(stage: Paths) -> QueuedJob:
    now = clock.timestamp()
    lock = stage.job_livelock(_JOB, now[0])
    queued = make_job(_JOB, [_NOTHING], now)
    return changes.handed_over(queued, livelock=lock, process_id=os.getpid(), now=now)


def _said_by_luxid() -> bytes:
    """Return all that LuxiD says to the process of a job, whatever that answers."""
    process, luxid = job_start.Dialog("process"), job_start.Dialog("luxid")
    luxid.receive(process.send(job_start.Ready("/lock", 1)))
    assign = luxid.send(job_start.Assign(_JOB))
    process.receive(assign)
    luxid.receive(process.send(job_start.Named("/lock")))
    confirm = luxid.send(job_start.Confirm())
    process.receive(confirm)
    luxid.receive(process.send(job_start.Copy("", 0.0)))
    copied = luxid.send(job_start.Copied((), ()))
    return b"".join(message + ETX for message in (assign, confirm, copied))


class _PlayedWConfD(UnixClient):
    """A connection on which each request is answered before it is sent: locks are granted."""

    def __init__(self) -> None:
        super().__init__("")
        self._other: _socket.socket | None = None
        self.open()

    def close(self) -> None:
        super().close()
        if self._other is not None:
            self._other.close()

    def open(self) -> None:
        if self._socket is None:
            self._socket, self._other = _socket.socketpair()

    def _exchange(self, sock: _socket.socket, request: bytes, deadline: float) -> bytes:
        assert self._other is not None
        self._other.sendall(_GRANTED + ETX)
        answer = super()._exchange(sock, request, deadline)
        self._other.recv(_READ_BYTES)
        return answer


class _TooLongError(BaseException):
    """Not an Exception: a job process takes these for failures of its job, and goes on."""


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    """End the block after some time: a job process tries for an hour to write the end of its job.

    Raises:
        TimeoutError: it took longer.
    """

    def give_up(_number: int, _frame: object) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _TooLongError as err:
        raise TimeoutError(f"it took longer than {seconds:g} s") from err
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
    """Undo what being a job process changes: name, signals, the job's id in the log.

    A signal that comes meanwhile is not for the played job: it waits until the end.
    """
    name = process_facts.name_of(os.getpid())
    with process_facts.signals_wait(_SIGNALS):
        handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        try:
            with log.job_context(None):
                yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            process_facts.show_name(name)
