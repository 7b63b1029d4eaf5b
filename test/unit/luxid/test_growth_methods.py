"""The growth of the cluster: every job is read once, and very old ones are not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fakes.fake_records import make_cluster

from ganeti.base.errors import OpPrereqError
from ganeti.base.ids import JobId
from ganeti.jobs.growth import WEEK_S
from ganeti.jobs.record import QueuedJob, QueuedOp
from ganeti.jobs.status import Status
from ganeti.luxid import growth_methods
from ganeti.luxid.growth_methods import WEEKS_MAX, GrowthMethods
from ganeti.objects.model import Cluster

NOW = 1_800_000_000


def creation(number: int, ended: int) -> QueuedJob:
    params = {"OP_ID": "OP_INSTANCE_CREATE", "instance_name": f"i{number}", "disks": [{"size": 10}]}
    op = QueuedOp(params, Status.SUCCESS, end_timestamp=(ended, 0))
    return QueuedJob(JobId(number), (op,), end_timestamp=(ended, 0))


class Archive:
    """A store of jobs that notes what is read."""

    def __init__(self, *jobs: QueuedJob) -> None:
        self.jobs = {job.id: job for job in jobs}
        self.read: list[int] = []
        self.files = SimpleNamespace(archived_ids=lambda: sorted(self.jobs))

    def read_archived(self, job_id: JobId) -> QueuedJob | None:
        self.read.append(job_id)
        return self.jobs[job_id]


def methods(archive: Archive, *live: QueuedJob) -> GrowthMethods:
    view = SimpleNamespace(cluster=Cluster.from_wire(make_cluster()))
    known = [SimpleNamespace(job=job) for job in live]
    return GrowthMethods(cast(Any, view), cast(Any, known), cast(Any, archive))


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ganeti.system.clock.now", lambda: float(NOW))


def created(found: GrowthMethods, weeks: int = 2) -> list[int]:
    return [week.created for week in asyncio.run(found.query_growth(weeks))]


def test_a_job_is_read_once_and_counts_once_while_it_moves_to_the_archive() -> None:
    first, second = creation(1, NOW - WEEK_S - 5), creation(2, NOW - 5)
    archive = Archive(first)
    found = methods(archive, second)
    assert created(found) == [1, 1]
    archive.jobs[second.id] = second
    assert created(found) == [1, 1]
    assert created(found) == [1, 1]
    assert archive.read == [1, 2]


def test_jobs_that_are_archived_out_of_order_are_read_too() -> None:
    archive = Archive(creation(5, NOW - 9))
    found = methods(archive)
    assert created(found, 1) == [1]
    archive.jobs[JobId(3)] = creation(3, NOW - 8)
    assert created(found, 1) == [2]
    assert archive.read == [5, 3]


def test_the_archive_of_years_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth_methods, "_AT_ONCE", 10)
    old = NOW - (WEEKS_MAX + 1) * WEEK_S
    jobs = [creation(number, old if number <= 500 else NOW - 7) for number in range(1, 516)]
    archive = Archive(*jobs)
    found = methods(archive)
    assert created(found, 1) == [15]
    assert min(archive.read) == 486  # the first batch with old ones only was the last
    count = len(archive.read)
    archive.jobs[JobId(516)] = creation(516, NOW - 3)
    assert created(found, 1) == [16]
    assert len(archive.read) == count + 1
    assert len(found._read) < 30


@pytest.mark.parametrize("weeks", [0, -1, WEEKS_MAX + 1])
def test_as_many_weeks_as_are_kept(weeks: int) -> None:
    with pytest.raises(OpPrereqError, match="is not between 1 and 52"):
        created(methods(Archive()), weeks)
