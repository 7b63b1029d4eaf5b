"""Values of options: from the text on the command line to the value an opcode takes.

Pure functions; each raises `ParameterError` with a text that names the problem of the value,
to which the parser adds the option's name, or `OpPrereqError` for an option that 3.0 takes as text.
  The type of an option is an annotation with a text form.

Source: cli.json, "option_value_types"; manual page ganeti(7), "Common options".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Final

from ganeti.base.errors import OpPrereqError, ParameterError, ProtocolError, UnitParseError
from ganeti.objects.uid_pool import parse_uid_pool
from ganeti.protocol.service import TextForm

NO_PREFIX: Final = "no_"
UNSET_PREFIX: Final = "-"
DEFAULT_VALUE: Final = "default"  # the word of opcodes for "no own value, use the default"

_TRUE: Final = frozenset({"yes", "true", "y", "on", "1"})
_FALSE: Final = frozenset({"no", "false", "n", "off", "0"})
_FINAL_STATUSES: Final = ("success", "error", "canceled")
_DIGITS_MAX: Final = 18  # Python refuses to read thousands of them, with an error of its own
FILTER_ACTIONS: Final = ("ACCEPT", "PAUSE", "REJECT", "CONTINUE")


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
        case [action] if action.upper() in FILTER_ACTIONS:
            return action.upper()
        case [action, count] if action.upper() == "RATE_LIMIT":
            limit = parse_int(count)
            if limit <= 0:
                raise ParameterError("RATE_LIMIT needs a number above zero")
            return ["RATE_LIMIT", limit]
        case _:
            names = ", ".join(FILTER_ACTIONS)
            raise ParameterError(f"{text!r} is not one of {names} or 'RATE_LIMIT n'")


def parse_dependency(text: str) -> list[object]:
    """Parse ``<job>`` or ``<job>:<status>+<status>...``; without a status it is success."""
    number, colon, statuses = text.partition(":")
    accepted = statuses.split("+") if colon else ["success"]
    if not number.isascii() or not number.isdigit() or len(number) > _DIGITS_MAX:
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


def parse_settings(text: str) -> dict[str, object]:
    """Parse ``k=v,...`` for opcodes, where the value "default" unsets a parameter."""
    return with_defaults(parse_keyval(text))


def parse_backend(text: str) -> dict[str, object]:
    """Parse back-end parameters; ``memory`` means minmem and maxmem, whatever they are."""
    params = parse_settings(text)
    if "memory" in params:
        params["minmem"] = params["maxmem"] = params.pop("memory")
    return params


def by_name(what: str) -> Callable[[Sequence[tuple[str, object]]], dict[str, dict[str, object]]]:
    """Return the function that makes {name: values} of repeated ``NAME:key=value`` options.

    It raises OpPrereqError for a name that is given twice, or without values.
    """

    def gathered(given: Sequence[tuple[str, object]]) -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = {}
        for name, values in given:
            if not isinstance(values, dict):
                raise OpPrereqError(f"{what} {name!r} takes NAME:parameter=value,...")
            if name in found:
                raise OpPrereqError(f"{what} {name!r} is given twice")
            found[name] = with_defaults(values)
        return found

    return gathered


def disk_state(given: Sequence[tuple[str, object]]) -> dict[str, dict[str, object]]:
    """Return ``TYPE/NAME:...`` options as {type: {name: values}}."""
    found: dict[str, dict[str, object]] = {}
    for ident, values in given:
        kind, _, name = ident.partition("/")
        if not name:
            raise OpPrereqError(f"disk state {ident!r} is written TYPE/NAME:key=value,...")
        found.setdefault(kind, {})[name] = values
    return found


def with_defaults(pairs: dict[str, object]) -> dict[str, object]:
    """Return pairs with "default", as opcodes have it, for unset parameters."""
    return {name: DEFAULT_VALUE if value is None else value for name, value in pairs.items()}


def parse_names(text: str) -> list[str]:
    """Split at commas, leaving blanks and empty parts out."""
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_ids(text: str) -> list[tuple[int, int]]:
    """Parse ``5000-5999,7000`` to pairs of bounds."""
    try:
        return parse_uid_pool(text)
    except ParameterError as err:
        raise OpPrereqError(err.message) from err


def parse_netmask(text: str) -> int:
    """Parse the length of a prefix."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    if not is_number or not 0 < int(text) <= 128:
        raise OpPrereqError(f"the netmask {text!r} is not the length of a prefix, such as 24")
    return int(text)


