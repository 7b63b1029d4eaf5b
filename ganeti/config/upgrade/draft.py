"""A configuration while it is being upgraded, and ways to go through its parts.

Old versions have shapes that no record declares, so the parts are plain JSON objects here; what
the steps rely on was checked before (`ganeti.config.upgrade.shape`), and the result is decoded
into records afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from ganeti.config.upgrade.versions import Version

Fields: TypeAlias = dict[str, Any]
NewUuid: TypeAlias = Callable[[], str]


@dataclass(frozen=True, slots=True)
class Draft:
    """A configuration that steps may change in place; ``version`` is the one it came in."""

    config: Fields
    version: Version
    new_uuid: NewUuid

    @property
    def cluster(self) -> Fields:
        """The cluster."""
        cluster: Fields = self.config["cluster"]
        return cluster

    def table(self, name: str) -> dict[str, Fields]:
        """Return a table, made if it is not there."""
        table: dict[str, Fields] = self.config.setdefault(name, {})
        return table

    def objects(self, name: str) -> list[Fields]:
        """Return the objects of a table."""
        return list(self.config.get(name, {}).values())

    def nics(self) -> Iterator[Fields]:
        """Iterate over the NICs of all instances."""
        for instance in self.objects("instances"):
            yield from instance.get("nics", ())

    def devices(self) -> Iterator[Fields]:
        """Iterate over all disks, inside instances or in their own table, and their children."""
        for instance in self.objects("instances"):
            for disk in own_disks(instance):
                yield from with_children(disk)
        for disk in self.objects("disks"):
            yield from with_children(disk)


def own_disks(instance: Fields) -> list[Fields]:
    """Return the disks that stand inside an instance, as they did up to 2.13."""
    return [disk for disk in instance.get("disks", ()) if isinstance(disk, dict)]


def with_children(disk: Fields) -> Iterator[Fields]:
    """Iterate over a disk and all below it."""
    yield disk
    for child in disk.get("children", ()):
        yield from with_children(child)


def count_of(number: int, thing: str) -> str:
    """Return ``1 disk`` or ``3 disks``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
