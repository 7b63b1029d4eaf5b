"""What signals ask of a running job: SIGTERM cancels it, SIGUSR1 gives it another priority.

A request is honoured where the job looks for it (between opcodes, in waits) and at once while it
waits for locks; elsewhere a handler only takes a note, as it may have come in the middle of
anything.  SIGHUP, by which Ganeti 3.0's WConfD wakes lock waiters, means nothing here.

Source: luxi.json, "job_process".
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

from ganeti.base.errors import GenericError, JobCanceled
from ganeti.logical_units.locks import PriorityChangedError
from ganeti.system import clock, files

CANCELED_TEXT: Final = "Job canceled by request"
_PRIORITY_FILE_BYTES_MAX: Final = 16


class Control:
    """Receives the signals of one job process.

    It is made before LuxiD learns which process has the job, so that no signal comes too early.

    Attributes:
        priority_path: the file that LuxiD leaves a new priority in.
        on_priority: takes a new priority, and tells whether it reached what the job waits for;
            None while nothing can be done yet.
    """

    def __init__(self, priority_path: str) -> None:
        self.is_canceled = False
        self.priority_path = priority_path
        self.on_priority: Callable[[int], bool] | None = None
        self._priority: int | None = None
        self._interruptible_depth = 0
        self._wakeup_in, wakeup_out = os.pipe()
        os.set_blocking(self._wakeup_in, False)
        os.set_blocking(wakeup_out, False)
        signal.set_wakeup_fd(wakeup_out, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.signal(signal.SIGUSR1, self._on_sigusr1)

    def check_canceled(self) -> None:
        """Raise JobCanceled if somebody asked to cancel the job."""
        if self.is_canceled:
            raise JobCanceled(CANCELED_TEXT)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Raise JobCanceled inside this block as soon as the request comes.

        Raises PriorityChangedError when a new priority comes that nobody but the block can use.
        """
        self.take_priority()
        self._interruptible_depth += 1
        try:
            self.check_canceled()
            self.take_priority()  # what came in between
            yield
        finally:
            self._interruptible_depth -= 1

    def take_priority(self) -> None:
        """Act on a new priority that was only noted so far."""
        if self.on_priority is not None and self._priority is not None:
            priority, self._priority = self._priority, None
            is_known = self.on_priority(priority)
            if self._interruptible_depth and not is_known:
                raise PriorityChangedError

    def wait(self, seconds: float) -> None:
        """Sleep, unless the job is canceled: then raise JobCanceled."""
        deadline = clock.monotonic() + seconds
        while True:
            self.check_canceled()
            left_s = deadline - clock.monotonic()
            if left_s <= 0:
                return
            if select.select([self._wakeup_in], [], [], left_s)[0]:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakeup_in, 4096)

    def pause(self, seconds: float) -> None:
        """Sleep, canceled or not: for what must not be left half done."""
        select.select([], [], [], seconds)

    def _on_sigterm(self, _number: int, _frame: FrameType | None) -> None:
        self.is_canceled = True
        if self._interruptible_depth:
            raise JobCanceled(CANCELED_TEXT)

    def _on_sigusr1(self, _number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(OSError, ValueError, GenericError):  # no message: ignoring
            text = files.read_bytes(self.priority_path, _PRIORITY_FILE_BYTES_MAX)
            self._priority = int(text)
        if self._interruptible_depth:
            self.take_priority()


def ignore_stray_signals() -> None:
    """Let nothing but SIGTERM and SIGKILL end the process before it has a job."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