def parse_switches(text: str) -> dict[str, bool]:
    """Parse ``name=yes,...``; a bare name means yes, ``no_name`` no."""
    found = {}
    for name, value in parse_keyval(text).items():
        try:
            found[name] = value if isinstance(value, bool) else parse_bool(str(value))
        except ParameterError as err:
            raise OpPrereqError(f"{name}: {err.message}") from err
    return found


def parse_lists(text: str) -> dict[str, list[str]]:
    """Parse ``k=a:b,...``; an empty list is one, too."""
    return {
        key: [name for name in str(value).split(":") if name]
        for key, value in parse_keyval_text(text).items()
    }


def parse_intervals(text: str) -> dict[str, int]:
    """Parse ``name=seconds,...`` to microseconds."""
    found = {}
    for name, value in parse_keyval(text).items():
        if not isinstance(value, str):
            key, _, seconds = name.partition(":")
            raise OpPrereqError(f"no interval for {key!r}; write {key}={seconds or 'SECONDS'}")
        try:
            found[name] = int(float(value) * 1_000_000)
        except (ValueError, OverflowError) as err:
            raise OpPrereqError(f"interval {value!r} of {name} is not a number") from err
        if found[name] <= 0:
            raise OpPrereqError(f"the interval of {name} must be above zero, got {value}")
    return found


_PAIRS: Final = "key=value[,key=value...]"
Int = Annotated[int, TextForm(parse_int, "n")]
Float = Annotated[float, TextForm(parse_float, "number")]
YesNo = Annotated[bool, TextForm(parse_bool, "yes|no")]
Size = Annotated[int, TextForm(parse_size, "size")]
Priority = Annotated[int, TextForm(parse_priority, "|".join(PRIORITIES))]
Commas = Annotated[list[str], TextForm(split_commas, "a,b,...")]
MaybeFloat = Annotated[float | str, TextForm(parse_maybe_float, "number|none")]
KeyValues = Annotated[dict[str, object], TextForm(parse_keyval, _PAIRS)]
Settings = Annotated[dict[str, object], TextForm(parse_settings, _PAIRS)]
BackendSettings = Annotated[dict[str, object], TextForm(parse_backend, _PAIRS)]
PlainValues = Annotated[dict[str, object], TextForm(parse_keyval_text, _PAIRS)]
NamedValues = Annotated[tuple[str, object], TextForm(parse_ident_keyval, "ident:key=value[,...]")]
SpecGroups = Annotated[
    list[object], TextForm(parse_multi_list_ident_keyval, "ident:key=value/ident:...[//...]")
]
Json = Annotated[object, TextForm(parse_json, "json")]
FilterAction = Annotated[object, TextForm(parse_filter_action, "")]
Names = Annotated[list[str], TextForm(parse_names, "a,b,...")]
Netmask = Annotated[int, TextForm(parse_netmask, "")]
UidPool = Annotated[list[tuple[int, int]], TextForm(parse_ids, "")]
Switches = Annotated[dict[str, bool], TextForm(parse_switches, _PAIRS)]
Intervals = Annotated[dict[str, int], TextForm(parse_intervals, _PAIRS)]
AllocatorLists = Annotated[
    dict[str, list[str]], TextForm(parse_lists, "request=name[:name...][,request=...]")
]
Dependency = Annotated[list[object], TextForm(parse_dependency, "")]
