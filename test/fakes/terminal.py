"""A program at a terminal, as a person sits before it."""

from __future__ import annotations

import os
import pty
import select
import signal
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self


class Terminal:
    """Runs a program at a new terminal; it ends with the block."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._argv = list(argv)
        self._environment = dict(environment)

    def __enter__(self) -> Self:
        self._pid, self._master = pty.fork()
        if self._pid == 0:
            os.execvpe(self._argv[0], self._argv, self._environment)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.close(self._master)
        os.waitpid(self._pid, 0)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def until(self, wanted: str, timeout_s: float = 30.0) -> str:
        """Return what is shown until some text has come, that included."""
        seen = b""
        deadline = time.monotonic() + timeout_s
        while wanted.encode() not in seen:
            ready, _, _ = select.select([self._master], [], [], max(0, deadline - time.monotonic()))
            assert ready, seen
            seen += os.read(self._master, 4096)
        return seen.decode()
