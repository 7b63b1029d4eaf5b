"""Keys that 3.0 does not know, wherever they stand in a configuration.

3.0 refuses to load a configuration with such a key.  Parameters of hypervisors, disks and
operating systems may have any name there, all others are fixed.

Source: config.json, "unknown_keys" and "objects".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from ganeti.config.config_data import TABLES, ConfigData
from ganeti.objects.model import Cluster, DataCollectorConfig, Disk
from ganeti.objects.nic import NIC
from ganeti.objects.parameters import BEPARAMS, IPOLICY_DEFAULTS, ISPEC_PARAMS, NDPARAMS, NICPARAMS
from ganeti.objects.record import Record

Path: TypeAlias = tuple[str | int, ...]


class ForeignKey(NamedTuple):
    """A key that 3.0 does not know: where it stands, and its value."""

    path: Path
    value: object

    @property
    def label(self) -> str:
        """The place as people write it."""
        return ".".join(map(str, self.path))


@dataclass(frozen=True, slots=True)
class Known:
    """An object whose keys are fixed; ``inside`` says what some of them hold."""

    keys: frozenset[str]
    inside: Mapping[str, Shape] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Each:
    """A list, or an object with free keys, whose members all have one shape."""

    shape: Shape


Shape: TypeAlias = Known | Each


def _record(kind: type[Record], **inside: Shape) -> Known:
    return Known(frozenset(kind.__struct_fields__) - kind.OURS, inside)


_NICPARAMS: Final = Known(frozenset(NICPARAMS))
_NDPARAMS: Final = Known(frozenset(NDPARAMS))
_BEPARAMS: Final = Known(frozenset(BEPARAMS))
_ISPECS: Final = Known(frozenset(ISPEC_PARAMS))
_IPOLICY: Final = Known(
    frozenset(IPOLICY_DEFAULTS),
    {
        "std": _ISPECS,
        "minmax": Each(Known(frozenset({"min", "max"}), {"min": _ISPECS, "max": _ISPECS})),
    },
)
_CHILD: Final = _record(Disk)
_INSIDE_TABLES: Final[Mapping[str, Mapping[str, Shape]]] = {
    "nodes": {"ndparams": _NDPARAMS},
    "nodegroups": {"ndparams": _NDPARAMS, "ipolicy": _IPOLICY, "networks": Each(_NICPARAMS)},
    "instances": {"beparams": _BEPARAMS, "nics": Each(_record(NIC, nicparams=_NICPARAMS))},
    "disks": {"children": Each(_record(Disk, children=Each(_CHILD)))},
}
CONFIG: Final = _record(
    ConfigData,
    cluster=_record(
        Cluster,
        beparams=Each(_BEPARAMS),
        nicparams=Each(_NICPARAMS),
        ndparams=_NDPARAMS,
        ipolicy=_IPOLICY,
        data_collectors=Each(_record(DataCollectorConfig)),
    ),
    **{name: Each(_record(kind, **_INSIDE_TABLES.get(name, {}))) for name, kind in TABLES.items()},
)


def find_foreign_keys(value: object, shape: Shape = CONFIG, path: Path = ()) -> list[ForeignKey]:
    """Return every key that 3.0 does not know, in the order of the file."""
    return list(_find(value, shape, path))


def _find(value: object, shape: Shape, path: Path) -> Iterator[ForeignKey]:
    if isinstance(shape, Each):
        for key, item in _members(value):
            yield from _find(item, shape.shape, (*path, key))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key not in shape.keys:
                yield ForeignKey((*path, key), item)
            elif key in shape.inside:
                yield from _find(item, shape.inside[key], (*path, key))


def _members(value: object) -> Iterator[tuple[str | int, object]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)
