"""Tells a daemon that a file of its was written or replaced; takes up new certificates."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Callable, Collection, Iterator
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.daemon.context import DaemonContext
from ganeti.system.inotify import Kind, Watcher
from ganeti.transport.http_server import HttpServer

logger = logging.getLogger(__name__)

_KINDS: Final[tuple[Kind, ...]] = ("moved_to", "close_write", "create", "delete", "moved_from")
_LINKS_MAX: Final = 40  # as the kernel follows
_DELAY_S: Final = 0.05  # several files, or pieces of one, that change together are read once


@contextlib.contextmanager
def follow_files(paths: Collection[str], on_changed: Callable[[], object]) -> Iterator[None]:
    """Call back soon after one of these files changed, while the context is entered.

    The file that a symbolic link leads to is followed too.

    Raises:
        InotifyError: the directory of one cannot be watched.
    """
    followed = _Followed(paths, on_changed)
    try:
        followed.begin()
        yield
    finally:
        followed.end()


class _Followed:
    """The files that one caller follows."""

    def __init__(self, paths: Collection[str], on_changed: Callable[[], object]) -> None:
        self._paths = paths
        self._on_changed = on_changed
        self._names: set[str] = set()
        self._directories: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._watcher = Watcher()

    def begin(self) -> None:
        for path in self._paths:
            self._watch(path)
        self._watch_targets()

    def end(self) -> None:
        self._watcher.close()
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self, path: str) -> None:
        self._names.add(os.path.basename(path))
        directory = os.path.dirname(path)
        if directory not in self._directories:
            self._watcher.watch(directory, _KINDS, self._on_event)
            self._directories.add(directory)

    def _watch_targets(self) -> None:
        for target in [each for path in self._paths for each in _targets(path)]:
            try:
                self._watch(target)
            except GenericError as err:
                logger.warning("Changes of %s will not be noticed: %s", target, err.message)

    def _on_event(self, name: str, _kind: Kind) -> None:
        if not name or name in self._names:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(_DELAY_S, self._tell)

    def _tell(self) -> None:
        self._watch_targets()  # a link may lead elsewhere now
        self._on_changed()


def _targets(path: str) -> Iterator[str]:
    """Yield the paths to which a symbolic link leads, one after the other."""
    for _ in range(_LINKS_MAX):
        try:
            path = os.path.join(os.path.dirname(path), os.readlink(path))
        except OSError:  # no link, or nothing is there
            return
        yield path


@contextlib.contextmanager
def follow_certificate(
    context: DaemonContext,
    server: HttpServer,
    paths: Collection[str],
    make: Callable[[], ssl.SSLContext],
) -> Iterator[None]:
    """Serve new connections with the certificate in the files, while entered; open ones stay.

    A certificate that cannot be used is logged as an error, and the one before stays in use.

    Args:
        make: reads the files; raises GenericError.
    """

    async def renew() -> None:
        try:
            renewed = make()
        except GenericError as err:
            logger.error("%s; the old certificate stays in use", err.message)  # noqa: TRY400
            return
        await server.renew_tls(renewed)
        logger.info("Using a new certificate")

    def on_changed() -> None:
        context.spawn(renew(), "renewal of the certificate")

    with follow_files(paths, on_changed):
        yield
