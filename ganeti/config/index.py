"""The keys of an object: names, addresses, ports, references.

`KEYS` declares them once.  WConfD keeps the entries of all objects together, as (kind, key), and
checks by them that keys of *unique* kinds lead to one object only (`ganeti.config.views`); readers
of the configuration make an `Index` of each kind of key that they ask for (`ganeti.config.tables`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from ganeti.config.addresses.pool6 import canonical
from ganeti.config.config_data import TABLES
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.model import Cluster, Disk, Instance
from ganeti.objects.record import Record
from ganeti.protocol.maintenance.stored import Maintenance

ObjectId = tuple[str, str]  # table, uuid

CLUSTER: Final = "cluster"
NODES: Final = "nodes"
GROUPS: Final = "nodegroups"
INSTANCES: Final = "instances"
NETWORKS: Final = "networks"
DISKS: Final = "disks"
FILTERS: Final = "filters"

TAKES_SHORT_NAMES: Final = frozenset({NODES, INSTANCES, DISKS})
"""Tables whose objects are also found by a short name, in any case; others by the full name alone.

As in 3.0: groups and networks are not called like hosts, and ``net`` is not ``net.old``.
"""

CLUSTER_ID: Final[ObjectId] = (CLUSTER, "")
MAINTENANCE: Final = "maintenance"  # there only while it is switched on
MAINTENANCE_ID: Final[ObjectId] = (MAINTENANCE, "")
KINDS: Final[Mapping[str, type[Record]]] = {CLUSTER: Cluster, MAINTENANCE: Maintenance, **TABLES}

WHAT: Final[Mapping[str, str]] = {
    CLUSTER: "cluster",
    MAINTENANCE: "maintenance",
    NODES: "node",
    GROUPS: "node group",
    INSTANCES: "instance",
    NETWORKS: "network",
    DISKS: "disk",
    FILTERS: "job filter",
}


class By(Enum):
    """Kinds of index entries."""

    UUID = "UUID"
    NAME = "name"  # the full one
    SHORT_NAME = "short name"  # first component in lower case
    MAC = "MAC address"
    IP = "IP address"  # key: (network UUID or link, address)
    NODE_IP = "address"  # of a node, or the cluster's own
    PORT = "port"
    MINOR = "DRBD minor"  # key: (node UUID, minor)
    SECRET = "DRBD secret"  # noqa: S105 - a word, not a secret
    LV = "logical volume"  # key: "vg/lv"
    PATH = "path"  # of a file or device
    REFERENCE = "reference"  # key: UUID of the object referred to
    PRIMARY = "primary node"  # node UUID -> instances
    DISK_NODE = "node of a disk"  # node UUID -> disks
    GROUP = "group of a node"  # group UUID -> nodes
    DISK_OWNER = "owner of a disk"  # disk UUID -> instances
    CANDIDATE = "master candidates"  # key: ""
    NETWORK = "network"  # network UUID -> instances
    LINK = "link"  # of a NIC, None for the default one -> instances
    LINK_IP = "address on a link"  # key: (link, address)


UNIQUE: Final = frozenset(
    {By.UUID, By.NAME, By.MAC, By.IP, By.NODE_IP, By.PORT, By.MINOR, By.DISK_OWNER}
)

_OF_ONE_TABLE: Final = frozenset({By.NAME, By.SHORT_NAME})  # other tables may have the same
_OF_READERS: Final = frozenset({By.NETWORK, By.LINK, By.LINK_IP})  # WConfD asks for none of them

Key = tuple[By, object]
KeysOf = Callable[[Any], Iterable[Hashable]]


def first_component(name: str) -> str:
    """Return the first component of a name in lower case: node1 for Node1.example.com."""
    return name.partition(".")[0].lower()


def _named(record: Any) -> Iterable[str]:
    return (record.name,) if record.name else ()


def _short_named(record: Any) -> Iterable[str]:
    return (first_component(record.name),) if record.name else ()


def _instance_references(instance: Instance) -> Iterator[str]:
    if instance.primary_node:
        yield instance.primary_node
    yield from instance.disks
    yield from (nic.network for nic in instance.nics if nic.network)


def _devices(disk: Disk) -> Iterator[Disk]:
    """Yield a disk and all that it is made of."""
    yield disk
    for child in disk.children:
        yield from _devices(child)


DrbdId = tuple[str, str, int | None, int, int, str]


def drbd_devices(disk: Disk) -> Iterator[DrbdId]:
    """Yield the DRBD devices of a disk: two nodes, port, their minors, secret."""
    if disk.dev_type != DiskTemplate.DRBD and not disk.children:
        return  # most disks, and looks at all of them are many
    for device in _devices(disk):
        match device.dev_type, device.logical_id:
            case DiskTemplate.DRBD, [
                str(node_a),
                str(node_b),
                int() | None as port,
                int(minor_a),
                int(minor_b),
                str(secret),
            ]:
                yield (node_a, node_b, port, minor_a, minor_b, secret)


def nodes_of_disk(disk: Disk) -> Iterator[str]:
    """Yield the UUIDs of the nodes of a disk, some of them twice."""
    yield from disk.nodes
    for node_a, node_b, *_rest in drbd_devices(disk):
        yield node_a
        yield node_b


def _minors(disk: Disk) -> Iterator[tuple[str, int]]:
    for node_a, node_b, _port, minor_a, minor_b, _secret in drbd_devices(disk):
        yield (node_a, minor_a)
        yield (node_b, minor_b)


def _volumes(disk: Disk) -> Iterator[str]:
    for device in _devices(disk):
        match device.dev_type, device.logical_id:
            case DiskTemplate.PLAIN, [str(group), str(volume)]:
                yield f"{group}/{volume}"


def _paths(disk: Disk) -> Iterator[str]:
    match disk.logical_id:
        case [str(), str(path)] if disk.traits.is_file or disk.traits.must_adopt:
            yield path


KEYS: Final[Mapping[str, Mapping[By, KeysOf]]] = {
    CLUSTER: {
        By.UUID: lambda cluster: (cluster.uuid,),
        By.NODE_IP: lambda cluster: (cluster.master_ip,),
        By.REFERENCE: lambda cluster: (cluster.master_node,) if cluster.master_node else (),
    },
    NODES: {
        By.NAME: _named,
        By.SHORT_NAME: _short_named,
        By.NODE_IP: lambda node: (node.primary_ip, node.secondary_ip),
        By.REFERENCE: lambda node: (node.group,),
        By.GROUP: lambda node: (node.group,),
        By.CANDIDATE: lambda node: ("",) if node.master_candidate else (),
    },
    GROUPS: {
        By.NAME: _named,
        By.SHORT_NAME: _short_named,
        By.REFERENCE: lambda group: group.networks,
    },
    INSTANCES: {
        By.NAME: _named,
        By.SHORT_NAME: _short_named,
        By.UUID: lambda instance: (nic.uuid for nic in instance.nics),
        By.REFERENCE: _instance_references,
        By.PRIMARY: lambda instance: (instance.primary_node,) if instance.primary_node else (),
        By.PORT: lambda instance: () if instance.network_port is None else (instance.network_port,),
        By.DISK_OWNER: lambda instance: instance.disks,
        By.MAC: lambda instance: (nic.mac.lower() for nic in instance.nics),
        By.IP: lambda instance: (
            (nic.network or nic.nicparams.get("link", ""), canonical(nic.ip))
            for nic in instance.nics
            if nic.ip
        ),
        By.NETWORK: lambda instance: (nic.network for nic in instance.nics if nic.network),
        By.LINK: lambda instance: (nic.nicparams.get("link") for nic in instance.nics if nic.ip),
        By.LINK_IP: lambda instance: (
            (nic.nicparams.get("link"), nic.ip) for nic in instance.nics if nic.ip
        ),
    },
    NETWORKS: {By.NAME: _named, By.SHORT_NAME: _short_named},
    DISKS: {
        By.SHORT_NAME: lambda disk: (disk.name.lower(),) if disk.name else (),
        By.REFERENCE: nodes_of_disk,
        By.DISK_NODE: nodes_of_disk,
        By.PORT: lambda disk: (
            port for _a, _b, port, *_rest in drbd_devices(disk) if port is not None
        ),
        By.MINOR: _minors,
        By.SECRET: lambda disk: (device[-1] for device in drbd_devices(disk)),
        By.LV: _volumes,
        By.PATH: _paths,
    },
    FILTERS: {},
    MAINTENANCE: {},
}
"""For each kind of object its kinds of keys, each with a function that tells those of one."""


def entries_of(identity: ObjectId, record: Record) -> frozenset[Key]:
    """Return the entries of an object in WConfD's index."""
    table, uuid = identity
    found: set[Key] = {(By.UUID, uuid)} if uuid else set()  # there is one of its kind
    for by, keys_of in KEYS[table].items():
        if by in _OF_ONE_TABLE:
            found.update((by, (table, key)) for key in keys_of(record))
        elif by not in _OF_READERS:
            found.update((by, key) for key in keys_of(record))
    return frozenset(found)


