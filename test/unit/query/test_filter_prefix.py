"""Filters in prefix form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import ParameterError
from ganeti.objects.query_words import FieldKind, ResultStatus
from ganeti.query.context import RunContext
from ganeti.query.fields import NODATA, Absent, AnyField, Comparison, FieldSpec, Source
from ganeti.query.filter_prefix import compile_filter
from ganeti.query.view import View

CONTEXT = RunContext(View())


def field(name: str, kind: FieldKind, **kwargs: Any) -> AnyField:
    return FieldSpec(name, name, kind, "doc", lambda item, _context: item[name], **kwargs)


FIELDS = {
    spec.name: spec
    for spec in (
        field("name", FieldKind.TEXT, comparison=Comparison.HOST_NAME),
        field("text", FieldKind.TEXT),
        field("number", FieldKind.NUMBER),
        field("unit", FieldKind.UNIT),
        field("flag", FieldKind.BOOL),
        field("other", FieldKind.OTHER),
        field("time", FieldKind.OTHER, comparison=Comparison.TIMESTAMP),
        field("live", FieldKind.NUMBER, source=Source.NODE_LIVE),
    )
}
ITEM = {
    "name": "web1.example.com",
    "text": "abc",
    "number": 5,
    "unit": 1024,
    "flag": True,
    "other": ["t1", 3],
    "time": [100, 999],
    "live": NODATA,
}


def passes(qfilter: object, *, static: bool = False, **changes: object) -> bool | None:
    compiled = compile_filter(qfilter, FIELDS.get, "name")
    return compiled.test({**ITEM, **changes}, CONTEXT, static)


@pytest.mark.parametrize(
    ("qfilter", "expected"),
    [
        (None, True),
        (["==", "text", "abc"], True),
        (["=", "text", "ab"], False),
        (["!=", "text", "ab"], True),
        (["<", "text", "abd"], True),
        (["==", "number", 5], True),
        ([">", "number", 5], False),
        ([">=", "unit", 512], True),
        (["==", "name", "web1"], True),
        (["==", "name", "web"], False),
        (["==", "name", "WEB1"], True),
        (["==", "name", "Web1.Example"], True),
        (["|", ["==", "name", "WEB1"], ["==", "name", "x"]], True),
        (["!=", "name", "WEB1"], False),
        (["==", "text", "ABC"], False),
        (["!=", "name", "web1.example"], False),
        (["?", "flag"], True),
        (["==", "flag", True], True),
        (["=[]", "other", "t1"], True),
        (["=[]", "other", 4], False),
        (["==", "time", 100], True),
        (["=~", "text", "B"], False),
        (["=~", "text", "(?i)B"], True),
        (["=~", "text", "^b"], False),
        (["&"], True),
        (["|"], False),
        (["&", ["?", "flag"], ["!", ["==", "number", 4]]], True),
        (["|", ["==", "number", 4], ["==", "number", 6]], False),
        # No data passes a comparison, and so its negation fails.
        (["==", "live", 3], True),
        (["!", ["==", "live", 3]], False),
    ],
)
def test_operators(qfilter: object, expected: bool) -> None:
    assert passes(qfilter) is expected


def test_what_is_not_known_yet_rules_nothing_out() -> None:
    live = [">", "live", 3]
    assert passes(live, static=True) is None
    assert passes(["!", live], static=True) is None
    assert passes(["&", live, ["==", "number", 5]], static=True) is None
    assert passes(["&", live, ["==", "number", 6]], static=True) is False
    assert passes(["|", live, ["==", "number", 5]], static=True) is True


def test_null_is_a_value_that_equals_nothing() -> None:
    assert passes(["==", "other", "x"], other=None) is False
    assert passes(["!=", "other", "x"], other=None) is True
    assert passes(["=[]", "other", "x"], other=None) is False
    assert passes(["=~", "other", "x"], other=None) is False
    assert passes(["=~", "other", "x"], other=Absent(ResultStatus.UNAVAIL)) is True


@pytest.mark.parametrize(
    ("qfilter", "message"),
    [
        ("name", "not a filter: 'name'"),
        (["??", "name"], "not a filter"),
        (["==", "name"], "not a filter"),
        (["!"], "not a filter"),
        (["==", "foo", 1], "unknown field 'foo'"),
        (["==", "text", 1], "field 'text' of kind text cannot be compared with 1"),
        (["<", "number", "x"], "field 'number' of kind number cannot be compared with 'x'"),
        (["==", "number", True], "cannot be compared with True"),
        (["==", "other", {}], "cannot be compared"),
        (["==", "time", "x"], "cannot be compared"),
        (["?", "text"], "is not true or false"),
        (["=~", "number", "x"], "is not text"),
        (["=~", "text", 3], "a regular expression must be text"),
        (["=~", "text", "("], "cannot use the regular expression"),
        (["=[]", "text", "x"], "is not a list"),
        (["=[]", "other", []], "a list cannot be searched for"),
        (["|", *[["?", "flag"]] * 20_001], "at most 20000 conditions"),
    ],
)
def test_wrong_filters_are_refused_before_any_item_is_looked_at(
    qfilter: object, message: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        compile_filter(qfilter, FIELDS.get, "name")
    assert message in caught.value.message


def test_values_of_another_type_are_refused_when_met() -> None:
    for qfilter in (["==", "other", "x"], ["<", "other", 3], ["=~", "other", "x"]):
        with pytest.raises(ParameterError, match="field 'other' holds"):
            passes(qfilter)
    with pytest.raises(ParameterError, match="which is no list"):
        passes(["=[]", "other", "x"], other="x")


def test_deep_nesting_is_refused() -> None:
    qfilter: list[object] = ["?", "flag"]
    for _ in range(60):
        qfilter = ["!", qfilter]
    with pytest.raises(ParameterError, match="at most 50 deep"):
        compile_filter(qfilter, FIELDS.get, "name")


NAMED = ["==", "name", "a"]


@pytest.mark.parametrize(
    ("qfilter", "names"),
    [
        (None, None),
        (NAMED, ("a",)),
        (["|", NAMED, ["=", "name", "b"]], ("a", "b")),
        (["|", NAMED, ["?", "flag"]], None),
        (["&", ["?", "flag"], NAMED], ("a",)),
        (["!", NAMED], None),
        (["|"], ()),
    ],
)
def test_names_that_alone_can_pass(qfilter: object, names: tuple[str, ...] | None) -> None:
    assert compile_filter(qfilter, FIELDS.get, "name").names == names


def test_sources_are_collected() -> None:
    compiled = compile_filter(["&", ["?", "flag"], [">", "live", 1]], FIELDS.get, "name")
    assert compiled.sources == {Source.CONFIG, Source.NODE_LIVE}


FILTERS = st.recursive(
    st.sampled_from([["?", "flag"], ["==", "number", 5], ["==", "live", 3], ["=~", "text", "c"]]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: ["&", *parts])
        | st.lists(inner, max_size=3).map(lambda parts: ["|", *parts])
        | inner.map(lambda part: ["!", part])
    ),
)


@given(FILTERS, st.integers(0, 9), st.booleans())
def test_the_first_try_never_rules_out_what_passes_in_the_end(
    qfilter: object, live: int, flag: bool
) -> None:
    if passes(qfilter, live=live, flag=flag):
        assert passes(qfilter, static=True, flag=flag) is not False


VALUES = {
    "name": st.sampled_from(["web1", "web1.example", "web1.example.com", "web", "eb1", "web2"]),
    "text": st.sampled_from(["abc", "ab", ""]),
    "number": st.sampled_from([5, 5.0, 6]),
    "time": st.sampled_from([100, 999]),
    "live": st.sampled_from([1, 2]),
}
EQUALITIES = st.sampled_from(sorted(VALUES)).flatmap(
    lambda name: VALUES[name].map(lambda value: ["=", name, value])
)


@given(st.lists(EQUALITIES, max_size=8), st.booleans())
def test_one_of_many_values_is_each_of_them_alone(parts: list[Any], static: bool) -> None:
    alone = [passes(part, static=static) for part in parts]
    expected = True if True in alone else None if None in alone else False
    assert passes(["|", *parts], static=static) is expected


def test_wrong_values_among_many_are_refused() -> None:
    for wrong in (["=", "number", "five"], ["=", "text", 5], ["=", "nowhere", 1]):
        with pytest.raises(ParameterError):
            passes(["|", ["=", "number", 1], ["=", "text", "a"], wrong])


def test_what_passes_by_its_first_part_is_not_held_against_a_later_one() -> None:
    assert passes(["|", ["=", "text", "abc"], ["=~", "other", "x"], ["=", "text", "b"]])
