"""One cluster's configuration taken into that of another, and all that speaks against it.

What the other cluster has of its own (nodes, instances, disks, networks, node groups) is taken as
it is, but for the parts that belong to a cluster as a whole: no node is a candidate, and TCP ports
are given anew.  Settings of the cluster are those of this one; where the other differs, so that
its instances would change, it is a conflict.

Source: design-2.1, "Automated Ganeti Cluster Merger"; cli.json, "cluster-merge".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from msgspec import Raw

from ganeti.base.errors import ConfigurationError
from ganeti.base.json import dumps, loads_as
from ganeti.config.checks import FIRST_DRBD_PORT, LAST_DRBD_PORT, problems_of
from ganeti.config.config_data import SplitConfig, join_config, split_config
from ganeti.config.index import (
    CLUSTER,
    DISKS,
    FILTERS,
    GROUPS,
    INSTANCES,
    MAINTENANCE,
    NETWORKS,
    NODES,
    WHAT,
    By,
)
from ganeti.config.merging.differences import (
    Side,
    differences,
    differs,
    dropped,
    homing,
    identities,
    needs,
    same_names,
    versions,
)
from ganeti.config.overlay import Stored
from ganeti.config.state import ConfigState
from ganeti.objects.disk_templates import DiskTemplate
from ganeti.objects.model import AdminState, Disk, Instance, Node

_PORT: Final = 2  # its place in the logical id of a DRBD device
_UNTOUCHED: Final = (FILTERS, MAINTENANCE)
_OF_GROUPS: Final = ("ndparams", "diskparams", "ipolicy", "alloc_policy")


class Groups(StrEnum):
    """The treatment of node groups of one name."""

    MERGE = "merge"
    RENAME = "rename"


class Conflicts(StrEnum):
    """The treatment of settings that differ."""

    STRICT = "strict"
    WARN = "warn"


class Restart(StrEnum):
    """The instances of the other cluster that run afterwards."""

    ALL = "all"
    UP = "up"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The decisions of the administrator.

    Attributes:
        groups: None refuses names of groups that both clusters have.
        keeps_running: the instances of the other cluster run on, so their ports stay.
    """

    groups: Groups | None = None
    conflicts: Conflicts = Conflicts.STRICT
    restart: Restart = Restart.UP
    keeps_running: bool = False


@dataclass(slots=True)
class Merged:
    """The outcome.

    Attributes:
        config: the merged configuration; not to be used while there are problems.
        problems: all that forbids it, a sentence each.
        notes: what was decided, and what is lost.
        is_comparable: they are of one version, and of two clusters.
    """

    config: bytes = b""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_comparable: bool = False


def merge(own: bytes, other: bytes, wishes: Wishes, *, now: float) -> Merged:
    """Take another cluster's configuration into one's own.

    Raises:
        ConfigurationError: one of them is none.
    """
    found = Merged()
    found.problems += versions(own, other)
    if found.problems:
        return found
    here, there = Side.of(own), Side.of(other)
    found.problems += identities(here, there)
    if found.problems:  # the rest would be misleading
        return found
    found.is_comparable = True
    found.problems += same_names(here, there)
    found.problems += needs(here, there)
    found.problems += homing(here, there)
    conflicts = list(differences(here, there))
    target = _groups(here, there, wishes, found, conflicts)
    _settle(conflicts, wishes, found)
    found.notes += dropped(here, there)
    ports = _Ports(here, keeps=wishes.keeps_running)
    tables = {name: dict(table) for name, table in here.split.tables.items()}
    _take(here, there, tables, target, ports, wishes, now)
    found.problems += ports.problems
    if found.problems:
        return found
    found.config = _joined(here, tables, ports, now)
    found.problems += _new_problems(here, found.config)
    return found


def _settle(conflicts: Iterable[str], wishes: Wishes, found: Merged) -> None:
    if wishes.conflicts is Conflicts.WARN:
        found.notes += [f"{each}: that here counts" for each in conflicts]
    else:
        found.problems += [
            f"{each}; change one of them, or give --parameter-conflicts=warn, by which that here"
            " counts"
            for each in conflicts
        ]


