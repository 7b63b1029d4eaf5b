"""The filter language that people type."""

from __future__ import annotations

import pytest
from fakes.sample_config import load_sample

from ganeti.base.errors import QueryFilterParseError
from ganeti.query.filter_text import glob_to_regex, parse_filter

GOLDEN = load_sample("query_fields")


@pytest.mark.parametrize(("text", "prefix"), GOLDEN["text_filters"].items())
def test_examples_of_the_specification(text: str, prefix: object) -> None:
    assert parse_filter(text) == prefix


@pytest.mark.parametrize(("glob", "regex"), GOLDEN["globs"].items())
def test_globs_of_the_specification(glob: str, regex: str) -> None:
    assert glob_to_regex(glob) == regex


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("a and b or not c and d", ["|", ["&", ["?", "a"], ["?", "b"]],
                                    ["&", ["!", ["?", "c"]], ["?", "d"]]]),
        ("a and b and c", ["&", ["?", "a"], ["?", "b"], ["?", "c"]]),
        ("a and (b or c)", ["&", ["?", "a"], ["|", ["?", "b"], ["?", "c"]]]),
        ("not not a", ["!", ["!", ["?", "a"]]]),
        ("((a))", ["?", "a"]),
        ("a = 3", ["==", "a", 3]),
        ("a<-5", ["<", "a", -5]),
        ("a !~ #x y#", ["!", ["=~", "a", "x y"]]),
        (r"a =~ /x\/y\.z/is", ["=~", "a", r"(?is)x/y\.z"]),
        (r"a =~ m|b\|c|", ["=~", "a", "b|c"]),
        ("a =~ m^b^", ["=~", "a", "b"]),
        ("a !* 'x?'", ["!", ["=~", "a", r"^x[^.](\..*)?$"]]),
        ("hv/acpi and disk.size/0 > 3", ["&", ["?", "hv/acpi"], [">", "disk.size/0", 3]]),
        (r"a == 'it\'s'", ["==", "a", "it's"]),
        ("nota or inb or andy", ["|", ["?", "nota"], ["?", "inb"], ["?", "andy"]]),
        ("3 in a", ["=[]", "a", 3]),
        ("a > 1796068021006357426", [">", "a", 1796068021006357426]),
        ("a == 'x\ty' or\ta =~ /\t/", ["|", ["==", "a", "x\ty"], ["=~", "a", "\t"]]),
    ],
)  # fmt: skip
def test_text_to_prefix(text: str, prefix: object) -> None:
    assert parse_filter(text) == prefix


@pytest.mark.parametrize(
    "text",
    [
        "",
        "and",
        "a ==",
        "a b",
        '"x" in',
        "(a",
        "a =~ x",
        "a == b",
        "not",
        "in",
        "a ==* 3",
        f"a == {'9' * 5000}",
    ],
)
def test_errors_point_to_the_place(text: str) -> None:
    with pytest.raises(QueryFilterParseError, match="at character"):
        parse_filter(text)


@pytest.mark.parametrize(
    "text", ["(" * 5000 + "a" + ")" * 5000, "not " * 5000 + "a", "a" * 100_001]
)
def test_absurd_filters_are_refused(text: str) -> None:
    with pytest.raises(QueryFilterParseError):
        parse_filter(text)


def test_a_long_flat_filter_is_fine() -> None:
    assert len(parse_filter(" or ".join(['name == "b"'] * 500))) == 501
