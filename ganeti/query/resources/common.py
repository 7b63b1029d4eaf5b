"""Constructors of fields by their kind, and the fields that several kinds of things have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from ganeti.base.ids import InstanceUuid
from ganeti.objects.parameters import NDPARAMS, ParamSpec, ValueType
from ganeti.objects.query_words import FieldKind
from ganeti.query.context import RunContext
from ganeti.query.fields import UNAVAIL, Comparison, FieldSpec, Source, or_unavailable

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


Item = TypeVar("Item")
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
timestamp: Final = _of_kind(FieldKind.TIMESTAMP)
unit: Final = _of_kind(FieldKind.UNIT)


def count_of(find: Callable[[Item, RunContext], Sequence[str]]) -> Get[Item]:
    """Give the number of the objects that are found for an item."""
    return lambda item, context: len(find(item, context))


def instance_names(find: Callable[[Item, RunContext], Sequence[InstanceUuid]]) -> Get[Item]:
    """Give the names of the instances that are found for an item."""
    return lambda item, context: context.names_of(find(item, context))


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
