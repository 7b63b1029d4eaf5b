"""The one seam to JSON: bytes to values and back.

Everything that reads or writes JSON goes through here, so that errors are of one kind and name
the place, and so that the library behind it can be exchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec

from ganeti.base.errors import ProtocolError

T = TypeVar("T")

if TYPE_CHECKING:
    JsonValue: TypeAlias = object  # its shape is not declared: nobody uses one without a look
else:
    JsonValue = Any  # msgspec takes it as it is, without asking for a hook

NESTING_MAX: Final = 150  # the decoder recurs on the C stack, which is small in some threads
REQUEST_NESTING_MAX: Final = 100  # so that a request can be kept and told again, deeper inside
_WORK_BYTES_MIN: Final = 1 << 20
_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}"'))
_TO_SQUARE: Final = bytes.maketrans(b"{}", b"[]")

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def dumps(value: object) -> bytes:
    """Encode a value as compact UTF-8 JSON.

    Raises:
        ProtocolError: a text in it cannot be written as UTF-8.
    """
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError as err:
        raise ProtocolError(f"this is no text that can be sent as UTF-8: {err.object!a}") from err


def loads(data: bytes | str) -> object:
    """Decode one JSON document.

    Raises:
        ProtocolError: it is not valid JSON or not valid UTF-8, or nested too deeply; the text
            names the byte where the decoder stopped, if it is known.
    """
    check_nesting(data)
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as err:
        raise _invalid(data, err) from err


def loads_as(kind: type[T], data: bytes | str) -> T:
    """Decode one JSON document into a value of the given type.

    Raises:
        ProtocolError: not JSON, or not of that type; the text names the place in the document.
    """
    check_nesting(data)
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as err:
        raise _invalid(data, err) from err


def check_nesting(data: bytes | str | msgspec.Raw, limit: int = NESTING_MAX) -> None:
    """Refuse a document that is nested too deeply, before a decoder sees it.

    Most documents have fewer brackets than that.  Of another one the strings are taken out, then
    the innermost pairs of brackets, level by level; the work for that is bounded too.  What is no
    JSON passes or not: the decoder comes no deeper than the limit and the brackets left.

    Raises:
        ProtocolError: so.
    """
    if isinstance(data, msgspec.Raw):
        return  # a part of a document that was looked at
    if isinstance(data, str):
        data = data.encode("utf-8", "replace")
    if data.count(b"[") + data.count(b"{") <= limit:
        return
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    left = data.translate(_TO_SQUARE, _NOT_STRUCTURE).replace(b'""', b"")
    left = b"".join(left.split(b'"')[::2])
    work_bytes = max(4 * len(data), _WORK_BYTES_MIN)
    brackets_max = 0  # left over when all levels are gone
    for _ in range(limit):
        size = len(left)
        left = left.replace(b"[]", b"")
        work_bytes -= size
        if len(left) == size:
            brackets_max = limit  # never closed
            break
        if work_bytes < 0:
            break
    if left.count(b"[") > brackets_max:
        raise ProtocolError("invalid JSON: nested too deeply")


def _invalid(data: bytes | str, error: Exception) -> ProtocolError:
    """Describe a failure of the decoder.

    The place of wrong UTF-8 is looked for in the whole document: the decoder counts from the start
    of the string.
    """
    if isinstance(error, msgspec.DecodeError):  # ValidationError is one of these
        return ProtocolError(f"invalid JSON: {error}")
    if isinstance(error, RecursionError):
        return ProtocolError("invalid JSON: nested too deeply")
    try:
        data.encode() if isinstance(data, str) else data.decode()
    except UnicodeError as err:
        return ProtocolError(f"invalid UTF-8 at byte {getattr(err, 'start', 0)}")
    return ProtocolError("invalid UTF-8")
