"""Tests of ganeti/daemon/starter.py."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from ganeti.daemon.starter import READY, give_signs_of_life, notify, watchdog_period_s


def test_without_a_listener_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify(READY)


@pytest.mark.parametrize("abstract", [False, True])
def test_the_state_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    name = f"ganeti-test-{os.getpid()}"
    address = f"\0{name}" if abstract else str(tmp_path / "n")
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if abstract else address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.settimeout(30)
        notify(READY)
        assert listener.recv(100) == b"READY=1"


def test_a_listener_that_is_gone_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/notify")
    notify(READY)
    assert "Cannot tell 'READY=1' to /nowhere/notify" in caplog.text


@pytest.mark.parametrize(
    ("environment", "period_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "60000000"}, 20.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "7"}, 1.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "8"}, None),  # for the process that made us
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_signs_of_life_come_three_times_as_often_as_needed(
    environment: dict[str, str], period_s: float | None
) -> None:
    assert watchdog_period_s(environment, 7) == period_s


def test_signs_of_life_come_from_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(tmp_path / "n")
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        listener.setblocking(False)

        async def live() -> list[bytes]:
            task = asyncio.create_task(give_signs_of_life(0.001))
            found = [await asyncio.get_running_loop().sock_recv(listener, 100) for _ in range(3)]
            task.cancel()
            return found

        assert asyncio.run(live()) == [b"WATCHDOG=1"] * 3
