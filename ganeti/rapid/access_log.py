"""The log of requests, in the common log format that web servers write."""

from __future__ import annotations

import logging
import time
from typing import Final

from ganeti.base.paths import Paths
from ganeti.daemon.context import DaemonContext
from ganeti.daemon.log import FileHandler
from ganeti.system import clock
from ganeti.transport.http_message import HttpRequest, HttpResponse

_TARGET_LENGTH_MAX: Final = 2048


class AccessLog:
    """Writes a line for each answer; the file may be rotated away."""

    def __init__(self, paths: Paths, context: DaemonContext) -> None:
        handler = FileHandler(f"{paths.log_dir}/rapi-access.log")
        handler.setFormatter(logging.Formatter("%(message)s"))
        context.on_reload.append(handler.reopen)
        self._handler = handler

    def on_answered(
        self, request: HttpRequest | None, address: str, response: HttpResponse
    ) -> None:
        """Write one line."""
        line = access_line(request, address, response, clock.now())
        self._handler.handle(logging.makeLogRecord({"msg": line}))


def access_line(
    request: HttpRequest | None, address: str, response: HttpResponse, now: float
) -> str:
    """Return the line of one answer; a request that could not be read has none of its words."""
    line, user = "-", "-"
    if request is not None:
        target = _quoted(request.target[:_TARGET_LENGTH_MAX])
        line = f"{request.method} {target} HTTP/{request.version}"
        user = _quoted(request.user).replace(" ", "_") or "-"
    stamp = time.strftime("%d/%b/%Y:%H:%M:%S %z", time.localtime(now))
    return f'{address} - {user} [{stamp}] "{line}" {response.status} {len(response.body)}'


def _quoted(text: str) -> str:
    """Return text that cannot pass for another part of the line."""
    return text.encode("unicode_escape").decode("ascii").replace('"', "%22")
