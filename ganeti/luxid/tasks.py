"""The tasks in the background of a serving LuxiD, which end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Tasks:
    """Named tasks of one task group; an error in one of them ends the daemon."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._running: set[asyncio.Task[Any]] = set()
        self._is_over = False

    def create_task(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start a task; after the end one that does nothing."""
        task = self._group.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        if self._is_over:
            task.cancel()
        return task

    def cancel(self) -> None:
        """Cancel all running tasks, and those that they then begin."""
        self._is_over = True
        for task in self._running:
            task.cancel()
