"""Running scripts that administrators and operating systems bring along.

Names of scripts are checked before they become paths; environments are replaced, never inherited;
the output of a script goes to the answer in part and to a log file as a whole.
"""

import contextlib
import fcntl
import os
import select
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ganeti.base.errors import CommandError, GenericError
from ganeti.base.text import is_plugin_name
from ganeti.system import clock, process
from ganeti.system.programs import find_plugin, is_runnable

PATH: Final = "/sbin:/bin:/usr/sbin:/usr/bin"

_OUTPUT_TAIL_LINES: Final = 20
_OUTPUT_TAIL_BYTES: Final = 16 << 10
# A script that prints without end must not fill the disk: from here on its output is dropped.
_LOG_BYTES_MAX: Final = 16 << 20
_CHUNK_BYTES: Final = 1 << 16
_NOT_STARTED: Final = 127  # exit status, as a shell has it


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """The end of a script whose output is in a log file; ``status`` is None when it was stopped."""

    status: int | None
    log_path: str
    tail: str

    def failure(self, what: str) -> str:
        """Say in words that it failed."""
        how = (
            "did not end in time and was stopped"
            if self.status is None
            else f"failed with exit status {self.status}"
            if self.status >= 0
            else f"was killed by {_signal_name(-self.status)}"
        )
        said = f"; its last output:\n{self.tail}" if self.tail else "; it printed nothing"
        return f"{what} {how} (log file {self.log_path}){said}"


def _signal_name(number: int) -> str:
    """Return the name of a signal; those for programs' own use have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def find_executable(name: str, directories: Iterable[str], what: str) -> str:
    """Return the first executable file of that name.

    Raises:
        GenericError: no such file, or no valid name.
    """
    searched = list(directories)
    path = find_plugin(name, searched, what)
    if path is not None:
        return path
    raise GenericError(f"{what} {name!r} is not in {', '.join(searched)}")


def run_parts(
    directory: str, *, env: Mapping[str, str], timeout_s: float
) -> Iterator[tuple[str, process.CommandResult | None]]:
    """Run the scripts of a directory in order, yielding (name, result); None for one passed over.

    A directory that is not there has no scripts.  All together have ``timeout_s`` seconds; those
    for which nothing of that is left have failed, and are not begun.  One that cannot be started
    has failed, and those behind it run all the same.

    Source: hooks_os_ext.json, hooks "order".
    """
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return
    deadline_s = clock.monotonic() + timeout_s
    for name in names:
        path = os.path.join(directory, name)
        if not is_plugin_name(name) or not is_runnable(path):
            yield name, None
            continue
        yield name, _run_part(path, env, deadline_s - clock.monotonic())


def _run_part(path: str, env: Mapping[str, str], timeout_s: float) -> process.CommandResult:
    if timeout_s <= 0:
        said = b"not started: those before it took all the time"
        return process.CommandResult((path,), _NOT_STARTED, b"", said)
    try:
        return process.run([path], timeout_s=timeout_s, env=env, cwd="/")
    except (CommandError, ValueError) as err:  # no interpreter, or a null byte in a variable
        return process.CommandResult((path,), _NOT_STARTED, b"", str(err).encode())


def is_without_parts(directory: str) -> bool:
    """Tell whether `run_parts` would find nothing at all there."""
    try:
        with os.scandir(directory) as entries:
            return next(entries, None) is None
    except (FileNotFoundError, NotADirectoryError):
        return True


def run_logged(
    argv: Sequence[str], log_path: str, *, env: Mapping[str, str], cwd: str, timeout_s: float
) -> LoggedRun:
    """Run a script to its end with its output in a log file.

    Raises:
        CommandError: the script could not be started.
        OSError: the log file could not be written.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    with os.fdopen(reader, "rb", 0) as output, open(log_path, "wb", 0) as log:
        with os.fdopen(writer, "wb", 0) as input_end:
            end = input_end.fileno()
            started = process.spawn(argv, env=env, stdout=end, stderr=end, cwd=cwd)
        copy = LogCopy(output.fileno(), log.fileno())
        status = _follow(started, copy, clock.monotonic() + timeout_s)
    return LoggedRun(status, log_path, copy.tail())


class _Started(Protocol):
    """A process that was started."""

    pid: int
    returncode: int

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""

    def wait(self) -> int:
        """Wait for the end."""


class LogCopy:
    """Copies the output of a script to its log, as far as that may grow, and keeps the end."""

    def __init__(self, source: int, log: int) -> None:
        self.source = source
        self._log = log
        self._room_bytes = _LOG_BYTES_MAX
        self._end = bytearray()
        fcntl.fcntl(source, fcntl.F_SETFL, os.O_NONBLOCK)

    def read_once(self) -> bool:
        """Copy the output that is there; returns False at the end of it."""
        try:
            data = os.read(self.source, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        if self._room_bytes > 0:
            os.write(self._log, data[: self._room_bytes])
            self._room_bytes -= len(data)
        self._end += data
        del self._end[:-_OUTPUT_TAIL_BYTES]
        return bool(data)

    def follow(self, ended: int) -> None:
        """Copy until the script has ended, by its descriptor; what cannot be written is dropped."""
        poller = select.poll()
        poller.register(ended, select.POLLIN)
        poller.register(self.source, select.POLLIN)
        while ended not in (ready := [descriptor for descriptor, _event in poller.poll()]):
            if self.source in ready and not self._read_on():
                poller.unregister(self.source)
        with contextlib.suppress(OSError):
            self.drain()

    def _read_on(self) -> bool:
        try:
            return self.read_once()
        except OSError:  # no room on the disk
            self._room_bytes = 0
            return True

    def drain(self) -> None:
        """Copy the rest without waiting for more: a process left behind may print for ever."""
        poller = select.poll()  # unlike select() it takes descriptors above 1,023
        poller.register(self.source, select.POLLIN)
        for _round in range(_LOG_BYTES_MAX // _CHUNK_BYTES):
            if not poller.poll(0) or not self.read_once():
                return

    def tail(self) -> str:
        """Return the last lines of the output."""
        lines = self._end.decode("utf-8", "replace").strip().splitlines()
        return "\n".join(lines[-_OUTPUT_TAIL_LINES:])


def _follow(started: _Started, copy: LogCopy, deadline_s: float) -> int | None:
    """Copy the output until the script has ended; returns its exit status, None when stopped."""
    ended = os.pidfd_open(started.pid)
    try:
        poller = select.poll()
        poller.register(ended, select.POLLIN)
        poller.register(copy.source, select.POLLIN)
        while started.poll() is None:
            left_s = deadline_s - clock.monotonic()
            if left_s <= 0:
                return None
            ready = [descriptor for descriptor, _event in poller.poll(left_s * 1000)]
            if copy.source in ready and not copy.read_once():
                poller.unregister(copy.source)
        return started.returncode
    finally:
        os.close(ended)
        if started.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()
        copy.drain()
