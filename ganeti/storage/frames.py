"""A stream of bytes whose end is told, so that a broken connection is not taken for it.

length, then so many bytes        4 bytes, big-endian; again and again
0                                 the end
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from ganeti.base.errors import StorageError
from ganeti.protocol.node_rpc_values import STREAM_ENDED_EARLY

FRAME_BYTES_MAX: Final = 1 << 22
_LENGTH: Final = struct.Struct(">I")


class Source(Protocol):
    """Where bytes come from."""

    def read(self, count: int) -> bytes:
        """Return up to so many bytes; none at the end."""


def framed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield pieces with their lengths in front, and the end after them.

    Nothing follows when `pieces` raises: the receiver sees that the end is missing.
    """
    for piece in pieces:
        for start in range(0, len(piece), FRAME_BYTES_MAX):
            part = piece[start : start + FRAME_BYTES_MAX]
            yield _LENGTH.pack(len(part)) + part
    yield _LENGTH.pack(0)


class FrameReader:
    """Reads what `framed` has written."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left = 0
        self._ended = False

    def read(self, count: int) -> bytes:
        """Return up to so many bytes; none at the end.

        Raises:
            StorageError: the stream broke off before its end.
        """
        if self._left == 0 and not self._ended:
            self._left = _LENGTH.unpack(self._exactly(_LENGTH.size))[0]
            self._ended = self._left == 0
        if self._ended:
            return b""
        data = self._source.read(min(count, self._left))
        if not data:
            raise StorageError(STREAM_ENDED_EARLY)
        self._left -= len(data)
        return data

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._source.read(count - len(data))
            if not part:
                raise StorageError(STREAM_ENDED_EARLY)
            data += part
        return data
