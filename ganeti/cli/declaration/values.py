"""Values of options: from the text on the command line to the value an opcode takes.

Pure functions; each raises `ParameterError` with a text that names what was wrong with the value.
The parser adds the option's name.

Source: cli.json, "option_value_types"; manual page ganeti(7), "Common options".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from ganeti.base.errors import ParameterError, ProtocolError, UnitParseError

NO_PREFIX: Final = "no_"
UNSET_PREFIX: Final = "-"
DEFAULT_VALUE: Final = "default"  # what opcodes take for "no own value, use the default"

_TRUE: Final = frozenset({"yes", "true", "y", "on", "1"})
_FALSE: Final = frozenset({"no", "false", "n", "off", "0"})
_FINAL_STATUSES: Final = ("success", "error", "canceled")
_FILTER_ACTIONS: Final = ("ACCEPT", "PAUSE", "REJECT", "CONTINUE")


class ValueType(StrEnum):
    """How the text of an option's value is understood."""

    TEXT = "text"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    UNIT = "unit"
    CHOICE = "choice"
    PRIORITY = "priority"
    LIST = "list"
    MAYBE_FLOAT = "maybefloat"
    KEYVAL = "keyval"
    KEYVAL_PRIVATE = "keyprivateval"
    IDENT_KEYVAL = "identkeyval"
    MULTI_LIST_IDENT_KEYVAL = "multilistidentkeyval"
    JSON = "json"
    FILTER_ACTION = "filteraction"
    DEPENDENCY = "dependency"


PRIORITIES: Final = {"low": 10, "normal": 0, "high": -10}


def split_commas(text: str) -> list[str]:
    r"""Split at commas; a backslash protects the next character.

    >>> split_commas(r"a=1\,2,b")
    ['a=1,2', 'b']
    """
    if not text:
        return []
    parts: list[str] = []
    current: list[str] = []
    characters = iter(text)
    for character in characters:
        if character == "\\":
            current.append(next(characters, "\\"))
        elif character == ",":
            parts.append("".join(current))
            current = []
        else:
            current.append(character)
    parts.append("".join(current))
    return parts


def _key_value(item: str) -> tuple[str, object]:
    if "=" in item:
        key, value = item.split("=", 1)
        return key, value
    if item.startswith(NO_PREFIX):
        return item.removeprefix(NO_PREFIX), False
    if item.startswith(UNSET_PREFIX):
        return item.removeprefix(UNSET_PREFIX), None
    return item, True


def parse_keyval(text: str) -> dict[str, object]:
    """Parse ``k=v,...``; ``no_k`` means false, ``-k`` unset (None), a bare ``k`` true."""
    pairs: dict[str, object] = {}
    for item in split_commas(text):
        key, value = _key_value(item)
        if not key:
            raise ParameterError(f"an empty key in {text!r}; expected key=value[,key=value...]")
        if key in pairs:
            raise ParameterError(f"the key {key!r} is given twice in {text!r}")
        pairs[key] = value
    return pairs


def parse_keyval_text(text: str) -> dict[str, object]:
    """Parse ``k=v,...`` whose values are plain text: passwords and the like."""
    pairs = parse_keyval(text)
    for key, value in pairs.items():
        if not isinstance(value, str):
            raise ParameterError(f"the key {key!r} needs a value: {key}=...")
    return pairs


def parse_ident_keyval(text: str) -> tuple[str, object]:
    """Parse ``IDENT:k=v,...``.

    ``no_IDENT`` alone gives (IDENT, False): remove it; ``-IDENT`` gives (IDENT, None): unset it.
    """
    ident, separator, rest = text.partition(":")
    if ident.startswith(NO_PREFIX) and not separator:
        return ident.removeprefix(NO_PREFIX), False
    if ident.startswith(UNSET_PREFIX) and not separator and not _is_number(ident):
        return ident.removeprefix(UNSET_PREFIX), None
    if ident.startswith((NO_PREFIX, UNSET_PREFIX)) and not _is_number(ident):
        raise ParameterError(f"{ident!r} removes or unsets, so nothing may follow it: {text!r}")
    if not ident:
        raise ParameterError(f"nothing before the colon in {text!r}; expected IDENT:key=value,...")
    return ident, parse_keyval(rest)


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()


