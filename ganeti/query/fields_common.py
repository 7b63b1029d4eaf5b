"""Fields that several kinds of things have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

from ganeti.objects.parameters import NDPARAMS, ParamSpec, ValueType
from ganeti.objects.query_words import FieldKind
from ganeti.query.context import RunContext
from ganeti.query.fields import UNAVAIL, FieldSpec

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


class Stamped(Protocol):
    """What has a UUID, times, a serial number and tags."""

    @property
    def uuid(self) -> str:
        """UUID."""

    @property
    def ctime(self) -> float:
        """When it was made."""

    @property
    def mtime(self) -> float:
        """When it was last changed."""

    @property
    def serial_no(self) -> int:
        """Number of changes."""

    @property
    def tags(self) -> list[str]:
        """Tags."""


S = TypeVar("S", bound=Stamped)
Item = TypeVar("Item")


def stamp_fields(_kind: type[S], thing: str) -> list[FieldSpec[S]]:
    """Return the fields ctime, mtime, serial_no, tags and uuid of a kind of object."""
    return [
        FieldSpec(
            "ctime",
            "CTime",
            FieldKind.TIMESTAMP,
            f"When the {thing} was made",
            lambda item, _context: item.ctime,
        ),
        FieldSpec(
            "mtime",
            "MTime",
            FieldKind.TIMESTAMP,
            f"When the {thing} was last changed",
            lambda item, _context: item.mtime,
        ),
        FieldSpec(
            "serial_no",
            "SerialNo",
            FieldKind.NUMBER,
            f"How often the {thing} was changed",
            lambda item, _context: item.serial_no,
        ),
        FieldSpec(
            "tags",
            "Tags",
            FieldKind.OTHER,
            f"Tags of the {thing}",
            lambda item, _context: item.tags,
        ),
        FieldSpec(
            "uuid",
            "UUID",
            FieldKind.TEXT,
            f"UUID of the {thing}",
            lambda item, _context: item.uuid,
        ),
    ]


def param_fields(
    prefix: str,
    params: Iterable[tuple[str, ParamSpec]],
    titles: Mapping[str, str],
    what: str,
    getter: Callable[[str], Callable[[Item, RunContext], object]],
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

    def getter(name: str) -> Callable[[Item, RunContext], object]:
        def get(item: Item, context: RunContext) -> object:
            values = filled(item, context)
            return UNAVAIL if values is None else values.get(name, UNAVAIL)

        return get

    return param_fields("ndp", NDPARAMS.items(), _ND_TITLES, "node parameter", getter)
