"""Watching directories: the one module that knows pyinotify.

pyinotify needs ``asyncore``, which Python 3.12 dropped; ``pyasyncore`` brings it back there.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final, Literal

import pyinotify

from ganeti.base.errors import InotifyError

Kind = Literal["moved_to", "moved_from", "close_write", "create", "delete", "overflow"]
Callback = Callable[[str, Kind], None]

_MASKS: Final[dict[Kind, int]] = {
    "moved_to": pyinotify.IN_MOVED_TO,
    "moved_from": pyinotify.IN_MOVED_FROM,
    "close_write": pyinotify.IN_CLOSE_WRITE,
    "create": pyinotify.IN_CREATE,
    "delete": pyinotify.IN_DELETE,
}


class Watcher:
    """Calls back for changes in directories, from the running event loop.

    Callbacks get the name of the entry (no directory) and what happened to it.  When the kernel
    lost events, every callback is called once with ("", "overflow") and must look by itself.
    Events of one watcher arrive in the order in which they happened.
    """

    def __init__(self) -> None:
        self._manager = pyinotify.WatchManager()
        self._notifier = pyinotify.Notifier(self._manager, self._dispatch)
        self._callbacks: dict[int, Callback] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._manager.get_fd(), self._on_readable)

    def watch(self, directory: str, kinds: tuple[Kind, ...], callback: Callback) -> None:
        """Begin to watch a directory.

        Raises:
            InotifyError: no such directory, or too many watches.
        """
        mask = 0
        for kind in kinds:
            mask |= _MASKS[kind]
        try:
            added = self._manager.add_watch(directory, mask, quiet=False)
        except pyinotify.WatchManagerError as err:
            raise InotifyError(f"cannot watch {directory}: {err}") from err
        self._callbacks[added[directory]] = callback

    def close(self) -> None:
        """Stop watching."""
        self._loop.remove_reader(self._manager.get_fd())
        self._notifier.stop()
        self._callbacks.clear()

    def _on_readable(self) -> None:
        self._notifier.read_events()
        self._notifier.process_events()

    def _dispatch(self, event: pyinotify.Event) -> None:
        if event.mask & pyinotify.IN_Q_OVERFLOW:
            for callback in self._callbacks.values():
                callback("", "overflow")
            return
        called = self._callbacks.get(event.wd)
        if called is None:
            return
        for kind, mask in _MASKS.items():
            if event.mask & mask:
                called(os.path.basename(event.name or ""), kind)
