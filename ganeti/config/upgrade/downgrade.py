"""Make a configuration one that 3.0 itself can load.  Pure.

New keys are written only for features that are switched on.  So a key that 3.0 does not
know can go without loss when its value is empty or false; when it is not, somebody is using a
feature that 3.0 lacks, and must decide to give it up first.  Only the state of the maintenance
daemon, results of rehearsals and lists of default allocators go in any case.  Parameters of
hypervisors, disks and operating systems may have any name in 3.0, all other keys are fixed.

Source: config.json, "unknown_keys" and "objects".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, cast

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.json import dumps, loads
from ganeti.config.config_data import TABLES, ConfigData
from ganeti.config.index import MAINTENANCE
from ganeti.config.upgrade.draft import Fields
from ganeti.config.upgrade.upgrading import Upgraded, check_result
from ganeti.config.upgrade.versions import CURRENT, version_of
from ganeti.objects.disk_templates import FORMAT
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
    """An object whose keys are fixed; ``inside`` declares the values of some of them."""

    keys: frozenset[str]
    inside: Mapping[str, Shape] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Each:
    """A list, or an object with free keys, whose members all have one shape."""

    shape: Shape


@dataclass(frozen=True, slots=True)
class Without:
    """An object with free keys, but for some with which 3.0 would do harm."""

    keys: frozenset[str]


Shape: TypeAlias = Known | Each | Without


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
    # It would take an image for the bytes of the disk.
    "disks": {
        "params": Without(frozenset({FORMAT})),
        "children": Each(_record(Disk, children=Each(_CHILD))),
    },
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
    elif isinstance(shape, Without):
        if isinstance(value, Mapping):
            yield from (ForeignKey((*path, key), value[key]) for key in shape.keys & value.keys())
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


# What goes in any case, by the table and the key: why nothing of use is lost with it.
_GIVEN_UP: Final[Mapping[tuple[str | int, ...], str]] = {
    (MAINTENANCE,): "with its state; nobody goes on with it",
    ("cluster", "default_iallocators"): "the first default allocator stays",
    ("instances", "rehearsal"): "the result of the last rehearsal of its backup",
}
# How to give up a feature, by its key.
_COMMANDS: Final[Mapping[str | int, str]] = {
    "diagnose_data_collector_filename": (
        "gnt-cluster modify --diagnose-data-collector-filename=''"
    ),
    "max_disk_transfers": "gnt-cluster modify --max-disk-transfers=0",
    "silent_node_tries": "gnt-cluster modify --silent-node-tries=0",
    "ext_reservations6": "gnt-network modify --remove-reserved-ips=RANGE,... NETWORK",
    FORMAT: "gnt-instance modify -t TEMPLATE -e format=raw INSTANCE",
}
_NAMED_MAX: Final = 20  # keys in one refusal: as many as fit on a screen
_VALUE_CHARS_MAX: Final = 40


def downgrade_config(config: Mapping[str, object]) -> Upgraded:
    """Return the configuration without the keys that 3.0 does not know; the one given stays.

    Serial number and time stay the same: this may be the copy of a candidate while the master
    runs, which a newer one would depose.  Copies are compared by their digests.

    Raises:
        OpPrereqError: it is of another version, or something would be lost; the text names it.
        ConfigurationError: the rest is no configuration of 3.0; names object and field.
    """
    version = version_of(config)
    if version != CURRENT:
        raise OpPrereqError(
            f"the configuration is of version {version}; --downgrade only takes the"
            f" additions of this program out of one of version {CURRENT}",
            ErrorCode.STATE,
        )
    found = find_foreign_keys(config)
    _refuse_loss(found)
    draft = cast("Fields", loads(dumps(config)))
    for key in found:
        _remove(draft, key.path)
    check_result(draft)
    if not found:
        return Upgraded(config, version, ())
    return Upgraded(draft, version, tuple(map(_note, found)))


def _note(key: ForeignKey) -> str:
    reason = "it was empty" if _is_empty(key.value) else _why_given_up(key)
    return f"{key.label} removed, {reason}"


def _why_given_up(key: ForeignKey) -> str:
    """Return why nothing of use is lost with a key; empty if something is."""
    ends = key.path if len(key.path) == 1 else (key.path[0], key.path[-1])
    return _GIVEN_UP.get(ends, "") if len(key.path) <= len(("table", "uuid", "key")) else ""


def _refuse_loss(found: list[ForeignKey]) -> None:
    in_use = [key for key in found if not (_is_empty(key.value) or _why_given_up(key))]
    if not in_use:
        return
    shown = [f"  {key.label} = {_shown(key.value)}{_hint(key)}" for key in in_use[:_NAMED_MAX]]
    if len(in_use) > _NAMED_MAX:
        shown.append(f"  and {len(in_use) - _NAMED_MAX} more")
    raise OpPrereqError(
        f"version {CURRENT} does not know these keys, and their values would be lost:\n"
        + "\n".join(shown)
        + "\nSwitch off the features that they belong to, or remove them, and try again.",
        ErrorCode.STATE,
    )


def _hint(key: ForeignKey) -> str:
    command = _COMMANDS.get(key.path[-1])
    return f"; give it up by {command}" if command else ""


def _is_empty(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_empty, value.values()))
    if isinstance(value, list):
        return all(map(_is_empty, value))
    return not value


def _shown(value: object) -> str:
    """Return the beginning of a value that is no text: texts may be secrets."""
    if isinstance(value, str):
        return f"a text of {len(value)} characters"
    if isinstance(value, Mapping | list):
        return f"{'an object' if isinstance(value, Mapping) else 'a list'} of {len(value)}"
    return str(value)[:_VALUE_CHARS_MAX]


def _remove(config: Fields, path: Path) -> None:
    place: Any = config
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
