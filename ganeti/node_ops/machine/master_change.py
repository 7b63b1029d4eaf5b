"""Who is master: what this node has, whom it follows, and how it lets go of the role itself.

Source: ARCHITECTURE, invariant 9.
"""

import contextlib
import logging
from collections.abc import Mapping
from typing import Final

from ganeti.base.errors import GenericError, JobLost, LockError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.clients.luxi import LuxiClient
from ganeti.jobs.status import FINAL, Status
from ganeti.node_ops.context import NodeContext, NodeHandler
from ganeti.protocol.luxi import DrainedBy
from ganeti.protocol.node_rpc_values import CompressedText, DrainResult, NodeFacts
from ganeti.store import config_file
from ganeti.store.job_files import JobFiles
from ganeti.store.master_facts import Claim, accept_master, own_facts, running_jobs, take_claim
from ganeti.system import clock, daemon_control
from ganeti.system.filelock import FileLock

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.05  # for processes of jobs, which may be anybody's children
_NO_LOG: Final = 1 << 40  # no serial number of a log entry is higher
_WCONFD: Final = "ganeti-wconfd"
_LUXID: Final = "ganeti-luxid"


class MasterChange(NodeHandler):
    """The change of the master."""

    def master_facts(self) -> NodeFacts:
        return own_facts(self.paths)

    def master_claim(self, known_serial: int, serial_no: int, master_name: str) -> None:
        claim = Claim(serial_no, master_name)
        take_claim(self.paths, known_serial=known_serial, claim=claim)
        logger.info("Node %s is to become master (serial number %s)", master_name, serial_no)

    def master_accept(self, serial_no: int, values: Mapping[str, str]) -> None:
        accept_master(self.paths, serial_no=serial_no, values=dict(values))
        logger.info("The master is %s from now on", values.get("master_node"))

    def config_read(self) -> CompressedText | None:
        if not config_file.has_config(self.paths):
            return None
        return CompressedText(config_file.read_config(self.paths))

    def master_drain(self, timeout_s: float) -> DrainResult:
        deadline_s = clock.monotonic() + timeout_s
        with _alone(self.context, timeout_s):
            return _drain(self.context, deadline_s)


# Letting go.


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
    if has_luxid or running_jobs(paths):
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
    left = running_jobs(context.paths)
    while left and clock.monotonic() < deadline_s:
        clock.pause(_LOOK_AGAIN_S)
        left = running_jobs(context.paths)
    return left
