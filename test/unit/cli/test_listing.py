"""List commands: fields, and what arguments mean as a filter."""

from __future__ import annotations

import io

import pytest

from ganeti.base.errors import ParameterError
from ganeti.cli.command import Command, Context, Options
from ganeti.cli.run.context import Terminal
from ganeti.cli.run.failures import EXIT_UNKNOWN_FIELD
from ganeti.cli.run.listing import both_filters, make_filter, select_fields, warn_of_unknown
from ganeti.protocol.luxi import QueryField, QueryFieldsResponse


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
    for wrong in ("x", "²", "-1", "9" * 5000):
        with pytest.raises(ParameterError, match=f"'{wrong[:50]}' is not a number"):
            make_filter([wrong], name_field="id", names_are_numbers=True)


def test_both_filters() -> None:
    assert both_filters(None, ["?", "a"]) == ["?", "a"]
    assert both_filters(["?", "a"], None) == ["?", "a"]
    assert both_filters(["?", "a"], ["?", "b"]) == ["&", ["?", "a"], ["?", "b"]]


class Fields:
    """A LuxiD that knows two fields."""

    def query_fields(self, _resource: str, _names: object) -> QueryFieldsResponse:
        return QueryFieldsResponse([field("name"), field("mode")])


def field(name: str, kind: str = "text") -> QueryField:
    return QueryField(name, name, kind, "a field")


@pytest.mark.parametrize(
    ("fields_of", "hint"),
    [("", "'gnt-x list-fields' names them all"), ("lock", "there are name, mode")],
)
def test_unknown_fields_are_told_with_a_hint_that_leads_on(fields_of: str, hint: str) -> None:
    said = io.StringIO()
    context = Context("gnt-x", Command("y", ""), Options({}), Terminal(said, said, said))
    context._client = Fields()  # type: ignore[assignment]
    status = warn_of_unknown(context, [field("name"), field("bogus", "unknown")], fields_of)
    assert status == EXIT_UNKNOWN_FIELD
    assert said.getvalue() == f"Warning: unknown fields: bogus; {hint}\n"
