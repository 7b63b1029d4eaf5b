"""Tables: the answer to a query as lines of text.  Pure.

Records of the modules that every list needs are structs: ``dataclasses`` takes 6 ms to load.

Source: query_fields.json, "field_kinds" and "cli_text_for_status".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from ganeti.base.units import format_unit

STATUS_TEXTS: Final = {
    1: ("(unknown)", "??"),
    2: ("(nodata)", "?"),
    3: ("(unavail)", "-"),
    4: ("(offline)", "*"),
}
_RIGHT_ALIGNED: Final = frozenset({"number", "float", "unit"})
_ELLIPSIS: Final = "..."
_WIDTH_MIN: Final = 8  # no column is cut shorter than that

Formatter = Callable[[object], str]


class Column(Struct, frozen=True):
    """One column of a table."""

    title: str
    kind: str = "text"
    format: Formatter | None = None


class TableStyle(Struct, frozen=True):
    """How a table is printed."""

    separator: str | None = None
    headers: bool = True
    unit: str = "h"
    verbose: bool = False
    width: int | None = None  # of the screen; None: lines may be as long as they like


Cell = tuple[int, object]


def format_table(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], style: TableStyle
) -> list[str]:
    """Return the lines of a table."""
    texts = [
        [format_cell(column, cell, style) for column, cell in zip(columns, row, strict=True)]
        for row in rows
    ]
    if style.headers:
        texts.insert(0, [column.title for column in columns])
    if style.separator is not None:
        return [style.separator.join(row) for row in texts]
    return _align(columns, texts, style)


def format_plain(
    columns: Sequence[Column | str], rows: Sequence[Sequence[object]], style: TableStyle
) -> list[str]:
    """Return the lines of a table of plain values; a title alone makes a column of texts."""
    known = [Column(each) if isinstance(each, str) else each for each in columns]
    return format_table(known, [[(0, value) for value in row] for row in rows], style)


def _align(
    columns: Sequence[Column], texts: Sequence[Sequence[str]], style: TableStyle
) -> list[str]:
    widths = [max((len(row[i]) for row in texts), default=0) for i in range(len(columns))]
    if style.width is not None:
        widths = fit_widths(widths, [column.kind for column in columns], style.width)
    lines = []
    for row in texts:
        cells = [
            _cut(text, width).rjust(width)
            if column.kind in _RIGHT_ALIGNED
            else _cut(text, width).ljust(width)
            for column, text, width in zip(columns, row, widths, strict=True)
        ]
        lines.append(" ".join(cells).rstrip())
    return lines


def fit_widths(widths: Sequence[int], kinds: Sequence[str], available: int) -> list[int]:
    """Narrow the widest columns until a line fits; numbers are never cut."""
    fitted = list(widths)
    cuttable = [i for i, kind in enumerate(kinds) if kind not in _RIGHT_ALIGNED]
    excess = sum(fitted) + len(fitted) - 1 - available
    while excess > 0:
        candidates = [i for i in cuttable if fitted[i] > _WIDTH_MIN]
        if not candidates:
            break
        widest = max(candidates, key=lambda i: fitted[i])
        others = sorted((fitted[i] for i in candidates if i != widest), reverse=True)
        floor = max(others[0] if others else _WIDTH_MIN, _WIDTH_MIN)
        step = max(1, min(excess, fitted[widest] - floor))
        fitted[widest] -= step
        excess -= step
    return fitted


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - len(_ELLIPSIS)] + _ELLIPSIS


def format_cell(column: Column, cell: Cell, style: TableStyle) -> str:
    """Return the text of one cell."""
    status, value = cell
    if status != 0:
        verbose, short = STATUS_TEXTS.get(status, (f"(status {status})", "??"))
        return verbose if style.verbose else short
    if column.format is not None:
        return column.format(value)
    return format_value(column.kind, value, style.unit)


def format_value(kind: str, value: object, unit: str = "h") -> str:
    """Return the text of a value of that kind."""
    if value is None:
        return "-"
    match kind, value:
        case "bool", bool():
            return "Y" if value else "N"
        case "unit", int() | float():
            return format_unit(value, unit)
        case "timestamp", _:
            return format_time(value)
        case _:
            return format_other(value)


def format_time(value: object) -> str:
    """Return a time, in seconds or as [seconds, microseconds], in local time."""
    match value:
        case [int(seconds), int()]:
            return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
        case int() | float():
            return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
        case _:
            return "-"


def format_other(value: object) -> str:
    """Return any JSON value in one line, lists and mappings as Python writes them.

    Scripts evaluate that.  A whole number has no fraction, whatever its type.
    """
    return str(_with_whole_numbers(value))


def _with_whole_numbers(value: object) -> object:
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_with_whole_numbers(item) for item in value]
        case Mapping():
            return {key: _with_whole_numbers(item) for key, item in value.items()}
        case _:
            return value


def format_list(value: object) -> str:
    """Return the values of a list with commas between."""
    return ",".join(map(str, value)) if isinstance(value, list) else format_other(value)


def format_settings(value: object) -> str:
    """Return a mapping as ``key=value, key=value``."""
    if not isinstance(value, Mapping):
        return format_other(value)
    return ", ".join(f"{key}={format_other(item)}" for key, item in value.items())
