"""Regular expressions from outside are bounded."""

from __future__ import annotations

import string
from collections.abc import Callable

import pytest

from ganeti.base.errors import ParameterError
from ganeti.query.filter_text import glob_to_regex
from ganeti.query.regex import Share, TooCostlyError, bounded_regex


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("web", "a-web-b", True),
        ("^web$", "webs", False),
        (r"^web\d+\.(example|test)\.com$", "web12.test.com", True),
        ("(?i)WEB", "web", True),
        ("a{3}b{1,4}", "aaabb", True),
        (glob_to_regex("*a*b?"), "xaybz.example.com", True),
        ("^(eu|us)-.*-prod", "eu-web-prod", True),
        (r"^(\d{1,3}\.){3}\d{1,3}$", "192.0.2.1", True),
        ("(a|b)+c", "ababc", True),
        (r"(web|db)(-\d+)?", "db-1", True),
    ],
)
def test_usual_expressions_work(pattern: str, text: str, found: bool) -> None:
    assert bounded_regex(pattern)(text) is found


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("^web[[:digit:]]+$", "web12", True),
        ("^web[[:digit:]]+$", "webd", False),
        ("^[[:alpha:]_-]{4}$", "a_-Z", True),
        ("^[^[:space:][:punct:]]+$", "a b", False),
        ("^[^[:space:][:punct:]]+$", "a1", True),
        ("^[]^[:upper:]]+$", "]^A", True),
        (r"^\[[:upper:]]$", "[:]", True),  # the first bracket is escaped
        (r"^[\][:lower:]]+$", "]a", True),
        ("^[:digit:]$", "g", True),  # no class outside of a set, in PCRE an error
    ],
)
def test_named_classes_of_characters_are_those_of_pcre(
    pattern: str, text: str, found: bool
) -> None:
    assert bounded_regex(pattern)(text) is found


@pytest.mark.parametrize(
    ("name", "is_member"),
    [
        ("alnum", str.isalnum),
        ("alpha", str.isalpha),
        ("digit", str.isdigit),
        ("lower", str.islower),
        ("upper", str.isupper),
        ("space", lambda each: each in string.whitespace),
        ("print", str.isprintable),
        ("graph", lambda each: each.isprintable() and each != " "),
        ("punct", lambda each: each in string.punctuation),
        ("xdigit", lambda each: each in string.hexdigits),
        ("cntrl", lambda each: not each.isprintable()),
        ("blank", lambda each: each in " \t"),
        ("word", lambda each: each.isalnum() or each == "_"),
    ],
)
def test_each_class_has_its_members(name: str, is_member: Callable[[str], bool]) -> None:
    search = bounded_regex(f"[[:{name}:]]")
    for each in map(chr, range(128)):
        assert search(each) is is_member(each), repr(each)


@pytest.mark.parametrize("pattern", ["[[:digits:]]", "[[:^digit:]]"])
def test_unknown_classes_are_refused(pattern: str) -> None:
    with pytest.raises(ParameterError, match="known are: alnum, alpha"):
        bounded_regex(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a*)*b", "(a|a)*b", "(.*)*", "(ab|a)+c", r"(\w+\s?)*$", "(a?){20}b", r"(x+x+)+y"],
)
def test_expressions_that_explode_are_refused(pattern: str) -> None:
    with pytest.raises(ParameterError, match="inside a"):
        bounded_regex(pattern)


def test_the_expressions_of_one_filter_share_what_they_may_cost() -> None:
    share = Share()
    first = bounded_regex("a*b*c", share)
    assert not first("x" * 1400)
    assert first("x" * 200 + "c")
    for _ in range(99):
        bounded_regex("a", share)
    assert first("x" * 100 + "c")
    with pytest.raises(TooCostlyError, match="too long on"):
        first("x" * 200 + "c")


def test_cost_is_bounded_by_the_length_of_the_text() -> None:
    search = bounded_regex("a.*b.*c.*d")
    assert search("a1b2c3d")
    with pytest.raises(ParameterError, match="could take too long"):
        search("a" * 1000)
    assert bounded_regex("a.*b")("a" * 1000 + "b")


@pytest.mark.parametrize("pattern", ["(", "a" * 1001, ".*" * 9, "[z-a]", "a{99999999999}"])
def test_what_cannot_be_used_is_refused(pattern: str) -> None:
    with pytest.raises(ParameterError):
        bounded_regex(pattern)
