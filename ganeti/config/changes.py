"""Changes of the cluster, nodes, groups, networks and filters; tags; whole objects.

Each function works on a transaction, which is checked afterwards; keys are names or UUIDs.

Source: wconfd.json, "methods"; design 2.0, "master candidate flag".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from ganeti.base.errors import ConfigurationError, OpPrereqError, TagError
from ganeti.base.json import dumps
from ganeti.base.text import natural_sort_key
from ganeti.config import index
from ganeti.config.checks import LAST_DRBD_PORT
from ganeti.config.config_data import TABLES
from ganeti.config.instances import delete_instance
from ganeti.config.overlay import Stored, split_fields
from ganeti.config.reservations import IpAction
from ganeti.config.transaction import (
    SerialAndTime,
    Transaction,
    apply_ip_actions,
    use_ports,
    uuid_of_new,
)
from ganeti.config.views import Base
from ganeti.objects.tags import add_tags as tags_with
from ganeti.protocol.wconfd import ObjectKind

Wire = Mapping[str, object]

TABLE_OF: Final[Mapping[str, str]] = {
    ObjectKind.CLUSTER: index.CLUSTER,
    ObjectKind.NODE: index.NODES,
    ObjectKind.NODEGROUP: index.GROUPS,
    ObjectKind.INSTANCE: index.INSTANCES,
    ObjectKind.DISK: index.DISKS,
    ObjectKind.NETWORK: index.NETWORKS,
    ObjectKind.FILTER: index.FILTERS,
}

_NEVER_ALONE: Final = frozenset({index.CLUSTER, index.INSTANCES, index.DISKS})


def table_of(kind: str) -> str:
    """Return the table of a kind of objects.

    Raises:
        OpPrereqError: there is no such kind.
    """
    table = TABLE_OF.get(kind)
    if table is None:
        raise OpPrereqError(f"unknown kind {kind!r}; kinds are {', '.join(ObjectKind)}")
    return table


def identity_of(change: Transaction, kind: str, key: str) -> index.ObjectId:
    """Return the identity of an object by kind and key; the cluster needs no key."""
    table = table_of(kind)
    return index.CLUSTER_ID if table == index.CLUSTER else change.existing(table, key)


def create(change: Transaction, table: str, wire: Wire) -> SerialAndTime:
    """Add a node, group, network or filter.

    Raises:
        OpPrereqError: objects of this kind are not created alone.
    """
    if table in _NEVER_ALONE:
        raise OpPrereqError(f"{index.WHAT[table]}s are not created by themselves")
    return change.create((table, uuid_of_new(table, wire)), wire)


def modify(change: Transaction, table: str, key: str, changes: Wire) -> SerialAndTime:
    """Replace fields of any object; a node that ceases to be a candidate is trusted no more."""
    if table == index.CLUSTER:
        return change.modify(index.CLUSTER_ID, changes)
    if table == index.GROUPS and changes.get("members"):
        changes = {name: value for name, value in changes.items() if name != "members"}
    identity = change.existing(table, key)
    if table == index.NODES and changes.get("master_candidate") is False:
        set_candidate_cert(change, identity[1], None)
    return change.modify(identity, changes)


def modify_many(change: Transaction, changes: Iterable[tuple[str, str, Wire]]) -> SerialAndTime:
    """Replace fields of several objects; returns serial number and time of the last one."""
    serial: SerialAndTime = (0, 0.0)
    for kind, key, fields in changes:
        serial = modify(change, table_of(kind), key, fields)
    return serial


def delete(change: Transaction, table: str, key: str) -> SerialAndTime:
    """Remove a node, group, instance with its disks, network or filter.

    Raises:
        OpPrereqError: there is none, or objects of this kind are not removed alone.
    """
    if table == index.INSTANCES:
        return delete_instance(change, key)
    if table in _NEVER_ALONE:
        raise OpPrereqError(f"{index.WHAT[table]}s are not removed by themselves")
    identity = change.existing(table, key)
    if table == index.NODES:
        set_candidate_cert(change, identity[1], None)
    return change.delete(identity)


# Tags.


def add_tags(change: Transaction, kind: str, key: str, tags: Sequence[str]) -> SerialAndTime:
    """Add tags to an object; tags that it has already do not matter.

    Raises:
        TagError: a tag is not well-formed, or there would be too many.
    """
    identity = identity_of(change, kind, key)
    return change.modify(identity, {"tags": tags_with(_tags_of(change, identity), tags)})


def remove_tags(change: Transaction, kind: str, key: str, tags: Sequence[str]) -> SerialAndTime:
    """Remove tags from an object; tags that it does not have do not matter."""
    identity = identity_of(change, kind, key)
    kept = [tag for tag in _tags_of(change, identity) if tag not in tags]
    return change.modify(identity, {"tags": kept})


def _tags_of(change: Transaction, identity: index.ObjectId) -> list[str]:
    record = change.record(identity, index.KINDS[identity[0]])
    tags: list[str] | None = getattr(record, "tags", None)
    if tags is None:
        raise TagError(f"a {index.WHAT[identity[0]]} has no tags")
    return tags


# Master candidates.


def set_candidate_cert(change: Transaction, node_uuid: str, digest: str | None) -> SerialAndTime:
    """Note the digest of a candidate's certificate; None removes it."""
    before = {str(uuid): known for uuid, known in change.cluster.candidate_certs.items()}
    certs = {uuid: known for uuid, known in before.items() if uuid != node_uuid}
    if digest is not None:
        certs[change.existing(index.NODES, node_uuid)[1]] = digest
    if certs == before:
        return change.serial_of(index.CLUSTER_ID)
    return change.modify(index.CLUSTER_ID, {"candidate_certs": certs})


