"""The end of a session: what a command does then that has something to tidy up.

A terminal that is closed, or a connection that is lost, sends SIGHUP; a machine that goes down, or
an operator, sends SIGTERM.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

from ganeti.cli.run.context import CannotWrite, Terminal
from ganeti.system.process import stops

ENDINGS: Final = (signal.SIGTERM, signal.SIGHUP)


def interrupt_at_endings() -> None:
    """Let the end of the session interrupt the command once, as Ctrl-C does.

    There may be several signals: one comes from the terminal, and one from the shell.  What is
    ignored already (``nohup``) stays so.
    """
    for ending in ENDINGS:
        if signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    for ending in ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    stops.stop(KeyboardInterrupt())


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let no end of the session cut this off; Ctrl-C still does."""
    before = {ending: signal.signal(ending, signal.SIG_IGN) for ending in ENDINGS}
    try:
        yield
    finally:
        for ending, handler in before.items():
            signal.signal(ending, handler)


class LeftTerminal(Terminal):
    """A terminal that may be gone: what it does not take is left out."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(sys.stdout, sys.stderr, sys.stdin, width=terminal.width)
        self._terminal = terminal

    def write(self, text: str = "") -> None:
        """Write a line of output."""
        with suppress(CannotWrite, BrokenPipeError):
            self._terminal.write(text)

    def write_lines(self, lines: Sequence[str]) -> None:
        """Write many lines in one go."""
        with suppress(CannotWrite, BrokenPipeError):
            self._terminal.write_lines(lines)

    def error(self, text: str) -> None:
        """Write a line to the standard error."""
        with suppress(CannotWrite, BrokenPipeError):
            self._terminal.error(text)
