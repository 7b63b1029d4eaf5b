"""The program behind ``gnt-instance console``: connects a terminal to a guest's serial console.

QEMU serves one client of the console at a time.  A second user is not left waiting without
a word: the console's log is followed instead, which shows the same, but takes no input.

Run as ``python -m ganeti.hypervisor.serial_console INSTANCE SOCKET LOG``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from typing import IO, Final

from ganeti.hypervisor.kvm.files import console_lock

LEAVE_KEY: Final = b"\x1d"  # Ctrl-]
_CHUNK_BYTES: Final = 4096
_FOLLOW_INTERVAL_S: Final = 0.2
_LOG_TAIL_BYTES: Final = 2048


@contextlib.contextmanager
def _raw_terminal(descriptor: int) -> Iterator[None]:
    """Hand on every key as it is, while the block runs; does nothing without a terminal."""
    if not os.isatty(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\r\n")
    sys.stderr.flush()


def _lock(path: str) -> int | None:
    """Return a descriptor that marks the console as used, or None if somebody else uses it."""
    descriptor = os.open(console_lock(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def connect(name: str, path: str, *, keyboard: int = 0, screen: int = 1) -> int:
    """Connect keyboard and screen to the console until either ends; returns the exit status."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as console:
        try:
            console.connect(path)
        except OSError as err:
            _say(f"Instance {name} has no console at {path}: {err.strerror}; is it running?")
            return 1
        _say(f"Connected to {name}; leave with Ctrl-]")
        with _raw_terminal(keyboard):
            return _exchange(name, console, keyboard, screen)


def _exchange(name: str, console: socket.socket, keyboard: int, screen: int) -> int:
    poller = select.poll()
    poller.register(console, select.POLLIN)
    poller.register(keyboard, select.POLLIN)
    while True:
        for descriptor, _events in poller.poll():
            if descriptor == console.fileno():
                data = _received(console)
                if not data:
                    _say(f"\r\nThe console of {name} has ended")
                    return 0
                _write(screen, data)
                continue
            data = os.read(keyboard, _CHUNK_BYTES)
            typed, leave, _rest = data.partition(LEAVE_KEY)
            with contextlib.suppress(ConnectionError):  # it has ended, which it tells next
                console.sendall(typed)
            if leave:
                _say("")
                return 0
            if not data:
                poller.unregister(keyboard)  # input from a file is over; the output goes on


def _received(console: socket.socket) -> bytes:
    """Return what the guest shows; nothing at the end, even if keys were not read by then."""
    try:
        return console.recv(_CHUNK_BYTES)
    except ConnectionResetError:
        return b""


def follow(
    name: str, log: str, *, keyboard: int = 0, screen: int = 1, running: str | None = None
) -> int:
    """Show the console's log as it grows until the user leaves; returns the exit status.

    Args:
        running: a path that exists while the instance runs; None to follow for ever.
    """
    _say(f"The console of {name} is in use: following its log, without input; leave with Ctrl-]")
    poller = select.poll()
    poller.register(keyboard, select.POLLIN)
    try:
        file = open(log, "rb")  # noqa: SIM115 - closed by the with statement below
    except OSError as err:
        _say(f"Cannot read {log}: {err.strerror}")
        return 1
    with file, _raw_terminal(keyboard):
        _seek_near_end(file)
        while True:
            goes_on = running is None or os.path.exists(running)
            if file.tell() > os.fstat(file.fileno()).st_size:  # it was shortened
                _seek_near_end(file)
            while data := file.read(_CHUNK_BYTES):
                _write(screen, data)
            if not goes_on:
                return 0
            for _descriptor, _events in poller.poll(_FOLLOW_INTERVAL_S * 1000):
                typed = os.read(keyboard, _CHUNK_BYTES)
                if LEAVE_KEY in typed:
                    return 0
                if not typed:
                    poller.unregister(keyboard)


def _seek_near_end(file: IO[bytes]) -> None:
    file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_TAIL_BYTES))


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; returns the exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if len(words) != 3:
        _say("usage: serial_console INSTANCE SOCKET LOG")
        return 2
    name, path, log = words
    lock = _lock(path) if os.path.isdir(os.path.dirname(path)) else None
    try:
        if lock is None and os.path.exists(path):
            return follow(name, log, running=path)
        return connect(name, path)
    except BrokenPipeError:
        return 0
    finally:
        if lock is not None:
            os.close(lock)


if __name__ == "__main__":
    sys.exit(main())