class Index:
    """UUIDs by keys of one kind, in the order in which they came; most keys lead to one."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[Hashable, str | list[str]] = {}

    def of(self, key: Hashable) -> Sequence[str]:
        """Return the UUIDs that a key leads to."""
        found = self._found.get(key)
        if found is None:
            return ()
        return (found,) if isinstance(found, str) else found

    def add(self, uuid: str, keys: Iterable[Hashable]) -> None:
        """Add keys of an object, each of them once."""
        for key in keys:
            found = self._found.get(key)
            if found is None:
                self._found[key] = uuid
            elif isinstance(found, str):
                self._found[key] = [found, uuid]
            else:
                found.append(uuid)

    def remove(self, uuid: str, keys: Iterable[Hashable]) -> None:
        """Take out keys of an object that it was added under."""
        for key in keys:
            found = self._found[key]
            if isinstance(found, list) and len(found) > 1:
                found.remove(uuid)
            else:
                del self._found[key]

    def move(self, uuid: str, before: frozenset[Hashable], after: frozenset[Hashable]) -> None:
        """Replace the keys of an object; under a key that it keeps it stays where it is."""
        self.remove(uuid, before - after)
        self.add(uuid, after - before)

    def put(self, key: Hashable, uuids: Sequence[str]) -> None:
        """Let a key lead to these UUIDs and no others."""
        if uuids:
            self._found[key] = uuids[0] if len(uuids) == 1 else list(uuids)
        else:
            self._found.pop(key, None)

    def items(self) -> Iterator[tuple[Hashable, Sequence[str]]]:
        """Yield the keys, each with the UUIDs that it leads to."""
        for key in self._found:
            yield key, self.of(key)


class Indexes:
    """What the keys of all objects lead to, for WConfD.

    With many objects this is the largest part of its memory but their texts: no key and no UUID is
    kept twice where one is enough, and the UUIDs of the objects stay in the tables alone.
    """

    def __init__(self, tables: Mapping[str, Mapping[str, object]]) -> None:
        """Begin without entries.

        Args:
            tables: the objects, as they are at any time.
        """
        self._tables = tables
        self._of_table = {
            table: {by: Index() for by in kinds if by not in _OF_READERS}
            for table, kinds in KEYS.items()
        }
        self._of_kind = {
            by: [(table, kinds[by]) for table, kinds in self._of_table.items() if by in kinds]
            for by in By
        }

    def fill(self, decode: Callable[[ObjectId], Record]) -> None:
        """Add the keys of all objects."""
        known: dict[Hashable, str] = {
            uuid: uuid for uuids in self._tables.values() for uuid in uuids
        }
        for table, uuids in self._tables.items():
            kinds = [(KEYS[table][by], index) for by, index in self._of_table[table].items()]
            for uuid in uuids:
                record = decode((table, uuid))
                for keys_of, index in kinds:
                    index.add(uuid, [known.get(key, key) for key in frozenset(keys_of(record))])

    def of(self, by: By, key: object) -> tuple[ObjectId, ...]:
        """Return the objects that a key leads to."""
        if by in _OF_ONE_TABLE:
            assert isinstance(key, tuple)
            table, name = key
            index = self._of_table[table].get(by)
            return () if index is None else tuple((table, uuid) for uuid in index.of(name))
        found: list[ObjectId] = []
        if by is By.UUID and key:
            uuid = str(key)
            found += [(table, uuid) for table, uuids in self._tables.items() if uuid in uuids]
        for table, index in self._of_kind[by]:
            found += [(table, uuid) for uuid in index.of(key)]
        return tuple(found)

    def put(self, by: By, key: object, ids: Sequence[ObjectId]) -> None:
        """Let a key lead to these objects and no others; their tables have them already."""
        if by in _OF_ONE_TABLE:
            assert isinstance(key, tuple)
            table, key = key
            self._of_table[table][by].put(key, [uuid for _table, uuid in ids])
            return
        for table, index in self._of_kind[by]:
            index.put(
                key, [uuid for of, uuid in ids if of == table and (by, uuid) != (By.UUID, key)]
            )

    def names(self, table: str) -> dict[str, str]:
        """Return the names of all objects of a kind, by UUID."""
        index = self._of_table[table].get(By.NAME)
        pairs = () if index is None else index.items()
        return {uuid: str(name) for name, uuids in pairs for uuid in uuids}
