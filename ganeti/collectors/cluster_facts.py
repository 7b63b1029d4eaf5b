"""Facts of the cluster for a node's collectors: the answers of RConfD as typed values.  Pure.

Source: confd.json, "query_types"; config.json, objects "Instance" and "Disk".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

import msgspec

from ganeti.base.errors import ProtocolError
from ganeti.objects.model import COLLECTOR_INTERVAL_US, AdminState

_MICROSECONDS: Final = 1_000_000
_PLAIN: Final = "plain"
_DRBD: Final = "drbd"

T = TypeVar("T")


class Need(Enum):
    """Something of the cluster that must be known."""

    SETTINGS = "settings"
    INSTANCES = "instances"
    VOLUMES = "logical volumes"
    DRBD = "DRBD devices"


class DiskFacts(msgspec.Struct, frozen=True):
    """A disk, as far as it tells which logical volumes or DRBD devices are part of it."""

    dev_type: str
    logical_id: object = None
    children: tuple[DiskFacts, ...] = ()


class InstanceFacts(msgspec.Struct, frozen=True):
    """An instance as the configuration has it; a forthcoming one may lack fields."""

    name: str = ""
    uuid: str = ""
    admin_state: AdminState = AdminState.DOWN
    hypervisor: str = ""
    mtime: float = 0.0
    serial_no: int = 0
    primary_node: str = ""  # its UUID
    disks: tuple[DiskFacts | str, ...] = ()  # UUIDs in the answers of RConfD
    disks_active: bool = False  # whether they are meant to be


@dataclass(frozen=True, slots=True)
class Switch:
    """Whether a collector is to work, how often, and by which command if it runs one."""

    is_active: bool = True
    interval_s: float = COLLECTOR_INTERVAL_US / _MICROSECONDS
    command: str | None = None


@dataclass(frozen=True, slots=True)
class NodeInstances:
    """The instances of a node, as their primary or their secondary node."""

    primary: tuple[InstanceFacts, ...]
    secondary: tuple[InstanceFacts, ...]


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The last answers of RConfD; None where it has not answered yet.

    Attributes:
        problem: why the last question was not answered, or None; the facts are older then.
        answered_s: when the last answer came, in seconds since the epoch.
        drbd_owners: {minor on this node: name of the instance}.
        volume_owners: {(volume group, logical volume): name of the instance}.
        hypervisors: the enabled ones; not from RConfD.
    """

    problem: str | None = "RConfD has not been asked yet"
    answered_s: float | None = None
    config_serial: int | None = None
    switches: Mapping[str, Switch] = field(default_factory=dict)
    diagnose_command: str | None = None
    instances: NodeInstances | None = None
    drbd_owners: Mapping[int, str] | None = None
    volume_owners: Mapping[tuple[str, str], str] | None = None
    hypervisors: frozenset[str] = frozenset()


def _convert(answer: object, kind: type[T], what: str) -> T:
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as err:
        raise ProtocolError(f"{what} cannot be understood: {err}") from err


class _SwitchOnWire(msgspec.Struct, frozen=True):
    active: bool = True
    interval: int = COLLECTOR_INTERVAL_US


def decode_switches(answer: object) -> dict[str, Switch]:
    """Read the answer on data collectors.

    Raises:
        ProtocolError: it has another form.
    """
    found = _convert(answer, dict[str, _SwitchOnWire], "the answer on data collectors")
    every_us = {name: max(switch.interval, 1) for name, switch in found.items()}
    return {name: Switch(found[name].active, us / _MICROSECONDS) for name, us in every_us.items()}


def decode_instances(answer: object) -> NodeInstances:
    """Read the answer on a node's instances.

    Raises:
        ProtocolError: it has another form.
    """
    what = "the answer on a node's instances"
    match _convert(answer, list[list[InstanceFacts]], what):
        case [primary, secondary]:
            return NodeInstances(tuple(primary), tuple(secondary))
        case other:
            raise ProtocolError(f"{what} has {len(other)} parts, not 2")


def decode_instance(answer: object) -> InstanceFacts:
    """Read an instance as it stands in the configuration.

    Raises:
        ProtocolError: it has another form.
    """
    return _convert(answer, InstanceFacts, "the answer on an instance")


Serials = tuple[tuple[str, int], ...]  # (UUID, serial number) of instances


def decode_serials(answer: object) -> tuple[Serials, Serials]:
    """Read the answer on the serial numbers of a node's instances: primary ones, and the others.

    Raises:
        ProtocolError: it has another form.
    """
    what = "the answer on the serial numbers of a node's instances"
    return _convert(answer, tuple[Serials, Serials], what)


def decode_disks(answer: object) -> tuple[DiskFacts, ...]:
    """Read the answer on the disks of an instance.

    Raises:
        ProtocolError: it has another form.
    """
    return _convert(answer, tuple[DiskFacts, ...], "the answer on an instance's disks")


def decode_drbd_owners(answer: object) -> dict[int, str]:
    """Read the answer on the DRBD minors of a node: {minor: name of the instance}.

    Raises:
        ProtocolError: it has another form.
    """
    kind = list[tuple[str, int, str, str, str, str]]
    rows = _convert(answer, kind, "the answer on a node's DRBD devices")
    return {minor: instance for _node, minor, instance, *_ in rows}


def owners_of_minors(
    primary: Iterable[InstanceFacts], secondary: Iterable[InstanceFacts]
) -> dict[int, str]:
    """Return {minor on the node that has these instances: name of the instance}."""
    return {
        minor: instance.name
        for instances, is_primary in ((primary, True), (secondary, False))
        for instance in instances
        for minor in _minors(instance, instance.disks, is_primary=is_primary)
    }


def _minors(
    instance: InstanceFacts, disks: Iterable[DiskFacts | str], *, is_primary: bool
) -> Iterator[int]:
    """Yield the minors of an instance on its primary node, or on the other one."""
    for disk in disks:
        if isinstance(disk, str):
            continue
        if disk.dev_type == _DRBD:
            match disk.logical_id:
                case [str(first), str(), int(), int(minor), int(other_minor), *_]:
                    is_first = (first == instance.primary_node) == is_primary
                    yield minor if is_first else other_minor
        yield from _minors(instance, disk.children, is_primary=is_primary)


def volumes_of(disks: tuple[DiskFacts | str, ...]) -> Iterator[tuple[str, str]]:
    """Yield (volume group, logical volume) of each volume that disks are made of."""
    for disk in disks:
        if isinstance(disk, str):
            continue
        if disk.dev_type == _PLAIN:
            match disk.logical_id:
                case [str(group), str(volume), *_]:
                    yield group, volume
        yield from volumes_of(disk.children)


def owners_of_volumes(instances: Iterable[InstanceFacts]) -> dict[tuple[str, str], str]:
    """Return {(volume group, logical volume): name of the instance}."""
    return {volume: each.name for each in instances for volume in volumes_of(each.disks)}
