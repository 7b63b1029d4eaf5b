"""Questions before something is done that cannot be taken back."""

from __future__ import annotations

from collections.abc import Sequence

from ganeti.cli.run.context import Context
from ganeti.cli.run.failures import NotConfirmed

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
