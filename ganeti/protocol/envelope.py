"""What stands inside a message: requests and responses of LUXI and WConfD.

``{"method": ..., "args": [...]}`` is answered by ``{"success": ..., "result": ...}``.  A failure
carries ``[class name, [arguments]]``; a request that breaks the rules gets a plain text instead,
after which the server closes the connection.

Source: luxi.json, "transport" and "errors"; wconfd.json, "transport".
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ganeti.base.errors import GenericError, ProtocolError, decode_error, encode_error
from ganeti.base.json import dumps, loads_as

T = TypeVar("T")


# Annotations here are values, not text: a process that reads a Struct for the first time would have
# to evaluate the text.


class RequestError(ProtocolError):
    """A request breaks the rules: unknown method, wrong arguments, not JSON.

    Whoever raises it while handling a request has it answered as a plain text, and the
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


def decode_response(message: bytes, version: int | None = None) -> object:
    """Return the result that a response carries, or raise the error that it carries.

    Raises:
        ProtocolError: not a response, or one of another version.
        GenericError: the decoded failure, of the class that the server named.
    """
    return decode_response_as(object, message, version)


def decode_response_as(kind: type[T], message: bytes, version: int | None = None) -> T:
    """As `decode_response`, with the result decoded straight into a type."""
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
