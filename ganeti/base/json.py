"""The one seam to JSON: bytes to values and back.

Everything that reads or writes JSON goes through here, so that errors are of one kind and name
the place, and so that the library behind it can be exchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from ganeti.base.errors import ProtocolError

T = TypeVar("T")

if TYPE_CHECKING:
    JsonValue: TypeAlias = object  # its shape is not declared: nobody uses one without a look
else:
    JsonValue = Any  # msgspec takes it as it is, without asking for a hook

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
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as err:
        raise _invalid(data, err) from err


def loads_as(kind: type[T], data: bytes | str) -> T:
    """Decode one JSON document into a value of the given type.

    Raises:
        ProtocolError: not JSON, or not of that type; the text names the place in the document.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as err:
        raise _invalid(data, err) from err


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
