"""Asks a server on a Unix socket, one request at a time, blocking.

Every command imports this, so it uses the C half of ``socket`` alone, which costs a tenth of the
whole.  Retries are left to the clients above, which know the calls that may be repeated.

Source: luxi.json and wconfd.json, "transport".
"""

from __future__ import annotations

import _socket as socket
import contextlib
import struct
from collections.abc import Sequence
from typing import Final, Self, TypeVar

from ganeti.base.errors import TransportError
from ganeti.protocol.envelope import (
    ETX,
    MessageSplitter,
    RefusedError,
    decode_response_as,
    encode_request,
)
from ganeti.system import clock

T = TypeVar("T")

MESSAGE_BYTES_MAX: Final = 1 << 30  # answers with a whole configuration are 100 MB at most
_OPEN_S_MAX: Final = 0.05
_READ_BYTES: Final = 64 * 1024  # a larger buffer is a mapping of its own, each time
_TIMEVAL: Final = struct.Struct("ll")


class NobodyListensError(TransportError):
    """The socket is missing, or nobody accepts connections on it: nothing was sent."""

    wire_name = "GenericError"


class NoAccessError(TransportError):
    """This user may not connect to the socket: nothing was sent, and waiting does not help."""

    wire_name = "GenericError"


class ConnectionLostError(TransportError):
    """The connection broke after the request went out: it may have been carried out."""

    wire_name = "GenericError"


class AnswerTimeoutError(TransportError):
    """No answer came in time: the request may be carried out still."""

    wire_name = "GenericError"


class UnixClient:
    """A connection that is opened on first use, and again after it broke."""

    def __init__(
        self,
        path: str,
        *,
        connect_timeout_s: float = 30.0,
        timeout_s: float = 180.0,
        version: int | None = None,
    ) -> None:
        self.path = path
        self._connect_timeout_s = connect_timeout_s
        self._timeout_s = timeout_s
        self._version = version
        self._socket: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()

    def open(self) -> None:
        """Open the connection ahead of need.

        Raises:
            NobodyListensError: nobody is there, or nobody takes it at once.
            NoAccessError: the user may not.
        """
        if self._socket is None:
            self._socket = self._connect(_OPEN_S_MAX)

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(
        self, method: str, args: Sequence[object], *, timeout_s: float | None = None
    ) -> object:
        """Ask and return the result.

        Raises:
            NobodyListensError, NoAccessError, ConnectionLostError, AnswerTimeoutError: see these.
            ProtocolError: the answer makes no sense.
            GenericError: the server's answer was this error.
        """
        return self.call_as(object, method, args, timeout_s=timeout_s)

    def call_as(
        self, kind: type[T], method: str, args: Sequence[object], *, timeout_s: float | None = None
    ) -> T:
        """As `call`, with the result decoded straight into a type."""
        request = encode_request(method, args, self._version)
        answer = self.exchange(request, timeout_s=timeout_s)
        try:
            return decode_response_as(kind, answer, self._version)
        except RefusedError:
            self.close()  # as the server does
            raise

    def exchange(self, request: bytes, *, timeout_s: float | None = None) -> bytes:
        """Send an encoded request and return the encoded answer; errors as of `call`."""
        sock = self._connected()
        deadline = clock.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        try:
            return self._exchange(sock, request, deadline)
        except BaseException:  # even a signal handler's: the answer may still come, unasked
            self.close()
            raise

    def _exchange(self, sock: socket.socket, request: bytes, deadline: float) -> bytes:
        try:
            self._set_timeout(sock, deadline)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                # A server that refuses hangs up while we send; its reason is to be read.
                sock.sendall(request + ETX)
            return self._receive(sock, deadline)
        except TimeoutError as err:
            raise AnswerTimeoutError(f"no answer from {self.path} in time") from err
        except OSError as err:
            raise ConnectionLostError(f"lost connection to {self.path}: {err.strerror}") from err

    def _receive(self, sock: socket.socket, deadline: float) -> bytes:
        splitter = MessageSplitter(MESSAGE_BYTES_MAX)
        while True:
            chunk = sock.recv(_READ_BYTES)
            if not chunk:
                raise ConnectionLostError(f"{self.path} closed the connection before it answered")
            messages = splitter.feed(chunk)
            if messages:
                return messages[0]
            self._set_timeout(sock, deadline)

    @staticmethod
    def _set_timeout(sock: socket.socket, deadline: float) -> None:
        left_s = deadline - clock.monotonic()
        if left_s <= 0:
            raise TimeoutError
        sock.settimeout(left_s)

    def _connected(self) -> socket.socket:
        if self._socket is not None and self._is_stale(self._socket):
            self.close()
        if self._socket is None:
            self._socket = self._connect(self._connect_timeout_s)
        return self._socket

    @staticmethod
    def _is_stale(sock: socket.socket) -> bool:
        """Tell whether the server hung up since the last answer (or said something unasked)."""
        sock.setblocking(False)
        try:
            sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def _connect(self, timeout_s: float) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Blocking with SO_SNDTIMEO: only so does the kernel wait for room in a full backlog.
        seconds, fraction = divmod(timeout_s, 1)
        timeval = _TIMEVAL.pack(int(seconds), int(fraction * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        try:
            sock.connect(self.path)
        except OSError as err:
            sock.close()
            raise cannot_connect(self.path, err) from err
        return sock


def cannot_connect(path: str, error: OSError) -> NobodyListensError | NoAccessError:
    """Say why there is no connection to a socket."""
    match error:
        case FileNotFoundError():
            return NobodyListensError(f"no daemon listens on {path}: no such socket")
        case ConnectionRefusedError():
            return NobodyListensError(f"no daemon listens on {path}: connection refused")
        case PermissionError():
            return NoAccessError(
                f"cannot connect to {path}: {error.strerror}; run it as root, or as a member of the"
                " daemons' group"
            )
        case BlockingIOError():
            return NobodyListensError(f"the daemon on {path} takes no connection: it is overloaded")
    return NobodyListensError(f"cannot connect to {path}: {error.strerror or error}")
