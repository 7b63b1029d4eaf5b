"""Looking up things by full or short name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ganeti.query.names import NameIndex, name_matches, prefixes

NAMES = st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(".".join)


def test_prefixes() -> None:
    assert list(prefixes("a.b.c")) == ["a", "a.b", "a.b.c"]
    assert list(prefixes("a")) == ["a"]


@given(st.dictionaries(st.text(max_size=3), NAMES, max_size=8), NAMES)
def test_the_index_finds_what_looking_through_all_finds(names: dict[str, str], wanted: str) -> None:
    index = NameIndex(names.items())
    expected = [key for key, name in names.items() if name_matches(wanted, name)]
    assert list(index.matching(wanted)) == expected
    for key, name in names.items():
        index.remove(key, name)
    assert list(index.matching(wanted)) == []


def test_an_index_of_full_names() -> None:
    index = NameIndex([("1", "a.b")], short=False)
    assert list(index.matching("a")) == []
    assert list(index.matching("a.b")) == ["1"]
