"""Tables: values as text, columns in line, lines that fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.cli.run.table import (
    Column,
    TableStyle,
    fit_widths,
    format_list,
    format_other,
    format_settings,
    format_table,
    format_value,
)

COLUMNS = [Column("Instance"), Column("Up", "bool"), Column("Memory", "unit")]
ROWS = [[(0, "web1.example.com"), (0, True), (0, 128)], [(0, "db"), (0, False), (4, None)]]


def test_columns_are_in_line_and_numbers_on_the_right() -> None:
    assert format_table(COLUMNS, ROWS, TableStyle()) == [
        "Instance         Up Memory",
        "web1.example.com Y    128M",
        "db               N       *",
    ]


def test_separator_replaces_alignment() -> None:
    style = TableStyle(separator=":", headers=False, unit="m")
    assert format_table(COLUMNS, ROWS, style) == ["web1.example.com:Y:128", "db:N:*"]


def test_verbose_says_words_for_missing_values() -> None:
    style = TableStyle(verbose=True, headers=False, separator="|")
    row = [(1, None), (2, None), (3, None)]
    assert format_table(COLUMNS, [row], style) == ["(unknown)|(nodata)|(unavail)"]


def test_no_rows_still_give_titles() -> None:
    assert format_table(COLUMNS, [], TableStyle()) == ["Instance Up Memory"]
    assert format_table(COLUMNS, [], TableStyle(headers=False)) == []


def test_long_text_is_cut_to_the_width_of_the_screen() -> None:
    lines = format_table(COLUMNS, ROWS, TableStyle(width=20))
    assert max(map(len, lines)) <= 20
    assert lines[1].startswith("web1.ex")
    assert "128M" in lines[1]


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.sampled_from(["text", "unit", "other"])),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 200),
)
def test_fitting_narrows_no_more_than_needed(
    columns: list[tuple[int, str]], available: int
) -> None:
    widths = [width for width, _ in columns]
    kinds = [kind for _, kind in columns]
    fitted = fit_widths(widths, kinds, available)
    assert all(new <= old for new, old in zip(fitted, widths, strict=True))
    for new, old, kind in zip(fitted, widths, kinds, strict=True):
        assert new == old or (kind != "unit" and new >= 8)
    total = sum(fitted) + len(fitted) - 1
    if sum(widths) + len(widths) - 1 <= available:
        assert fitted == widths
    elif total > available:
        assert all(new <= 8 for new, kind in zip(fitted, kinds, strict=True) if kind != "unit")
    else:
        assert total == available


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("text", "x", "x"),
        ("text", None, "-"),
        ("bool", True, "Y"),
        ("number", 3, "3"),
        ("unit", 2048, "2.0G"),
        ("timestamp", None, "-"),
        ("other", None, "-"),
        ("other", "x", "x"),
        ("other", ["a", None], "['a', None]"),
        ("other", {}, "{}"),
        ("other", {"a": [1, True], "b": 2.0}, "{'a': [1, True], 'b': 2}"),
        ("other", [["x", {"y": 0.5}]], "[['x', {'y': 0.5}]]"),
        ("other", [], "[]"),
        ("float", 1.0, "1"),
        ("float", 0.25, "0.25"),
    ],
)
def test_values_as_text(kind: str, value: object, text: str) -> None:
    assert format_value(kind, value) == text


def test_lists_and_settings() -> None:
    assert format_list(["a", None, 8]) == "a,None,8"
    assert format_list([]) == ""
    assert format_settings({"a": "", "b": 1.0, "c": True}) == "a=, b=1, c=True"
    assert format_settings(["a"]) == "['a']"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_any_value_is_printed(value: object) -> None:
    assert isinstance(format_other(value), str)
