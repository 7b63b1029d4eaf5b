"""The growth of the cluster, from the jobs that LuxiD knows and those in the archive.

Only a few facts of each archived job are kept, and no job is read twice: a question reads the jobs
that were archived since the one before.  The first one goes back from the newest job, a thousand at
a time, until a thousand of them are older than any week that can be asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import OpPrereqError
from ganeti.base.ids import JobId
from ganeti.jobs.growth import WEEK_S, Fact, facts_of, growth
from ganeti.luxid.config_view import ConfigView
from ganeti.luxid.queue.job_store import JobStore
from ganeti.luxid.queue.known_jobs import KnownJobs
from ganeti.objects.fill import fill_beparams_with
from ganeti.protocol.luxi import Week
from ganeti.system import clock

WEEKS_MAX: Final = 52
_AT_ONCE: Final = 1000  # 50 ms of a thread's work


class GrowthMethods:
    """The handler of a call, declared in `ganeti.protocol.luxi`."""

    def __init__(self, view: ConfigView, known_jobs: KnownJobs, store: JobStore) -> None:
        self._view = view
        self._known_jobs = known_jobs
        self._store = store
        self._facts: dict[JobId, Sequence[Fact]] = {}
        self._read: set[JobId] = set()
        self._too_old = JobId(0)  # neither this job nor an earlier one is looked at
        self._turn = asyncio.Lock()

    async def query_growth(self, weeks: int) -> list[Week]:
        if not 0 < weeks <= WEEKS_MAX:
            raise OpPrereqError(f"weeks: {weeks} is not between 1 and {WEEKS_MAX}")
        now = int(clock.now())
        async with self._turn:
            await self._read_new(now - WEEKS_MAX * WEEK_S)
        live = {known.job.id: facts_of(known.job) for known in self._known_jobs}
        facts = [fact for each in ({**self._facts, **live}).values() for fact in each]
        default = fill_beparams_with(self._view.cluster, {}, "a new instance")["maxmem"]
        return growth(facts, now=now, weeks=weeks, default_memory_mib=default)

    async def _read_new(self, since: int) -> None:
        archived = await asyncio.to_thread(self._store.files.archived_ids)
        new = [each for each in archived if each > self._too_old and each not in self._read]
        while new:
            some, new = new[-_AT_ONCE:], new[:-_AT_ONCE]
            newest = await asyncio.to_thread(self._take, some)
            if newest < since:
                self._too_old = max(some)
                self._read = {each for each in self._read if each > self._too_old}
                return

    def _take(self, job_ids: Sequence[JobId]) -> int:
        """Read archived jobs; returns when the last of them ended."""
        newest = 0
        for job_id in job_ids:
            job = self._store.read_archived(job_id)
            self._read.add(job_id)
            if job is None:
                continue
            newest = max(newest, job.end_timestamp[0] if job.end_timestamp else 0)
            facts = facts_of(job)
            if facts:
                self._facts[job_id] = facts
        return newest
