"""The LUXI methods that take jobs in and tell of them; `luxid.queue.commands` changes them.

Source: luxi.json, "methods".
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Raw

from ganeti.base.errors import GenericError, JobLost, JobQueueError, OpPrereqError
from ganeti.base.ids import JobId
from ganeti.base.json import dumps
from ganeti.daemon import tally
from ganeti.jobs.record import QueuedJob
from ganeti.jobs.status import Status
from ganeti.luxid.queue.job_store import JobStore
from ganeti.luxid.queue.known_jobs import KnownJobs
from ganeti.luxid.queue.metrics import QueueMetrics
from ganeti.luxid.queue.submission import Submissions
from ganeti.luxid.slices import Slicer
from ganeti.protocol.luxi import HELD_BY_FIELD, WAIT_FOR_JOB_CHANGE_S_MAX, as_job_id
from ganeti.query.engine import Steps
from ganeti.query.limits import Budget, check_asked
from ganeti.query.resources.job import ARCHIVED_FIELD, JOB_VALUES
from ganeti.system import clock

OpCodes = Sequence[Mapping[str, object]]
_JobId = int | str
_OTHER_FIELDS: Final = (ARCHIVED_FIELD, HELD_BY_FIELD)  # not in the job itself
_COUNTED_AT_ONCE: Final = 1000  # jobs, 1 ms; then others get their turn


@dataclass(eq=False, slots=True)
class JobMethods:
    """Handlers of calls, declared in `ganeti.protocol.luxi`."""

    _known_jobs: KnownJobs
    _store: JobStore
    _submissions: Submissions
    _metrics: QueueMetrics
    _is_stopping: bool = False
    _slicer: Slicer = field(default_factory=Slicer)

    def stop(self) -> None:
        """Answer all waiting clients."""
        self._is_stopping = True
        for known in self._known_jobs:
            known.wake()

    # Submission.

    async def submit_job(self, opcodes: OpCodes) -> JobId:
        return await self._submit_one(opcodes, even_if_drained=False)

    async def submit_job_to_drained_queue(self, opcodes: OpCodes) -> JobId:
        return await self._submit_one(opcodes, even_if_drained=True)

    async def _submit_one(self, opcodes: OpCodes, *, even_if_drained: bool) -> JobId:
        (result,) = await self._submit([opcodes], even_if_drained=even_if_drained)
        if isinstance(result, GenericError):
            raise result
        return result

    async def submit_many_jobs(self, jobs: Sequence[OpCodes]) -> list[tuple[bool, object]]:
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
        begun_s = clock.monotonic()
        answers = await self._submissions.submit(jobs, even_if_drained=even_if_drained)
        taken = sum(not isinstance(answer, GenericError) for answer in answers)
        self._metrics.submitted(taken, clock.monotonic() - begun_s)
        return answers

    # Reading.

    async def wait_for_job_change(
        self,
        job_id: _JobId,
        fields: Sequence[str],
        previous: object,
        previous_log: int | None,
        timeout_s: float,
    ) -> list[object]:
        check_fields(fields)
        wanted = as_job_id(job_id)
        known = dumps(previous)
        deadline = clock.monotonic() + min(max(timeout_s, 0), WAIT_FOR_JOB_CHANGE_S_MAX)
        while True:
            live = self._known_jobs.get(wanted)
            record, archived = self._find(wanted)
            if record is None:
                raise JobLost(f"Job {wanted} not found")
            values = dumps(self._values(record, fields, archived=archived))
            log = record.log_after(previous_log or 0)
            if log or live is None or record.is_final or values != known:
                return [Budget().row(values), log]
            left_s = deadline - clock.monotonic()
            if left_s <= 0 or self._is_stopping:
                return [previous, []]
            await live.changes_within(left_s)

    async def query_jobs(
        self,
        job_ids: Sequence[_JobId] | None,
        fields: Sequence[str],
        limit: int | None = None,
        before: _JobId | None = None,
    ) -> list[Raw]:
        check_fields(fields)
        if not job_ids:
            limit = len(self._known_jobs) if limit is None else limit
            found = self._known_jobs.latest(limit, None if before is None else as_job_id(before))
            job_ids = [known.job.id for known in found]
        return await self._slicer.do(self._rows(job_ids, fields))

    def _rows(self, job_ids: Sequence[_JobId], fields: Sequence[str]) -> Steps[list[Raw]]:
        budget = Budget()
        rows: list[Raw] = []
        for wanted in map(as_job_id, job_ids):
            record, archived = self._find(wanted)
            values = (
                [wanted if field == "id" else None for field in fields]
                if record is None
                else self._values(record, fields, archived=archived)
            )
            rows.append(budget.row(dumps(values)))
            yield
        return rows

    async def query_metrics(self) -> str:
        jobs: Counter[Status] = Counter()
        for position, known in enumerate(list(self._known_jobs)):
            jobs[known.shown.status] += 1
            if position % _COUNTED_AT_ONCE == _COUNTED_AT_ONCE - 1:
                await asyncio.sleep(0)
        return tally.page(self._metrics.lines(jobs, is_drained=self._submissions.is_drained))

    def _find(self, wanted: JobId) -> tuple[QueuedJob | None, bool]:
        """Return a job and whether it is archived."""
        known = self._known_jobs.get(wanted)
        if known is not None:
            return known.shown, False
        return self._store.read_archived(wanted), True

    def _values(self, job: QueuedJob, fields: Sequence[str], *, archived: bool) -> list[object]:
        return [self._value(job, field, archived) for field in fields]

    def _value(self, job: QueuedJob, field: str, archived: bool) -> object:
        if field == HELD_BY_FIELD:
            return self._submissions.held_by(job.id)
        return archived if field == ARCHIVED_FIELD else JOB_VALUES[field](job)


def check_fields(fields: Sequence[str]) -> None:
    """Refuse fields that no job has, and too many.

    Raises:
        OpPrereqError: wrong_input; the text names them.
    """
    check_asked(fields)
    unknown = [field for field in fields if field not in JOB_VALUES and field not in _OTHER_FIELDS]
    if unknown:
        raise OpPrereqError(f"unknown job fields: {', '.join(unknown)}")
