"""Which keys lead to an object: names, addresses, ports, references.

An index entry is (what, key); it leads to the identities of all objects that carry it, in the
order in which they came.  Entries of *unique* kinds may lead to one object only; checks say so,
the index itself does not mind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

from ganeti.objects.cluster import Cluster
from ganeti.objects.config_data import TABLES
from ganeti.objects.disk import Disk
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.instance import Instance
from ganeti.objects.network import Network
from ganeti.objects.node import Node
from ganeti.objects.nodegroup import NodeGroup
from ganeti.objects.record import Record

ObjectId = tuple[str, str]  # table, uuid

CLUSTER: Final = "cluster"
NODES: Final = "nodes"
GROUPS: Final = "nodegroups"
INSTANCES: Final = "instances"
NETWORKS: Final = "networks"
DISKS: Final = "disks"
FILTERS: Final = "filters"

CLUSTER_ID: Final[ObjectId] = (CLUSTER, "")
KINDS: Final[Mapping[str, type[Record]]] = {CLUSTER: Cluster, **TABLES}

WHAT: Final[Mapping[str, str]] = {
    CLUSTER: "cluster",
    NODES: "node",
    GROUPS: "node group",
    INSTANCES: "instance",
    NETWORKS: "network",
    DISKS: "disk",
    FILTERS: "filter",
}


class By(Enum):
    """Kinds of index entries."""

    UUID = "UUID"
    NAME = "name"  # key: (table, full name)
    SHORT_NAME = "short name"  # key: (table, first component in lower case)
    MAC = "MAC address"
    IP = "IP address"  # key: (network UUID or link, address)
    NODE_IP = "address"  # of a node, or the cluster's own
    PORT = "port"
    MINOR = "DRBD minor"  # key: (node UUID, minor)
    SECRET = "DRBD secret"  # noqa: S105 - a word, not a secret
    LV = "logical volume"  # key: "vg/lv"
    REFERENCE = "reference"  # key: UUID of what is referred to
    PRIMARY = "primary node"  # node UUID -> instances
    DISK_NODE = "node of a disk"  # node UUID -> disks
    GROUP = "group of a node"  # group UUID -> nodes
    DISK_OWNER = "owner of a disk"  # disk UUID -> instances
    CANDIDATE = "master candidates"  # key: ""


UNIQUE: Final = frozenset(
    {By.UUID, By.NAME, By.MAC, By.IP, By.NODE_IP, By.PORT, By.MINOR, By.DISK_OWNER}
)

Key = tuple[By, object]


def entries_of(identity: ObjectId, record: Record) -> frozenset[Key]:
    """Return the index entries of an object."""
    table, uuid = identity
    found = set(_ENTRIES[table](record)) if table in _ENTRIES else set()
    if table != CLUSTER:
        found.add((By.UUID, uuid))
    return frozenset(found)


def name_keys(table: str, name: str) -> Iterator[Key]:
    """Return the entries by which an object is found by name."""
    yield (By.NAME, (table, name))
    yield (By.SHORT_NAME, (table, name.partition(".")[0].lower()))


def _cluster(cluster: Cluster) -> Iterator[Key]:
    yield (By.UUID, cluster.uuid)
    yield (By.NODE_IP, cluster.master_ip)
    if cluster.master_node:
        yield (By.REFERENCE, cluster.master_node)


def _node(node: Node) -> Iterator[Key]:
    yield from name_keys(NODES, node.name)
    yield (By.NODE_IP, node.primary_ip)
    yield (By.NODE_IP, node.secondary_ip)
    yield (By.REFERENCE, node.group)
    yield (By.GROUP, node.group)
    if node.master_candidate:
        yield (By.CANDIDATE, "")


def _group(group: NodeGroup) -> Iterator[Key]:
    yield from name_keys(GROUPS, group.name)
    for network in group.networks:
        yield (By.REFERENCE, network)


def _instance(instance: Instance) -> Iterator[Key]:
    if instance.name:
        yield from name_keys(INSTANCES, instance.name)
    if instance.primary_node:
        yield (By.REFERENCE, instance.primary_node)
        yield (By.PRIMARY, instance.primary_node)
    if instance.network_port is not None:
        yield (By.PORT, instance.network_port)
    for disk in instance.disks:
        yield (By.REFERENCE, disk)
        yield (By.DISK_OWNER, disk)
    for nic in instance.nics:
        yield (By.UUID, nic.uuid)
        yield (By.MAC, nic.mac.lower())
        if nic.network:
            yield (By.REFERENCE, nic.network)
        if nic.ip:
            yield (By.IP, (nic.network or nic.nicparams.get("link", ""), nic.ip))


def _network(network: Network) -> Iterator[Key]:
    yield from name_keys(NETWORKS, network.name)


def _disk(disk: Disk) -> Iterator[Key]:
    if disk.name:
        yield (By.SHORT_NAME, (DISKS, disk.name.lower()))
    for node in disk.nodes:
        yield (By.REFERENCE, node)
        yield (By.DISK_NODE, node)
    yield from _device(disk)


def _device(disk: Disk) -> Iterator[Key]:
    match disk.dev_type, disk.logical_id:
        case DiskTemplate.DRBD, [node_a, node_b, port, int(minor_a), int(minor_b), secret]:
            yield (By.REFERENCE, node_a)
            yield (By.REFERENCE, node_b)
            yield (By.DISK_NODE, node_a)
            yield (By.DISK_NODE, node_b)
            if port is not None:
                yield (By.PORT, port)
            yield (By.MINOR, (node_a, minor_a))
            yield (By.MINOR, (node_b, minor_b))
            yield (By.SECRET, secret)
        case DiskTemplate.PLAIN, [str(group), str(volume)]:
            yield (By.LV, f"{group}/{volume}")
    for child in disk.children:
        yield from _device(child)


_ENTRIES: Final[Mapping[str, Callable[[Any], Iterator[Key]]]] = {
    CLUSTER: _cluster,
    NODES: _node,
    GROUPS: _group,
    INSTANCES: _instance,
    NETWORKS: _network,
    DISKS: _disk,
}
