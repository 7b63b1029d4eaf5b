"""Tests of ganeti/daemon/starter.py."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ganeti.daemon.starter import READY, notify


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
