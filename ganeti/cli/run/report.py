"""Reports: nested facts about an object, as all info commands print them.  Pure.

A report reads as YAML: ``name: value`` lines, a deeper indent below a name without a value, a dash
before each entry of a list.

Source: cli_output.json.
"""

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
        case Facts() | Mapping() | list() | tuple():
            return ""
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)


def parameters(filled: object, own: object) -> Facts:
    """Return filled parameters; values that are not an object's own are marked as defaults."""
    values = filled if isinstance(filled, Mapping) else {}
    own_values = own if isinstance(own, Mapping) else {}
    return Facts(
        (str(name), _parameter(values[name], name in own_values, own_values.get(name)))
        for name in sorted(values)
    )


def _parameter(value: object, is_own: bool, own: object) -> object:
    if isinstance(value, Mapping) and value:
        return parameters(value, own)
    if is_own:
        return value
    return f"default ({'{}' if value == {} else scalar(value)})"


def policy(filled: object, own: object) -> Facts:
    """Return an instance policy; values that are not an object's own are marked as defaults."""
    values = filled if isinstance(filled, Mapping) else {}
    own_values = own if isinstance(own, Mapping) else {}
    own_bounds = own_values.get("minmax") or []
    bounds = [
        Facts(
            (f"{which}/{index}", parameters(pair.get(which), pair.get(which) if own_bounds else {}))
            for which in ("min", "max")
        )
        for index, pair in enumerate(values.get("minmax") or [])
    ]
    templates = ", ".join(values.get("disk-templates") or [])
    facts = Facts([("bounds specs", bounds)])
    if "std" in own_values:
        facts.append(("std", parameters(own_values["std"], own_values["std"])))
    facts.append(
        ("allowed disk templates", _parameter(templates, "disk-templates" in own_values, templates))
    )
    ratios = {name: values[name] for name in values if name.endswith("-ratio")}
    return Facts([*facts, *parameters(ratios, own_values)])


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
