"""From the body of a request to the body of its answer: the same in the daemon and in a child.

Whatever goes wrong becomes ``[false, text]``: errors of our tree and of the operating system with
their own words, everything else as an internal error whose traceback stands in the log.
"""

import contextlib
import inspect
import logging
from collections.abc import Sequence
from functools import cache
from typing import Any, get_type_hints

import msgspec

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.registry import Handler, find_handler, find_shortcut
from ganeti.objects.record import decode_private
from ganeti.protocol.node_rpc import (
    Argument,
    Encoder,
    NodeCall,
    decode_arguments,
    encode_failure,
    encode_result,
)
from ganeti.system import clock

logger = logging.getLogger(__name__)

_SHOWN_CHARACTERS_MAX = 100
_INSTANCES = frozenset({Encoder.INSTANCE, Encoder.INSTANCE_HVP_BEP, Encoder.INSTANCE_OSP})


def answer(context: NodeContext, call: NodeCall, body: bytes) -> bytes:
    """Serve one call and return the body of the answer; never raises an Exception."""
    args: Sequence[object] = ()
    started_s = clock.monotonic()
    try:
        handler = find_handler(call)
        args = decode_arguments(call, body)
        result = encode_result(handler(context, *convert(handler, call, args)))
    except GenericError as err:
        return _failed(context, call, args, err.message)
    except OSError as err:
        return _failed(context, call, args, _os_error_text(err))
    except Exception as err:  # a mistake of ours must be answered too, not kill the server
        logger.exception("%s failed in an unforeseen way", call.name)
        return _failed(context, call, args, f"internal error: {type(err).__name__}: {err}")
    if call.changes:
        logger.log(
            _level(call),
            "%s for %s: done in %.2f s",
            describe(call, args),
            context.peer or "this node",
            clock.monotonic() - started_s,
        )
    return result


def answer_if_nothing_to_do(context: NodeContext, call: NodeCall, body: bytes) -> bytes | None:
    """Serve a call that turns out to have nothing to do; None when it needs a child."""
    is_nothing_to_do = find_shortcut(call.name)
    if is_nothing_to_do is None:
        return None
    try:
        args = convert(find_handler(call), call, decode_arguments(call, body))
        if not is_nothing_to_do(context, *args):
            return None
    except (GenericError, OSError):
        return None  # the child will complain
    return answer(context, call, body)


def warm_up(call: NodeCall) -> None:
    """Build what is needed to read the arguments of a call, which is costly the first time.

    Raises:
        NotSupportedError: this node daemon does not serve the call.
    """
    for kind in _parameter_types(find_handler(call)):
        with contextlib.suppress(GenericError, msgspec.ValidationError, TypeError):
            _read(kind, {})


def convert(handler: Handler, call: NodeCall, args: Sequence[object]) -> list[Any]:
    """Turn the arguments from the wire into what the handler declares.

    Raises:
        ProtocolError: a value is not of its type; the text names the call and the argument.
    """
    kinds = _parameter_types(handler)
    return [
        _convert_one(call, argument, kind, value)
        for argument, kind, value in zip(call.arguments, kinds, args, strict=True)
    ]


def describe(call: NodeCall, args: Sequence[object]) -> str:
    """Return a call with those of its arguments that are short and fit for a log."""
    shown = (_show(argument, value) for argument, value in zip(call.arguments, args, strict=False))
    return f"{call.name}({', '.join(text for text in shown if text)})"


@cache
def _parameter_types(handler: Handler) -> tuple[Any, ...]:
    """Return the declared types of a handler's arguments, without the context."""
    hints = get_type_hints(handler)
    return tuple(hints[name] for name in list(inspect.signature(handler).parameters)[1:])


def _convert_one(call: NodeCall, argument: Argument, kind: Any, value: object) -> Any:
    """Convert one argument."""
    try:
        return _read(kind, value)
    except (msgspec.ValidationError, GenericError, TypeError) as err:
        text = err.message if isinstance(err, GenericError) else str(err)
        raise ProtocolError(f"{call.name}: wrong argument {argument.name}: {text}") from err


def _read(kind: Any, value: object) -> Any:
    """Return a value as one of the given type; types that read themselves from the wire do so."""
    from_wire = getattr(kind, "from_wire", None)
    if from_wire is not None:
        return from_wire(value)
    return msgspec.convert(value, kind, dec_hook=_decode_own)


def _decode_own(kind: type, value: object) -> object:
    """Let msgspec accept any value where a handler declares one, and hidden parameters."""
    return value if kind is object else decode_private(kind, value)


def _show(argument: Argument, value: object) -> str:
    """Return one argument for the log, "" when it is long or may hold a secret."""
    if argument.encoder in _INSTANCES and isinstance(value, dict):
        return str(value.get("name", "?"))
    if argument.encoder is Encoder.SINGLE_DISK and isinstance(value, dict):
        return f"{value.get('iv_name') or value.get('uuid')} {value.get('logical_id')}"
    if argument.name == "reason" and isinstance(value, list):
        return "reason " + "; ".join(_reason_text(entry) for entry in value)
    if value is None or isinstance(value, bool | int | float):
        return f"{argument.name}={value}"
    if isinstance(value, str) and len(value) <= _SHOWN_CHARACTERS_MAX:
        return f"{argument.name}={value}"
    return ""


def _reason_text(entry: object) -> str:
    """Return one step of a reason trail as text."""
    match entry:
        case [source, reason, *_]:
            return f"{source} {reason}".strip()
        case _:
            return "?"


def _failed(context: NodeContext, call: NodeCall, args: Sequence[object], text: str) -> bytes:
    """Log a failure and encode it."""
    logger.warning("%s for %s failed: %s", describe(call, args), context.peer or "this node", text)
    return encode_failure(text)


def _level(call: NodeCall) -> int:
    """Return how loud a change is: copies of job files come by the dozen for each job."""
    return logging.DEBUG if call.name.startswith("jobqueue_") else logging.INFO


def _os_error_text(err: OSError) -> str:
    """Return what the operating system said, with the file that it was about."""
    reason = err.strerror or str(err) or type(err).__name__
    return f"{err.filename}: {reason}" if err.filename else reason
