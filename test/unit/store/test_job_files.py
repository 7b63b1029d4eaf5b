"""Tests of ganeti/store/job_files.py."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ganeti.base.errors import JobQueueError
from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.protocol.luxi import DrainedBy
from ganeti.store.job_files import JobFiles, job_id_of


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path))


@pytest.fixture
def queue(paths: Paths) -> JobFiles:
    found = JobFiles(paths)
    found.prepare()
    return found


@pytest.mark.shows(
    "backend/jobs/queue-directory", "2.0/queue-structure/layout", "2.0/queue-history/directory"
)
@pytest.mark.parametrize(
    ("name", "job_id"),
    [
        ("job-1", 1),
        ("job-123456", 123456),
        ("job-", None),
        ("job-1.corrupt", None),
        ("job--1", None),
        ("job-1\n", None),
        (".job-1.123.1.tmp", None),
        ("serial", None),
        ("job-" + "9" * 19, None),
    ],
)
def test_names_of_job_files(name: str, job_id: int | None) -> None:
    assert job_id_of(name) == job_id


@pytest.mark.shows("backend/jobs/version-file", "2.0/queue-structure/layout")
def test_preparing_makes_a_queue_once(paths: Paths, queue: JobFiles) -> None:
    assert Path(paths.queue_version).read_bytes() == b"1\n"
    assert stat.S_IMODE(os.stat(paths.queue_dir).st_mode) == 0o750
    queue.prepare()


@pytest.mark.shows("backend/jobs/version-file", "2.0/queue-updates/empty")
def test_a_queue_of_another_version_is_refused(paths: Paths, queue: JobFiles) -> None:
    Path(paths.queue_version).write_bytes(b"2\n")
    with pytest.raises(JobQueueError, match="expected version 1"):
        queue.prepare()


@pytest.mark.shows("backend/jobs/files", "2.0/queue-storage/json", "2.0/queue-history/directory")
def test_job_files_are_written_read_listed_archived(paths: Paths, queue: JobFiles) -> None:
    queue.write_durable(JobId(12), b"{}")
    queue.write_atomic(JobId(9), b"[]")
    Path(paths.queue_dir, "job-x").write_bytes(b"")
    assert queue.ids() == [9, 12]
    assert queue.read(JobId(12)) == b"{}"
    assert stat.S_IMODE(os.stat(paths.job_file(12)).st_mode) == 0o640
    assert queue.archive(JobId(12))
    assert not queue.archive(JobId(12))
    assert queue.read(JobId(12)) is None
    assert queue.read_archived(JobId(12)) == b"{}"
    assert os.path.exists(f"{paths.queue_archive_dir}/0/job-12")
    assert queue.remove(JobId(9))
    assert not queue.remove(JobId(9))
    assert queue.ids() == []


def test_a_corrupt_file_is_set_aside(queue: JobFiles) -> None:
    queue.write_atomic(JobId(5), b"rubbish")
    assert Path(queue.set_aside(JobId(5))).read_bytes() == b"rubbish"
    assert queue.ids() == []


@pytest.mark.shows("backend/jobs/serial-file")
def test_the_serial(paths: Paths, queue: JobFiles) -> None:
    assert queue.read_serial() == 0
    queue.write_serial(41)
    assert Path(paths.queue_serial).read_bytes() == b"41\n"
    assert queue.read_serial() == 41
    Path(paths.queue_serial).write_bytes(b"rubbish\n")
    assert queue.read_serial() == 0


@pytest.mark.shows("backend/jobs/serial-file")
def test_no_id_is_given_out_twice_even_if_the_serial_is_old(queue: JobFiles) -> None:
    assert queue.last_id() == 0
    queue.write_serial(3)
    assert queue.last_id() == 3
    queue.write_atomic(JobId(19999), b"{}")
    assert queue.last_id() == 19999
    queue.write_atomic(JobId(20001), b"{}")
    queue.archive(JobId(20001))
    assert queue.last_id() == 20001
    assert JobFiles(Paths("/nowhere")).last_id() == 0


def test_the_drained_flag(queue: JobFiles) -> None:
    assert not queue.is_drained()
    queue.set_drained(True)
    queue.set_drained(True)
    assert queue.is_drained()
    queue.set_drained(False)
    queue.set_drained(False)
    assert not queue.is_drained()


def test_the_drained_flag_says_whose_it_is(queue: JobFiles) -> None:
    assert queue.drained_by() is None
    queue.set_drained(True, DrainedBy.FAILOVER)
    assert (queue.is_drained(), queue.drained_by()) == (True, DrainedBy.FAILOVER)
    queue.set_drained(True)  # an operator wants it as well, for longer
    assert (queue.is_drained(), queue.drained_by()) == (True, None)
    queue.set_drained(True, DrainedBy.RENEWAL)
    queue.set_drained(False)
    assert (queue.is_drained(), queue.drained_by()) == (False, None)


@pytest.mark.shows("backend/jobs/lock-file", "2.0/queue-locking/one-lock")
def test_the_queue_is_locked_by_one(queue: JobFiles) -> None:
    with queue.lock(), pytest.raises(Exception, match="locked by another"):
        queue.lock().acquire()
