"""What a running daemon gets from the skeleton."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from ganeti.base.paths import Paths
from ganeti.daemon import notify
from ganeti.daemon.detach import Report

logger = logging.getLogger(__name__)


class DaemonContext:
    """The daemon's surroundings: node, options, tasks, when to stop.

    ``prepared`` is what the daemon's ``pre_loop`` returned; callbacks in ``on_reload`` are called
    on SIGHUP.
    """

    def __init__(
        self,
        paths: Paths,
        hostname: str,
        options: argparse.Namespace,
        report: Report | None = None,
    ) -> None:
        self.paths = paths
        self.hostname = hostname
        self.options = options
        self.prepared: Any = None
        self.stopping = asyncio.Event()
        self.on_reload: list[Callable[[], None]] = []
        self.exit_status = 0
        self._report = report
        self._tasks: asyncio.TaskGroup | None = None
        self._background: set[asyncio.Task[None]] = set()

    def ready(self) -> None:
        """Tell whoever started us that we answer."""
        gc.collect()
        gc.freeze()  # what is loaded now stays; the collector need not look at it again
        logger.info("Ready")
        if self._report is not None:
            self._report.send(0)
        notify.notify(notify.READY)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a background task; it is cancelled once ``serve`` has returned.

        An error that it raises ends the daemon.
        """
        assert self._tasks is not None, "tasks live inside serve()"
        task = self._tasks.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def stop(self, exit_status: int = 0) -> None:
        """Begin to stop, as if by SIGTERM."""
        self.exit_status = exit_status
        self.stopping.set()

    def enter(self, tasks: asyncio.TaskGroup) -> None:
        """Take the group that background tasks belong to (called by the skeleton)."""
        self._tasks = tasks

    def cancel_background(self) -> None:
        """Cancel all background tasks (called by the skeleton)."""
        for task in self._background:
            task.cancel()