def maintain_candidate_pool(
    change: Transaction,
    node_uuids: Iterable[str],
    exempt: Collection[str],
    choose: Callable[[list[str], int], list[str]],
) -> dict[str, list[str]]:
    """Promote or demote nodes until there are as many candidates as the cluster wants.

    The master stays a candidate; nodes in `exempt` are left as they are.  New ones are
    chosen at random, so that no rack or switch gets them all because of the names of its nodes; the
    last ones by name are the first to go.

    Args:
        choose: returns so many of the UUIDs, as `random.Random.sample` does.

    Returns:
        UUIDs of the nodes "promoted" and "demoted".
    """
    cluster = change.cluster
    nodes = [node for uuid in node_uuids if (node := change.node(uuid)) is not None]
    nodes.sort(key=lambda node: natural_sort_key(node.name))
    current = [node for node in nodes if node.master_candidate]
    missing = cluster.candidate_pool_size - len(current)
    possible = [
        str(node.uuid)
        for node in nodes
        if not node.master_candidate
        and node.master_capable
        and not (node.offline or node.drained)
        and node.uuid not in exempt
    ]
    promoted = choose(possible, min(len(possible), max(0, missing)))
    demotable = [
        str(node.uuid)
        for node in reversed(current)
        if node.uuid != cluster.master_node and node.uuid not in exempt
    ]
    demoted = demotable[: max(0, -missing)]
    for uuid in promoted:
        change.modify((index.NODES, uuid), {"master_candidate": True})
    for uuid in demoted:
        modify(change, index.NODES, uuid, {"master_candidate": False})
    return {"promoted": promoted, "demoted": demoted}


# Whole objects, as clients of Ganeti 3.0 send them.


