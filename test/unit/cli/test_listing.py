"""List commands: fields, and what arguments mean as a filter."""

from __future__ import annotations

import pytest

from ganeti.base.errors import ParameterError
from ganeti.cli.run.listing import both_filters, make_filter, select_fields


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (None, ["name", "os"]),
        ("", ["name", "os"]),
        ("status", ["status"]),
        ("status,oper_ram", ["status", "oper_ram"]),
        ("+status", ["name", "os", "status"]),
        (" a , b ,", ["a", "b"]),
    ],
)
def test_fields(text: str | None, fields: list[str]) -> None:
    assert select_fields(text, ("name", "os")) == fields


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], None),
        (["web1"], ["==", "name", "web1"]),
        (["web1", "web2"], ["|", ["==", "name", "web1"], ["==", "name", "web2"]]),
        (["web*"], ["=~", "name", r"^web[^.]*(\..*)?$"]),
        (["admin_up and not drained"], ["&", ["?", "admin_up"], ["!", ["?", "drained"]]]),
        (['name == "x"'], ["==", "name", "x"]),
    ],
)
def test_arguments_as_filter(args: list[str], expected: object) -> None:
    assert make_filter(args) == expected


def test_forced_filter() -> None:
    assert make_filter(["admin_up"], force_filter=True) == ["?", "admin_up"]
    with pytest.raises(ParameterError):
        make_filter(["a", "b"], force_filter=True)


def test_numbers_as_names() -> None:
    assert make_filter(["7"], name_field="id", names_are_numbers=True) == ["==", "id", 7]
    with pytest.raises(ParameterError, match="'x'"):
        make_filter(["x"], name_field="id", names_are_numbers=True)


def test_both_filters() -> None:
    assert both_filters(None, ["?", "a"]) == ["?", "a"]
    assert both_filters(["?", "a"], None) == ["?", "a"]
    assert both_filters(["?", "a"], ["?", "b"]) == ["&", ["?", "a"], ["?", "b"]]
