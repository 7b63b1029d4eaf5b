"""Option values: every type of value, good and bad."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import OpPrereqError, ParameterError
from ganeti.cli.declaration import values
from ganeti.protocol.service import read_as, text_form_of

ALL_TYPES = [value for value in vars(values).values() if text_form_of(value) is not None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a=1,b=2", {"a": "1", "b": "2"}),
        ("a", {"a": True}),
        ("no_a", {"a": False}),
        ("-a", {"a": None}),
        ("a=", {"a": ""}),
        (r"a=1\,2,b=x=y", {"a": "1,2", "b": "x=y"}),
        (r"a=back\\slash", {"a": "back\\slash"}),
    ],
)
def test_keyval(text: str, expected: dict[str, object]) -> None:
    assert values.parse_keyval(text) == expected


@pytest.mark.parametrize("text", ["=1", "a=1,,b=2", "a=1,a=2", "a,no_a", ","])
def test_keyval_with_empty_or_repeated_keys_is_refused(text: str) -> None:
    with pytest.raises(ParameterError):
        values.parse_keyval(text)


@given(st.dictionaries(st.text("abcxyz", min_size=1), st.text(), max_size=5))
def test_protected_values_come_back_unchanged(pairs: dict[str, str]) -> None:
    def protect(text: str) -> str:
        return text.replace("\\", "\\\\").replace(",", "\\,")

    text = ",".join(f"{key}={protect(value)}" for key, value in pairs.items())
    assert values.parse_keyval(text) == pairs


@pytest.mark.shows(
    "2.0/commands/hypervisors",
    "2.0/net/form",
    "2.0/hypervisor/form",
    "2.0/hypervisor-defaults/form",
)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", ("0", {})),
        ("0:size=1g", ("0", {"size": "1g"})),
        ("kvm:vga=std,acpi", ("kvm", {"vga": "std", "acpi": True})),
        ("no_kvm", ("kvm", False)),
        ("-kvm", ("kvm", None)),
        ("-1:add", ("-1", {"add": True})),
        ("plain/xenvg:disk_total=5", ("plain/xenvg", {"disk_total": "5"})),
    ],
)
def test_ident_keyval(text: str, expected: tuple[str, object]) -> None:
    assert values.parse_ident_keyval(text) == expected


@pytest.mark.parametrize("text", [":a=1", "no_kvm:a=1", "-kvm:a=1"])
def test_contradicting_ident_keyval_is_refused(text: str) -> None:
    with pytest.raises(ParameterError):
        values.parse_ident_keyval(text)


def test_groups_of_bounds() -> None:
    text = "min:disk-size=1,cpu-count=1/max:disk-size=9//min:a=1/max:b=2"
    assert values.parse_multi_list_ident_keyval(text) == [
        {"min": {"disk-size": "1", "cpu-count": "1"}, "max": {"disk-size": "9"}},
        {"min": {"a": "1"}, "max": {"b": "2"}},
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("ACCEPT", "ACCEPT"), ("pause", "PAUSE"), ("RATE_LIMIT 3", ["RATE_LIMIT", 3])],
)
def test_filter_action(text: str, expected: object) -> None:
    assert values.parse_filter_action(text) == expected


@pytest.mark.parametrize("text", ["", "STOP", "RATE_LIMIT", "RATE_LIMIT 0", "RATE_LIMIT x"])
def test_wrong_filter_action_is_refused(text: str) -> None:
    with pytest.raises(ParameterError):
        values.parse_filter_action(text)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (values.Int, "12", 12),
        (values.Float, "1.5", 1.5),
        (values.YesNo, "Yes", True),
        (values.YesNo, "false", False),
        (values.Size, "1g", 1024),
        (values.Priority, "high", -10),
        (values.MaybeFloat, "none", "default"),
        (values.MaybeFloat, "2", 2.0),
        (values.Commas, "a,b", ["a", "b"]),
        (values.Json, '[["a", 1]]', [["a", 1]]),
    ],
)
def test_simple_values(kind: Any, text: str, expected: object) -> None:
    assert read_as(kind, text, is_text=True) == expected


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (values.Int, "1.5"),
        (values.Float, "nan"),
        (values.Float, "inf"),
        (values.Float, "x"),
        (values.YesNo, "maybe"),
        (values.Size, "1 parsec"),
        (values.Priority, "highest"),
        (values.Json, "{"),
        (values.PlainValues, "password"),
    ],
)
def test_wrong_values_are_told_with_a_text(kind: Any, text: str) -> None:
    with pytest.raises(ParameterError) as raised:
        read_as(kind, text, is_text=True)
    assert raised.value.message


@given(st.sampled_from(ALL_TYPES), st.text())
def test_any_text_is_a_value_or_a_parameter_error(kind: Any, text: str) -> None:
    with contextlib.suppress(ParameterError, OpPrereqError):
        read_as(kind, text, is_text=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", [12, ["success"]]),
        ("12:error", [12, ["error"]]),
        ("7:success+error+canceled", [7, ["success", "error", "canceled"]]),
    ],
)
def test_dependencies(text: str, expected: object) -> None:
    assert read_as(values.Dependency, text, is_text=True) == expected


@pytest.mark.parametrize("text", ["", "x", "-1", "5:", "5:done", "5:success,error", "1" * 5000])
def test_wrong_dependencies(text: str) -> None:
    with pytest.raises(ParameterError):
        read_as(values.Dependency, text, is_text=True)


def test_memory_stands_for_both_bounds() -> None:
    found = values.parse_backend("memory=1g,vcpus=2")
    assert found == {"minmem": "1g", "maxmem": "1g", "vcpus": "2"}
    assert values.parse_backend("-vcpus") == {"vcpus": "default"}
    assert values.parse_backend("memory=1,maxmem=2") == values.parse_backend("memory=1")


@pytest.mark.parametrize(
    ("text", "advice"),
    [("lv:5", "write lv=5"), ("lv", "write lv=SECONDS"), ("-lv", "write lv=SECONDS")],
)
def test_an_interval_that_is_none_is_told_with_the_right_form(text: str, advice: str) -> None:
    with pytest.raises(OpPrereqError, match=f"no interval for 'lv'; {advice}"):
        values.parse_intervals(text)
    assert values.parse_intervals("lv=5") == {"lv": 5_000_000}
