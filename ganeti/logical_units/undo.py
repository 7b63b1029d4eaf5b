"""Undo steps of work that must leave nothing behind when it fails.

    with Undo(context) as undo:
        make_disk()
        undo.push("remove disk 0", remove_disk)
        ...
        undo.forget()  # success

When the block is left by an error (a cancel request included), the steps pushed so far run in
reverse order.  Steps that fail do not keep the others from running, and are tried once more after
them: a step that failed for lack of space may work when files are gone.  A node daemon that does
not answer may have been killed in the middle of the work, and be back in a moment: that is waited
for.  Steps that fail then as well are told to the operator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from ganeti.base.errors import GenericError, JobCanceled, NodeNotReachedError
from ganeti.logical_units.context import JobContext

logger = logging.getLogger(__name__)

NODE_BACK_S_MAX: Final = 20.0  # systemd starts a daemon that died again at once
_LOOK_AGAIN_S: Final = 0.5


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
        if kind is not None:
            self.carry_out()

    def carry_out(self) -> None:
        """Take the steps now: at the end of work that needed things for a while only."""
        failed = [(what, step) for what, step in reversed(self._steps) if _failure(step)]
        self.forget()
        deadline_s = self._context.monotonic() + NODE_BACK_S_MAX
        for what, step in failed:
            failure = _failure(step)
            while isinstance(failure, NodeNotReachedError) and self._waits_until(deadline_s):
                failure = _failure(step)
            if failure is not None:
                cannot = f"cannot {what}"
                text = str(failure)
                text = text if text.startswith(cannot) else f"{cannot}: {text}"
                self._context.warn(f"{text}; ignoring")

    def _waits_until(self, deadline_s: float) -> bool:
        """Wait a moment; returns whether the step is to be tried again."""
        if self._context.monotonic() >= deadline_s:
            return False
        try:
            self._context.wait(_LOOK_AGAIN_S)
        except JobCanceled:
            return False
        return True


def _failure(step: Callable[[], object]) -> GenericError | None:
    """Run a step; returns its failure, if it fails."""
    try:
        step()
    except GenericError as err:
        logger.info("an undo step failed: %s", err)
        return err
    return None
