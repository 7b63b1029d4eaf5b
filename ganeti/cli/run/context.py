"""The surroundings of a command: the node it runs on, the master, the terminal.

The terminal of the user takes lines, and asks before something is done that cannot be taken back.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import IO, TYPE_CHECKING, Self

from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.cli.declaration.parser import Options
from ganeti.cli.declaration.program import Command
from ganeti.system import clock
from ganeti.system.environment import current_paths

if TYPE_CHECKING:
    from ganeti.clients.luxi import LuxiClient
from ganeti.cli.run.failures import NotConfirmed

WIDTH_WHEN_UNKNOWN = 80


def _width() -> int:
    """Return the width of the terminal, as ``shutil`` does, which takes 5 ms to load."""
    try:
        if (columns := int(os.environ.get("COLUMNS", ""))) > 0:
            return columns
    except ValueError:
        pass  # not set, or no number: ask the terminal itself
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH_WHEN_UNKNOWN
    except (AttributeError, ValueError, OSError):
        return WIDTH_WHEN_UNKNOWN


class CannotWrite(Exception):
    """The output or a message cannot be written, because the disk is full for instance."""


def _complete_streams() -> None:
    """Have all standard streams: one that the process was started without is the null device.

    A character that the encoding of the output lacks is written as its number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for good
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _put(stream: IO[str], text: str) -> None:
    """Write a text at once.

    Raises:
        BrokenPipeError: the reader has left.
        CannotWrite: with the reason of the system.
    """
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as err:
        raise CannotWrite(err.strerror) from err


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
        _complete_streams()
        return cls(
            sys.stdout,
            sys.stderr,
            sys.stdin,
            width=_width(),
            is_interactive=sys.stdin.isatty(),
            is_screen=sys.stdout.isatty(),
        )

    def write(self, text: str = "") -> None:
        """Write a line of output; seen at once, even through a pipe."""
        _put(self._out, text + "\n")

    def write_lines(self, lines: Sequence[str]) -> None:
        """Write many lines in one go."""
        if lines:
            _put(self._out, "\n".join(lines) + "\n")

    def error(self, text: str) -> None:
        """Write a line to the standard error."""
        _put(self._err, text + "\n")

    def progress(self, text: str) -> None:
        """Show a line on a screen in place of the one shown before; not in the output."""
        if self.is_screen:
            _put(self._err, f"\r\x1b[K{text}")

    def ask(self, question: str) -> str:
        """Ask a question, not in the output; the answer is "" at the end of the input."""
        _put(self._err, question)
        return self.line().strip()

    def line(self) -> str:
        """Return the next line of the input, with its blanks; "" at the end of it."""
        return self._answers.readline().rstrip("\r\n")


_SUBMISSIONS = "Submit"  # so begin the names of the calls that submit jobs
REASON_SOURCE_CLIENT = "gnt:client"
REASON_SOURCE_USER = "gnt:user"


def _now_ns() -> int:
    return int(clock.now() * 1_000_000_000)


class Context:
    """One run of one command."""

    def __init__(
        self, program: str, command: Command, options: Options, terminal: Terminal
    ) -> None:
        self.program = program
        self.command = command
        self.options = options
        self.terminal = terminal
        self.waiting_for: list[JobId] = []
        self._is_submitting = False
        self._client: LuxiClient | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.reconnect()

    @cached_property
    def paths(self) -> Paths:
        """The paths of the node that the command runs on."""
        return current_paths()

    @property
    def client(self) -> LuxiClient:
        """The connection to LuxiD, made when first asked for; ``--luxi`` names its socket."""
        if self._client is None:
            from ganeti.clients.luxi import LuxiClient

            socket = self.options.get("luxi") or ""
            self._client = LuxiClient(self.paths, socket=socket, on_call=self.note_call)
        return self._client

    def note_call(self, name: str) -> None:
        """Note a call of LuxiD before it is sent: what a submission has begun may go on."""
        self._is_submitting = name.startswith(_SUBMISSIONS)

    def reconnect(self) -> None:
        """Give the connection up, because LuxiD was restarted; the next question makes another."""
        if self._client is not None:
            self._client.close()
        self._client = None

    def reason_trail(self) -> list[object]:
        """Return the origin of a job: the user's reason, and the command."""
        command = [f"{REASON_SOURCE_CLIENT}:{self.program}", self.command.name, _now_ns()]
        return [*self.reason_of_user(), command]

    def reason_of_user(self) -> list[object]:
        """Return the user's reason, as a step of a reason trail, if there is one."""
        reason = self.options.get("reason")
        return [[REASON_SOURCE_USER, reason, _now_ns()]] if reason else []

    def write(self, text: str = "") -> None:
        """Write a line of output."""
        self.terminal.write(text)

    def interruption_text(self) -> str:
        """Return the message for a user who gives up waiting."""
        rest = self.text_of_rest()
        if self._is_submitting and not rest:
            rest = "jobs may have been submitted, see 'gnt-job list'."
        elif self._is_submitting:
            rest += "\nMore jobs may have been submitted, see 'gnt-job list'."
        return f"Interrupted; {rest}" if rest else "Interrupted."

    def text_of_rest(self) -> str:
        """Return the message about jobs that nobody waits for any more, "" if there are none."""
        if not self.waiting_for:
            return ""
        jobs = " ".join(str(job_id) for job_id in self.waiting_for)
        return (
            f"what was submitted goes on (jobs {jobs}).\n"
            f"'gnt-job watch {self.waiting_for[-1]}' follows it."
        )


_LINES_MAX = 20


def confirm(context: Context, question: str, *, option: str = "--force") -> None:
    """Go on only if the user says yes.

    Raises:
        NotConfirmed: no, or nobody there to ask.
    """
    terminal = context.terminal
    if not terminal.is_interactive:
        raise NotConfirmed(f"{question}\nNobody is here to answer; use {option} to go on.")
    while True:
        answer = terminal.ask(f"{question}\ny/[n]: ").lower()
        if answer in ("y", "yes"):
            return
        if answer in ("", "n", "no"):
            raise NotConfirmed("Not confirmed, nothing was done.")


def confirm_many(context: Context, what: str, names: Sequence[str], *, option: str) -> None:
    """Ask before acting on several objects, listing them."""
    shown = [f"  {name}" for name in names[:_LINES_MAX]]
    if len(names) > _LINES_MAX:
        shown.append(f"  and {len(names) - _LINES_MAX} more")
    text = "\n".join([f"The {len(names)} instances to {what} are:", *shown, "Go on?"])
    confirm(context, text, option=option)
