"""Running processes: their facts, the name that ``ps`` shows, and how one hears of their end.

Source: proc(5), pidfd_open(2).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ganeti.system.files import closing

if TYPE_CHECKING:
    import asyncio  # not loaded by job processes: half their memory

_COMM_PATH: Final = "/proc/self/comm"
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_ZOMBIES: Final = (b"Z", b"X")
_STOPPED: Final = "T"
# Fields of /proc/PID/stat, counted from the one behind the name.
_STATE, _UTIME, _STIME, _THREADS, _STARTED, _RESIDENT = 0, 11, 12, 17, 19, 21


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One process; ``started_s`` is in seconds since the epoch, as exact as the system tells.

    Attributes:
        state: one letter, as proc(5) has it.
    """

    pid: int
    state: str
    cpu_s: float
    started_s: float
    threads: int
    resident_bytes: int

    @property
    def is_stopped(self) -> bool:
        """Whether a signal keeps it from going on."""
        return self.state == _STOPPED


def catches(pid: int, number: signal.Signals) -> bool:
    """Tell whether a process handles a signal, which would end it otherwise."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            mask = next((line for line in file if line.startswith("SigCgt:")), "SigCgt: 0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return bool(int(mask.split()[1], 16) >> (number - 1) & 1)


def read(pid: int) -> ProcessFacts | None:
    """Look at a process; None when there is none, or only a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if len(fields) <= _RESIDENT or fields[_STATE] in _ZOMBIES:
        return None
    booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)  # moves with the clock
    since_boot_s = int(fields[_STARTED]) / _TICKS_PER_SECOND
    return ProcessFacts(
        pid=pid,
        state=fields[_STATE].decode("ascii"),
        cpu_s=(int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_SECOND,
        started_s=booted_s + since_boot_s,
        threads=int(fields[_THREADS]),
        resident_bytes=int(fields[_RESIDENT]) * _PAGE_BYTES,
    )


def arguments(pid: int) -> list[str]:
    """Return the command line of a process.

    Raises:
        OSError: it has ended.
    """
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().decode("utf-8", "surrogateescape").split("\0")[:-1]


def open_files(pid: int) -> int | None:
    """Return how many descriptors a process has; None when it is gone or somebody else's."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None


def show_name(name: str) -> None:
    """Set this process's name for ``ps`` and ``top``; the kernel keeps 15 characters."""
    with contextlib.suppress(OSError), closing(os.open(_COMM_PATH, os.O_WRONLY)) as file:
        os.write(file, name.encode())


def name_of(pid: int) -> str:
    """Return the name that a process shows; "" if it is gone."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().rstrip("\n")
    except (FileNotFoundError, ProcessLookupError):
        return ""


@contextlib.contextmanager
def signals_wait(numbers: Iterable[int]) -> Iterator[None]:
    """Let signals that the main thread is sent wait until the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ExitWatcher:
    """Calls back once for each watched process that ends, child or not, without polling.

    A process descriptor (``pidfd``) becomes readable when its process ends.  It is a prompt to
    look, no more: a number may have been used again before the descriptor was opened, so a lock
    file decides whether the process that was meant has died.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._descriptors: dict[int, int] = {}

    def watch(self, pid: int, callback: Callable[[], None]) -> bool:
        """Begin to watch a process; returns False, and never calls, if there is none.

        A process watched already gets the new callback.
        """
        self.forget(pid)
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        self._descriptors[pid] = descriptor
        self._loop.add_reader(descriptor, self._on_exit, pid, callback)
        return True

    def signal(self, pid: int, number: signal.Signals) -> bool:
        """Send a signal to a watched process, never to another that got its number.

        Returns:
            Whether it was there to get it.
        """
        descriptor = self._descriptors.get(pid)
        if descriptor is None:
            return False
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        return True

    def forget(self, pid: int) -> None:
        """Stop watching a process."""
        descriptor = self._descriptors.pop(pid, None)
        if descriptor is not None:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Stop watching all processes."""
        for pid in list(self._descriptors):
            self.forget(pid)

    def _on_exit(self, pid: int, callback: Callable[[], None]) -> None:
        self.forget(pid)
        callback()
