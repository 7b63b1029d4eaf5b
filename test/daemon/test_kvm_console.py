"""The console program: keyboard, screen and serial console as pipes and sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ganeti.hypervisor.serial_console import LEAVE_KEY, connect, follow, main


@dataclass
class Terminal:
    keyboard: int
    keys: int
    screen: int
    shown: int

    def type(self, data: bytes) -> None:
        os.write(self.keys, data)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    keyboard, keys = os.pipe()
    shown, screen = os.pipe()
    yield Terminal(keyboard, keys, screen, shown)
    for descriptor in (keyboard, keys, shown, screen):
        os.close(descriptor)


@pytest.mark.shows("backend/overview/console")
def test_keys_go_in_and_text_comes_out(tmp_path: Path, terminal: Terminal) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(1)
        statuses: list[int] = []

        def run() -> None:
            statuses.append(
                connect(
                    "i", str(tmp_path / "s"), keyboard=terminal.keyboard, screen=terminal.screen
                )
            )

        thread = threading.Thread(target=run)
        thread.start()
        guest, _ = listener.accept()
        with guest:
            guest.sendall(b"login: ")
            assert os.read(terminal.shown, 100) == b"login: "
            terminal.type(b"root\r")
            assert guest.recv(100) == b"root\r"
            terminal.type(b"x" + LEAVE_KEY + b"y")
            thread.join(60)
            assert guest.recv(100) == b"x"
        assert statuses == [0]


def test_console_that_ends(tmp_path: Path, terminal: Terminal) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(1)
        thread = threading.Thread(target=lambda: listener.accept()[0].close())
        thread.start()
        path = str(tmp_path / "s")
        assert connect("i", path, keyboard=terminal.keyboard, screen=terminal.screen) == 0
        thread.join()


def test_a_console_that_ends_with_keys_unread(
    tmp_path: Path, terminal: Terminal, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(1)

        def end() -> None:
            guest, _ = listener.accept()
            guest.recv(1, socket.MSG_PEEK)
            guest.close()

        thread = threading.Thread(target=end)
        thread.start()
        terminal.type(b"keys")
        path = str(tmp_path / "s")
        assert connect("i", path, keyboard=terminal.keyboard, screen=terminal.screen) == 0
        thread.join()
    assert "The console of i has ended" in capfd.readouterr().err


def test_instance_that_does_not_run_is_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["inst1", str(tmp_path / "none"), str(tmp_path / "log")]) == 1
    assert "is it running?" in capfd.readouterr().err
    assert main(["inst1"]) == 2


def test_log_is_followed_until_the_instance_ends(tmp_path: Path, terminal: Terminal) -> None:
    log, mark = tmp_path / "log", tmp_path / "s"
    log.write_bytes(b"old text\n")
    mark.touch()
    path = str(log)

    def run() -> None:
        follow("i", path, keyboard=terminal.keyboard, screen=terminal.screen, running=str(mark))

    thread = threading.Thread(target=run)
    thread.start()
    assert os.read(terminal.shown, 100) == b"old text\n"
    with log.open("ab") as file:
        file.write(b"more\n")
    assert os.read(terminal.shown, 100) == b"more\n"
    os.truncate(log, 0)  # it was shortened, as such logs are
    with log.open("ab") as file:
        file.write(b"rest\n")
    assert os.read(terminal.shown, 100) == b"rest\n"
    mark.unlink()
    thread.join(60)
    assert not thread.is_alive()


def test_second_console_does_not_hang(tmp_path: Path) -> None:
    """KNOWN PAIN: the second console of an instance hung without a word."""
    log = tmp_path / "log"
    log.write_bytes(b"what the guest said\n")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(1)
        command = [
            *(sys.executable, "-m", "ganeti.hypervisor.serial_console"),
            *("inst1", str(tmp_path / "s"), str(log)),
        ]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as first:
            guest, _ = listener.accept()  # the first one holds the console now
            second = subprocess.run(command, input=LEAVE_KEY, capture_output=True, timeout=60)
            assert second.returncode == 0
            assert b"is in use" in second.stderr
            assert second.stdout == b"what the guest said\n"
            guest.close()
            assert first.wait(60) == 0
