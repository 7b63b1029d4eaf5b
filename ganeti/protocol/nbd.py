"""Bytes of the network block device protocol, as far as a reader of one export needs them.

The client negotiates structured replies and one context: ``base:allocation``, which says where an
export has holes, or ``qemu:dirty-bitmap:NAME``, which says what was written.  After that each
request is answered by chunks of which the last one says so.  Numbers are big-endian.

Source: the NBD project, doc/proto.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ganeti.base.errors import ProtocolError

GREETING: Final = struct.Struct(">8s8sH")
OPTION_REPLY: Final = struct.Struct(">QIII")  # magic, option, type, length
CHUNK: Final = struct.Struct(">IHHQI")  # magic, flags, type, cookie, length
REPLY_BYTES_MAX: Final = 1 << 16  # of one reply to an option; QEMU's have some 30
CHUNK_BYTES_MAX: Final = 1 << 26
STATUS_BYTES: Final = 1 << 30  # asked at once where the holes are

_MAGIC: Final = b"NBDMAGIC"
_OPTION_MAGIC: Final = b"IHAVEOPT"
_OPTION: Final = struct.Struct(">8sII")
_OPTION_REPLY_MAGIC: Final = 0x3E889045565A9
_FIXED_NEWSTYLE: Final = 1
_NO_ZEROES: Final = 2
_REQUEST: Final = struct.Struct(">IHHQQI")
_REQUEST_MAGIC: Final = 0x25609513
_CHUNK_MAGIC: Final = 0x668E33EF
_DONE: Final = 1
_IS_ERROR: Final = 1 << 15
_REFUSED: Final = 1 << 31
_EXPORT_INFO: Final = struct.Struct(">HQH")
_EXTENT: Final = struct.Struct(">II")
_READS_AS_ZEROES: Final = 2
_IS_DIRTY: Final = 1
_DAMAGED: Final = "an answer of the NBD server is damaged"


class Option(IntEnum):
    """The options of the negotiation."""

    GO = 7
    STRUCTURED_REPLY = 8
    SET_META_CONTEXT = 10


class OptionReply(IntEnum):
    """How an option is answered."""

    ACK = 1
    INFO = 3
    META_CONTEXT = 4


class Command(IntEnum):
    """The commands once an export was chosen."""

    READ = 0
    DISCONNECT = 2
    BLOCK_STATUS = 7


class _ChunkType(IntEnum):
    NONE = 0
    DATA = 1
    HOLE = 2
    STATUS = 5


@dataclass(frozen=True, slots=True)
class MetaContext:
    """What is told of each part of an export; a flag means that it is to be looked at, or not."""

    name: str
    flag: int
    when_set: bool


ALLOCATION: Final = MetaContext("base:allocation", _READS_AS_ZEROES, when_set=False)


@dataclass(frozen=True, slots=True)
class Chunk:
    """The head of one part of an answer; so many bytes follow it."""

    is_last: bool
    kind: int
    length: int


def answer_greeting(data: bytes) -> bytes:
    """Return the flags of the client.

    Raises:
        ProtocolError: the peer is no such server.
    """
    magic, option_magic, flags = GREETING.unpack(data)
    if (magic, option_magic) != (_MAGIC, _OPTION_MAGIC) or not flags & _FIXED_NEWSTYLE:
        raise ProtocolError("the peer is no NBD server of the new style")
    return struct.pack(">I", flags & (_FIXED_NEWSTYLE | _NO_ZEROES))


def option(which: Option, data: bytes = b"") -> bytes:
    """Return the request for an option."""
    return _OPTION.pack(_OPTION_MAGIC, which, len(data)) + data


def choose_export(name: str) -> bytes:
    """Return the data of option ``GO``: everything that must be known comes unasked."""
    return _text(name.encode()) + struct.pack(">H", 0)


def choose_context(name: str, context: MetaContext) -> bytes:
    """Return the data of option ``SET_META_CONTEXT``."""
    return _text(name.encode()) + struct.pack(">I", 1) + _text(context.name.encode())


def dirty_context(bitmap: str) -> MetaContext:
    """Return the context that tells what a dirty bitmap of QEMU marks."""
    return MetaContext(f"qemu:dirty-bitmap:{bitmap}", _IS_DIRTY, when_set=True)


def _text(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def option_reply(data: bytes, which: Option) -> tuple[int, int]:
    """Return type and length of the reply to an option.

    Raises:
        ProtocolError: it is the reply to something else.
    """
    magic, answered, kind, length = OPTION_REPLY.unpack(data)
    if magic != _OPTION_REPLY_MAGIC or answered != which or length > REPLY_BYTES_MAX:
        raise ProtocolError(f"the reply of the NBD server to option {which.name} is damaged")
    return kind, length


def check_reply(which: Option, kind: int, text: bytes) -> None:
    """Refuse an option that was refused.

    Raises:
        ProtocolError: the message has the server's own text.
    """
    if kind & _REFUSED:
        said = text.decode("utf-8", "replace") or f"error {kind & ~_REFUSED}"
        raise ProtocolError(f"the NBD server refused option {which.name}: {said}")


def export_size(info: bytes) -> int | None:
    """Return the size that an information about the export tells; None if it tells another one."""
    if len(info) < _EXPORT_INFO.size or info[:2] != b"\0\0":
        return None
    return int(_EXPORT_INFO.unpack(info[: _EXPORT_INFO.size])[1])


def request(command: Command, cookie: int, offset: int = 0, length: int = 0) -> bytes:
    """Return a request."""
    return _REQUEST.pack(_REQUEST_MAGIC, 0, command, cookie, offset, length)


def chunk(data: bytes, cookie: int) -> Chunk:
    """Return the head of a part of an answer.

    Raises:
        ProtocolError: it belongs to nothing that was asked.
    """
    magic, flags, kind, answered, length = CHUNK.unpack(data)
    if magic != _CHUNK_MAGIC or answered != cookie or length > CHUNK_BYTES_MAX:
        raise ProtocolError(_DAMAGED)
    return Chunk(bool(flags & _DONE), kind, length)


def check_chunk(part: Chunk, data: bytes) -> None:
    """Refuse an error.

    Raises:
        ProtocolError: the message has the server's own text.
    """
    if part.kind & _IS_ERROR:
        number, length = _unpack(">IH", data[:6])
        said = data[6 : 6 + length].decode("utf-8", "replace")
        raise ProtocolError(f"the NBD server cannot read: {said or f'error {number}'}")


def place_of_data(part: Chunk, data: bytes) -> tuple[int, bytes] | None:
    """Return where the bytes of a part belong, and the bytes; None for a part without.

    Raises:
        ProtocolError: it is no part of the answer to a read.
    """
    match part.kind:
        case _ChunkType.NONE:
            return None
        case _ChunkType.DATA:
            (offset,) = _unpack(">Q", data[:8])
            return offset, data[8:]
        case _ChunkType.HOLE:
            offset, count = _unpack(">QI", data)
            if count > CHUNK_BYTES_MAX:
                raise ProtocolError(_DAMAGED)
            return offset, bytes(count)
    raise ProtocolError(f"the NBD server answered a read with {part.kind}")


def _unpack(layout: str, data: bytes) -> tuple[int, ...]:
    if len(data) != struct.calcsize(layout):
        raise ProtocolError(_DAMAGED)
    return struct.unpack(layout, data)


def extents(part: Chunk, data: bytes, context: MetaContext) -> Iterator[tuple[int, bool]]:
    """Yield length of each part of the export in order, and whether it is to be looked at.

    Raises:
        ProtocolError: it is no part of the answer to a question for holes.
    """
    if part.kind != _ChunkType.STATUS or len(data) % _EXTENT.size != 4:
        raise ProtocolError(f"the NBD server answered a question for holes with {part.kind}")
    for length, flags in _EXTENT.iter_unpack(data[4:]):
        if not length:
            raise ProtocolError("the NBD server tells of a part without length")
        yield length, bool(flags & context.flag) == context.when_set
