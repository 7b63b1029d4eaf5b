"""Reads of the configuration: raw objects and small facts, ready to be answered.

Objects are answered as the text they are stored in; only what is asked for is decoded.

Source: wconfd.json, "methods" (computeDRBDMap); the other reads are our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Raw

from ganeti.config.changes import table_of
from ganeti.config.index import CLUSTER, DISKS, GROUPS, INSTANCES, NETWORKS, NODES, By, ObjectId
from ganeti.config.overlay import Stored
from ganeti.config.reservations import Reservations
from ganeti.config.views import Base, View
from ganeti.objects.rpc_instance import secondary_nodes


def _raw(view: View, identity: ObjectId) -> Raw | None:
    stored = view.stored(identity)
    if stored is None:
        return None
    if identity[0] == GROUPS:
        return Raw(_with_members(view, identity[1], stored).raw)
    return Raw(stored.raw)


def _with_members(view: View, uuid: str, stored: Stored) -> Stored:
    members = sorted(node for _, node in view.find(By.GROUP, uuid))
    return stored.with_changes({"members": members})


def get_objects(view: Base, table: str, keys: Sequence[str] | None) -> list[Raw | None]:
    """Return objects by name or UUID, None for those that do not exist; no keys, all of them."""
    if keys is None:
        return [_raw(view, (table, uuid)) for uuid in view.tables[table]]
    uuids = [view.resolve(table, key) for key in keys]
    return [None if uuid is None else _raw(view, (table, uuid)) for uuid in uuids]


def get_cluster(view: View) -> Raw | None:
    """Return the cluster object."""
    return _raw(view, (CLUSTER, ""))


def expand_names(view: View, kind: str, names: Sequence[str]) -> list[list[str] | None]:
    """Return [UUID, full name] for each full or short name or UUID, or None.

    Raises:
        OpPrereqError: a short name fits several objects, or there is no such kind.
    """
    table = table_of(kind)
    found: list[list[str] | None] = []
    for name in names:
        uuid = view.resolve(table, name)
        found.append(None if uuid is None else [uuid, view.name_of((table, uuid))])
    return found


def instance_context(view: View, key: str) -> dict[str, object]:
    """Return an instance and everything that it refers to.

    Raises:
        OpPrereqError: there is no such instance.
    """
    _, uuid = view.existing(INSTANCES, key)
    instance = view.instance(uuid)
    assert instance is not None
    disks = [disk for disk_uuid in instance.disks if (disk := view.disk(disk_uuid)) is not None]
    node_uuids = [instance.primary_node, *secondary_nodes(instance, disks)]
    nodes = [node for node_uuid in node_uuids if (node := view.node(node_uuid)) is not None]
    groups = dict.fromkeys(node.group for node in nodes)
    networks = dict.fromkeys(nic.network for nic in instance.nics if nic.network)
    return {
        "cluster": get_cluster(view),
        "instance": _raw(view, (INSTANCES, uuid)),
        "disks": [_raw(view, (DISKS, disk.uuid)) for disk in disks],
        "nodes": [_raw(view, (NODES, node.uuid)) for node in nodes],
        "groups": [_raw(view, (GROUPS, group)) for group in groups],
        "networks": [_raw(view, (NETWORKS, network)) for network in networks],
    }


def _node_instances(view: View, uuid: str) -> list[list[str]]:
    primary = {instance for _, instance in view.find(By.PRIMARY, uuid)}
    secondary = {
        instance
        for _, disk in view.find(By.DISK_NODE, uuid)
        for _, instance in view.find(By.DISK_OWNER, disk)
        if _is_mirrored(view, disk)
    }
    return [sorted(primary), sorted(secondary - primary)]


def _is_mirrored(view: View, uuid: str) -> bool:
    disk = view.disk(uuid)
    return disk is not None and len(disk.nodes) > 1


def node_instances(view: Base, keys: Sequence[str] | None) -> list[list[list[str]] | None]:
    """Return [primary instances, secondary instances] of nodes, as UUIDs."""
    uuids = list(view.tables[NODES]) if keys is None else [view.resolve(NODES, k) for k in keys]
    return [None if uuid is None else _node_instances(view, uuid) for uuid in uuids]


def group_members(view: Base, keys: Sequence[str] | None) -> list[list[list[str]] | None]:
    """Return [nodes, instances with their primary node among these] of groups, as UUIDs."""
    uuids = list(view.tables[GROUPS]) if keys is None else [view.resolve(GROUPS, k) for k in keys]
    found: list[list[list[str]] | None] = []
    for uuid in uuids:
        if uuid is None:
            found.append(None)
            continue
        nodes = [node for _, node in view.find(By.GROUP, uuid)]
        instances = [i for node in nodes for _, i in view.find(By.PRIMARY, node)]
        found.append([sorted(nodes), sorted(instances)])
    return found


def drbd_map(view: Base, reservations: Reservations) -> list[list[object]]:
    """Return the minors in use or reserved, per node: ``[node, [[minor, disk], ...]]``."""
    used: dict[str, dict[int, str]] = {node: {} for node in view.tables[NODES]}
    for uuid in view.tables[DISKS]:
        disk = view.disk(uuid)
        assert disk is not None
        match disk.dev_type, disk.logical_id:
            case "drbd", [str(node_a), str(node_b), _, int(minor_a), int(minor_b), _]:
                used.setdefault(node_a, {})[minor_a] = uuid
                used.setdefault(node_b, {})[minor_b] = uuid
    for node, minors in reservations.minors.items():
        used.setdefault(node, {}).update(minors)
    return [
        [node, [list(item) for item in sorted(minors.items())]] for node, minors in used.items()
    ]


def whole(pieces: Sequence[bytes]) -> Raw:
    """Return the whole configuration as one object."""
    return Raw(b"".join(pieces))


def lock_key(view: View, table: str, key: str) -> str | None:
    """Return what the lock of an object is called after: a name for instances, else the UUID."""
    uuid = view.resolve(table, key)
    if uuid is None or table != INSTANCES:
        return uuid
    return view.name_of((table, uuid))


def instance_of_disk(view: View, key: str) -> str | None:
    """Return the name of the instance that a disk is attached to, or None."""
    uuid = view.resolve(DISKS, key)
    owners = () if uuid is None else view.find(By.DISK_OWNER, uuid)
    return view.name_of(owners[0]) if owners else None


def snapshot_of(
    pieces: Sequence[bytes], locks: bytes, reservations: Mapping[str, bytes]
) -> dict[str, object]:
    """Return configuration, locks and reservations as of one instant."""
    return {
        "config": whole(pieces),
        "locks": Raw(locks),
        "reservations": {name: Raw(data) for name, data in reservations.items()},
    }
