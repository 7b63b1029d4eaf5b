"""What RConfD knows: one version of the configuration, ready to be asked.

The configuration stays one raw value per object; of each object only what is needed to find things
is decoded, and taken over from the version before where its text is the same.  Every index is made
when the first question needs it.  Pure.

Source: config.json; confd.json, "query_types".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import Raw

from ganeti.base.errors import ConfigurationError
from ganeti.objects.split import SplitConfig
from ganeti.query.names import NameIndex

DRBD: Final = "drbd"


class NodeFacts(msgspec.Struct, frozen=True):
    """A node, as far as it is asked about."""

    name: str
    primary_ip: str
    master_candidate: bool = False
    offline: bool = False
    drained: bool = False
    serial_no: int = 0


class NicParameters(msgspec.Struct, frozen=True):
    """Parameters of a network interface, as far as they tell where it is."""

    link: str | None = None


class NicFacts(msgspec.Struct, frozen=True):
    """A network interface with its address, if it has one."""

    ip: str | None = None
    nicparams: NicParameters = NicParameters()


class InstanceFacts(msgspec.Struct, frozen=True):
    """An instance, as far as it is asked about; a forthcoming one may lack name and node."""

    name: str = ""
    primary_node: str = ""
    nics: tuple[NicFacts, ...] = ()
    disks: tuple[str, ...] = ()
    serial_no: int = 0


class DiskFacts(msgspec.Struct, frozen=True):
    """A disk, as far as it tells which nodes it is on."""

    dev_type: str = ""
    logical_id: Raw = Raw(b"[]")
    nodes: tuple[str, ...] = ()
    children: tuple[DiskFacts, ...] = ()


class _ClusterNicParameters(msgspec.Struct, frozen=True):
    default: NicParameters = NicParameters()


class CollectorFacts(msgspec.Struct, frozen=True):
    """How a data collector is switched."""

    active: bool
    interval: int


class ClusterFacts(msgspec.Struct, frozen=True):
    """The cluster, as far as it is asked about."""

    master_node: str
    master_ip: str
    serial_no: int
    nicparams: _ClusterNicParameters = _ClusterNicParameters()
    enabled_hypervisors: tuple[str, ...] = ()
    data_collectors: Mapping[str, CollectorFacts] = {}


@dataclass(frozen=True, slots=True)
class DrbdHalf:
    """One node's side of a DRBD disk."""

    minor: int
    instance: str  # its UUID
    index: int  # of the disk in the instance
    peer: str  # UUID of the other node


F = TypeVar("F", NodeFacts, InstanceFacts, DiskFacts)
C = TypeVar("C")

_drbd_ids: Final = msgspec.json.Decoder(tuple[str, str, int, int, int, str])


def _decode(raw: bytes | Raw, kind: type[C], what: str) -> C:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as err:
        raise ConfigurationError(f"{what} cannot be understood: {err}") from err


class Objects(Generic[F]):
    """The objects of one kind, by UUID and by name."""

    def __init__(
        self,
        kind: type[F],
        table: str,
        raw: Mapping[str, Raw],
        before: Objects[F] | None = None,
    ) -> None:
        self.raw: Final = raw
        self._facts: dict[str, F] = {}
        for uuid, text in raw.items():
            kept = None if before is None else before.same(uuid, text)
            self._facts[uuid] = _decode(text, kind, f"{table} {uuid}") if kept is None else kept

    def same(self, uuid: str, text: Raw) -> F | None:
        """Return the object of a UUID if this is its text."""
        return self._facts[uuid] if self.raw.get(uuid) == text else None

    def __getitem__(self, uuid: str) -> F:
        return self._facts[uuid]

    def get(self, uuid: str) -> F | None:
        """Return the object of a UUID, or None."""
        return self._facts.get(uuid)

    def items(self) -> Iterable[tuple[str, F]]:
        """Return UUIDs and objects, in the order of the configuration."""
        return self._facts.items()

    def values(self) -> Iterable[F]:
        """Return the objects."""
        return self._facts.values()

    @cached_property
    def _names(self) -> Mapping[str, str]:
        named = ((getattr(facts, "name", ""), uuid) for uuid, facts in self._facts.items())
        return {name: uuid for name, uuid in named if name}

    @cached_property
    def _short_names(self) -> NameIndex:
        return NameIndex((uuid, name) for name, uuid in self._names.items())

    def find(self, key: str) -> str | None:
        """Return the UUID of what has this UUID, name, or short name that fits nothing else."""
        if key in self._facts:
            return key
        uuid = self._names.get(key)
        if uuid is not None:
            return uuid
        matching = self._short_names.matching(key)
        return matching[0] if len(matching) == 1 else None


