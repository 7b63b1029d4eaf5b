"""YAML with the lines of its values."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ganeti.base.errors import OpPrereqError
from ganeti.desired import document
from ganeti.desired.document import parse, write

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | TEXTS
    | st.sampled_from(
        ["no", "on", "0x1f", "1e3", "1.5", "12:30:00", "~", "null", "0o17", "017", "<<"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=80, deadline=None)
@given(VALUES)
def test_what_is_written_is_read_back(value: object) -> None:
    assert parse(write(value), "f").value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("on", "on"),
        ("00:16:37:45:59:01", "00:16:37:45:59:01"),
        ("12:30", "12:30"),
        (
            "[no, yes, true, 3, -4, 1.5, 007, '3', ~]",
            ["no", "yes", True, 3, -4, 1.5, "007", "3", None],
        ),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}", {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}}),
        ("d: {<<: [{a: 1}, {a: 2, b: 3}]}", {"d": {"a": 1, "b": 3}}),
    ],
)
def test_words_mean_what_they_say(text: str, value: object) -> None:
    assert parse(text, "f").value == value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: [", "^f:2: "),
        ("a: 1\nb: 2\na: 3", "^f:3: 'a' stands here for the second time"),
        ("a: *x", "^f:1: .*alias"),
        ("? [a]\n: 3", "^f:1: a key must be a word"),
        ("<<: 3", "^f:1: << takes mappings"),
        ("&x [*x]", "nested too deep"),
        ("&x {a: *x}", "nested too deep"),
        ("&x {<<: *x}", "nested too deep"),
        ("--- 1\n--- 2", "^f:2: "),
        ("[" * 3000, "^f:"),
        ("[" * 40 + "]" * 40, "^f:1: nested too deep"),
    ],
)
def test_what_is_no_document_is_refused(text: str, told: str) -> None:
    with pytest.raises(OpPrereqError, match=told):
        parse(text, "f")


def test_a_small_text_of_many_references_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "VALUES_MAX", 1000)
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(OpPrereqError, match="too large"):
        parse("\n".join(lines), "f")


def test_lines_are_those_of_keys() -> None:
    found = parse("a:\n  b:\n  - 1\n  -\n   c: 2\n", "f")
    assert found.line_of(("a", "b", 1, "c")) == 5
    assert found.line_of(("a", "b", 0)) == 3
    assert found.line_of(("a", "x", "y")) == 1
