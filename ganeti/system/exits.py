"""Hears of the end of processes, children or not, on the event loop, without polling.

A process descriptor (``pidfd``) becomes readable when its process ends.  It is a prompt to look,
no more: a number may have been used again before the descriptor was opened, so whether the process
that was meant has died is decided by its lock file.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable


class ExitWatcher:
    """Calls back once for each watched process that ends."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptors: dict[int, int] = {}

    def watch(self, pid: int, callback: Callable[[], None]) -> bool:
        """Begin to watch a process; returns False, and never calls, if there is none.

        A process watched already gets the new callback.
        """
        self.forget(pid)
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        self._descriptors[pid] = descriptor
        self._loop.add_reader(descriptor, self._on_exit, pid, callback)
        return True

    def signal(self, pid: int, number: signal.Signals) -> bool:
        """Send a signal to a watched process, never to another that got its number.

        Returns:
            Whether it was there to get it.
        """
        descriptor = self._descriptors.get(pid)
        if descriptor is None:
            return False
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        return True

    def forget(self, pid: int) -> None:
        """Stop watching a process."""
        descriptor = self._descriptors.pop(pid, None)
        if descriptor is not None:
            self._loop.remove_reader(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Stop watching all processes."""
        for pid in list(self._descriptors):
            self.forget(pid)

    def _on_exit(self, pid: int, callback: Callable[[], None]) -> None:
        self.forget(pid)
        callback()