def _groups(
    here: Side, there: Side, wishes: Wishes, found: Merged, conflicts: list[str]
) -> dict[str, tuple[str, str]]:
    """Return for each group there: the UUID of the group that its nodes come into, and its name."""
    mine = here.names(GROUPS)
    target: dict[str, tuple[str, str]] = {}
    for uuid, group in there.groups.items():
        same = mine.get(group.name)
        target[uuid] = (uuid, group.name)
        if same is None:
            continue
        if wishes.groups is Groups.MERGE:
            target[uuid] = (same, group.name)
            found.notes.append(f"the nodes of group {group.name} come into the one of that name")
            pair = (here.groups[same], group)
            for setting in _OF_GROUPS:
                values = [getattr(each, setting) for each in pair]
                conflicts += differs(f"group {group.name}: {setting}", *values)
        elif wishes.groups is Groups.RENAME:
            name = f"{group.name}-{there.cluster.cluster_name}"
            target[uuid] = (uuid, name)
            found.notes.append(f"group {group.name} there becomes group {name}")
            if name in mine or name in there.names(GROUPS):
                found.problems.append(f"there is a group {name} already")
        else:
            found.problems.append(
                f"both clusters have a node group {group.name}; --groups=merge makes them one,"
                " --groups=rename gives that there another name"
            )
    return target


class _Ports:
    """The TCP ports of this cluster, and those that come to it."""

    def __init__(self, here: Side, *, keeps: bool) -> None:
        self._view = here.view
        self.pool = sorted(here.cluster.tcpudp_port_pool)
        self.highest = max(here.cluster.highest_used_port, FIRST_DRBD_PORT - 1)
        self._keeps = keeps
        self._kept = set[int]()
        self.problems: list[str] = []

    def take(self, owner: str, port: int) -> int:
        """Return the port of a device that had another one."""
        return self._keep(owner, port) if self._keeps else self._next()

    def _keep(self, owner: str, port: int) -> int:
        users = self._view.find(By.PORT, port)
        if users or port in self._kept:
            self.problems.append(
                f"port {port} of {owner} is used here, too; it can be given another one only while"
                " it is stopped: leave --skip-stop-instances out"
            )
        self._kept.add(port)
        self._reach(port)
        self.pool = [each for each in self.pool if each != port]
        return port

    def _reach(self, port: int) -> None:
        """Make a port one of those that were given out; the others up to it are free ones now."""
        between = range(self.highest + 1, min(port, LAST_DRBD_PORT + 1))
        self.pool += [each for each in between if not self._view.find(By.PORT, each)]
        self.highest = max(self.highest, port)

    def _next(self) -> int:
        if self.pool:
            return self.pool.pop(0)
        self.highest += 1
        if self.highest == LAST_DRBD_PORT + 1:
            self.problems.append(f"there are not enough ports up to {LAST_DRBD_PORT}")
        return self.highest


def _take(
    here: Side,
    there: Side,
    tables: dict[str, dict[str, Raw]],
    target: Mapping[str, tuple[str, str]],
    ports: _Ports,
    wishes: Wishes,
    now: float,
) -> None:
    """Put the objects of the other cluster beside one's own."""

    def put(table: str, uuid: str, changes: Mapping[str, object]) -> None:
        stored = Stored(there.split.tables[table][uuid])
        if changes:
            count = loads_as(dict[str, Any], stored.raw).get("serial_no", 1) + 1
            stored = stored.with_changes({**changes, "serial_no": count, "mtime": now})
        tables[table][uuid] = Raw(stored.raw)

    for uuid, group in there.groups.items():
        into, name = target[uuid]
        if into == uuid:
            put(GROUPS, uuid, {} if name == group.name else {"name": name})
        elif group.networks:
            networks = {**group.networks, **here.groups[into].networks}
            stored = Stored(tables[GROUPS][into])
            tables[GROUPS][into] = Raw(stored.with_changes({"networks": networks}).raw)
    for uuid, node in there.records(NODES, Node).items():
        changes = {"master_candidate": False, "group": target[node.group][0]}
        differ = {key: value for key, value in changes.items() if getattr(node, key) != value}
        put(NODES, uuid, differ)
    for uuid in there.split.tables[NETWORKS]:
        put(NETWORKS, uuid, {})
    owners = {str(disk): each.name for each in there.instances.values() for disk in each.disks}
    for uuid, disk in there.disks.items():
        put(DISKS, uuid, _disk_changes(disk, owners.get(uuid, uuid), ports))
    for uuid, instance in there.instances.items():
        put(INSTANCES, uuid, _instance_changes(instance, ports, wishes))


