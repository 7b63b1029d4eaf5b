"""Undo steps of work that must leave nothing behind when it fails.

    with Undo(context) as undo:
        make_disk()
        undo.push("remove disk 0", remove_disk)
        ...
        undo.forget()  # success

When the block is left by an error (a cancel request included), the steps pushed so far run in
reverse order.  Steps that fail do not keep the others from running, and are tried once more after
them: what failed for want of room may work when files are gone.  What fails then as well is told
to the operator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ganeti.base.errors import GenericError
from ganeti.logical_units.context import JobContext

logger = logging.getLogger(__name__)


class Undo:
    """A stack of undo steps."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._steps: list[tuple[str, Callable[[], object]]] = []

    def push(self, what: str, step: Callable[[], object]) -> None:
        """Add a step; ``what`` is its work, as it reads after "cannot"."""
        self._steps.append((what, step))

    def forget(self) -> None:
        """Drop all steps: the work is done."""
        self._steps.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            return
        failed = [(what, step) for what, step in reversed(self._steps) if _failure(what, step)]
        self.forget()
        for what, step in failed:
            text = _failure(what, step)
            if text:
                self._context.warn(f"{text}; ignoring")


def _failure(what: str, step: Callable[[], object]) -> str:
    """Run a step; returns the text of its failure, or nothing."""
    try:
        step()
    except GenericError as err:
        logger.info("cannot %s: %s", what, err)
        return str(err) if str(err).startswith(f"cannot {what}") else f"cannot {what}: {err}"
    return ""
