"""Packets of RConfD: framing, signing, requests and replies.

A packet is ``plj0`` and one JSON object: a message, which is JSON text itself, a salt, and the
HMAC-SHA1 of salt and message under the cluster's key.  The salt of a request is the time, that of a
reply is what the request asked for, so nobody can pass off an old packet as a new one.

Source: confd.json, "packet", "request" and "reply"; design 2.1, "Ganeti Confd".
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from functools import lru_cache
from hmac import compare_digest
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw

from ganeti.base.errors import ProtocolError

MAGIC: Final = b"plj0"
DEFAULT_PORT: Final = 1814
DATAGRAM_BYTES_MAX: Final = 61440
CLOCK_SKEW_S_MAX: Final = 300
PROTOCOL_VERSION: Final = 1

_SHA1_BLOCK_BYTES: Final = 64
_TIME_DIGITS_MAX: Final = 15  # seconds until long after the sun
_INNER_PAD: Final = bytes(octet ^ 0x36 for octet in range(256))
_OUTER_PAD: Final = bytes(octet ^ 0x5C for octet in range(256))


class Status(IntEnum):
    """What became of a question."""

    OK = 0
    ERROR = 1
    NOT_IMPLEMENTED = 2


class ErrorKind(IntEnum):
    """The answer of a question that failed; a text may stand in its place."""

    UNKNOWN_ENTRY = 0
    INTERNAL = 1
    ARGUMENT = 2


class Request(msgspec.Struct, frozen=True, gc=False):
    """A question; ``query`` stays JSON text until it is known whether the answer is kept ready.

    The protocol's number is not looked at, as in 3.0.
    """

    type: int
    rsalt: str
    query: Raw = Raw(b"null")
    protocol: int = PROTOCOL_VERSION


class Reply(msgspec.Struct, frozen=True):
    """What one RConfD answered."""

    status: Status
    answer: object
    serial: int
    protocol: int = PROTOCOL_VERSION


class Packet(msgspec.Struct, frozen=True, gc=False):
    """The JSON object of a packet."""

    msg: str
    salt: str
    hmac: str


_decode_packet: Final = msgspec.json.Decoder(Packet).decode
_decode_request: Final = msgspec.json.Decoder(Request).decode
_decode_reply: Final = msgspec.json.Decoder(Reply).decode
_encode: Final = msgspec.json.Encoder().encode


class Signer:
    """Signs with one key, whose part of the work is done once.

    This is HMAC of RFC 2104 spelt out: copying two hashes is half the cost of copying what the
    standard library wraps around them.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        if len(key) > _SHA1_BLOCK_BYTES:
            key = hashlib.sha1(key).digest()  # noqa: S324 - the protocol says so
        block = key.ljust(_SHA1_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha1(block.translate(_INNER_PAD))  # noqa: S324
        self._outer = hashlib.sha1(block.translate(_OUTER_PAD))  # noqa: S324

    def sign(self, data: bytes) -> str:
        """Return the HMAC of data in hexadecimal digits."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(data)
        outer.update(inner.digest())
        return outer.hexdigest()

    def __repr__(self) -> str:
        return "Signer(***)"


def sign(key: bytes, salt: str, message: str) -> str:
    """Return the HMAC that a packet with this salt and message carries."""
    return Signer(key).sign((salt + message).encode())


class Sealable(NamedTuple):
    """A message and the part of its packet that does not change from one salt to the next."""

    message: bytes
    middle: bytes


def sealable(message: bytes) -> Sealable:
    """Return a message ready to be sealed again and again."""
    return Sealable(message, b'", "msg": %b, "salt": ' % _encode(message.decode()))


def seal(signer: Signer, salt: str, ready: Sealable) -> bytes:
    """Return the packet with a message."""
    mac = signer.sign(salt.encode() + ready.message)
    return b"".join((b'plj0{"hmac": "', mac.encode(), ready.middle, _encode(salt), b"}"))


def unseal(signer: Signer, data: bytes) -> Packet:
    """Return the packet in a datagram whose signature is right.

    Raises:
        ProtocolError: too long, of another form, or not signed with this key.
    """
    if len(data) > DATAGRAM_BYTES_MAX:
        raise ProtocolError(f"more than {DATAGRAM_BYTES_MAX} bytes")
    if data[:4] != MAGIC:
        raise ProtocolError(f"does not begin with {MAGIC.decode()}")
    try:
        packet = _decode_packet(data[4:])
        right = signer.sign((packet.salt + packet.msg).encode())
        is_right = compare_digest(right, packet.hmac)
    except (msgspec.DecodeError, RecursionError, UnicodeError, TypeError) as err:
        raise ProtocolError(f"not the JSON of a packet: {err}") from err
    if not is_right:
        raise ProtocolError("not signed with the key of this cluster")
    return packet


@lru_cache(maxsize=16)  # most requests of a second have the same; what is refused is not kept
def check_time(salt: str, now_s: int) -> None:
    """Refuse a request whose salt is not the time, give or take five minutes.

    Raises:
        ProtocolError: so.
    """
    if not (len(salt) <= _TIME_DIGITS_MAX and salt.isascii() and salt.isdigit()):
        raise ProtocolError("its salt is not a time in seconds")
    off_s = int(salt) - now_s
    if not -CLOCK_SKEW_S_MAX <= off_s <= CLOCK_SKEW_S_MAX:
        raise ProtocolError(f"its time is {off_s} s off, {CLOCK_SKEW_S_MAX} s are allowed")


def open_request(signer: Signer, data: bytes, now_s: int) -> Request:
    """Return the request in a datagram.

    Raises:
        ProtocolError: it gets no answer; the text says why.
    """
    packet = unseal(signer, data)
    check_time(packet.salt, now_s)
    try:
        return _decode_request(packet.msg)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as err:
        raise ProtocolError(f"a malformed request: {err}") from err


def request_packet(
    signer: Signer, query_type: int, query: object, *, rsalt: str, now_s: int
) -> bytes:
    """Return the packet of a request."""
    message = _encode(
        {"protocol": PROTOCOL_VERSION, "type": query_type, "query": query, "rsalt": rsalt}
    )
    return seal(signer, str(now_s), sealable(message))


def open_reply(signer: Signer, data: bytes) -> tuple[str, Reply]:
    """Return the salt and the reply in a datagram.

    Raises:
        ProtocolError: it is not signed with this key, or no reply.
    """
    packet = unseal(signer, data)
    try:
        return packet.salt, _decode_reply(packet.msg)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as err:
        raise ProtocolError(f"a malformed reply: {err}") from err


def reply_message(status: Status, answer: bytes, serial: int) -> bytes:
    """Return the message of a reply; the answer is JSON already."""
    return b'{"protocol":%d,"status":%d,"answer":%b,"serial":%d}' % (
        PROTOCOL_VERSION,
        status,
        answer,
        serial,
    )