class Facts:
    """One version of the configuration.

    Args:
        before: the version before, whose decoded objects are taken over.

    Raises:
        ConfigurationError: something in it cannot be understood; names the object.
    """

    def __init__(self, split: SplitConfig, before: Facts | None = None) -> None:
        tables = split.tables
        self.split: Final = split
        self.cluster: Final = _decode(split.cluster, ClusterFacts, "the cluster")
        self.nodes: Final[Objects[NodeFacts]] = Objects(
            NodeFacts, "node", tables["nodes"], None if before is None else before.nodes
        )
        self.instances: Final[Objects[InstanceFacts]] = Objects(
            InstanceFacts,
            "instance",
            tables["instances"],
            None if before is None else before.instances,
        )
        self.disks: Final[Objects[DiskFacts]] = Objects(
            DiskFacts, "disk", tables["disks"], None if before is None else before.disks
        )

    @cached_property
    def serial_no(self) -> int:
        """Serial number of the configuration: of all that is in it, not of the cluster object."""
        return _decode(self.split.top.get("serial_no", Raw(b"0")), int, "the serial number")

    @property
    def default_link(self) -> str:
        """The link of network interfaces that name none."""
        return self.cluster.nicparams.default.link or ""

    @cached_property
    def links(self) -> Mapping[str, Mapping[str, str]]:
        """{link: {address: UUID of the instance that has it}}."""
        found: dict[str, dict[str, str]] = {}
        for uuid, instance in self.instances.items():
            for nic in instance.nics:
                if nic.ip is not None:
                    link = nic.nicparams.link
                    on_link = found.setdefault(self.default_link if link is None else link, {})
                    on_link.setdefault(nic.ip, uuid)
        return found

    @cached_property
    def instances_by_node(self) -> Mapping[str, tuple[Sequence[str], Sequence[str]]]:
        """{UUID of a node: UUIDs of the instances whose primary, whose secondary node it is}."""
        found: dict[str, tuple[list[str], list[str]]] = {uuid: ([], []) for uuid in self.nodes.raw}
        for uuid, instance in self.instances.items():
            if instance.primary_node in found:
                found[instance.primary_node][0].append(uuid)
            for node in self._secondary_nodes(instance):
                if node in found:
                    found[node][1].append(uuid)
        return found

    def _secondary_nodes(self, instance: InstanceFacts) -> list[str]:
        nodes = {
            node: True
            for disk in self._disks_of(instance)
            for part in _parts(disk)
            for node in (*part.nodes, *_drbd_nodes(part))
        }
        nodes.pop(instance.primary_node, None)
        return list(nodes)

    def _disks_of(self, instance: InstanceFacts) -> Iterator[DiskFacts]:
        for uuid in instance.disks:
            disk = self.disks.get(uuid)
            if disk is not None:
                yield disk

    @cached_property
    def drbd(self) -> Mapping[str, Sequence[DrbdHalf]]:
        """{UUID of a node: the DRBD devices that it has}."""
        found: dict[str, list[DrbdHalf]] = {}
        for uuid, instance in self.instances.items():
            for index, disk_uuid in enumerate(instance.disks):
                disk = self.disks.get(disk_uuid)
                for part in _parts(disk) if disk is not None else ():
                    ids = _drbd_id(part)
                    if ids is None:
                        continue
                    one, other, _port, minor, other_minor, _secret = ids
                    found.setdefault(one, []).append(DrbdHalf(minor, uuid, index, other))
                    found.setdefault(other, []).append(DrbdHalf(other_minor, uuid, index, one))
        return found


def _parts(disk: DiskFacts) -> Iterator[DiskFacts]:
    """Yield a disk and whatever it is made of."""
    yield disk
    for child in disk.children:
        yield from _parts(child)


def _drbd_id(disk: DiskFacts) -> tuple[str, str, int, int, int, str] | None:
    """Return the identity of a DRBD disk; one that is only planned has none yet."""
    if disk.dev_type != DRBD:
        return None
    try:
        return _drbd_ids.decode(disk.logical_id)
    except msgspec.DecodeError:
        return None


def _drbd_nodes(disk: DiskFacts) -> tuple[str, ...]:
    ids = _drbd_id(disk)
    return () if ids is None else ids[:2]
