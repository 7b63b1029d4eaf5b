"""Natural order and short names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import OpPrereqError
from ganeti.base.text import match_name_component, natural_sort_key, natural_sorted

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
