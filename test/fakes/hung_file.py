"""A file that hangs: whoever opens it waits, as for a disk that does not answer.

It is held by a lease of the kernel (fcntl, F_SETLEASE), which others have to wait for; the kernel
takes it back after `LIMIT_S`, so nothing may hang for longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

LIMIT_S: Final = 45.0  # /proc/sys/fs/lease-break-time
_TRIES_S: Final = 20.0
_PAUSE_S: Final = 0.0005


@contextlib.contextmanager
def hung(path: Path) -> Iterator[None]:
    """Let a file hang."""
    with _opened(path) as descriptor:
        _take(descriptor)
        yield


@contextlib.asynccontextmanager
async def hung_meanwhile(path: Path) -> AsyncIterator[None]:
    """Let a file hang; the loop goes on until it does."""
    with _opened(path) as descriptor:
        await asyncio.to_thread(_take, descriptor)
        yield


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    # Who is waited for is told so by a signal.
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
        signal.signal(signal.SIGIO, before)


def _take(descriptor: int) -> None:
    """Take the lease, in a moment in which nobody has the file open."""
    gives_up_s = time.monotonic() + _TRIES_S
    while True:
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except (BlockingIOError, PermissionError):
            if time.monotonic() > gives_up_s:
                raise
            time.sleep(_PAUSE_S)
        else:
            return
