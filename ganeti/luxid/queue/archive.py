"""Moves jobs that ended to the archive: out of the queue here, and on the candidates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ganeti.base.ids import JobId
from ganeti.luxid.queue.job_store import JobStore
from ganeti.luxid.queue.known_jobs import KnownJob, KnownJobs
from ganeti.system import clock

_BATCH: Final = 100


async def archive(
    known_jobs: KnownJobs, store: JobStore, ended: Sequence[KnownJob], deadline_s: float = math.inf
) -> int:
    """Archive jobs that ended, in their order; returns how many there was time for.

    Raises:
        JobQueueError: the disk does not allow that; those before are archived.
    """
    done = 0
    while done < len(ended) and clock.monotonic() < deadline_s:
        batch = ended[done : done + _BATCH]
        await _archive_batch(known_jobs, store, batch)
        done += len(batch)
    return done


async def _archive_batch(known_jobs: KnownJobs, store: JobStore, batch: Sequence[KnownJob]) -> None:
    moved: list[JobId] = []
    try:
        for known in batch:
            store.archive_here(known.job.id)
            known_jobs.remove(known.job.id)
            moved.append(known.job.id)
    finally:
        await store.archive_there(moved)
