"""Messages in a byte stream: each is a JSON text followed by one ETX byte.

Bytes in, messages out; no socket here.  A splitter holds at most one unfinished message and
never more of it than the limit it was given.

Source: luxi.json, "transport".
"""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import ProtocolError

ETX: Final = b"\x03"


class MessageTooLargeError(ProtocolError):
    """A message passed the size limit; `complete` are the messages that stood before it."""

    wire_name = "LuxiError"

    def __init__(self, message: str, complete: list[bytes]) -> None:
        super().__init__(message)
        self.complete = complete


def frame(message: bytes) -> bytes:
    """Return a message as it goes over the wire.

    JSON never contains the ETX byte: control characters inside texts are escaped.
    """
    return message + ETX


class MessageSplitter:
    """Cuts a stream into messages, however the stream was chunked."""

    __slots__ = ("_pending", "_size_bytes_max", "_too_large")

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._pending = bytearray()
        self._too_large = False

    @property
    def pending_bytes(self) -> int:
        """How many bytes of an unfinished message are held."""
        return len(self._pending)

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes of the stream; return the messages that they complete, in order.

        Raises:
            MessageTooLargeError: a message is longer than the limit.  What follows it cannot be
                told from its rest, so every later call raises as well.
        """
        if self._too_large:
            raise self._error([])
        parts = chunk.split(ETX)
        rest = parts.pop()
        if parts and self._pending:
            parts[0] = bytes(self._pending) + parts[0]
            self._pending.clear()
        for index, message in enumerate(parts):
            if len(message) > self._size_bytes_max:
                raise self._error(parts[:index])
        if len(self._pending) + len(rest) > self._size_bytes_max:
            raise self._error(parts)
        self._pending += rest
        return parts

    def _error(self, complete: list[bytes]) -> MessageTooLargeError:
        self._too_large = True
        self._pending = bytearray()
        text = f"message is larger than {self._size_bytes_max} bytes"
        return MessageTooLargeError(text, complete)
