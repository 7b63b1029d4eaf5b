"""The job file, once it belongs to the job process: its only writer, replication included.

Running status and log lines are atomic only; the end is durable, on enough candidates first and
then here, so that a reader of the end here reads of something that lasts.  Success waits for
enough candidates as long as it takes; another end is after some tries written here alone, since
where it is not known the job is found dead, which is no better.

A log line is appended to another file, which LuxiD reads as well; whatever writes the job's own
file next takes all lines along.

What a job may write is bounded (`Output`), so that everybody can read its file.

LuxiD keeps connections to all candidates open and lends them.  When it is not there, the job
process calls the candidates itself, by the same rules (`ganeti.copies.node`).

Source: ARCHITECTURE, invariants 4 and 9.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Raw

from ganeti.base.errors import GenericError, OpExecError, encode_error
from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import NodeRpcClient, Target
from ganeti.copies.node import NodeCopies, Trip
from ganeti.copies.quorum import Tally
from ganeti.jobexec.luxid_link import LuxidLink
from ganeti.jobs.record import LARGE_RESULT_BYTES, QueuedJob, encode_job, encode_log_line
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import CompressedText
from ganeti.store import lease, ssconf
from ganeti.store.job_files import FILE_MODE, JOB_BYTES_MAX, JobFiles, running_log
from ganeti.system import clock, environment

# Waits until it is known how many candidates have a version that was sent.
Answer = Callable[[], Tally]


class MasterRoleLostError(Exception):
    """Another node is master: that one decides how the job ended."""


@dataclass(eq=False, slots=True)
class JobCopies:
    """The copies of one job's file.

    Args:
        path: the file.
        lagging: candidates where an older version may still arrive after ours: versions that LuxiD
            sends arrive in order, but ours do not count until a second acknowledgement.
        pause: sleeps, even if the job is canceled meanwhile.
    """

    _paths: Paths
    _path: str
    _link: LuxidLink
    _rpc: NodeRpcClient
    _lagging: Collection[str]
    _pause: Callable[[float], None]
    _nodes: dict[str, NodeCopies] = field(default_factory=dict)
    _data: bytes = b""
    _version: int = 0

    def __call__(self, data: bytes, wait_s: float) -> Answer:
        """Send a version to all candidates; the answer tells how many have it.

        Args:
            wait_s: how long to wait for candidates that come back.

        Raises (by the answer):
            MasterRoleLostError: this node is not the master any more.
            GenericError: nothing can be sent.
        """
        hear = self._link.copy(data.decode(), wait_s)

        def answer() -> Tally:
            copied = hear()
            if copied is not None:
                return self._tally(copied.others, copied.reached)
            self._pause(wait_s)
            return self._send(data)

        return answer

    def spread(self, data: bytes) -> None:
        """Send a version to the candidates that answer, without waiting for one that does not.

        Raises:
            MasterRoleLostError: this node is not the master any more.
        """
        if self._link.tell(data.decode()):
            return
        try:
            self._send(data, hurries=False)
        except GenericError as err:
            logger.warning("progress is not replicated: %s; ignoring", err)

    def _send(self, data: bytes, *, hurries: bool = True) -> Tally:
        """Send the newest version to all candidates that lack it.

        Args:
            hurries: even those that did not answer the last time are tried.
        """
        own_name = environment.own_hostname()
        master = ssconf.master_node(self._paths)
        if master != own_name:
            raise MasterRoleLostError(master)
        offline = ssconf.offline_nodes(self._paths)
        others = [
            Target(node.name, node.ip, offline=node.name in offline)
            for node in ssconf.master_candidates(self._paths)
            if node.name != own_name
        ]
        if data != self._data:
            self._data, self._version = data, self._version + 1
        found = {target: self._begin(target.name, hurries=hurries) for target in others}
        trips = {target: trip for target, trip in found.items() if trip is not None}
        if trips:
            self._call(trips)
        names = [target.name for target in others]
        return self._tally(names, [name for name in names if self._has_it(name)])

    def _tally(self, others: Sequence[str], reached: Sequence[str]) -> Tally:
        return lease.tally(self._paths, environment.own_hostname(), others, reached)

    def _begin(self, name: str, *, hurries: bool) -> Trip | None:
        copies = self._nodes.get(name)
        if copies is None:
            copies = self._nodes[name] = NodeCopies()
            if name in self._lagging:
                copies.in_doubt.add(self._path)
        copies.want(self._path, self._version)
        if copies.is_missing and not hurries:
            return None
        copies.hurry()
        return copies.next_trip(clock.monotonic(), may_send=lambda _: True, files_max=1)

    def _call(self, trips: dict[Target, Trip]) -> None:
        path = self._paths.globalize(self._path)
        content = CompressedText(self._data)
        results = self._rpc.call_all(NodeCalls.jobqueue_update, trips, path, content)
        now_s = clock.monotonic()
        for target, trip in trips.items():
            copies, result = self._nodes[target.name], results[target.name]
            if result.error is None:
                copies.arrived(trip, trip.versions, {}, now_s)
            elif result.address or result.offline:
                copies.lost(trip, result.error, now_s)
            else:
                copies.arrived(trip, {}, {self._path: result.error}, now_s)

    def _has_it(self, name: str) -> bool:
        return self._nodes[name].has_version(self._path, self._version)


logger = logging.getLogger(__name__)

# How long an end without success waits for enough candidates before it is recorded here alone.
_ATTEMPT_DELAYS_S: Final = (0.0, 0.5, 2.0)
# How long success waits from one try to the next; LuxiD ends the wait when there is news.
_RETRY_S_MIN: Final = 0.5
_RETRY_S_MAX: Final = 5.0
SHORTAGES_TOLD_MAX: Final = 20  # a log need not tell of every candidate that comes and goes

# How often the end is tried to be written here: a full disk takes an operator, for an hour.
_WRITE_RETRY_S: Final = 2.0
_WRITE_TRIES_MAX: Final = 1800
# Where the queue itself is gone, it may be mounted again; otherwise nobody waits for this job.
_GONE_TRIES_MAX: Final = 30

# What became of an opcode travels alone while the file is no larger; then it waits for the end.
_SPREAD_BYTES_MAX: Final = 4 << 20

_LOG_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC

# Sends a version to the other candidates, waiting so long for enough of them.
Send = Callable[[bytes, float], Answer]
# Sends a version as well, without waiting.
Spread = Callable[[bytes], None]


_SMALL_BYTES: Final = 1024  # of so many opcodes as a job may have all have room
FILE_BYTES_MAX: Final = JOB_BYTES_MAX - (8 << 20)  # the end must have room, and texts be quoted
LOG_LINES_MAX: Final = 10_000  # of one opcode
LOG_BYTES_MAX: Final = 4 << 20  # of the job
_LINE_LENGTH_MAX: Final = 1 << 16
_LINE_FRAME_BYTES: Final = 64  # number, time and kind of a line, about
_ERROR_BYTES_MAX: Final = 1 << 20
_MIB: Final = 1 << 20

# How an operator gets in pieces what one opcode tells.
_IN_PIECES: Final = {
    "OP_INSTANCE_QUERY_DATA": "'gnt-instance info' with the names of fewer instances",
    "OP_QUERY": "a list with fewer names or fields",
    "OP_CLUSTER_VERIFY_GROUP": "'gnt-cluster verify --node-group=GROUP'",
    "OP_CLUSTER_VERIFY_DISKS": "'gnt-cluster verify-disks --node-group=GROUP'",
    "OP_RESTRICTED_COMMAND": "'gnt-node restricted-command' for fewer nodes",
    "OP_OS_DIAGNOSE": "'gnt-os list'",
}


class Output:
    """What the opcodes of a job tell, within bounds; earlier processes of the job count as well."""

    def __init__(self, job: QueuedJob) -> None:
        kept = (_kept_bytes(message) for op in job.ops for _, _, _, message in op.log)
        self._left_bytes = LOG_BYTES_MAX - sum(kept)
        index = job.current_index
        self._lines = 0 if index is None else len(job.ops[index].log)  # of this opcode
        self._omitted = 0

    def line(self, message: object) -> object | None:
        """Return a message as it is to be logged; None if it is only counted."""
        if isinstance(message, str) and len(message) > _LINE_LENGTH_MAX:
            message = shortened(message, _LINE_LENGTH_MAX)
        size_bytes = _kept_bytes(message)
        if self._omitted or self._lines >= LOG_LINES_MAX or size_bytes > self._left_bytes:
            self._omitted += 1
            return None
        self._lines += 1
        self._left_bytes -= size_bytes
        return message

    def end_opcode(self) -> str:
        """Return what is to be said of messages that were left out; begin to count anew."""
        omitted, self._omitted, self._lines = self._omitted, 0, 0
        if not omitted:
            return ""
        return (
            f"{omitted} more messages are not kept: a job keeps {LOG_LINES_MAX} of each opcode,"
            f" and {LOG_BYTES_MAX // _MIB} MiB in all"
        )


def _kept_bytes(message: object) -> int:
    return len(dumps(message)) + _LINE_FRAME_BYTES


def checked_result(result: object, op_id: str, file_bytes: int) -> object:
    """Return a result as it is to be kept: a large one encoded.

    Args:
        file_bytes: size of the job's file so far.

    Raises:
        OpExecError: there is no room for it; the text says how to get the same.
    """
    data = dumps(result)
    if len(data) > _SMALL_BYTES and file_bytes + len(data) > FILE_BYTES_MAX:
        pieces = _IN_PIECES.get(op_id, "jobs that ask for less each")
        raise OpExecError(
            f"the result of {op_id} has {_mib(len(data))}, and the file of the job has"
            f" {_mib(file_bytes)} already; {_mib(FILE_BYTES_MAX)} are possible: the same is to be"
            f" had in pieces, by {pieces}, each in a job of its own"
        )
    return result if len(data) <= LARGE_RESULT_BYTES else Raw(data)


def checked_error(error: Exception) -> Exception:
    """Return an error, or one with a shorter text if it says too much."""
    if len(dumps(encode_error(error))) <= _ERROR_BYTES_MAX:
        return error
    return OpExecError(shortened(str(error), _LINE_LENGTH_MAX))


def shortened(text: str, length_max: int) -> str:
    """Return the beginning of a long text, and how long it is."""
    return f"{text[:length_max]}... ({len(text)} characters in all)"


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:.1f} MiB"


class _ShortageError(Exception):
    """Too few candidates have the end of a job."""


class JobFile:
    """One job's file; `job` is its present content."""

    def __init__(
        self,
        paths: Paths,
        job: QueuedJob,
        *,
        send: Send,
        spread: Spread,
        sleep: Callable[[float], None],
    ) -> None:
        self.job = job
        self._files = JobFiles(paths)
        self._send_copies = send
        self._spread = spread
        self._sleep = sleep
        self._log_path = running_log(paths, job.id)
        self._log: int | None = None
        self.size_bytes = 0  # when it was written last

    def update(self, job: QueuedJob) -> bool:
        """Write the job's present state; the copies get it with the next durable write.

        So they do if it cannot be written now: a full disk must not keep a job from cleaning up.

        Returns:
            Whether it was written.
        """
        self.job = job
        data = encode_job(job)
        self.size_bytes = len(data)
        try:
            self._files.write_atomic(job.id, data)
        except OSError as err:
            logger.warning("cannot write the file of job %s: %s; ignoring", job.id, err.strerror)
            return False
        return True

    def update_opcode(self, job: QueuedJob) -> None:
        """As `update`, for the end of an opcode, which the next master should know of."""
        self.update(job)
        if self.size_bytes <= _SPREAD_BYTES_MAX:
            self._spread(encode_job(job))

    def update_log(self, job: QueuedJob, index: int) -> None:
        """Write that an opcode has another log entry; a line that cannot be written comes later."""
        self.job = job
        line = encode_log_line((index, job.ops[index].log[-1]))
        try:
            if self._log is None:
                self._log = os.open(self._log_path, _LOG_FLAGS, FILE_MODE)
            os.write(self._log, line)
        except OSError as err:
            logger.warning("cannot write %s: %s; ignoring", self._log_path, err.strerror)

    def finish_well(
        self, end: Callable[[QueuedJob], QueuedJob], on_shortage: Callable[[str], None]
    ) -> None:
        """Write the success of the job: once it is on enough candidates, here.

        Args:
            end: makes the last record from the one before.
            on_shortage: hears why that takes so long, and may `update` the job.

        Raises:
            OSError: it cannot be written here.
        """
        told: set[str] = set()
        wait_s = 0.0
        while shortage := self._finish_if_safe(end(self.job), wait_s):
            if shortage not in told and len(told) < SHORTAGES_TOLD_MAX:
                told.add(shortage)
                on_shortage(shortage)
            wait_s = min(max(2 * wait_s, _RETRY_S_MIN), _RETRY_S_MAX)

    def _finish_if_safe(self, ended: QueuedJob, wait_s: float) -> str:
        """Write the end here if it gets on enough candidates; returns the problem, or "".

        While the copies travel it is written and synced beside its place.
        """
        data = encode_job(ended)
        shortage = self._send(data, wait_s)

        def check(_descriptor: int) -> None:
            if shortage():
                raise _ShortageError

        try:
            self._files.write_durable(ended.id, data, ready=check)
        except _ShortageError:
            return shortage()
        except OSError:
            if shortage():
                return shortage()
            self._write_end(ended, data)
        else:
            self._end_log()
        self.job = ended
        return ""

    def finish(self, job: QueuedJob) -> None:
        """Write the end of the job, here and on as many candidates as can be had by some tries.

        Raises:
            OSError: it cannot be written here; LuxiD will record that the process died.
        """
        data = encode_job(job)
        self._send_by_tries(data)
        self._write_end(job, data)
        self.job = job

    def _write_end(self, job: QueuedJob, data: bytes) -> None:
        for tries in range(_WRITE_TRIES_MAX):
            if tries:
                self._sleep(_WRITE_RETRY_S)
            try:
                self._files.write_durable(job.id, data)
                return self._end_log()
            except OSError as err:
                failure = err
                if tries == 0:
                    logger.warning("cannot write the end of job %s: %s", job.id, err.strerror)
                if isinstance(err, FileNotFoundError) and tries >= _GONE_TRIES_MAX:
                    break
        raise failure

    def _end_log(self) -> None:
        if self._log is not None:
            os.close(self._log)
            self._log = None
            with contextlib.suppress(OSError):
                os.unlink(self._log_path)

    def _send_by_tries(self, data: bytes) -> None:
        for delay_s in _ATTEMPT_DELAYS_S:
            shortage = self._send(data, delay_s)()
            if not shortage:
                return
        logger.warning("%s; it is recorded on the master, ignoring", shortage)

    def _send(self, data: bytes, wait_s: float) -> Callable[[], str]:
        """Send a version; returns what waits for the answer, and tells the problem, or "".

        The problem is that it is not on enough candidates then.
        """
        what = f"the end of job {self.job.id}"
        answer = self._send_copies(data, wait_s)

        def ask() -> str:
            try:
                tally = answer()
            except GenericError as err:
                return f"{what} cannot be replicated: {err}"
            return "" if tally.is_enough else tally.shortage(what)

        said: list[str] = []

        def shortage() -> str:
            if not said:
                said.append(ask())
            return said[0]

        return shortage
