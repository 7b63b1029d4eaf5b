"""Tells a daemon that a file of its was written or replaced."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ganeti.system.inotify import Kind, Watcher

_KINDS: Final[tuple[Kind, ...]] = ("moved_to", "close_write", "create", "delete", "moved_from")
_DELAY_S: Final = 0.05  # several files, or pieces of one, that change together are read once


@contextlib.contextmanager
def follow_files(paths: Sequence[str], on_changed: Callable[[], object]) -> Iterator[None]:
    """Call back soon after one of these files changed, while the context is entered.

    Raises:
        InotifyError: the directory of one cannot be watched.
    """
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def soon() -> None:
        nonlocal timer
        if timer is not None:
            timer.cancel()
        timer = loop.call_later(_DELAY_S, on_changed)

    watcher = Watcher()
    try:
        for directory in {os.path.dirname(path) for path in paths}:
            names = {os.path.basename(path) for path in paths if os.path.dirname(path) == directory}

            def on_event(name: str, _kind: Kind, names: set[str] = names) -> None:
                if not name or name in names:
                    soon()

            watcher.watch(directory, _KINDS, on_event)
        yield
    finally:
        watcher.close()
        if timer is not None:
            timer.cancel()
