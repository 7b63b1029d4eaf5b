"""Natural order, short names, durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import OpPrereqError
from ganeti.base.text import match_name_component, natural_sort_key, natural_sorted, parse_duration

NAMES = ["node1.example.com", "node10.example.com", "Node2.example.com", "web.a.org", "web.b.org"]


def test_numbers_sort_as_numbers() -> None:
    assert natural_sorted(["n10", "n9", "n1a", "m"]) == ["m", "n1a", "n9", "n10"]


@given(st.lists(st.text(max_size=6)))
def test_any_texts_can_be_sorted(texts: list[str]) -> None:
    assert sorted(natural_sorted(texts)) == sorted(texts)
    keys = [natural_sort_key(text) for text in natural_sorted(texts)]
    assert keys == sorted(keys)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("node1", "node1.example.com"),
        ("node1.example", "node1.example.com"),
        ("node2", "Node2.example.com"),
        ("node1.example.com", "node1.example.com"),
        ("node", None),
        ("", None),
    ],
)
def test_short_names(key: str, name: str | None) -> None:
    assert match_name_component(key, NAMES) == name


def test_an_ambiguous_short_name_lists_what_it_could_mean() -> None:
    with pytest.raises(OpPrereqError, match=r"web\.a\.org, web\.b\.org"):
        match_name_component("web", NAMES)


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), ("30m", 1800), ("2d", 172_800), ("5200w", 3_144_960_000)]
)
def test_durations(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["99999999999w", "36526d", "9999999999", "1" * 5000])
def test_more_than_a_hundred_years_is_a_mistake(text: str) -> None:
    with pytest.raises(OpPrereqError, match="longer than a hundred years"):
        parse_duration(text)
