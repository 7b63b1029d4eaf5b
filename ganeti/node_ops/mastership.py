"""Who is master: what this node has, whom it follows, and how it lets go of the role itself.

Source: ARCHITECTURE, invariant 9.
"""

import contextlib
import logging
from typing import Final

import msgspec

from ganeti.base.errors import GenericError, JobLost, LockError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs.status import FINAL, Status
from ganeti.node_ops.context import NodeContext
from ganeti.protocol.luxi import DrainedBy
from ganeti.protocol.mastership import DrainResult
from ganeti.protocol.node_rpc_values import compress
from ganeti.store import config_file, mastership
from ganeti.store.job_files import JobFiles
from ganeti.store.mastership import Claim
from ganeti.system import clock, daemon_control
from ganeti.system.filelock import FileLock

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.05  # for processes of jobs, which may be anybody's children
_NO_LOG: Final = 1 << 40  # no serial number of a log entry is higher
_WCONFD: Final = "ganeti-wconfd"
_LUXID: Final = "ganeti-luxid"


def master_facts(context: NodeContext) -> object:
    """Return what this node has and believes: NodeFacts."""
    return msgspec.to_builtins(mastership.own_facts(context.paths))


def master_claim(context: NodeContext, known_serial: int, serial_no: int, master_name: str) -> None:
    """Take note of a node that is to become master.

    Raises:
        OpPrereqError: another one came first.
    """
    claim = Claim(serial_no, master_name)
    mastership.take_claim(context.paths, known_serial=known_serial, claim=claim)
    logger.info("Node %s is to become master (serial number %s)", master_name, serial_no)


def master_accept(context: NodeContext, serial_no: int, values: dict[str, str]) -> None:
    """Follow the new master: take over its simple configuration.

    Raises:
        OpPrereqError: this node has promised itself to another one.
    """
    mastership.accept_master(context.paths, serial_no=serial_no, values=values)
    logger.info("The master is %s from now on", values.get("master_node"))


def config_read(context: NodeContext) -> list[object] | None:
    """Return the copy of the configuration on this node, compressed; None without one."""
    if not config_file.has_config(context.paths):
        return None
    return compress(config_file.read_config(context.paths))


# Letting go.


def master_drain(context: NodeContext, timeout_s: float) -> object:
    """Let the master here become idle: no new jobs, and those that it has come to their end.

    When the time is over first, the queue takes jobs again and DrainResult names what is left.
    Where LuxiD is gone, its jobs go on by themselves.  Jobs need WConfD, so that is started if it
    is gone.  Nodes that want to become master at once ask one after the other, so that none opens
    the queue that another one has just closed.

    Raises:
        GenericError: the daemons do not answer, or another node waits for this one to be idle.
    """
    deadline_s = clock.monotonic() + timeout_s
    with _alone(context, timeout_s):
        return msgspec.to_builtins(_drain(context, deadline_s))


def _alone(context: NodeContext, timeout_s: float) -> FileLock:
    lock = FileLock(f"{context.paths.lock_dir}/ganeti-master-drain.lock")
    try:
        lock.acquire(timeout_s=timeout_s)
    except LockError as err:
        raise GenericError(
            f"node {context.hostname} is finishing its jobs for another node that is to become"
            " master"
        ) from err
    return lock


def _drain(context: NodeContext, deadline_s: float) -> DrainResult:
    paths = context.paths
    result = DrainResult(was_drained=_was_drained(paths))
    has_luxid = daemon_control.running_pid(paths, _LUXID) is not None
    if has_luxid or mastership.running_jobs(paths):
        _ensure_wconfd(context)
    if has_luxid:
        result = _drain_queue(context, deadline_s)
    if not result.left:
        left = _wait_for_processes(context, deadline_s)
        result = DrainResult(left=left, was_drained=result.was_drained)
    return result


def _was_drained(paths: Paths) -> bool:
    """Tell whether an operator closed the queue; what an earlier attempt left is none of his."""
    queue = JobFiles(paths)
    return queue.is_drained() and queue.drained_by() is None


def _ensure_wconfd(context: NodeContext) -> None:
    try:
        daemon_control.start_daemon(context.paths, _WCONFD, hostname=context.hostname)
    except GenericError as err:
        logger.warning("The jobs here go on without WConfD: %s; ignoring", err.message)


def _drain_queue(context: NodeContext, deadline_s: float) -> DrainResult:
    """Close the queue and wait until every job in it has ended.

    Jobs that have not begun by the end of the time are no hindrance: the next master runs them.
    """
    with LuxiClient(context.paths, connect_timeout_s=_CONNECT_TIMEOUT_S) as client:
        was_drained = _was_drained(context.paths)
        if not was_drained:
            client.set_drain_flag(True, DrainedBy.FAILOVER)
        unfinished = _unfinished(client)
        while unfinished and clock.monotonic() < deadline_s:
            job_id, status = next(iter(unfinished.items()))
            with contextlib.suppress(JobLost):  # archived meanwhile
                left_s = max(0.0, deadline_s - clock.monotonic())
                client.wait_for_job_change(job_id, ["status"], [status], _NO_LOG, left_s)
            unfinished = _unfinished(client)
        left = tuple(job_id for job_id, status in unfinished.items() if status != Status.QUEUED)
        if left and not was_drained:
            client.set_drain_flag(False)
    return DrainResult(left=left, was_drained=was_drained)


def _unfinished(client: LuxiClient) -> dict[JobId, object]:
    """Return the jobs that have not ended, with their statuses."""
    rows = client.query_jobs(None, ["id", "status"])
    return {JobId(int(str(job_id))): status for job_id, status in rows if status not in FINAL}


def _wait_for_processes(context: NodeContext, deadline_s: float) -> tuple[int, ...]:
    """Wait until no job process lives here; returns the jobs of those that still do."""
    left = mastership.running_jobs(context.paths)
    while left and clock.monotonic() < deadline_s:
        clock.pause(_LOOK_AGAIN_S)
        left = mastership.running_jobs(context.paths)
    return left
