"""Fields: their description, how a value is found, and constructors of fields by their kind.

Source: query_fields.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from ganeti.base.ids import InstanceUuid
from ganeti.config.tables import name_key
from ganeti.objects.parameters import NDPARAMS, ParamSpec, ValueType
from ganeti.objects.query_words import FieldKind, QueryResource, ResultStatus
from ganeti.query.context import RunContext

Item = TypeVar("Item")


class Absent(msgspec.Struct, frozen=True):
    """In place of a value: why there is none."""

    status: ResultStatus

    @property
    def cell(self) -> list[object]:
        """The cell in a row of an answer."""
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
    GUEST = "guest"
    COPIES = "copies"
    DISKS = "disks"  # COPIES, and the same of disks without copies
    JOBS = "jobs"
    LOCKS = "locks"
    EXPORTS = "exports"
    CHAINS = "chains"
    ROWS = "rows"


LIVE_SOURCES: Final = frozenset(
    {
        Source.NODE_LIVE,
        Source.INSTANCE_LIVE,
        Source.CONSOLE,
        Source.GUEST,
        Source.COPIES,
        Source.DISKS,
    }
)
"""Sources that cost a call to nodes for each thing that is shown."""
ASKED_WHILE_RUNNING: Final = frozenset({Source.CONSOLE, Source.GUEST})
"""Sources that only instances have which run."""
ASKED_OF_NODES: Final = LIVE_SOURCES | {Source.EXPORTS, Source.CHAINS}


class Comparison(StrEnum):
    """How filters compare the values of a field."""

    PLAIN = "plain"
    HOST_NAME = "host name"  # equal to a short name as well
    TIMESTAMP = "timestamp"  # seconds, or [seconds, microseconds], compared by seconds


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


def _by_name(item: Any, _context: RunContext) -> Any:
    return name_key(item.name)


class Resource(msgspec.Struct, Generic[Item], frozen=True):
    """One kind of thing: its fields, and how its items are listed, named and sorted."""

    name: QueryResource
    fields: Mapping[str, FieldSpec[Item]]
    items: Callable[[RunContext], Mapping[Any, Item]]
    name_field: str = "name"
    sort_key: Callable[[Item, RunContext], Any] = _by_name
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


KIND_OF_TYPE: Final[Mapping[ValueType, FieldKind]] = {
    ValueType.BOOL: FieldKind.BOOL,
    ValueType.FLOAT: FieldKind.FLOAT,
    ValueType.INT: FieldKind.NUMBER,
    ValueType.MAYBE_STRING: FieldKind.OTHER,
    ValueType.SIZE: FieldKind.UNIT,
    ValueType.STRING: FieldKind.OTHER,
}

_ND_TITLES: Final[Mapping[str, str]] = {
    "exclusive_storage": "ExclusiveStorage",
    "oob_program": "OutOfBandProgram",
    "ovs": "OpenvSwitch",
    "ovs_link": "OpenvSwitchLink",
    "ovs_name": "OpenvSwitchName",
    "spindle_count": "SpindleCount",
}


Get = Callable[[Item, RunContext], object]


class Constructor(Protocol):
    """Makes fields of one kind."""

    def __call__(
        self,
        name: str,
        title: str,
        doc: str,
        get: Get[Item] | str = "",
        source: Source = Source.CONFIG,
    ) -> FieldSpec[Item]:
        """Make a field; ``get`` may name the attribute, which else has the name of the field."""


def _attribute(name: str) -> Callable[[object, RunContext], object]:
    """Read an attribute; a thing that has None there has no value."""
    return lambda item, _context: or_unavailable(getattr(item, name))


def _of_kind(kind: FieldKind, comparison: Comparison = Comparison.PLAIN) -> Constructor:
    def make(
        name: str, title: str, doc: str, get: Get[Item] | str = "", source: Source = Source.CONFIG
    ) -> FieldSpec[Item]:
        value = _attribute(get or name) if isinstance(get, str) else get
        return FieldSpec(name, title, kind, doc, value, source, comparison)

    return make


boolean: Final = _of_kind(FieldKind.BOOL)
host_name: Final = _of_kind(FieldKind.TEXT, Comparison.HOST_NAME)
number: Final = _of_kind(FieldKind.NUMBER)
other: Final = _of_kind(FieldKind.OTHER)
text: Final = _of_kind(FieldKind.TEXT)
timestamp: Final = _of_kind(FieldKind.TIMESTAMP, Comparison.TIMESTAMP)
unit: Final = _of_kind(FieldKind.UNIT)


def count_of(find: Callable[[Item, RunContext], Sequence[object]]) -> Get[Item]:
    """Give the number of the objects that are found for an item."""
    return lambda item, context: len(find(item, context))


def instance_fields(
    name: str,
    titles: tuple[str, str],
    which: str,
    find: Callable[[Item, RunContext], Sequence[InstanceUuid]],
) -> list[FieldSpec[Item]]:
    """Return the fields ``..._cnt`` and ``..._list`` about the instances found for an item."""

    def names(item: Item, context: RunContext) -> list[str]:
        return context.names_of(find(item, context))

    return [
        number(f"{name}_cnt", titles[0], f"Number of instances {which}", count_of(find)),
        other(f"{name}_list", titles[1], f"Instances {which}", names),
    ]


def settings_fields(
    name: str, title: str, what: str, filled: Get[Item], *, thing: str
) -> list[FieldSpec[Item]]:
    """Return the fields of a group of settings: all values, and the item's own ones."""
    return [
        other(name, title, f"{what}, defaults filled in", filled),
        other(f"custom_{name}", f"Custom{title}", f"{what} set for this {thing}", name),
    ]


def stamp_fields(_kind: type[Item], thing: str) -> list[FieldSpec[Item]]:
    """Return the fields ctime, mtime, serial_no, tags and uuid of a kind of object."""
    return [
        timestamp("ctime", "CTime", f"When the {thing} was made"),
        timestamp("mtime", "MTime", f"When the {thing} was last changed"),
        number("serial_no", "SerialNo", f"How often the {thing} was changed"),
        other("tags", "Tags", f"Tags of the {thing}"),
        text("uuid", "UUID", f"UUID of the {thing}"),
    ]


def param_fields(
    prefix: str,
    params: Iterable[tuple[str, ParamSpec]],
    titles: Mapping[str, str],
    what: str,
    getter: Callable[[str], Get[Item]],
) -> list[FieldSpec[Item]]:
    """Return one field for each parameter of a group; ``getter`` tells how one of them is found."""
    return [
        FieldSpec(
            f"{prefix}/{name}",
            titles.get(name, f"{prefix}/{name}"),
            KIND_OF_TYPE[spec.type],
            f'The "{name}" {what}',
            getter(name),
        )
        for name, spec in params
    ]


def node_param_fields(
    filled: Callable[[Item, RunContext], Mapping[str, object] | None],
) -> list[FieldSpec[Item]]:
    """Return the fields ``ndp/...`` of nodes and node groups; ``filled`` gives all values."""

    def getter(name: str) -> Get[Item]:
        def get(item: Item, context: RunContext) -> object:
            values = filled(item, context)
            return UNAVAIL if values is None else values.get(name, UNAVAIL)

        return get

    return param_fields("ndp", NDPARAMS.items(), _ND_TITLES, "node parameter", getter)
