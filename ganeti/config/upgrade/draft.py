"""A configuration while it is being upgraded, and ways to go through its parts.

Old versions have shapes that no record declares, so the parts are plain JSON objects here; the
shape that steps rely on was checked before (`check_shape`), and the result is decoded into records
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from ganeti.base.errors import ConfigurationError
from ganeti.base.json import JsonValue
from ganeti.config.upgrade.versions import Version
from ganeti.objects.record import explain_validation

_Params: TypeAlias = dict[str, JsonValue]
_Groups: TypeAlias = dict[str, _Params]


class _Policy(msgspec.Struct):
    min: _Params | None = None
    max: _Params | None = None
    std: _Params | None = None
    minmax: list[dict[str, _Params]] | dict[str, _Params] | None = None


class _Cluster(msgspec.Struct):
    hvparams: _Groups | None = None
    os_hvp: dict[str, _Groups] | None = None
    beparams: _Groups | None = None
    nicparams: _Groups | None = None
    ndparams: _Params | None = None
    diskparams: _Groups | None = None
    ipolicy: _Policy | None = None
    data_collectors: _Groups | None = None
    default_hypervisor: str | None = None
    default_bridge: str | None = None
    enabled_hypervisors: list[str] | None = None
    primary_ip_family: int | None = None
    volume_group_name: str | None = None
    drbd_usermode_helper: str | None = None
    master_node: str | None = None


class _Object(msgspec.Struct):
    """A node, node group, network, instance, NIC or disk: no key means two things among them."""

    name: str | None = None
    uuid: str | None = None
    ndparams: _Params | None = None
    ipolicy: _Policy | None = None
    networks: _Groups | None = None
    nicparams: _Params | None = None
    network: str | None = None
    dev_type: str | None = None
    logical_id: list[JsonValue] | None = None
    children: list[_Object] | None = None
    nodes: list[str] | None = None
    group: str | None = None
    bridge: str | None = None
    hypervisor: str | None = None
    primary_node: str | None = None
    disk_template: str | None = None
    hvparams: _Params | None = None
    beparams: _Params | None = None
    nics: list[_Object] | None = None
    disks: list[_Object | str] | None = None


class _Config(msgspec.Struct):
    cluster: _Cluster
    serial_no: int = 0
    nodes: dict[str, _Object] = {}
    nodegroups: dict[str, _Object] = {}
    instances: dict[str, _Object] = {}
    networks: dict[str, _Object] = {}
    disks: dict[str, _Object] = {}
    filters: _Groups = {}


_TABLES: Final = ("nodes", "nodegroups", "instances", "networks", "disks")


def check_shape(config: object) -> None:
    """Refuse a shape that no version of the software wrote.

    Raises:
        ConfigurationError: names the object and its problem.
    """
    if isinstance(config, dict):
        for table in _TABLES:
            objects = config.get(table)
            if isinstance(objects, dict):
                for key, value in objects.items():
                    _check(value, _Object, f"{table}[{key!r}]")
    _check(config, _Config, "")


def _check(value: object, kind: type[msgspec.Struct], owner: str) -> None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as err:
        place, what = explain_validation(err)
        where = ".".join(part for part in (owner, place) if part)
        raise ConfigurationError(
            f"the configuration cannot be understood: {where}: {what}"
            if where
            else f"the configuration cannot be understood: {what}"
        ) from err


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
