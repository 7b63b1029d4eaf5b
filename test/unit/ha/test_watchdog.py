"""The named pipe that stands for a watchdog where there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ganeti.base.errors import OpPrereqError
from ganeti.ha.watchdog import Watchdog


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[int]:
    os.mkfifo(tmp_path / "watchdog")
    descriptor = os.open(tmp_path / "watchdog", os.O_RDONLY | os.O_NONBLOCK)
    yield descriptor
    os.close(descriptor)


def test_a_pipe_counts_from_when_it_is_opened_as_a_device_does(tmp_path: Path, reader: int) -> None:
    dog = Watchdog.arm(str(tmp_path / "watchdog"), 4.0)
    assert os.read(reader, 100) == b"\0"
    dog.feed()
    dog.end()
    assert os.read(reader, 100) == b"\0V"


def test_a_pipe_that_nobody_reads_is_no_watchdog(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "watchdog")
    with pytest.raises(OpPrereqError, match="there is no watchdog at"):
        Watchdog.arm(str(tmp_path / "watchdog"), 4.0)
