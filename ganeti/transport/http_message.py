"""HTTP requests and answers as values for handlers, and the form of an answer on the wire.

Source: node_rpc.json, "transport"; RFC 9110, RFC 9112.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from ganeti.base.versions import RELEASE_VERSION
from ganeti.transport.tls import PeerCertificate

if TYPE_CHECKING:
    import asyncio

JSON_TYPE: Final = "application/json"
TEXT_TYPE: Final = "text/plain; charset=utf-8"

# "Request Entity Too Large" was its name before RFC 9110.
_REASONS: Final = {status.value: status.phrase for status in HTTPStatus} | {
    413: "Content Too Large"
}
SWITCHING: Final = 101
BODILESS: Final = frozenset({SWITCHING, 204, 304})  # such an answer has no body


@dataclass(slots=True)
class HttpRequest:
    """One request; header names are in lower case, the target is as it stood in the request.

    Attributes:
        user: whom the handler found, for the log.
        watch_client: begins to look whether the client hangs up before it is answered; the future
            is done when it has.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    peer: PeerCertificate | None
    client_address: str
    version: str = "1.1"
    user: str = ""
    watch_client: Callable[[], asyncio.Future[None]] | None = None

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]


@dataclass(frozen=True, slots=True)
class HttpStream:
    """A connection that speaks another protocol from now on.

    Attributes:
        reader: what the client sends; not read faster than it is taken.
        write: hands bytes to the client.
        drain: waits until the client has read most of them, or is gone.
    """

    reader: asyncio.StreamReader
    write: Callable[[bytes], None]
    drain: Callable[[], Awaitable[None]]


@dataclass(slots=True)
class HttpResponse:
    """The answer to a request.

    ``speak`` is for status 101: it talks with the client afterwards, and its end closes the
    connection.
    """

    status: int = 200
    body: bytes = b""
    content_type: str = JSON_TYPE
    headers: Mapping[str, str] = field(default_factory=dict)
    close: bool = False
    speak: Callable[[HttpStream], Awaitable[None]] | None = None

    @classmethod
    def switch(
        cls,
        protocol: str,
        speak: Callable[[HttpStream], Awaitable[None]],
        headers: Mapping[str, str],
    ) -> HttpResponse:
        """Make the answer that changes to another protocol (RFC 9110, 15.2.2)."""
        return cls(SWITCHING, headers={"Upgrade": protocol, **headers}, speak=speak)

    @classmethod
    def text(cls, status: int, text: str, *, close: bool = False) -> HttpResponse:
        """Make an answer for people."""
        return cls(status, text.encode() + b"\n", TEXT_TYPE, close=close)


def encode_head(response: HttpResponse, *, keep_alive: bool, now: float) -> bytes:
    """Return status line and headers of an answer, with the empty line after them."""
    has_body = response.status not in BODILESS
    after = "Upgrade" if response.status == SWITCHING else "keep-alive" if keep_alive else "close"
    length = f"Content-Length: {len(response.body)}\r\n" if has_body else ""
    reason = _REASONS.get(response.status, "Unknown")
    extra = "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
    head = (
        f"HTTP/1.1 {response.status} {reason}\r\n"
        f"Server: Ganeti {RELEASE_VERSION}\r\n"
        f"Date: {_date(int(now))}\r\n"
        f"Content-Type: {response.content_type}\r\n"
        f"{length}"
        f"{extra}"
        f"Connection: {after}\r\n\r\n"
    )
    return head.encode("latin-1", "replace")


@functools.lru_cache(maxsize=2)
def _date(seconds: int) -> str:
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(seconds))
