"""The job that is played before there is one."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import threading
from pathlib import Path

import pytest

from ganeti.base.paths import Paths
from ganeti.daemon import log
from ganeti.jobexec import rehearsal
from ganeti.jobexec.rehearsal import play, rehearse
from ganeti.jobexec.template import run
from ganeti.jobs.status import Status
from ganeti.store.job_files import JobFiles
from ganeti.system import process_facts
from ganeti.transport.unix_client import UnixClient

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(str(tmp_path))
    os.makedirs(made.luxid_message_dir)
    return made


def descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def test_a_played_job_succeeds_and_leaves_nothing(
    paths: Paths, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    play(paths, run)  # what stays open is open after this
    before = (
        descriptors(),
        [signal.getsignal(number) for number in SIGNALS],
        process_facts.name_of(os.getpid()),
        list(logging.getLogger().handlers),
    )
    caplog.clear()
    ended = play(paths, run)
    assert ended.status is Status.SUCCESS
    assert ended.end_timestamp is not None
    after = (
        descriptors(),
        [signal.getsignal(number) for number in SIGNALS],
        process_facts.name_of(os.getpid()),
        list(logging.getLogger().handlers),
    )
    assert after == before
    assert signal.set_wakeup_fd(-1) == -1
    assert caplog.records == []
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []
    assert os.listdir(paths.luxid_message_dir) == []
    assert log._job_id.get() is None


def test_a_signal_that_comes_meanwhile_is_not_lost(paths: Paths) -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: came.append(number))

    def run_and_signal(stage: Paths, stream: socket.socket, wconfd: UnixClient) -> int:
        # Not to the whole process: other threads of the test would take it, a template has none.
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        assert came == []
        return run(stage, stream, wconfd)

    try:
        assert play(paths, run_and_signal).status is Status.SUCCESS
        assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_played_job_that_cannot_end_is_given_up(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_files: JobFiles, *_args: object, **_named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(rehearsal, "_PLAY_S_MAX", 0.1)
    monkeypatch.setattr(JobFiles, "write_durable", full)
    with pytest.raises(TimeoutError, match="longer than"):
        play(paths, run)
    assert os.listdir(paths.luxid_message_dir) == []
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_rehearsal_without_a_place_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "var").write_text("in the way")
    steps = list(rehearse(Paths(str(tmp_path)), run))
    assert steps
    assert "a job" not in steps
    assert "cannot rehearse a job" in caplog.text
