"""WebSocket as a server speaks it: the handshake, and frames to messages and back.

Only bytes are exchanged: a text message is taken as its bytes.  No extension is agreed to.

Source: RFC 6455.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ganeti.base.errors import ProtocolError

PROTOCOL: Final = "websocket"
VERSION: Final = "13"
MESSAGE_BYTES_MAX: Final = 1 << 20  # a screenful pasted is a hundredth of that
_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES: Final = 16
_CONTROL_BYTES_MAX: Final = 125
_SHORT, _LONG = 126, 127


class Op(IntEnum):
    """The kinds of frames."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class Close(IntEnum):
    """Reasons to close."""

    NORMAL = 1000
    BROKEN = 1002
    TOO_LARGE = 1009
    FAILED = 1011


@dataclass(frozen=True, slots=True)
class Frame:
    """A message, or a control frame."""

    op: Op
    data: bytes = b""


def accept_headers(headers: Mapping[str, str], protocol: str) -> dict[str, str]:
    """Return the headers of the answer that agrees to a handshake.

    Args:
        headers: those of the request, names in lower case.
        protocol: the subprotocol to agree to, which the client must have offered.

    Raises:
        ProtocolError: it is no handshake, or one of another version or protocol.
    """
    upgrades = [word.strip().lower() for word in headers.get("upgrade", "").split(",")]
    if PROTOCOL not in upgrades:
        raise ProtocolError("only WebSocket is spoken here")
    if headers.get("sec-websocket-version", "").strip() != VERSION:
        raise ProtocolError(f"WebSocket must be of version {VERSION}")
    key = headers.get("sec-websocket-key", "").strip()
    try:
        is_key = len(base64.b64decode(key, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        is_key = False
    if not is_key:
        raise ProtocolError("the key of the WebSocket is not 16 bytes in base 64")
    if protocol not in offered_protocols(headers):
        raise ProtocolError(f"the subprotocol {protocol} is not offered")
    # Shows that the answer is to this request; nothing is kept secret by it.
    digest = hashlib.sha1(f"{key}{_GUID}".encode(), usedforsecurity=False).digest()
    return {
        "Sec-WebSocket-Accept": base64.b64encode(digest).decode(),
        "Sec-WebSocket-Protocol": protocol,
    }


def offered_protocols(headers: Mapping[str, str]) -> list[str]:
    """Return the subprotocols that a client offers."""
    return [word.strip() for word in headers.get("sec-websocket-protocol", "").split(",")]


def encode(op: Op, data: bytes = b"") -> bytes:
    """Return the one frame of a message from the server."""
    head = bytes([0x80 | op])
    if len(data) < _SHORT:
        return head + bytes([len(data)]) + data
    if len(data) < 1 << 16:
        return head + bytes([_SHORT]) + len(data).to_bytes(2, "big") + data
    return head + bytes([_LONG]) + len(data).to_bytes(8, "big") + data


def encode_close(code: Close, reason: str = "") -> bytes:
    """Return the frame that closes the connection, with as much of the reason as fits."""
    text = reason.encode()[: _CONTROL_BYTES_MAX - 2].decode("utf-8", "ignore").encode()
    return encode(Op.CLOSE, code.to_bytes(2, "big") + text)


class Frames:
    """Puts together what a client sends."""

    def __init__(self, size_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self._size_bytes_max = size_bytes_max
        self._data = bytearray()
        self._message = bytearray()
        self._op: Op | None = None  # of the message that is under way

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take bytes; yields messages and control frames that are complete.

        Raises:
            ProtocolError: the client breaks the rules.
        """
        self._data += data
        while True:
            frame = self._next()
            if frame is None:
                return
            op, is_last, body = frame
            if op >= Op.CLOSE:
                yield Frame(op, body)
                continue
            if (op is Op.CONTINUATION) == (self._op is None):
                raise ProtocolError("a message was not continued, or one that had not begun")
            self._op = self._op or op
            self._message += body
            if len(self._message) > self._size_bytes_max:
                raise ProtocolError(f"a message is larger than {self._size_bytes_max} bytes")
            if is_last:
                yield Frame(self._op, bytes(self._message))
                self._op, self._message = None, bytearray()

    def _next(self) -> tuple[Op, bool, bytes] | None:
        """Take one frame: its kind, whether it is the last of its message, and its bytes."""
        data = self._data
        if len(data) < 2:
            return None
        first, second = data[0], data[1]
        try:
            op = Op(first & 0x0F)
        except ValueError as err:
            raise ProtocolError(f"there is no kind of frame {first & 0x0F}") from err
        if first & 0x70 or not second & 0x80:
            raise ProtocolError("a frame is not masked, or has bits of an extension")
        length, at = second & 0x7F, 2
        if op >= Op.CLOSE and (length > _CONTROL_BYTES_MAX or not first & 0x80):
            raise ProtocolError("a control frame is too large, or in pieces")
        if length >= _SHORT:
            size = 2 if length == _SHORT else 8
            if len(data) < at + size:
                return None
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if length > self._size_bytes_max:
            raise ProtocolError(f"a frame is larger than {self._size_bytes_max} bytes")
        if len(data) < at + 4 + length:
            return None
        mask, body = data[at : at + 4], data[at + 4 : at + 4 + length]
        del data[: at + 4 + length]
        return op, bool(first & 0x80), _unmasked(body, mask)


def _unmasked(data: bytearray, mask: bytearray) -> bytes:
    if not data:
        return b""
    key = (bytes(mask) * (len(data) // 4 + 1))[: len(data)]
    whole = int.from_bytes(data, "big") ^ int.from_bytes(key, "big")
    return whole.to_bytes(len(data), "big")
