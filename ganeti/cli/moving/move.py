"""Moves one instance, so that at any moment it can run in one of the two clusters at most.

    destination   the disks are made, and waited for; until then nothing has happened to the source
    source        the instance is shut down, and its disks are sent
    destination   the disks are complete, and the instance is started if it ran
    source        the instance is removed, unless it is to be kept

A failure before the destination is complete leaves nothing there, and the source is started again
if it ran.  The source is removed only after the destination's job has ended in success; and it is
started again only after that job has ended otherwise.  When neither can be learned it stays down,
and what to look for is said.

Where one of the two is of 3.0, the destination's job may end in success with disks that are not
complete: the source's job may have failed, or a line of the log tells it.  So the instance is
started there by a job of its own, after both have ended well, and removed there otherwise.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from ganeti.base.errors import ErrorCode, GenericError, JobCanceled, OpExecError, ProtocolError
from ganeti.cli.moving.clusters import Cluster, changes, follow, is_not_found, patiently, run_job
from ganeti.cli.moving.preflight import Ready
from ganeti.cli.moving.wish import SHUTDOWN_TIMEOUT_S
from ganeti.clients.rapi import FINAL_STATUSES, EndedJob, JobFailedError, LogEntry, RapiClient
from ganeti.opcodes.backup import ExportMode, OpBackupExport
from ganeti.opcodes.instance import OpInstanceRemove, OpInstanceShutdown, OpInstanceStartup
from ganeti.opcodes.opcode import OpCode
from ganeti.protocol.remote_move import LOG_KIND
from ganeti.system import clock

MESSAGE: Final = "message"
REASON: Final = "move-instance"
BOTH_ENDED_S: Final = 5.0  # a stream that breaks ends both sides within a moment of each other
SENDER: Final = "source"
RECEIVER: Final = "destination"
_PROGRESS: Final = re.compile(r"\* disk \d+: ")  # the sender has told it already
_RETRY_S: Final = 0.5
# What the log of 3.0 says of disks that are not complete, in a job that ends in success.
_NOT_TAKEN: Final = re.compile("failed to receive data|not imported successfully")


@dataclass(frozen=True, slots=True)
class Manner:
    """How instances are moved."""

    keeps_source: bool = False
    opportunistic_tries: int = 0
    opportunistic_delay_s: float = 0.0


@dataclass(slots=True)
class _Receiving:
    """The job that makes the new instance; ``seen`` is the last entry of its log that was told."""

    job_id: int
    seen: int
    awaited: Mapping[str, Any]


class Move:
    """The move of one instance."""

    def __init__(
        self,
        ready: Ready,
        source: Cluster,
        destination: Cluster,
        manner: Manner,
        say: Callable[[str], None],
    ) -> None:
        self.name = ready.wish.source.name
        self._ready = ready
        self._clusters = {SENDER: source, RECEIVER: destination}
        self._manner = manner
        self._say = say
        self._stop = threading.Event()
        self._jobs: dict[str, int] = {}  # that of each cluster that a cancel request ends
        self._was_stopped = False

    # Methods that another thread may call.

    def stop(self) -> None:
        """Ask for the end at once: no further step is begun."""
        self._stop.set()

    def cancel(self) -> None:
        """Ask for the end: the jobs are canceled, and `run` sees them end."""
        self.stop()
        for where, job_id in list(self._jobs.items()):
            with self._clusters[where].client() as client:
                self._cancel_job(client, job_id)

    def run(self) -> None:
        """Move it.

        Raises:
            GenericError: it was not moved, or not completely; the message tells the state left.
        """
        source, destination = self._clusters.values()
        with source.client() as self._here, destination.client() as self._there:
            receiving = self._receive()
            try:
                self._shut_down()
                self._send(receiving)
                self._wait_for_receiver(receiving)
                self._start_there()
            except GenericError as err:
                raise self._undo(err, receiving) from err
            self._finish()

    # The steps.

    def _receive(self) -> _Receiving:
        """Let the destination make the disks and wait for them; tries again where asked to."""
        tries = self._manner.opportunistic_tries
        for left in range(tries - 1, -1, -1):
            try:
                return self._begin_to_receive(opportunistic=True)
            except JobFailedError as err:
                if not left or not _lacks_resources(err.job):
                    raise
                self._say(f"{err.message}; {left} more attempt(s)")
            self._stop.wait(self._manner.opportunistic_delay_s)
        return self._begin_to_receive(opportunistic=False)

    def _begin_to_receive(self, *, opportunistic: bool) -> _Receiving:
        self._check_canceled()
        creation = replace(self._ready.creation, opportunistic_locking=opportunistic)
        job_id = self._there.submit(creation, reason=REASON)
        self._jobs[RECEIVER] = job_id
        self._say(f"job {job_id} of the destination cluster makes the disks")
        for _, entries in changes(self._there, job_id):
            for entry in entries:
                if entry.kind == LOG_KIND:
                    return _Receiving(job_id, entry.serial, entry.message)
                self._tell(RECEIVER, entry)
        self._there.ended_job(job_id)
        raise ProtocolError(f"job {job_id} of the destination cluster waited for no disks")

    def _shut_down(self) -> None:
        self._check_canceled()
        if not self._ready.wish.source.is_running:
            return
        self._say("shutting down")
        self._was_stopped = True
        self._run(OpInstanceShutdown(instance_name=self.name, timeout=SHUTDOWN_TIMEOUT_S))

    def _send(self, receiving: _Receiving) -> None:
        self._check_canceled()
        export = OpBackupExport(
            instance_name=self.name,
            mode=ExportMode.REMOTE,
            target_node=receiving.awaited["disks"],
            destination_x509_ca=receiving.awaited["x509_ca"],
            x509_key_name=self._ready.prepared["x509_key_name"],
            compress=self._ready.wish.creation["compress"],
            shutdown=False,
        )
        job_id = self._here.submit(export, reason=REASON)
        self._jobs[SENDER] = job_id
        self._say(f"job {job_id} of the source cluster sends the disks")
        self._check_canceled()
        follow(self._here, job_id, lambda entry: self._tell(SENDER, entry))

    def _wait_for_receiver(self, receiving: _Receiving) -> None:
        not_taken: list[str] = []

        def tell(entry: LogEntry) -> None:
            self._tell(RECEIVER, entry)
            if not self._ready.is_confirmed and _NOT_TAKEN.search(str(entry.message)):
                not_taken.append(str(entry.message))

        follow(self._there, receiving.job_id, tell, receiving.seen)
        if not_taken:
            raise OpExecError(f"the destination cluster has not taken all: {not_taken[0]}")

    def _start_there(self) -> None:
        """Start the new instance, unless its creation has done so."""
        if self._ready.is_confirmed or not self._ready.wish.source.is_running:
            return
        self._check_canceled()
        startup = OpInstanceStartup(instance_name=self._ready.wish.name)
        job_id = self._there.submit(startup, reason=REASON)
        self._jobs[RECEIVER] = job_id
        self._say(f"job {job_id} of the destination cluster starts the instance")
        run_job(self._there, job_id)

    def _finish(self) -> None:
        """Remove the source; the destination is complete."""
        where = self._clusters[RECEIVER].address
        if self._manner.keeps_source or self._stop.is_set():
            self._say(f"moved to {where}; it is shut down in the source cluster, and kept there")
            return
        try:
            if self._here.get_instance(self.name)["oper_state"]:
                raise OpExecError("somebody has started it there again, so that both copies run")
            self._run(OpInstanceRemove(instance_name=self.name))
        except GenericError as err:
            raise OpExecError(
                f"it was moved to {where}, but not removed from the source cluster:"
                f" {err.message}; remove it with 'gnt-instance remove {self.name}'"
            ) from err
        self._say(f"moved to {where}")

    # Failures.

    def _undo(self, error: GenericError, receiving: _Receiving) -> GenericError:
        """End both jobs, and start the source again if that is safe; returns the message."""
        if SENDER in self._jobs and not self._stop.is_set():
            self._let_receiver_end(receiving)
        state = self._end_of(receiving)
        if state is None:
            return OpExecError(
                f"{error.message}; job {receiving.job_id} of the destination cluster cannot be"
                " followed any more, so the instance was not started again in the source cluster:"
                " see how that job ended, and start or remove the instance here"
            )
        if state == "success" and self._ready.is_confirmed:
            return OpExecError(
                f"{error.message}; the instance is complete in the destination cluster all the"
                f" same: remove it from the source cluster, with 'gnt-instance remove {self.name}'"
            )
        reason, left = self._reason_of(error, receiving), self._left_there()
        if left is None:
            return OpExecError(
                f"{reason}; the instance may run in the destination cluster all the same, so it was"
                " not started again in the source cluster: look at it there, then start or remove"
                " one of the two"
            )
        return self._with_source_as_it_was(f"{reason}{left}")

    def _let_receiver_end(self, receiving: _Receiving) -> None:
        """Give the destination a moment to report its error, before it is canceled."""
        deadline = clock.monotonic() + BOTH_ENDED_S
        with contextlib.suppress(GenericError):  # a silent server is asked again at once
            while self._there.get_job(receiving.job_id)["status"] not in FINAL_STATUSES:
                if clock.monotonic() >= deadline:
                    return
                clock.pause(_RETRY_S)

    def _end_of(self, receiving: _Receiving) -> str | None:
        """Cancel the jobs, wait for their ends, and return how that of the destination ended."""
        if SENDER in self._jobs:
            try:
                self._end(self._here, self._jobs[SENDER])
            except GenericError as err:  # nothing depends on how it ends
                self._say(f"{err.message}; ignoring")
        try:
            self._end(self._there, receiving.job_id)
            if self._jobs[RECEIVER] != receiving.job_id:
                self._end(self._there, self._jobs[RECEIVER])
            return str(self._there.get_job(receiving.job_id)["status"])
        except GenericError as err:
            self._say(err.message)
            return None

    def _end(self, client: RapiClient, job_id: int) -> None:
        self._cancel_job(client, job_id)
        for _ in changes(client, job_id):
            continue

    def _reason_of(self, error: GenericError, receiving: _Receiving) -> str:
        """Say why it failed: both sides know something, one of them may only see the other gone."""
        if self._stop.is_set():
            return "canceled"
        texts = [error.message]
        try:
            self._there.ended_job(receiving.job_id)
        except JobFailedError as err:
            if err.job.status == "error" and err.message not in texts:
                texts.append(f"the destination cluster says: {err.message}")
        except GenericError as err:
            self._say(f"{err.message}; ignoring")
        return "; ".join(texts)

    def _left_there(self) -> str | None:
        """Remove the remains in the destination; returns those left, None if they may run.

        Nothing can start an incomplete instance; but a job can be killed, or fail, just after it
        has completed and started the instance.
        """
        name = self._ready.wish.name
        try:
            if self._there.get_instance(name)["oper_state"] is not False:
                return None
        except GenericError as err:
            return "" if is_not_found(err) else None
        try:
            removal = OpInstanceRemove(instance_name=name)
            run_job(self._there, self._there.submit(removal, reason=REASON))
        except GenericError as err:
            return (
                "; an incomplete instance is left in the destination cluster, which could not be"
                f" removed ({err.message}): remove it there, with 'gnt-instance remove {name}'"
            )
        return ""

    def _with_source_as_it_was(self, reason: str) -> GenericError:
        kind = JobCanceled if self._stop.is_set() else OpExecError
        if not self._was_stopped:
            return kind(f"{reason}; the instance is as it was")
        startup = OpInstanceStartup(instance_name=self.name)
        try:
            run_job(self._here, patiently(lambda: self._here.submit(startup, reason=REASON)))
        except GenericError as err:
            return kind(
                f"{reason}; the instance is down in the source cluster, as it could not be started"
                f" again: {err.message}"
            )
        return kind(f"{reason}; the instance runs again in the source cluster")

    # Small things.

    def _run(self, opcode: OpCode) -> None:
        """Run a job of the source cluster."""
        run_job(self._here, self._here.submit(opcode, reason=REASON))

    def _check_canceled(self) -> None:
        if self._stop.is_set():
            raise JobCanceled("canceled")

    def _cancel_job(self, client: RapiClient, job_id: int) -> None:
        """Cancel a job; that it has ended is no failure, and its end is waited for anyway."""
        try:
            client.delete_job(job_id)
        except GenericError as err:
            self._say(f"job {job_id} cannot be canceled: {err.message}")

    def _tell(self, where: str, entry: LogEntry) -> None:
        if entry.kind == MESSAGE and not (
            where == RECEIVER and _PROGRESS.match(str(entry.message))
        ):
            self._say(f"{where}: {entry.message}")


def _lacks_resources(job: EndedJob) -> bool:
    """Tell whether a job failed for lack of something that others may give back soon."""
    match job.results:
        case [*_, [str(), [str(), ErrorCode.TEMP_NORES]]]:
            return True
        case _:
            return False
