"""What LuxiD counts of its jobs, told to the monitoring daemon of its node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ganeti.base import metrics
from ganeti.daemon.tally import Counter, Histogram, Labels, written
from ganeti.jobs.record import QueuedJob, Timestamp
from ganeti.jobs.status import Status
from ganeti.opcodes.registry import all_op_ids

_MICRO: Final = 1e-6


class QueueMetrics:
    """The counts since the daemon began; jobs that end while there is no LuxiD are in none."""

    def __init__(self) -> None:
        self.calls = Counter(metrics.LUXID_CALLS)
        self._submissions = Histogram(metrics.LUXID_SUBMIT_S)
        self._submitted = Counter(metrics.LUXID_JOBS_SUBMITTED)
        self._ended = Counter(metrics.LUXID_JOBS_ENDED)
        self._waits = Histogram(metrics.LUXID_WAIT_S)
        self._runs = Histogram(metrics.LUXID_RUN_S)
        self._op_ids = frozenset(all_op_ids())

    def submitted(self, jobs: int, seconds: float) -> None:
        """Count jobs that were submitted in one call."""
        self._submitted.add(amount=jobs)
        self._submissions.add(seconds)

    def started(self, job: QueuedJob) -> None:
        """Count the first start of a job."""
        if job.received_timestamp is not None and job.start_timestamp is not None:
            self._waits.add(_seconds_between(job.received_timestamp, job.start_timestamp))

    def ended(self, job: QueuedJob) -> None:
        """Count a job that has ended."""
        op_id = job.ops[0].op_id
        known = op_id if op_id in self._op_ids else metrics.OTHER
        self._ended.add((str(job.status), known))
        if job.start_timestamp is not None and job.end_timestamp is not None:
            self._runs.add(_seconds_between(job.start_timestamp, job.end_timestamp))

    def lines(self, jobs: Mapping[Status, int], *, is_drained: bool) -> Iterator[str]:
        """Yield the lines of the page.

        Args:
            jobs: how many jobs of the queue have each status.
        """
        by_status: dict[Labels, float] = {(str(status),): jobs.get(status, 0) for status in Status}
        yield from written(metrics.LUXID_JOBS, by_status)
        yield from written(metrics.LUXID_DRAINED, {(): is_drained})
        counted = (self._submitted, self._ended, self._submissions, self._waits, self._runs)
        for each in (*counted, self.calls):
            yield from each.lines()


def _seconds_between(begin: Timestamp, end: Timestamp) -> float:
    return max(0.0, end[0] - begin[0] + (end[1] - begin[1]) * _MICRO)
