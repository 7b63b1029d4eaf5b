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
_DELAY_S: Final = 0.05  # several files, or pieces of one, that change together are read once


@contextlib.contextmanager
def follow_files(paths: Collection[str], on_changed: Callable[[], object]) -> Iterator[None]:
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
