"""Log files of daemons and job processes: a line has time, program, job, level and message.

Writing a log line never fails and never blocks the program's work: lines lost to a full disk are
counted, and the count written once there is room again; meanwhile lines can go to the console.  A
file that was rotated away is followed by its name.

Source: design of Ganeti 2.1, "Node daemon in RAM", for the console.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.system.files import closing, open_not_led

FILE_MODE: Final = 0o600
SYSLOG_SOCKET: Final = "/dev/log"
_CONSOLE: Final = "/dev/console"
_LOST: Final = b"(%d lines before this one are lost: they could not be written)\n"

_job_id: ContextVar[int | None] = ContextVar("job_id", default=None)


@contextlib.contextmanager
def job_context(job_id: int | None) -> Iterator[None]:
    """Put this job's id on every line logged inside, tasks and threads started there included."""
    token = _job_id.set(job_id)
    try:
        yield
    finally:
        _job_id.reset(token)


def set_job(job_id: int | None) -> None:
    """Put this job's id on every line from here on (for a process that runs one job)."""
    _job_id.set(job_id)


class LineFormatter(logging.Formatter):
    """Formats ``2026-01-31 12:00:00,123: ganeti-luxid pid=42 job=7 INFO text``."""

    def __init__(self, program: str, *, with_time: bool = True) -> None:
        super().__init__()
        self._program = program
        self._with_time = with_time

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end; later lines of a long text are indented.

        So no text from outside can pass for a line of its own.
        """
        job_id = _job_id.get()
        job = "" if job_id is None else f" job={job_id}"
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        text = text.rstrip("\n").replace("\n", "\n    ").replace("\0", "\\0")
        line = f"{self._program} pid={os.getpid()}{job} {record.levelname} {text}"
        if not self._with_time:
            return line
        local = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        return f"{local},{int(record.msecs):03d}: {line}"


class FileHandler(logging.Handler):
    """Appends lines to a file that may be renamed, or stand on a full or failed disk.

    Args:
        console: terminal that is written to while the file cannot be; "" for none.
        lost_note: the line that tells how many lines could not be written.
    """

    def __init__(self, path: str, console: str = "", lost_note: bytes = _LOST) -> None:
        super().__init__()
        self._lost_note = lost_note
        self.path = path
        self._console = console
        self._identity: tuple[int, int] | None = None
        self._lost_lines = 0
        self._is_inside_line = False
        self._descriptor = self._open()

    def reopen(self) -> None:
        """Open the file by its name again; if that fails, go on with the old one."""
        with self.lock_held():
            old = self._descriptor
            with contextlib.suppress(OSError):
                self._descriptor = self._open()
                if self._descriptor != old:  # the same, if somebody had closed it
                    os.close(old)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line; if the file does not take it, count it as lost and tell the console."""
        try:
            line = self.format(record)
        except Exception as err:  # noqa: BLE001 - a wrong %-format must not stop the work
            line = f"cannot format log line {record.msg!r}: {err}"
        if self._is_rotated():
            self.reopen()
        encoded = line.encode("utf-8", "backslashreplace")
        try:
            self._write(encoded)
        except OSError:
            self._lost_lines += 1
            self._tell_console(encoded)
            self.reopen()  # for the next line: somebody may have closed the descriptor

    @contextlib.contextmanager
    def lock_held(self) -> Iterator[None]:
        """Keep other threads from writing."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError), self.lock_held():
            os.close(self._descriptor)
        super().close()

    def fileno(self) -> int:
        """Return the descriptor in use."""
        return self._descriptor

    def _tell_console(self, line: bytes) -> None:
        """Write a line to the console, without ever waiting for it."""
        if not self._console:
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        with contextlib.suppress(OSError), closing(os.open(self._console, flags)) as console:
            os.write(console, line + b"\r\n")

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        descriptor = open_not_led(self.path, flags, FILE_MODE)
        state = os.fstat(descriptor)
        self._identity = (state.st_dev, state.st_ino)
        return descriptor

    def _is_rotated(self) -> bool:
        try:
            state = os.stat(self.path)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return (state.st_dev, state.st_ino) != self._identity

    def _write(self, line: bytes) -> None:
        data = line + b"\n"
        if self._lost_lines:
            data = self._lost_note % self._lost_lines + data
        if self._is_inside_line:
            data = b"\n" + data
        written = os.write(self._descriptor, data)
        self._is_inside_line = written < len(data)
        if self._is_inside_line:
            raise OSError("disk full inside a line")
        self._lost_lines = 0


def make(path: str) -> None:
    """Make a log file, if it is not there."""
    os.close(open_not_led(path, os.O_WRONLY | os.O_CREAT, FILE_MODE))


def console_of(paths: Paths) -> str:
    """Return the node's console; a virtual node has one only if somebody made it."""
    return paths.localize(_CONSOLE)


def set_up(
    program: str,
    path: str | None,
    *,
    debug: bool,
    console: bool,
    syslog: str = "no",
    fallback: str = "",
) -> FileHandler | None:
    """Send everything logged in this process to a file, the console, the system log.

    Args:
        path: the log file, or None for none.
        console: also write to standard error.
        syslog: "no", "yes", or "only" (then no file).
        fallback: terminal for lines that cannot be written to the file.

    Raises:
        GenericError: the log file or the system log cannot be opened.
    """
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.setLevel(logging.DEBUG if debug else logging.INFO)
    _leave_out_what_no_line_has()
    if console:
        stream = logging.StreamHandler()
        stream.setFormatter(LineFormatter(program))
        root.addHandler(stream)
    if syslog != "no":
        root.addHandler(_syslog_handler(program))
    if path is None or syslog == "only":
        return None
    try:
        file_handler = FileHandler(path, fallback)
    except OSError as err:
        raise GenericError(f"cannot open log file {path}: {err.strerror}") from err
    file_handler.setFormatter(LineFormatter(program))
    root.addHandler(file_handler)
    faulthandler.enable(file_handler.fileno())  # where a crash of the interpreter is told
    return file_handler


@contextlib.contextmanager
def diverted(path: str) -> Iterator[None]:
    """Send everything logged inside to another file, in the same form.

    Raises:
        OSError: it cannot be opened.
    """
    root = logging.getLogger()
    before = list(root.handlers)
    handler = FileHandler(path)
    handler.setFormatter(next((each.formatter for each in before), None))
    root.handlers[:] = [handler]
    try:
        yield
    finally:
        root.handlers[:] = before
        handler.close()


def _leave_out_what_no_line_has() -> None:
    """Let records be made without the place of the call, thread and process.

    Source: the Python documentation, "Logging HOWTO", "Optimization".
    """
    logging._srcfile = None  # noqa: SLF001 - as documented there
    logging.logThreads = False
    logging.logProcesses = False
    logging.logMultiprocessing = False


def _syslog_handler(program: str) -> logging.Handler:
    from logging.handlers import SysLogHandler

    if not os.path.exists(SYSLOG_SOCKET):  # the handler would go on without saying so
        raise GenericError(f"there is no system log at {SYSLOG_SOCKET}")
    handler = SysLogHandler(SYSLOG_SOCKET, SysLogHandler.LOG_DAEMON)
    handler.setFormatter(LineFormatter(program, with_time=False))
    return handler
