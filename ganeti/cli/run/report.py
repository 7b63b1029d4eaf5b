"""Reports: nested facts about an object, indented, as the info commands print them.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base.text import natural_sorted

Fact = tuple[str, object]
_STEP = "  "


class Facts(list[Fact]):
    """Named facts in the order to be shown; values may be Facts again, lists or plain values."""


def format_report(value: object, indent: str = "") -> list[str]:
    """Return the lines of a report.

    Facts are printed as ``name: value``; lists with a dash before each entry.
    """
    match value:
        case Facts():
            return _format_facts(value, indent)
        case Mapping():
            pairs = Facts((str(key), value[key]) for key in natural_sorted(map(str, value)))
            return _format_facts(pairs, indent)
        case list() | tuple():
            return _format_list(value, indent)
        case _:
            return [indent + scalar(value)]


def _format_facts(facts: Facts, indent: str) -> list[str]:
    lines: list[str] = []
    for name, value in facts:
        if is_plain(value):
            lines.append(f"{indent}{name}: {scalar(value)}".rstrip())
        else:
            lines.append(f"{indent}{name}:")
            lines += format_report(value, indent + _STEP)
    return lines


def _format_list(items: Sequence[object], indent: str) -> list[str]:
    lines: list[str] = []
    for item in items:
        nested = format_report(item, indent + _STEP)
        if nested:
            lines.append(f"{indent}- {nested[0].lstrip()}")
            lines += nested[1:]
    return lines


def is_plain(value: object) -> bool:
    """Tell whether a value stands on the line of its name."""
    if isinstance(value, Facts | Mapping | list | tuple):
        return not value
    return True


def scalar(value: object) -> str:
    """Return a plain value as text."""
    match value:
        case None:
            return "None"
        case Facts() | Mapping():
            return "{}"
        case list() | tuple():
            return "[]"
        case _:
            return str(value)


_ROMAN: Final = (
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"),
    (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
)  # fmt: skip
_ROMAN_MAX: Final = 3999


def roman(number: int) -> str:
    """Return a number the Roman way where there is one."""
    if not 1 <= number <= _ROMAN_MAX:
        return str(number)
    text = ""
    for value, letters in _ROMAN:
        count, number = divmod(number, value)
        text += letters * count
    return text


def with_roman_numbers(value: object) -> object:
    """Return a report with its whole numbers written the Roman way."""
    match value:
        case bool():
            return value
        case int():
            return roman(value)
        case Facts():
            return Facts((name, with_roman_numbers(item)) for name, item in value)
        case Mapping():
            return {name: with_roman_numbers(item) for name, item in value.items()}
        case list() | tuple():
            return [with_roman_numbers(item) for item in value]
        case _:
            return value
