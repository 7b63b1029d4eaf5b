"""Starting processes: the only door to other programs.

Every call has a deadline and a limit on the output that it keeps; a command that exceeds one is
killed with all its children (each command leads a process group of its own).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Final, Protocol, TypeAlias

from ganeti.base.errors import CommandError
from ganeti.system import process_facts
from ganeti.system.files import closing

OUTPUT_BYTES_MAX: Final = 4 << 20  # more than any well-behaved command prints
_OUTPUT_TAIL_LINES: Final = 20
_OUTPUT_TAIL_CHARACTERS: Final = 16 << 10  # of the output that goes into messages and job files
_KILL_GRACE_S: Final = 5.0
_NULL: Final = subprocess.DEVNULL
_PIPE: Final = subprocess.PIPE
_LINGER_S: Final = 5.0  # constants.json, CHILD_LINGER_TIMEOUT


class Child(Protocol):
    """The part of a child process that is needed here."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit status if it has ended, and collect it."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command; ``status`` is negative when a signal ended it."""

    argv: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False

    @property
    def succeeded(self) -> bool:
        """Whether it has ended well, and all of its output is here."""
        return self.status == 0 and not (self.timed_out or self.truncated)

    @property
    def output(self) -> str:
        """Standard output and error as text, for messages."""
        return (self.stdout + self.stderr).decode("utf-8", "replace")

    def output_tail(self, lines: int = _OUTPUT_TAIL_LINES) -> str:
        """Return the last lines of the output, however long these are."""
        return "\n".join(self.output[-_OUTPUT_TAIL_CHARACTERS:].strip().splitlines()[-lines:])

    def check(self) -> CommandResult:
        """Return this result if the command succeeded.

        Raises:
            CommandError: it failed; the text says how, with the last lines of its output.
        """
        if self.succeeded:
            return self
        tail = self.output_tail()
        text = f"command {' '.join(self.argv)!r} {describe_end(self)}"
        raise CommandError(f"{text}: {tail}" if tail else text, self.argv, self.status, tail)


def describe_end(result: CommandResult) -> str:
    """Say in words how a command ended."""
    if result.timed_out:
        return "did not end in time and was killed"
    if result.truncated:
        # The last of it lay in the pipe, perhaps: then the command had ended by itself.
        return "printed too much" if result.status == 0 else "printed too much and was killed"
    if result.status < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-result.status).name}"
    return f"failed with exit status {result.status}"


class _Collector:
    """Reads a child's pipes until it has ended, a deadline passes or too much came.

    Programs that the child left running may keep the pipes open: after the child's end they are
    read for a short while only.
    """

    def __init__(
        self, pid: int, pipes: Sequence[IO[bytes]], limit_bytes: int, stop_fd: int | None
    ) -> None:
        self._pid = pid
        self._stop_fd = stop_fd
        self._pipes = {pipe.fileno(): pipe for pipe in pipes}
        self._left_bytes = limit_bytes
        self.chunks: dict[IO[bytes], bytearray] = {pipe: bytearray() for pipe in pipes}

    def run(self, deadline: float) -> tuple[bool, bool]:
        """Return (timed out, truncated)."""
        with closing(os.pidfd_open(self._pid)) as pidfd:
            return self._collect(pidfd, deadline)

    def _collect(self, pidfd: int, deadline: float) -> tuple[bool, bool]:
        poller = select.poll()
        waited_for = {pidfd, *self._pipes}
        for descriptor in waited_for:
            poller.register(descriptor, select.POLLIN | select.POLLHUP)
        if self._stop_fd is not None:
            poller.register(self._stop_fd, select.POLLIN)
        while waited_for:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return pidfd in waited_for, False
            for descriptor, _event in poller.poll(left_s * 1000):
                if descriptor == self._stop_fd:
                    return True, False
                if descriptor != pidfd and self._read(descriptor):
                    continue
                poller.unregister(descriptor)
                waited_for.discard(descriptor)
                if descriptor == pidfd:
                    deadline = min(deadline, time.monotonic() + _LINGER_S)
            if self._left_bytes < 0:
                return False, True
        return False, False

    def _read(self, descriptor: int) -> bool:
        data = os.read(descriptor, 65536)
        self._left_bytes -= len(data)
        if self._left_bytes >= 0:
            self.chunks[self._pipes[descriptor]] += data
        return bool(data)


class Stops:
    """Errors that handlers of signals raise in the main thread, wherever that is.

    One that comes while `run` starts a program waits until there is somebody to end that program.
    """

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: BaseException | None = None

    def stop(self, error: BaseException) -> None:
        """Raise the error, now or when the program has been started."""
        if not self._is_held:
            raise error
        self._waiting = error

    def hold(self) -> None:
        """Let errors wait, in the main thread; signals have no handlers in others."""
        if threading.current_thread() is threading.main_thread():
            self._is_held = True

    def release(self) -> None:
        """Let errors wait no more; raises one that has come."""
        if threading.current_thread() is threading.main_thread():
            self._is_held = False
            error, self._waiting = self._waiting, None
            if error is not None:
                raise error


stops: Final = Stops()


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdin: bytes | None = None,
    output_bytes_max: int = OUTPUT_BYTES_MAX,
    stop_fd: int | None = None,
    leaves_nothing: bool = False,
) -> CommandResult:
    """Run a command to its end and return its exit status and output.

    Args:
        leaves_nothing: processes that it started and left running are killed, too.
        env: the whole environment; None hands on ours.
        stdin: small input, held in memory; without it the command reads an empty input.
        stop_fd: once this descriptor can be read, the command's time is over.

    Raises:
        CommandError: the program could not be started at all.
    """
    deadline = time.monotonic() + timeout_s
    with contextlib.ExitStack() as stack:
        source = None if stdin is None else stack.enter_context(_anonymous_file(stdin)).fileno()
        stops.hold()
        try:
            child = spawn(argv, env=env, cwd=cwd, stdin=source, stdout=_PIPE, stderr=_PIPE)
        except BaseException:
            stops.release()
            raise
        stack.enter_context(child)
        assert child.stdout is not None
        assert child.stderr is not None
        collector = _Collector(child.pid, (child.stdout, child.stderr), output_bytes_max, stop_fd)
        try:
            stops.release()
            timed_out, truncated = collector.run(deadline)
        finally:
            # Its number stays that of its group until it is collected, which `poll` does.
            if leaves_nothing or child.poll() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait(_KILL_GRACE_S)
        return CommandResult(
            tuple(argv),
            child.returncode,
            bytes(collector.chunks[child.stdout]),
            bytes(collector.chunks[child.stderr]),
            timed_out,
            truncated,
        )


def _anonymous_file(data: bytes) -> IO[bytes]:
    """Return an open file in memory with that content, rewound."""
    file = os.fdopen(os.memfd_create("stdin", os.MFD_CLOEXEC), "r+b")
    file.write(data)
    file.seek(0)
    return file


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    pass_fds: Sequence[int] = (),
    cwd: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child of ours that goes on by itself; the caller waits for it.

    Descriptors not named are closed or connected to nothing.

    Raises:
        CommandError: the program could not be started.
    """
    stdin, stdout, stderr = (_NULL if each is None else each for each in (stdin, stdout, stderr))
    try:
        return subprocess.Popen(
            list(argv),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=None if env is None else dict(env),
            pass_fds=tuple(pass_fds),
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as err:
        text = f"cannot run {argv[0]!r}: {err.strerror or err}"
        raise CommandError(text, tuple(argv), None, "") from err


Started: TypeAlias = subprocess.Popen[bytes]
"""A child of ours that was started by `spawn`."""


def end(child: Started, timeout_s: float) -> None:
    """Ask a child of ours to end, kill it if it does not, and collect it."""
    child.terminate()
    try:
        child.wait(timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def wait_gone(pid: int, timeout_s: float) -> bool:
    """Wait until a process (a child of ours or not) has ended; returns whether it has."""
    try:
        opened = closing(os.pidfd_open(pid))
    except ProcessLookupError:
        return True
    with opened as descriptor:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(timeout_s * 1000)) or process_facts.read(pid) is None


def terminate(pid: int, timeout_s: float) -> bool:
    """Ask a process to end, kill it when it has not in time; returns whether it is gone."""
    for number, patience_s in ((signal.SIGTERM, timeout_s), (signal.SIGKILL, _KILL_GRACE_S)):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return True
        if wait_gone(pid, patience_s):
            return True
    return False