def update_whole(change: Transaction, table: str, wire: Wire) -> SerialAndTime:
    """Put a whole object in the place of the stored one.

    Raises:
        ConfigurationError: it does not exist, or was changed since the client read it.
    """
    uuid = wire.get("uuid")
    if table == index.CLUSTER:
        identity = index.CLUSTER_ID
    elif isinstance(uuid, str) and change.stored((table, uuid)) is not None:
        identity = (table, uuid)
    else:
        raise ConfigurationError(f"Unknown {index.WHAT[table]} {uuid!r}")
    serial = change.serial_of(identity)[0]
    if wire.get("serial_no") != serial:
        raise ConfigurationError(
            f"Configuration object {index.WHAT[table]} {change.name_of(identity)} was updated since"
            f" it was read: its serial number is {serial}, not {wire.get('serial_no')}"
        )
    before = change.serial_of(identity)
    change.replace(identity, {**wire, "members": []} if table == index.GROUPS else wire)
    if change.serial_of(identity) == before:
        change.touch(identity)  # 3.0 counts every update
    return change.serial_of(identity)


def replace_cluster(change: Transaction, wire: Wire) -> SerialAndTime:
    """Put a whole cluster in the place of the stored one; done again it changes nothing more.

    Raises:
        ConfigurationError: it was changed since the client read it.
    """
    before = change.serial_of(index.CLUSTER_ID)
    if wire.get("serial_no") == before[0] - 1:
        again = Transaction(change, change.now)
        if again.replace(index.CLUSTER_ID, wire) == before:
            return before
    return update_whole(change, index.CLUSTER, wire)


def commit_ip_release(change: Transaction, network: str, address: str) -> None:
    """Mark an address as free in the map of its network."""
    _, uuid = change.existing(index.NETWORKS, network)
    apply_ip_actions(change, [(IpAction.RELEASE, address, uuid)])


def prepare_destruction(change: Transaction) -> None:
    """Leave the cluster without a master node."""
    change.modify(index.CLUSTER_ID, {"master_node": ""})


def allocate_port(change: Transaction, reserved: Collection[int]) -> int:
    """Take a port out of the pool, or the next above the highest one used.

    Raises:
        ConfigurationError: all ports are taken.
    """
    cluster = change.cluster
    for port in sorted(cluster.tcpudp_port_pool):
        if port not in reserved:
            use_ports(change, [port])
            return port
    port = cluster.highest_used_port + 1
    while port in reserved or change.find(index.By.PORT, port):
        port += 1
    if port > LAST_DRBD_PORT:
        raise ConfigurationError(f"The highest used port is greater than {LAST_DRBD_PORT}")
    use_ports(change, [port])
    return port


def replace_config(
    change: Transaction, durable: Base, serial_no: int, wire: Mapping[str, object]
) -> None:
    """Make the configuration equal to the one given.

    Args:
        durable: the configuration below the change; nothing may be on its way to it.
        serial_no: the serial number of the current configuration.

    Raises:
        ConfigurationError: it is older than the current one, or not a configuration.
    """
    given = wire.get("serial_no")
    if not isinstance(given, int) or given < serial_no:
        raise ConfigurationError(
            f"the configuration was updated since it was read: its serial number is {serial_no},"
            f" not {given}"
        )
    _put(change, index.CLUSTER_ID, wire.get("cluster"))
    for table in TABLES:
        objects = wire.get(table)
        if not isinstance(objects, Mapping):
            raise ConfigurationError(f"the configuration has no {table!r}")
        for uuid in durable.tables[table]:
            if uuid not in objects:
                change.put((table, uuid), None)
        for uuid, fields in objects.items():
            if table == index.GROUPS and isinstance(fields, Mapping):
                fields = {**fields, "members": []}
            _put(change, (table, str(uuid)), fields)


def _put(change: Transaction, identity: index.ObjectId, fields: object) -> None:
    if not isinstance(fields, Mapping):
        raise ConfigurationError(f"{identity[0]} {identity[1]}: not an object")
    stored = change.stored(identity)
    if stored is None:
        change.put(identity, Stored(dumps(fields)))
        return
    gone = {name: None for name in split_fields(stored.raw) if name not in fields}
    laid_over = stored.with_changes({**fields, **gone})
    if laid_over.raw != stored.raw:
        change.put(identity, laid_over)
