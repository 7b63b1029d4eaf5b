"""Encoded rows about instances, kept from one version of the configuration to the next."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from msgspec import Raw

from ganeti.config.tables import Table, Tables
from ganeti.objects.model import Cluster, Network, Node, NodeGroup
from ganeti.objects.record import Record

# Different lists whose rows are kept: those of the commands, of RAPI and of a few programs.
LISTS_KEPT_MAX: Final = 4

SHOWN_OF_OTHERS: Final[Mapping[type[Record], tuple[str, ...]]] = {
    Cluster: ("beparams", "hvparams", "nicparams", "os_hvp", "osparams"),
    Node: ("group", "name"),
    NodeGroup: ("name",),
    Network: ("name",),
}
"""The fields of objects other than instances and disks that rows about instances show."""


class KeptRows:
    """Rows by fields and UUID, of the few lists asked for last."""

    def __init__(self, rows: dict[tuple[str, ...], dict[str, Raw]] | None = None) -> None:
        self._rows = rows or {}

    @property
    def lists(self) -> tuple[tuple[str, ...], ...]:
        """The fields of the lists asked for last, the last one last."""
        return tuple(self._rows)

    def of(self, fields: tuple[str, ...]) -> MutableMapping[str, Raw]:
        """Return the rows of these fields that are known, for more to be added."""
        found = self._rows.pop(fields, None)
        if found is None:
            found = {}
            while len(self._rows) >= LISTS_KEPT_MAX:
                del self._rows[next(iter(self._rows))]
        self._rows[fields] = found  # asked for last
        return found

    def forget(self, fields: tuple[str, ...]) -> None:
        """Keep no rows of these fields: they are too large."""
        self._rows.pop(fields, None)

    def after(self, old: Tables, new: Tables) -> KeptRows:
        """Return the rows that are right for the next version of the configuration as well."""
        if not self._rows:
            return KeptRows()
        if not _others_look_same(old, new):
            return KeptRows({fields: {} for fields in self._rows})
        kept = {fields: dict(rows) for fields, rows in self._rows.items()}
        for rows in kept.values():
            for uuid in new.touched_instances:
                rows.pop(uuid, None)
        return KeptRows(kept)


def _others_look_same(old: Tables, new: Tables) -> bool:
    return (
        _looks_same(old.cluster, new.cluster)
        and _tables_look_same(old.nodes, new.nodes)
        and _tables_look_same(old.groups, new.groups)
        and _tables_look_same(old.networks, new.networks)
    )


def _looks_same(before: Record | None, after: Record | None) -> bool:
    """Tell whether rows about instances show the same of an object as before."""
    if before is None or after is None:
        return False
    shown = SHOWN_OF_OTHERS[type(after)]
    return all(getattr(before, name) == getattr(after, name) for name in shown)


def _tables_look_same(before: Table[Any, Any], after: Table[Any, Any]) -> bool:
    return all(_looks_same(before.get(uuid), after.get(uuid)) for uuid in after.changed)