def parse_multi_list_ident_keyval(text: str) -> list[dict[str, dict[str, object]]]:
    """Parse groups split by ``//`` of items ``ident:k=v,...`` split by ``/``."""
    groups: list[dict[str, dict[str, object]]] = []
    for group_text in text.split("//"):
        group: dict[str, dict[str, object]] = {}
        for item in group_text.split("/"):
            ident, value = parse_ident_keyval(item)
            if not isinstance(value, dict):
                raise ParameterError(f"{item!r} cannot remove or unset here; give ident:key=value")
            if ident in group:
                raise ParameterError(f"{ident!r} is given twice in {group_text!r}")
            group[ident] = value
        groups.append(group)
    return groups


def parse_bool(text: str) -> bool:
    """Parse yes or no, true or false."""
    folded = text.strip().lower()
    if folded in _TRUE:
        return True
    if folded in _FALSE:
        return False
    raise ParameterError(f"{text!r} is neither yes nor no")


def parse_int(text: str) -> int:
    """Parse a whole number."""
    try:
        return int(text)
    except ValueError as err:
        raise ParameterError(f"{text!r} is not a whole number") from err


def parse_float(text: str) -> float:
    """Parse a finite number."""
    try:
        number = float(text)
    except ValueError as err:
        raise ParameterError(f"{text!r} is not a number") from err
    if not math.isfinite(number):
        raise ParameterError(f"{text!r} is not a finite number")
    return number


def parse_maybe_float(text: str) -> float | str:
    """Parse a number; "none" means that there is no own value: the default one counts."""
    if text.strip().lower() in ("none", DEFAULT_VALUE):
        return DEFAULT_VALUE
    return parse_float(text)


def parse_size(text: str) -> int:
    """Parse a size with an optional unit to MiB."""
    from ganeti.base.units import parse_unit

    try:
        return parse_unit(text)
    except UnitParseError as err:
        raise ParameterError(err.message) from err


def parse_json(text: str) -> object:
    """Parse JSON text."""
    from ganeti.base import json

    try:
        return json.loads(text)
    except ProtocolError as err:
        raise ParameterError(f"not JSON: {err.message}") from err


def parse_filter_action(text: str) -> object:
    """Parse ACCEPT, PAUSE, REJECT, CONTINUE or ``RATE_LIMIT n``."""
    words = text.split()
    match words:
        case [action] if action.upper() in _FILTER_ACTIONS:
            return action.upper()
        case [action, count] if action.upper() == "RATE_LIMIT":
            limit = parse_int(count)
            if limit <= 0:
                raise ParameterError("RATE_LIMIT needs a number above zero")
            return ["RATE_LIMIT", limit]
        case _:
            names = ", ".join(_FILTER_ACTIONS)
            raise ParameterError(f"{text!r} is not one of {names} or 'RATE_LIMIT n'")


def parse_dependency(text: str) -> list[object]:
    """Parse ``<job>`` or ``<job>:<status>+<status>...``; without a status it is success."""
    number, colon, statuses = text.partition(":")
    accepted = statuses.split("+") if colon else ["success"]
    if not number.isascii() or not number.isdigit():
        raise ParameterError(f"{number!r} is not a job number")
    for status in accepted:
        parse_choice(status, _FINAL_STATUSES)
    return [int(number), accepted]


def parse_priority(text: str) -> int:
    """Parse low, normal or high to the number an opcode takes."""
    return PRIORITIES[parse_choice(text, tuple(PRIORITIES))]


def parse_choice(text: str, choices: Sequence[str]) -> str:
    """Accept one of the choices."""
    if text in choices:
        return text
    raise ParameterError(f"{text!r} is not one of {', '.join(choices)}")


def parse_list(text: str) -> list[str]:
    """Split at commas; an empty text is an empty list."""
    return split_commas(text)


PARSERS: Final[Mapping[ValueType, Callable[[str], object]]] = {
    ValueType.TEXT: str,
    ValueType.INT: parse_int,
    ValueType.FLOAT: parse_float,
    ValueType.BOOL: parse_bool,
    ValueType.UNIT: parse_size,
    ValueType.PRIORITY: parse_priority,
    ValueType.LIST: parse_list,
    ValueType.MAYBE_FLOAT: parse_maybe_float,
    ValueType.KEYVAL: parse_keyval,
    ValueType.KEYVAL_PRIVATE: parse_keyval_text,
    ValueType.IDENT_KEYVAL: parse_ident_keyval,
    ValueType.MULTI_LIST_IDENT_KEYVAL: parse_multi_list_ident_keyval,
    ValueType.JSON: parse_json,
    ValueType.FILTER_ACTION: parse_filter_action,
    ValueType.DEPENDENCY: parse_dependency,
}
