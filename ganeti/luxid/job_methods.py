"""The LUXI methods about jobs.

Source: luxi.json, "methods".
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, GenericError, JobLost, JobQueueError, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.base.json import dumps
from ganeti.jobs.record import QueuedJob
from ganeti.jobs.values import ARCHIVED_FIELD, JOB_VALUES
from ganeti.luxid.commands import Commands, Outcome, next_change
from ganeti.luxid.entries import Entries
from ganeti.luxid.intake import Intake
from ganeti.luxid.job_store import JobStore
from ganeti.protocol.luxi import WAIT_FOR_JOB_CHANGE_S_MAX, DrainedBy, is_kill, job_id
from ganeti.system import clock

OpCodes = Sequence[Mapping[str, object]]
_JobId = int | str
_YIELD_EVERY: Final = 100  # jobs of one question: some may have to be read from the archive


class JobMethods:
    """One method per LUXI method, same arguments."""

    def __init__(
        self, entries: Entries, store: JobStore, intake: Intake, commands: Commands
    ) -> None:
        self._entries = entries
        self._store = store
        self._intake = intake
        self._commands = commands
        self._is_stopping = False

    def stop(self) -> None:
        """Send away all who wait."""
        self._is_stopping = True
        for entry in self._entries:
            entry.wake()

    # Submission.

    async def submit_job(self, opcodes: OpCodes) -> JobId:
        """SubmitJob."""
        return await self._submit_one(opcodes, even_if_drained=False)

    async def submit_job_to_drained_queue(self, opcodes: OpCodes) -> JobId:
        """SubmitJobToDrainedQueue."""
        return await self._submit_one(opcodes, even_if_drained=True)

    async def _submit_one(self, opcodes: OpCodes, *, even_if_drained: bool) -> JobId:
        (result,) = await self._submit([opcodes], even_if_drained=even_if_drained)
        if isinstance(result, GenericError):
            raise result
        return result

    async def submit_many_jobs(self, jobs: Sequence[OpCodes]) -> list[tuple[bool, object]]:
        """SubmitManyJobs."""
        results = await self._submit(jobs, even_if_drained=False)
        return [
            (False, result.message) if isinstance(result, GenericError) else (True, result)
            for result in results
        ]

    async def _submit(
        self, jobs: Sequence[OpCodes], *, even_if_drained: bool
    ) -> list[JobId | GenericError]:
        if self._is_stopping:
            raise JobQueueError("LuxiD is stopping; try again")
        return await self._intake.submit(jobs, even_if_drained=even_if_drained)

    # Reading.

    async def wait_for_job_change(
        self,
        job: _JobId,
        fields: Sequence[str],
        previous: object,
        previous_log: int | None,
        timeout_s: float,
    ) -> list[object]:
        """WaitForJobChange."""
        wanted = job_id(job)
        known = dumps(previous)
        deadline = clock.monotonic() + min(max(timeout_s, 0), WAIT_FOR_JOB_CHANGE_S_MAX)
        while True:
            entry = self._entries.get(wanted)
            record, archived = self._find(wanted)
            if record is None:
                raise JobLost(f"Job {wanted} not found")
            values = self._values(record, fields, archived=archived)
            log = record.log_after(previous_log or 0)
            if log or entry is None or record.is_final or dumps(values) != known:
                return [values, log]
            left_s = deadline - clock.monotonic()
            if left_s <= 0 or self._is_stopping:
                return [previous, []]
            await next_change(entry, left_s)

    async def query_jobs(
        self,
        ids: Sequence[_JobId] | None,
        fields: Sequence[str],
        limit: int | None = None,
        before: _JobId | None = None,
    ) -> list[list[object]]:
        """QueryJobs; without ids all of the queue, or the newest so many of those before one."""
        check_fields(fields)
        rows: list[list[object]] = []
        if not ids:
            limit = len(self._entries) if limit is None else limit
            found = self._entries.latest(limit, None if before is None else job_id(before))
            for position, entry in enumerate(found):
                rows.append(self._values(entry.job, fields, archived=False))
                if position % _YIELD_EVERY == _YIELD_EVERY - 1:
                    await asyncio.sleep(0)
            return rows
        for position, each in enumerate(ids):
            wanted = job_id(each)
            record, archived = self._find(wanted)
            if record is None:
                rows.append([wanted if field == "id" else None for field in fields])
            else:
                rows.append(self._values(record, fields, archived=archived))
            if position % _YIELD_EVERY == _YIELD_EVERY - 1:
                await asyncio.sleep(0)
        return rows

    def _find(self, wanted: JobId) -> tuple[QueuedJob | None, bool]:
        """Return a job and whether it is archived."""
        entry = self._entries.get(wanted)
        if entry is not None:
            return entry.job, False
        return self._store.read_archived(wanted), True

    @staticmethod
    def _values(job: QueuedJob, fields: Sequence[str], *, archived: bool) -> list[object]:
        check_fields(fields)
        return [archived if field == ARCHIVED_FIELD else JOB_VALUES[field](job) for field in fields]

    # Changing.

    async def cancel_job(self, job: _JobId, kill: bool | list[bool] | None) -> Outcome:
        """CancelJob."""
        return await self._commands.cancel(job_id(job), kill=is_kill(kill))

    async def change_job_priority(self, job: _JobId, priority: int) -> Outcome:
        """ChangeJobPriority."""
        return await self._commands.change_priority(job_id(job), priority)

    async def archive_job(self, job: _JobId) -> bool:
        """ArchiveJob."""
        return await self._commands.archive(job_id(job))

    async def auto_archive_jobs(self, age_s: int, timeout_s: int) -> tuple[int, int]:
        """AutoArchiveJobs."""
        return await self._commands.auto_archive(age_s, timeout_s)

    async def pickup_job(self, job: _JobId) -> object:
        """PickupJob: only 3.0's own daemons ever sent it to each other."""
        raise GenericError(f"job {job_id(job)} cannot be picked up: LuxiD has the queue itself")

    async def set_drain_flag(self, flag: bool, by: DrainedBy | None = None) -> bool:
        """SetDrainFlag."""
        await self._store.set_drained(drained=flag, by=by)
        self._intake.is_drained = flag
        return True


def check_fields(fields: Sequence[str]) -> None:
    """Refuse fields that no job has.

    Raises:
        OpPrereqError: wrong_input; the text names them.
    """
    unknown = [field for field in fields if field not in JOB_VALUES and field != ARCHIVED_FIELD]
    if unknown:
        raise OpPrereqError(f"unknown job fields: {', '.join(unknown)}", ErrorCode.INVAL)