def _disk_changes(disk: Disk, owner: str, ports: _Ports) -> dict[str, object]:
    """Give each mirrored device of a disk a port of this cluster."""
    changes: dict[str, object] = {}
    if disk.dev_type == DiskTemplate.DRBD and len(disk.logical_id) > _PORT:
        logical_id = list(disk.logical_id)
        if isinstance(port := logical_id[_PORT], int):
            logical_id[_PORT] = ports.take(f"a disk of instance {owner}", port)
            changes["logical_id"] = logical_id
    return changes if changes.get("logical_id") != disk.logical_id else {}


def _instance_changes(instance: Instance, ports: _Ports, wishes: Wishes) -> dict[str, object]:
    changes: dict[str, object] = {}
    if instance.network_port is not None:
        changes["network_port"] = ports.take(
            f"the console of instance {instance.name}", instance.network_port
        )
    is_to_stay_down = wishes.restart is Restart.NONE and not wishes.keeps_running
    if is_to_stay_down and instance.admin_state is AdminState.UP:
        changes |= {"admin_state": AdminState.DOWN, "disks_active": False}  # or the watcher starts
    return {name: value for name, value in changes.items() if getattr(instance, name) != value}


def _joined(
    here: Side, tables: Mapping[str, Mapping[str, Raw]], ports: _Ports, now: float
) -> bytes:
    split, cluster = here.split, Stored(here.split.cluster)
    changed = cluster.with_changes(
        {
            "tcpudp_port_pool": ports.pool,
            "highest_used_port": ports.highest,
            "serial_no": here.cluster.serial_no + 1,
            "mtime": now,
        }
    )
    top = {**split.top, **_next_serial(split, now)}
    return join_config(SplitConfig(Raw(changed.raw), tables, top, split.order))


def _next_serial(split: SplitConfig, now: float) -> dict[str, Raw]:
    serial_no = loads_as(int, bytes(split.top["serial_no"])) + 1
    return {"serial_no": Raw(dumps(serial_no)), "mtime": Raw(dumps(now))}


def is_merged(config: bytes, other: bytes) -> bool:
    """Tell whether the nodes of another cluster have come into a configuration."""
    mine, theirs = (split_config(each).tables[NODES] for each in (config, other))
    return any(uuid in mine for uuid in theirs)


def changes(merged: bytes, present: bytes, *, lost: Collection[str] = ()) -> Iterator[str]:
    """Yield what has changed since a merge in what it replaces, a few words each.

    Args:
        lost: names of nodes that do not count, as the merge itself sets them offline.
    """
    before, now = (ConfigState(each).durable for each in (merged, present))
    for identity in dict.fromkeys([*before.identities(), *now.identities()]):
        table, was, stands = identity[0], before.stored(identity), now.stored(identity)
        if table in _UNTOUCHED or _same(was, stands):
            continue
        name = (before if stands is None else now).name_of(identity)
        if table == NODES and name in lost:
            continue
        became = "is gone" if stands is None else "is new" if was is None else "has changed"
        yield f"{'the cluster' if table == CLUSTER else f'{WHAT[table]} {name}'} {became}"


def _same(one: Stored | None, other: Stored | None) -> bool:
    """Compare two records, but for the times when they were changed."""
    if one is None or other is None:
        return one is other
    if one.raw == other.raw:
        return True
    wire = [loads_as(dict[str, Any], each.raw) for each in (one, other)]
    return wire[0] | {"mtime": 0} == wire[1] | {"mtime": 0}


def restored(before: bytes, present: bytes, *, now: float) -> bytes:
    """Return the configuration before a merge, numbered above the present one, so that it counts.

    No merge touches job filters, and what maintenance knows: they are those of now.
    """
    old, new = split_config(before), split_config(present)
    tables = {**old.tables, FILTERS: new.tables[FILTERS]}
    top = {**new.top, **_next_serial(new, now)}
    return join_config(SplitConfig(old.cluster, tables, top, new.order))


def _new_problems(here: Side, config: bytes) -> list[str]:
    """Return the problems of a configuration that one's own did not have."""
    try:
        view = ConfigState(config).durable
    except ConfigurationError as err:
        return [err.message]
    old = {text for each in here.view.identities() for text in problems_of(here.view, each)}
    found = [text for each in view.identities() for text in problems_of(view, each)]
    return [text for text in dict.fromkeys(found) if text not in old]
