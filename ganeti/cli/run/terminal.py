"""The terminal of the user: lines out, questions in."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import IO

WIDTH_WHEN_UNKNOWN = 80


class Terminal:
    """Where a command writes its output, its errors and its questions."""

    def __init__(
        self,
        out: IO[str],
        err: IO[str],
        answers: IO[str],
        *,
        width: int = WIDTH_WHEN_UNKNOWN,
        is_interactive: bool = False,
        is_screen: bool = False,
    ) -> None:
        self._out = out
        self._err = err
        self._answers = answers
        self.width = width
        self.is_interactive = is_interactive
        self.is_screen = is_screen

    @classmethod
    def of_process(cls) -> Terminal:
        """Return the terminal of this process."""
        return cls(
            sys.stdout,
            sys.stderr,
            sys.stdin,
            width=shutil.get_terminal_size((WIDTH_WHEN_UNKNOWN, 24)).columns,
            is_interactive=bool(sys.stdin and sys.stdin.isatty()),
            is_screen=bool(sys.stdout and sys.stdout.isatty()),
        )

    def write(self, text: str = "") -> None:
        """Write a line of output; seen at once, even through a pipe."""
        self._out.write(text + "\n")
        self._out.flush()

    def write_lines(self, lines: Sequence[str]) -> None:
        """Write many lines in one go."""
        if lines:
            self._out.write("\n".join(lines) + "\n")
            self._out.flush()

    def error(self, text: str) -> None:
        """Write a line to the standard error."""
        self._err.write(text + "\n")
        self._err.flush()

    def ask(self, question: str) -> str:
        """Ask a question; the answer is "" at the end of the input."""
        self._out.write(question)
        self._out.flush()
        return self._answers.readline().strip()
