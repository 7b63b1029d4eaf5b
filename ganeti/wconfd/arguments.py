"""Turns the arguments of a request into typed values, as the method table says.

Source: wconfd.json, "methods".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.locking.names import parse_request
from ganeti.protocol.wconfd import KINDS, ClientId, Method

ITEMS_MAX: Final = 200_000  # of a list argument; all locks of 20,000 instances are 60,000


def decode_arguments(method: Method, values: Sequence[object]) -> list[Any]:
    """Return the arguments of a request as the handler takes them.

    Raises:
        OpPrereqError: wrong number of arguments, or one of the wrong shape; names it.
        LockError: a lock request of the wrong shape.
    """
    if len(values) != len(method.args):
        names = ", ".join(argument.name for argument in method.args) or "none"
        raise OpPrereqError(
            f"{method.name} takes {len(method.args)} arguments ({names}), not {len(values)}",
            ErrorCode.INVAL,
        )
    return [
        _DECODERS[argument.kind](value, f"{method.name}: {argument.name}")
        for argument, value in zip(method.args, values, strict=True)
    ]


def _wrong(what: str, kind: str, value: object) -> OpPrereqError:
    shown = KINDS[kind].text
    return OpPrereqError(f"{what} must be {shown}, not {value!r:.200}", ErrorCode.INVAL)


def _client(value: object, _what: str) -> ClientId:
    return ClientId.from_wire(value)


def _request(value: object, _what: str) -> object:
    return parse_request(value)


def _of(kind: str, *types: type) -> Callable[[object, str], object]:
    """Return a decoder that takes values of these types; bool is no int here."""

    def decode(value: object, what: str) -> object:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise _wrong(what, kind, value)
        return value

    return decode


def _float(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _wrong(what, "float", value)
    return float(value)


def _list_of(kind: str, *types: type) -> Callable[[object, str], object]:
    def decode(value: object, what: str) -> object:
        if not isinstance(value, list) or len(value) > ITEMS_MAX:
            raise _wrong(what, kind, value)
        if not all(isinstance(item, types) for item in value):
            raise _wrong(what, kind, value)
        return value

    return decode


def _keys(value: object, what: str) -> object:
    return None if value is None else _list_of("keys?", str)(value, what)


def _many_changes(value: object, what: str) -> object:
    found = []
    for item in value if isinstance(value, list) else [value]:
        match item:
            case [str(kind), str(key), dict(changes)]:
                found.append((kind, key, changes))
            case _:
                raise _wrong(what, "many_changes", value)
    return found


def _node_amounts(value: object, what: str) -> object:
    found = {}
    for item in value if isinstance(value, list) else [value]:
        match item:
            case [str(node), int(memory), int(disk)] if memory >= 0 and disk >= 0:
                found[node] = (memory, disk)
            case _:
                raise _wrong(what, "node_amounts", value)
    return found


def _node_limits(value: object, what: str) -> object:
    found = {}
    for item in value if isinstance(value, list) else [value]:
        match item:
            case [str(node), int() | None as memory, int() | None as disk]:
                found[node] = (memory, disk)
            case _:
                raise _wrong(what, "node_limits", value)
    return found


_NONE: Final = type(None)
_DECODERS: Final[Mapping[str, Callable[[object, str], object]]] = {
    "client": _client,
    "request": _request,
    "str": _of("str", str),
    "str?": _of("str?", str, _NONE),
    "int": _of("int", int),
    "int?": _of("int?", int, _NONE),
    "float": _float,
    "bool": _of("bool", bool),
    "bool?": _of("bool?", bool, _NONE),
    "strs": _list_of("strs", str),
    "keys?": _keys,
    "object": _of("object", dict),
    "objects": _list_of("objects", dict),
    "changes": _of("changes", dict),
    "many_changes": _many_changes,
    "node_amounts": _node_amounts,
    "node_limits": _node_limits,
}
