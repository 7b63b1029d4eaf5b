"""QEMU processes: starting one, finding it again, ending it.

A process is found by its pid file and known by its command line, which names that very pid file: so
a number that went to another process meanwhile is never mistaken for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ganeti.base.errors import CommandError, HypervisorError
from ganeti.hypervisor.kvm.files import MachineFiles
from ganeti.system import process, process_facts
from ganeti.system.files import read_bytes_or_none

_PID_BYTES_MAX: Final = 64
_COMMAND_BYTES_MAX: Final = 1 << 20
_LOG_TAIL_BYTES: Final = 4096
_TERM_TIMEOUT_S: Final = 5.0


class _Child(Protocol):
    def poll(self) -> int | None: ...


_children: list[_Child] = []  # started here, to be reaped when they have ended


@dataclass(frozen=True, slots=True)
class QemuProcess:
    """A running QEMU."""

    pid: int
    arguments: tuple[str, ...]

    def argument(self, option: str) -> str:
        """Return what follows an option on the command line, or ""."""
        with contextlib.suppress(ValueError, IndexError):
            return self.arguments[self.arguments.index(option) + 1]
        return ""

    def cpu_time_s(self) -> float:
        """Return the processor time that it has used."""
        facts = process_facts.read(self.pid)
        return 0.0 if facts is None else facts.cpu_s


def _reap() -> None:
    _children[:] = [child for child in _children if child.poll() is None]


def find_process(files: MachineFiles) -> QemuProcess | None:
    """Find the QEMU of an instance; None when it does not run."""
    _reap()
    data = read_bytes_or_none(files.pid_file, _PID_BYTES_MAX)
    if data is None or not data.strip().isdigit():
        return None
    pid = int(data)
    if not process.pid_alive(pid):
        return None
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read(_COMMAND_BYTES_MAX)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    found = QemuProcess(pid, tuple(os.fsdecode(word) for word in command.split(b"\0")[:-1]))
    return found if found.argument("-pidfile") == files.pid_file else None


def launch(command: Sequence[str], files: MachineFiles, descriptors: Sequence[int]) -> int:
    """Start QEMU in a session of its own, with its messages in its log; returns its number.

    Raises:
        HypervisorError: the program cannot be run.
    """
    _reap()
    log = os.open(files.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        child = process.spawn(
            command,
            env={**os.environ, "LC_ALL": "C"},
            stdout=log,
            stderr=log,
            pass_fds=descriptors,
            cwd="/",
        )
    except CommandError as err:
        raise HypervisorError(err.message) from err
    finally:
        os.close(log)
    _children.append(child)
    return child.pid


def log_tail(files: MachineFiles) -> str:
    """Return the last of what QEMU printed."""
    try:
        with open(files.log, "rb") as file:
            file.seek(max(0, os.path.getsize(files.log) - _LOG_TAIL_BYTES))
            return file.read().decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return ""


def end(pid: int) -> bool:
    """End a process, by force if need be; returns whether it is gone."""
    ended = process.terminate(pid, _TERM_TIMEOUT_S)
    _reap()
    return ended


def kill(pid: int) -> bool:
    """Kill a process at once; returns whether it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    gone = process.wait_gone(pid, _TERM_TIMEOUT_S)
    _reap()
    return gone
