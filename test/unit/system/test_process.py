"""Commands are bounded in time and output, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from ganeti.base.errors import CommandError
from ganeti.system import process


def test_output_and_input() -> None:
    result = process.run(["sh", "-c", "cat; echo oops >&2; exit 3"], timeout_s=10, stdin=b"in")
    assert (result.status, result.stdout, result.stderr) == (3, b"in", b"oops\n")
    with pytest.raises(CommandError, match=r"exit status 3: in\noops"):
        process.run(["sh", "-c", "echo in; echo oops >&2; exit 3"], timeout_s=10).check()


def test_a_command_that_hangs_is_killed_with_all_it_started() -> None:
    result = process.run(["sh", "-c", "sleep 1000 & echo $!; wait"], timeout_s=1.5)
    assert result.timed_out
    assert process.wait_gone(int(result.stdout), 5)
    with pytest.raises(CommandError, match="did not end in time"):
        result.check()


def test_a_command_that_prints_for_ever_is_killed() -> None:
    result = process.run(["yes"], timeout_s=10, output_bytes_max=10_000)
    assert result.truncated
    assert len(result.stdout) <= 10_000


def test_output_that_was_cut_is_never_taken_for_all() -> None:
    """As where the command has ended by itself when the last of it is read."""
    result = process.CommandResult(("lister",), 0, b"a\nb", b"", truncated=True)
    with pytest.raises(CommandError, match="'lister' printed too much: a\nb"):
        result.check()


def test_what_a_command_leaves_running_does_not_hold_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_LINGER_S", 0.1)
    started = time.monotonic()
    result = process.run(["sh", "-c", "sleep 1000 & echo $!"], timeout_s=60)
    assert time.monotonic() - started < 30
    assert result.status == 0
    os.kill(int(result.stdout), 9)


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(CommandError, match="no-such-program"):
        process.run(["/no-such-program"], timeout_s=1)


def test_a_stubborn_process_is_killed() -> None:
    code = "import signal; signal.signal(15, signal.SIG_IGN); print('up', end='', flush=True); signal.pause()"
    read_end, write_end = os.pipe()
    child = process.spawn([sys.executable, "-c", code], stdout=write_end)
    os.close(write_end)
    assert os.read(read_end, 3) == b"up"
    os.close(read_end)
    assert process.terminate(child.pid, 0.1)
    assert child.wait() == -9


def test_a_command_is_stopped_from_outside() -> None:
    stop_fd = os.eventfd(0, os.EFD_CLOEXEC)
    try:
        os.eventfd_write(stop_fd, 1)
        for _ in range(2):  # whoever comes later is stopped as well
            result = process.run(["sleep", "60"], timeout_s=50, stop_fd=stop_fd)
            assert result.timed_out
            assert result.status == -signal.SIGKILL
    finally:
        os.close(stop_fd)


def test_what_is_started_as_a_signal_comes_does_not_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of the handler waits until somebody can end the program."""
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    class Stopped(BaseException):
        """The work is to be left."""

    def start(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **options))
        signal.raise_signal(signal.SIGUSR1)
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start)
    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: process.stops.stop(Stopped()))
    try:
        with pytest.raises(Stopped):
            process.run(["sleep", "1000"], timeout_s=60)
        assert started[0].returncode == -signal.SIGKILL
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
        started[0].kill()


def test_an_error_waits_no_more_when_nothing_could_be_started() -> None:
    with pytest.raises(CommandError):
        process.run(["/nonexistent"], timeout_s=60)
    with pytest.raises(KeyError):
        process.stops.stop(KeyError())
