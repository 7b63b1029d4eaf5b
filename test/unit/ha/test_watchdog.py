"""The named pipe that stands for a watchdog where there is none."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.ha.watchdog import Watchdog
from ganeti.system import clock


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[int]:
    os.mkfifo(tmp_path / "watchdog")
    descriptor = os.open(tmp_path / "watchdog", os.O_RDONLY | os.O_NONBLOCK)
    yield descriptor
    os.close(descriptor)


def test_a_pipe_counts_from_when_it_is_opened_as_a_device_does(tmp_path: Path, reader: int) -> None:
    dog = Watchdog.arm(str(tmp_path / "watchdog"), 4.0)
    assert os.read(reader, 100) == b"\0"
    dog.feed(clock.monotonic() + 10.0)
    dog.end()
    dog.end()
    assert os.read(reader, 100) == b"\0V"


def test_a_pipe_that_nobody_reads_is_no_watchdog(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "watchdog")
    with pytest.raises(OpPrereqError, match="there is no watchdog at"):
        Watchdog.arm(str(tmp_path / "watchdog"), 4.0)


def test_it_is_not_fed_when_it_is_too_late(tmp_path: Path, reader: int) -> None:
    path = str(tmp_path / "watchdog")
    with pytest.raises(OpPrereqError, match="no good answer any more"):
        Watchdog.arm(path, 4.0, clock.monotonic())
    dog = Watchdog.arm(path, 4.0, clock.monotonic() + 10.0)
    dog.feed(clock.monotonic())
    assert os.read(reader, 100) == b"\0"
    dog.let_go()
    dog.feed(clock.monotonic() + 10.0)
    dog.change(5.0, clock.monotonic() + 10.0)
    dog.end()
    assert os.read(reader, 100) == b""  # closed, and not ended
    assert dog.timeout_s == 4.0


def test_the_alarm_of_a_daemon_that_ends_stays(tmp_path: Path, reader: int) -> None:
    dog = Watchdog.arm(str(tmp_path / "watchdog"), 4.0)
    signal.setitimer(signal.ITIMER_REAL, 500.0)
    try:
        dog.feed(clock.monotonic() + 10.0)
        left_s, _ = signal.getitimer(signal.ITIMER_REAL)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert 10.0 < left_s <= 500.0


@pytest.mark.parametrize(
    ("options", "trouble"),
    [
        (0x0180, ""),
        (0x0080, "its driver stops it when the agent dies"),
        (0x0100, "its time cannot be set"),
    ],
)
def test_a_device_that_does_not_outlive_its_agent_is_no_watchdog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: int, trouble: str
) -> None:
    (tmp_path / "watchdog").touch()

    def ioctl(_descriptor: int, _request: int, buffer: bytearray) -> None:
        if len(buffer) == 40:  # it asks what the device is
            buffer[:] = struct.pack("=II32s", options, 1, b"some dog")

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    if not trouble:
        assert Watchdog.arm(str(tmp_path / "watchdog"), 4.0).identity == "some dog"
        return
    with pytest.raises(OpPrereqError, match=trouble):
        Watchdog.arm(str(tmp_path / "watchdog"), 4.0)
    assert (tmp_path / "watchdog").read_bytes() == b"V"  # it does not run


# Stops itself right before it feeds, after its look at the clock.
_STOPS = """
import os, signal, sys
from ganeti.ha import watchdog
from ganeti.system import clock
dog = watchdog.Watchdog.arm(sys.argv[1], 4.0)
write = os.write
def stop_and_write(*args):
    os.kill(os.getpid(), signal.SIGSTOP)
    return write(*args)
watchdog.os.write = stop_and_write
dog.feed(clock.monotonic() + float(sys.argv[2]))
"""


@pytest.mark.parametrize("is_late", [True, False])
def test_a_process_that_stood_still_before_it_feeds_dies_if_it_is_too_late(
    tmp_path: Path, reader: int, is_late: bool
) -> None:
    left_s = 0.5 if is_late else 600.0
    argv = [sys.executable, "-c", _STOPS, str(tmp_path / "watchdog"), str(left_s)]
    with subprocess.Popen(argv) as child:
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        time.sleep(left_s if is_late else 0.0)  # that is the damage, not a wait
        os.kill(child.pid, signal.SIGCONT)
        assert child.wait() == (-signal.SIGALRM if is_late else 0)
    assert os.read(reader, 100) == (b"\0" if is_late else b"\0\0")
