"""Runs the opcodes of a job, one after the other, and records their status and results.

Between two opcodes the locks are given up and waited for anew, at the priority of the next one, so
that more urgent jobs get in.  Success is written only when the job's changes of the
configuration are on enough candidates.

Source: config.json, "queue"; ARCHITECTURE, invariant 4.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import structs

from ganeti.base.errors import GenericError, JobCanceled, OpExecError
from ganeti.base.paths import Paths
from ganeti.clients.luxi import LuxiClient
from ganeti.clients.node_rpc import NodeRpcClient
from ganeti.clients.wconfd import WConfClient
from ganeti.jobexec.control import CANCELED_TEXT, Control
from ganeti.jobexec.job_file import (
    SHORTAGES_TOLD_MAX,
    JobCopies,
    JobFile,
    MasterRoleLostError,
    Output,
    checked_error,
    checked_result,
)
from ganeti.jobexec.luxid_link import LuxidLink
from ganeti.jobs import changes
from ganeti.jobs.record import QueuedJob
from ganeti.jobs.status import Status
from ganeti.logical_units.context import LOG_MESSAGE, JobContext
from ganeti.logical_units.locks import StepBackError
from ganeti.logical_units.processor import execute_opcode
from ganeti.opcodes.registry import decode_opcode
from ganeti.protocol.job_start import Confirm
from ganeti.protocol.wconfd import PRIORITY_BEYOND_LIMIT, ClientId
from ganeti.system import files
from ganeti.system.clock import timestamp
from ganeti.transport.unix_client import UnixClient

if TYPE_CHECKING:
    from ganeti.opcodes.opcode import OpCode

logger = logging.getLogger(__name__)

# WConfD calls the candidates at once at each try, and names the missing ones after a while.
FLUSH_RETRY_S_MIN: Final = 0.5
FLUSH_RETRY_S_MAX: Final = 5.0

# Locks go with the process anyway; a WConfD that is busy with its disk takes less.
GIVE_BACK_S_MAX: Final = 1.0


def as_child(op: OpCode, parent: OpCode) -> OpCode:
    """Return an opcode of a job that another opcode submits: as urgent, and for the same reason.

    What it has itself stays.
    """
    return structs.replace(
        op, priority=op.priority or parent.priority, reason=op.reason or parent.reason
    )


class JobRunner:
    """One run of one job."""

    def __init__(
        self,
        paths: Paths,
        job: QueuedJob,
        owner: ClientId,
        confirm: Confirm,
        control: Control,
        link: LuxidLink,
        wconfd: UnixClient,
    ) -> None:
        self._paths = paths
        self._owner = owner
        self._secrets = confirm.secrets
        self._index = 0
        self._result: object = None
        self._opcode: OpCode | None = None  # that runs
        self._output = Output(job)
        self._control = control
        control.on_priority = self._change_priority
        control.may_step_back = self._waits
        self._turns = confirm.turns
        self._wconfd = wconfd
        self._rpc = NodeRpcClient(paths, job.id)
        copies = JobCopies(
            paths, paths.job_file(job.id), link, self._rpc, confirm.lagging, control.pause
        )
        self._file = JobFile(
            paths,
            job,
            send=copies,
            spread=copies.spread,
            sleep=control.pause,  # a job that ends is beyond canceling
        )
        self._is_mending = job.mends
        # Opcodes of an earlier process of this job may have changed the configuration.
        self._went_on = any(op.is_final for op in job.ops)
        self._context = self._make_context()

    @property
    def job(self) -> QueuedJob:
        """The job as its file has it."""
        return self._file.job

    def run(self) -> None:
        """Run every opcode that is not final; ends with a final status on disk.

        Only when another node became master meanwhile, the end is left to that one; and a job that
        steps back ends as one that is queued.
        """
        logger.info("Job starts: %s", ", ".join(op.op_id for op in self.job.ops))
        try:
            while not self._run_to_end():
                logger.info("The job goes on here: it could not be put back into the queue")
        except MasterRoleLostError as err:
            logger.warning("Job stays without an end here: the master is %s now", err)
        finally:
            if self.job.livelock:  # else the next process of the job has this path
                files.remove_if_exists(self._control.priority_path)
        logger.info("Job ended: %s", self.job.status)

    def _run_to_end(self) -> bool:
        """Run the opcodes; returns false if the job is to try again in this process."""
        try:
            for index in range(self.job.current_index or 0, len(self.job.ops)):
                self._index = index
                self._run_one()
            self._flush_configuration()
            self._finish_well()
        except MasterRoleLostError:
            raise
        except StepBackError:
            return self._step_back()
        except JobCanceled as err:
            self._finish_canceled(err.message)
        except Exception as err:  # noqa: BLE001 - any error ends the job, and is its result
            self._log_failure(err)
            error = checked_error(err)
            self._file.finish(changes.op_failed(self.job, self._index, error, timestamp()))
        return True

    def _finish_canceled(self, text: str) -> None:
        self._file.finish(changes.canceled(self.job, text or CANCELED_TEXT, timestamp()))

    def _step_back(self) -> bool:
        """Leave the job in the queue, for another process; nothing is written after that.

        Returns:
            Whether that could be written; else the job is still this process's.
        """
        if self._control.is_canceled:
            self._finish_canceled(CANCELED_TEXT)
            return True
        before = self.job
        files.remove_if_exists(self._control.priority_path)
        # By this entry the record is known as the newer one, wherever both are found.
        text = " - INFO: waits in the queue again, so that others have room"
        told = changes.with_log_entry(before, self._index, LOG_MESSAGE, text, timestamp())
        if self._file.update(changes.stepped_back(told)):
            return True
        self._file.job = before
        return False

    # One opcode.

    def _run_one(self) -> None:
        self._control.check_canceled()
        self._control.take_priority()
        if self.job.ops[self._index].status is Status.QUEUED:
            self._file.update(changes.op_waiting(self.job, self._index, timestamp()))
        self._opcode = self._decode(self._index)
        try:
            result = execute_opcode(self._context, self._opcode)
        finally:
            omitted = self._output.end_opcode()
            if omitted:
                self._log(omitted)
        self._context.attempts_before = 0
        self._started()  # an opcode without locks never said that it holds them
        op_id = self.job.ops[self._index].op_id
        result = checked_result(result, op_id, self._file.size_bytes)
        done = changes.op_succeeded(self.job, self._index, result, timestamp())
        if not done.is_final:
            self._file.update_opcode(done)
            return
        self._result = result

    def _finish_well(self) -> None:
        now = timestamp()

        def end(job: QueuedJob) -> QueuedJob:
            return changes.op_succeeded(job, self._index, self._result, now)

        if self._is_mending:
            self._file.finish(end(self.job))  # the next job of its kind may restore the copies
        else:
            self._file.finish_well(end, self._say_shortage)

    def _say_shortage(self, text: str) -> None:
        logger.warning("The work is done, the job waits for candidates: %s", text)
        self._feedback(f"The work is done, but not safe yet: {text}. The job waits until it is.")
        self._file.update(self.job)

    def _decode(self, index: int) -> OpCode:
        values = dict(self.job.ops[index].input)
        if index < len(self._secrets):
            values.update(self._secrets[index] or {})
        return decode_opcode(values)

    def _waits(self) -> bool:
        return self.job.ops[self._index].status is Status.WAITING

    def _started(self) -> None:
        if self._waits():
            self._control.is_to_step_back = False
            self._file.update(changes.op_running(self.job, self._index, timestamp()))

    def _flush_configuration(self) -> None:
        if not (self._context.config_changed or self._went_on):
            return None
        wait_s = FLUSH_RETRY_S_MIN
        told: set[str] = set()
        while True:
            try:
                return self._context.config.flush_config()
            except OpExecError as err:
                if self._is_mending:  # the next job of its kind may restore the copies
                    return self._feedback(f"The change is made, but not safe yet: {err.message}")
                if err.message not in told and len(told) < SHORTAGES_TOLD_MAX:
                    told.add(err.message)
                    self._say_shortage(err.message)
            except GenericError as err:
                raise OpExecError(
                    f"the work was done, but its changes of the configuration are not safe: {err}"
                ) from err
            self._control.pause(wait_s)
            wait_s = min(2 * wait_s, FLUSH_RETRY_S_MAX)

    @staticmethod
    def _log_failure(error: Exception) -> None:
        if isinstance(error, GenericError):
            logger.info("Job fails: %s: %s", type(error).__name__, error)
        else:
            logger.error("Job fails by an internal error", exc_info=error)

    # The context of the logical unit.

    def _make_context(self) -> JobContext:
        config = WConfClient(
            self._paths, self._owner, sleep=self._control.wait, connection=self._wconfd
        )
        return JobContext(
            paths=self._paths,
            job_id=self.job.id,
            config=config,
            rpc=self._rpc,
            feedback=self._feedback,
            check_canceled=self._control.check_canceled,
            wait=self._control.wait,
            priority=self._priority,
            on_locks_held=self._started,
            submit_jobs=self._submit_jobs,
            interruptible=self._control.interruptible,
            attempts_before=self._turns,
            at_once=config.hurried(GIVE_BACK_S_MAX),
        )

    def _priority(self) -> int:
        """Return the priority for requests of locks; what mends the cluster needs no slot."""
        if self._is_mending:
            return PRIORITY_BEYOND_LIMIT
        return self.job.ops[self._index].priority

    def _feedback(self, message: object, kind: str = LOG_MESSAGE) -> None:
        kept = self._output.line(message)
        if kept is not None:
            self._log(kept, kind)

    def _log(self, message: object, kind: str = LOG_MESSAGE) -> None:
        now = timestamp()
        job = changes.with_log_entry(self.job, self._index, kind, message, now)
        self._file.update_log(job, self._index)

    def _submit_jobs(self, jobs: Sequence[Sequence[OpCode]]) -> list[int]:
        assert self._opcode is not None, "an opcode runs"
        children = [[as_child(op, self._opcode) for op in job] for job in jobs]
        with LuxiClient(self._paths) as client:
            answers = client.submit_many_jobs(children)
        refused = [str(value) for accepted, value in answers if not accepted]
        if refused:
            raise OpExecError(f"jobs were refused: {'; '.join(refused)}")
        return [int(value) for _, value in answers]

    # Callbacks of signals and of the job file.

    def _change_priority(self, priority: int) -> bool:
        """Take a new priority; returns whether a request for locks that waits has it as well."""
        is_known = True
        if self._waits() and not self._is_mending:
            try:
                with WConfClient(self._paths, self._owner, restart_timeout_s=0) as client:
                    is_known = client.change_wait_priority(priority)
            except GenericError as err:
                logger.warning("cannot tell WConfD of priority %s: %s; asking anew", priority, err)
                is_known = False
        self._file.update(changes.with_priority(self.job, priority))
        return is_known
