"""Processes that outlive the call and the daemon that started them, each with a directory.

    DIRECTORY/pid      the number of the process, in a file that is locked while it runs
    DIRECTORY/log      its output, for when it breaks
    DIRECTORY/request  its task; touched by each program that asks for its progress

Only the lock says whether the process runs.  It may end by itself once nobody asks any more.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from ganeti.base.errors import GenericError
from ganeti.system import filelock, process
from ganeti.system.files import ensure_directory, write_atomic

_LOG_BYTES_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Detached:
    """One process of its own, by its directory."""

    directory: str

    @classmethod
    def make(cls, parent: str, prefix: str) -> Self:
        """Make the directory of a new process."""
        ensure_directory(parent, 0o700)
        return cls(tempfile.mkdtemp(prefix=f"{prefix}-", dir=parent))

    @property
    def request(self) -> str:
        """The file with the task of the process."""
        return f"{self.directory}/request"

    @property
    def _pid(self) -> str:
        return f"{self.directory}/pid"

    @property
    def _log(self) -> str:
        return f"{self.directory}/log"

    def save_request(self, data: bytes) -> None:
        """Write the task down, readable only by the process's own user."""
        write_atomic(self.request, data, 0o600)

    def start(self, module: str, descriptors: Sequence[int] = ()) -> None:
        """Start ``python -m MODULE DIRECTORY``, which inherits some open descriptors."""
        with contextlib.ExitStack() as opened:
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            opened.callback(os.close, log)
            lock = filelock.open_locked(self._pid)
            assert lock is not None, "nobody knows of this directory yet"
            opened.callback(os.close, lock)
            child = process.spawn(
                [sys.executable, "-m", module, self.directory],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stderr=log,
                pass_fds=[lock, *descriptors],
                cwd="/",
            )
            os.pwrite(lock, str(child.pid).encode(), 0)

    def live_pid(self) -> int | None:
        """Return the number of the process if it runs."""
        return filelock.running_pid(self._pid)

    def last_words(self) -> str:
        """Return the last line that it printed."""
        with open(self._log, encoding="utf-8", errors="replace") as log:
            lines = log.read(_LOG_BYTES_MAX).strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def note_interest(self) -> None:
        """Note that somebody asks how far it is."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.request)

    def last_interest(self) -> float | None:
        """Return when somebody asked last; None once it is forgotten."""
        try:
            return os.stat(self.request).st_mtime
        except FileNotFoundError:
            return None

    def stop(self, timeout_s: float) -> None:
        """End the process, by force after a time.

        Raises:
            GenericError: it cannot be ended.
        """
        pid = self.live_pid()
        if pid is not None and not process.terminate(pid, timeout_s):
            raise GenericError(f"process {pid} of {self.directory} cannot be ended")

    def forget(self, timeout_s: float) -> None:
        """End the process and remove its directory; errors as of `stop`."""
        self.stop(timeout_s)
        shutil.rmtree(self.directory, ignore_errors=True)
