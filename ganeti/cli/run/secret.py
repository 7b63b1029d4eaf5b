"""Secrets that users type."""

from __future__ import annotations

import getpass

from ganeti.cli.run.context import Terminal


def ask_secret(terminal: Terminal, question: str) -> str:
    """Ask for a secret, which is not seen when typed; it is "" at the end of the input.

    Where nobody is there to be asked, it is the next line of the input.
    """
    if not terminal.is_interactive:
        return terminal.line()
    try:
        return getpass.getpass(question)
    except EOFError:
        terminal.error("")  # the question has no end of line yet
        return ""
