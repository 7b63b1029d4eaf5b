"""What a field is: its description and how its value is found.

Source: query_fields.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar

import msgspec

from ganeti.objects.query_words import FieldKind, QueryResource, ResultStatus
from ganeti.query.context import RunContext

Item = TypeVar("Item")


class Absent(msgspec.Struct, frozen=True):
    """In place of a value: why there is none."""

    status: ResultStatus

    @property
    def cell(self) -> list[object]:
        """What stands in a row of an answer."""
        return [int(self.status), None]


NODATA: Final = Absent(ResultStatus.NODATA)
UNAVAIL: Final = Absent(ResultStatus.UNAVAIL)
OFFLINE: Final = Absent(ResultStatus.OFFLINE)


class Source(StrEnum):
    """Where a value comes from; all but CONFIG are needs that the caller must fill."""

    CONFIG = "config"
    NODE_LIVE = "node_live"
    INSTANCE_LIVE = "instance_live"
    CONSOLE = "console"
    JOBS = "jobs"
    LOCKS = "locks"
    EXPORTS = "exports"
    ROWS = "rows"


LIVE_SOURCES: Final = frozenset({Source.NODE_LIVE, Source.INSTANCE_LIVE, Source.CONSOLE})
"""Sources that cost a call to nodes for each thing that is shown."""
ASKED_OF_NODES: Final = LIVE_SOURCES | {Source.EXPORTS}


class Comparison(StrEnum):
    """How filters compare the values of a field."""

    PLAIN = "plain"
    HOST_NAME = "host name"  # equal to a short name as well
    TIMESTAMP = "timestamp"  # [seconds, microseconds], compared by seconds


class FieldSpec(msgspec.Struct, Generic[Item], frozen=True):
    """One field.  ``get`` gives its value for an item, or an `Absent`."""

    name: str
    title: str
    kind: FieldKind
    doc: str
    get: Callable[[Item, RunContext], object]
    source: Source = Source.CONFIG
    comparison: Comparison = Comparison.PLAIN

    def definition(self) -> dict[str, object]:
        """Return the description as it goes over the wire."""
        return {"name": self.name, "title": self.title, "kind": str(self.kind), "doc": self.doc}


AnyField = FieldSpec[Any]  # tables of different things meet in the engine


class Resource(msgspec.Struct, Generic[Item], frozen=True, kw_only=True):
    """One kind of thing: its fields, and how its items are listed, named and sorted."""

    name: QueryResource
    fields: Mapping[str, FieldSpec[Item]]
    items: Callable[[RunContext], Mapping[Any, Item]]
    name_field: str
    sort_key: Callable[[Item, RunContext], Any]
    source: Source = Source.CONFIG


AnyResource = Resource[Any]


def field_table(fields: Iterable[FieldSpec[Item]]) -> dict[str, FieldSpec[Item]]:
    """Make a table by name; two fields of one name are our mistake."""
    table: dict[str, FieldSpec[Item]] = {}
    for field in fields:
        assert field.name not in table, field.name
        table[field.name] = field
    return table


def or_unavailable(value: object) -> object:
    """Return the value, or that this thing has none."""
    return UNAVAIL if value is None else value
