"""What signals ask of a job: SIGTERM cancels it, SIGUSR1 changes its priority, SIGUSR2 queues it.

A request is honoured where the job looks for it (between opcodes, in waits) and at once while the
job is *armed*, which is while it waits for locks or for a script; elsewhere a handler only takes a
note, as it may have come in the middle of anything.  SIGHUP, by which Ganeti 3.0's WConfD wakes
lock waiters, means nothing here.  SIGUSR2 makes room for a more urgent job: one that waits for
locks steps back into the queue; once it has them, the request is void.

Theory of operation.  A handler may come between any two instructions, those included by which a
wait begins or ends.  So there is one flag, and two rules.  Handlers only note the request, and
act, by `_take_notes`, if the flag is up.  That takes the flag down first and puts it up again only
when it is about to return: any exception of it has disarmed the job, whether or not the block that
was armed gets the chance to; and a second signal, which comes while the first is acted upon, only
adds a note, which `_take_notes` finds before it returns.

Source: luxi.json, "job_process".
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType
from typing import Final

from ganeti.base.errors import GenericError, JobCanceled
from ganeti.logical_units.locks import PriorityChangedError, StepBackError
from ganeti.system import clock, files

logger = logging.getLogger(__name__)

CANCELED_TEXT: Final = "Job canceled by request"
_PRIORITY_FILE_BYTES_MAX: Final = 16


class Control:
    """Receives the signals of one job process.

    It is made before LuxiD learns which process has the job, so that no signal comes too early.

    Attributes:
        priority_path: the file that LuxiD leaves a new priority in.
        on_priority: takes a new priority, and tells whether it reached what the job waits for;
            None while nothing can be done yet.
        may_step_back: tells whether the opcode still waits for its locks.
    """

    def __init__(self, priority_path: str) -> None:
        self.is_canceled = False
        self.is_armed = False
        self.priority_path = priority_path
        self.on_priority: Callable[[int], bool] | None = None
        self.may_step_back: Callable[[], bool] = lambda: False
        self.is_to_step_back = False
        self._has_new_priority = False
        self._wakeup_in, wakeup_out = os.pipe()
        os.set_blocking(self._wakeup_in, False)
        os.set_blocking(wakeup_out, False)
        signal.set_wakeup_fd(wakeup_out, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.signal(signal.SIGUSR1, self._on_sigusr1)
        signal.signal(signal.SIGUSR2, self._on_sigusr2)

    def close(self) -> None:
        """Let the descriptors go; what still comes means nothing any more."""
        os.close(signal.set_wakeup_fd(-1))
        os.close(self._wakeup_in)

    def check_canceled(self) -> None:
        """Raise JobCanceled if somebody asked to cancel the job."""
        if self.is_canceled:
            raise JobCanceled(CANCELED_TEXT)

    def interruptible(self) -> AbstractContextManager[None]:
        """Raise JobCanceled inside this block as soon as the request comes.

        Raises PriorityChangedError when a new priority comes that nobody but the block can use, and
        StepBackError when the job is to make room and its work has not begun.
        Such blocks do not nest: whatever is raised ends all of them.
        """
        return _Armed(self)

    def take_priority(self) -> bool:
        """Act on a new priority that was only noted so far.

        Returns:
            False if the request that the job waits for does not have it yet.
        """
        if self.on_priority is None or not self._has_new_priority:
            return True
        self._has_new_priority = False  # before the look: a still newer one makes another note
        priority = self._read_priority()
        return priority is None or self.on_priority(priority)

    def _read_priority(self) -> int | None:
        try:
            return int(files.read_bytes(self.priority_path, _PRIORITY_FILE_BYTES_MAX))
        except (OSError, ValueError, GenericError) as err:
            logger.debug("no priority in %s: %s; ignoring", self.priority_path, err)
            return None

    def wait(self, seconds: float) -> None:
        """Sleep, unless the job is canceled: then raise JobCanceled."""
        deadline = clock.monotonic() + seconds
        poller = select.poll()  # unlike select() it takes descriptors above 1,023
        poller.register(self._wakeup_in, select.POLLIN)
        while True:
            self.check_canceled()
            left_s = deadline - clock.monotonic()
            if left_s <= 0:
                return
            if poller.poll(left_s * 1000):
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakeup_in, 4096)

    def pause(self, seconds: float) -> None:
        """Sleep, canceled or not: for steps that must not be left half done."""
        select.select([], [], [], seconds)

    def _on_sigterm(self, _number: int, _frame: FrameType | None) -> None:
        self.is_canceled = True
        self._take_notes()

    def _on_sigusr1(self, _number: int, _frame: FrameType | None) -> None:
        self._has_new_priority = True
        self._take_notes()

    def _on_sigusr2(self, _number: int, _frame: FrameType | None) -> None:
        self.is_to_step_back = self.may_step_back()
        self._take_notes()

    def _take_notes(self) -> None:
        """Act on all notes if the job is armed; it still is on return, and not when this raises."""
        while self.is_armed and (
            self.is_canceled or self.is_to_step_back or self._can_take_priority()
        ):
            self.is_armed = False
            self.check_canceled()
            if self.is_to_step_back:
                self.is_to_step_back = False
                if self.may_step_back():
                    raise StepBackError
            if not self.take_priority():
                raise PriorityChangedError
            self.is_armed = True

    def _can_take_priority(self) -> bool:
        return self._has_new_priority and self.on_priority is not None


class _Armed(AbstractContextManager[None]):
    """The block in which a job is armed; a class, as a generator would be left by more steps."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def __enter__(self) -> None:
        control = self._control
        assert not control.is_armed, "blocks that can be interrupted do not nest"
        control.take_priority()
        control.is_armed = True
        control._take_notes()  # noqa: SLF001 - requests that came before, and in between

    def __exit__(self, *_exc_info: object) -> None:
        self._control.is_armed = False


STRAY_SIGNALS: Final = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGPIPE,
)


def ignore_stray_signals() -> None:
    """Let nothing but SIGTERM and SIGKILL end the process before it has a job."""
    for number in STRAY_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
