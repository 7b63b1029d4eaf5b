"""Messages of LUXI and WConfD: how a stream is cut into them, requests and responses in them.

Each message is a JSON text followed by one ETX byte (`frame`, `MessageSplitter`); no socket here.

``{"method": ..., "args": [...]}`` is answered by ``{"success": ..., "result": ...}``.  A failure
carries ``[class name, [arguments]]``; a request that breaks the rules gets a plain text instead,
after which the server closes the connection.

Source: luxi.json, "transport" and "errors"; wconfd.json, "transport".
"""

from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from ganeti.base.errors import GenericError, ProtocolError, decode_error, encode_error
from ganeti.base.json import REQUEST_NESTING_MAX, check_nesting, dumps, loads_as

T = TypeVar("T")


# Annotations here are values, not text: a process that reads a Struct for the first time would have
# to evaluate the text.


class RequestError(ProtocolError):
    """A request breaks the rules: unknown method, wrong arguments, not JSON.

    A handler of a request that raises it has it answered as a plain text, and the
    connection closed.
    """

    wire_name = "LuxiError"


class RefusedError(GenericError):
    """The server's plain text for a request that breaks the rules; it closes the connection."""

    wire_name = "GenericError"


class Request(msgspec.Struct, frozen=True, gc=False):
    """One decoded request."""

    method: str
    args: list[object] = msgspec.field(default_factory=list)
    version: int | None = None


class _Response(msgspec.Struct, frozen=True):
    success: bool
    result: msgspec.Raw
    version: int | None = None


class _OutgoingResponse(msgspec.Struct, frozen=True):
    success: bool
    result: object


def encode_request(method: str, args: Sequence[object], version: int | None = None) -> bytes:
    """Encode a request; LUXI clients name their version, WConfD clients do not."""
    message: dict[str, object] = {"method": method, "args": args}
    if version is not None:
        message["version"] = version
    return dumps(message)


def decode_request(message: bytes) -> Request:
    """Decode a request.

    Raises:
        RequestError: not JSON, or not of the form of a request.
    """
    try:
        check_nesting(message, REQUEST_NESTING_MAX)
        return loads_as(Request, message)
    except ProtocolError as err:
        raise RequestError(f"cannot understand the request: {err.message}") from err


def encode_success(result: object) -> bytes:
    """Encode the answer to a request that went well."""
    return dumps(_OutgoingResponse(success=True, result=result))


def encode_failure(error: BaseException) -> bytes:
    """Encode the answer to a request that failed."""
    if isinstance(error, RequestError):
        return encode_refusal(error.message)
    try:
        return dumps(_OutgoingResponse(success=False, result=encode_error(error)))
    except (ProtocolError, TypeError, ValueError, RecursionError):
        # arguments that JSON cannot express
        text = ascii(f"{type(error).__name__}: {error}")
        return dumps(_OutgoingResponse(success=False, result=["GenericError", [text]]))


def encode_refusal(text: str) -> bytes:
    """Encode the answer to a request that breaks the rules: a plain text."""
    return dumps(_OutgoingResponse(success=False, result=text))


def decode_response_as(kind: type[T], message: bytes, version: int | None = None) -> T:
    """Return the result that a response carries, or raise the error that it carries.

    Raises:
        ProtocolError: not a response, or one of another version.
        GenericError: the decoded failure, of the class that the server named.
    """
    response = loads_as(_Response, message)
    if version is not None and response.version is not None and response.version != version:
        raise ProtocolError(
            f"the server speaks version {response.version}, this client version {version}"
        )
    if not response.success:
        raise decode_failure(response.result)
    return loads_as(kind, response.result)


def decode_failure(result: bytes | msgspec.Raw) -> GenericError:
    """Return the error that the result of a failed response stands for."""
    value = loads_as(object, bytes(result))
    return RefusedError(value) if isinstance(value, str) else decode_error(value)


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
            MessageTooLargeError: a message is longer than the limit.  The next message cannot be
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
