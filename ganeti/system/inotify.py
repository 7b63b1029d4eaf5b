"""Watching directories: the one module that knows pyinotify.

It makes the watches and knows the numbers; the events are read here, as its own dispatch
takes several times as long as most callbacks.  pyinotify needs ``asyncore``, which
Python 3.12 dropped; ``pyasyncore`` brings it back there.

Source: inotify(7).
"""

from __future__ import annotations

import asyncio
import errno
import os
import struct
from collections.abc import Callable, Iterator
from typing import Final, Literal

import pyinotify

from ganeti.base.errors import InotifyError

Kind = Literal["moved_to", "moved_from", "close_write", "modify", "create", "delete", "overflow"]
Callback = Callable[[str, Kind], None]

_MASKS: Final[dict[Kind, int]] = {
    "moved_to": pyinotify.IN_MOVED_TO,
    "moved_from": pyinotify.IN_MOVED_FROM,
    "close_write": pyinotify.IN_CLOSE_WRITE,
    "modify": pyinotify.IN_MODIFY,
    "create": pyinotify.IN_CREATE,
    "delete": pyinotify.IN_DELETE,
}
_HEAD: Final = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_READ_BYTES: Final = 64 * 1024
_INSTANCES_LIMIT: Final = "fs.inotify.max_user_instances"
_WATCHES_FULL: Final = "; raise the limit, with 'sysctl -w fs.inotify.max_user_watches=...'"


class Watcher:
    """Calls back for changes in directories, from the running event loop.

    Callbacks get the name of the entry (no directory) and the kind of change.  When the kernel
    lost events, every callback is called once with ("", "overflow") and must look by itself.
    Events of one watcher arrive in the order in which they happened.
    """

    def __init__(self) -> None:
        """Raises InotifyError: the user has too many watchers."""
        try:
            self._manager = pyinotify.WatchManager()
        except OSError as err:
            raise InotifyError(
                "this user watches files in too many processes already: raise the limit, with"
                f" 'sysctl -w {_INSTANCES_LIMIT}=1024' or more, and start this again ({err})"
            ) from err
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
            full = _WATCHES_FULL if errno.errorcode[errno.ENOSPC] in str(err) else ""
            raise InotifyError(f"cannot watch {directory}: {err}{full}") from err
        self._callbacks[added[directory]] = callback

    def close(self) -> None:
        """Stop watching."""
        self._loop.remove_reader(self._manager.get_fd())
        self._manager.close()
        self._callbacks.clear()

    def _on_readable(self) -> None:
        for watch, mask, name in _events(os.read(self._manager.get_fd(), _READ_BYTES)):
            self._dispatch(watch, mask, name)

    def _dispatch(self, watch: int, mask: int, name: str) -> None:
        if mask & pyinotify.IN_Q_OVERFLOW:
            for callback in self._callbacks.values():
                self._call(callback, "", "overflow")
            return
        if mask & pyinotify.IN_IGNORED:  # the directory is gone
            self._callbacks.pop(watch, None)
        called = self._callbacks.get(watch)
        if called is None:
            return
        for kind, bit in _MASKS.items():
            if mask & bit:
                self._call(called, name, kind)

    def _call(self, callback: Callback, name: str, kind: Kind) -> None:
        """Hand on an event; an error is reported, and those after it are handed on as well."""
        try:
            callback(name, kind)
        except Exception as err:  # noqa: BLE001 - the loop reports it
            message = f"error in the callback for event {kind} of {name!r}"
            self._loop.call_exception_handler({"message": message, "exception": err})


def _events(data: bytes) -> Iterator[tuple[int, int, str]]:
    """Parse the kernel's buffer of events: yields (watch, mask, name) of each."""
    start = 0
    while start < len(data):
        watch, mask, _cookie, length = _HEAD.unpack_from(data, start)
        start += _HEAD.size + length
        yield watch, mask, os.fsdecode(data[start - length : start].rstrip(b"\0"))
