"""The configuration as readers hold it: one raw value per object, decoded and indexed when asked.

`Tables` is one version of the configuration and never changes.  The next version takes over the
unchanged parts: decoded objects, the order of names, and the indexes, which follow by the changes
alone.  LuxiD, RConfD, jobs that answer queries and allocators look at this; WConfD, which changes
the configuration, has its own form of it (`ganeti.config.views`), with the same keys.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, Generic, TypeVar

from msgspec import Raw

from ganeti.base.errors import ConfigurationError
from ganeti.base.ids import DiskUuid, GroupUuid, InstanceUuid, NetworkUuid, NodeUuid
from ganeti.base.json import loads_as
from ganeti.base.text import meant_by, name_matches, natural_sort_key
from ganeti.config.config_data import TABLES, SplitConfig, split_config
from ganeti.config.index import (
    DISKS,
    FILTERS,
    GROUPS,
    INSTANCES,
    KEYS,
    MAINTENANCE,
    NETWORKS,
    NODES,
    TAKES_SHORT_NAMES,
    WHAT,
    By,
    Index,
    first_component,
)
from ganeti.config.overlay import decode_record
from ganeti.objects.model import Cluster, Disk, FilterRule, Instance, Network, Node, NodeGroup
from ganeti.objects.record import Record
from ganeti.protocol.maintenance.stored import Maintenance

K = TypeVar("K", bound=str)
R = TypeVar("R", bound=Record)
D = TypeVar("D")

_INSERTED_MAX: Final = 100  # above that, sorting all is no slower
_STEP: Final = 250  # objects: 1 to 2 ms
_NAMES_REMEMBERED_MAX: Final = 65_536  # more than the names of the largest cluster, some MB

NameKey = list[tuple[int, int, str]]

name_key = lru_cache(maxsize=_NAMES_REMEMBERED_MAX)(natural_sort_key)
"""Natural order of a name, remembered: lists are sorted again and again."""


class Table(Mapping[K, R], Generic[K, R]):
    """All objects of one kind by UUID.

    Attributes:
        raw: their texts.
        changed: the UUIDs of objects that are new, gone or different since the table before.
    """

    def __init__(
        self,
        name: str,
        kind: type[R],
        raw: Mapping[str, Raw],
        before: Table[K, R] | None = None,
        touched: Collection[str] | None = None,
    ) -> None:
        self._name = name
        self._kind = kind
        self.raw: Final = raw
        self.changed: frozenset[str] = frozenset(raw)
        self._decoded: dict[str, R] = {}
        self._indexes: dict[By, Index] = {}
        self._order: list[K] | None = None
        if before is not None and (before.raw or not raw):
            self._take_over(before, touched)

    def _take_over(self, before: Table[K, R], touched: Collection[str] | None) -> None:
        """Take over the unchanged objects; readers of the table before still see it as it was."""
        raw, old = self.raw, before.raw
        candidates = raw.keys() | old.keys() if touched is None else touched
        changed = {uuid for uuid in candidates if raw.get(uuid) != old.get(uuid)}
        self.changed = frozenset(changed)
        self._decoded = dict(before._decoded) if changed else before._decoded
        for uuid in changed:
            self._decoded.pop(uuid, None)
        indexes, before._indexes = before._indexes, {}
        for by, index in indexes.items():
            for uuid in changed:
                index.move(uuid, before.keys_of(by, uuid), self.keys_of(by, uuid))
        self._indexes = indexes
        if before._order is not None and len(changed) <= _INSERTED_MAX:
            moved = {uuid for uuid in changed if not self._has_same_name(before, uuid)}
            self._order = self._reordered(before._order, moved) if moved else before._order

    def _has_same_name(self, before: Table[K, R], uuid: str) -> bool:
        if uuid not in self.raw or uuid not in before.raw:
            return False
        return self.name_of(uuid) == before.name_of(uuid)

    def _reordered(self, order: Iterable[K], moved: Collection[str]) -> list[K]:
        """Return an order with some objects in their new places."""
        kept = [uuid for uuid in order if uuid not in moved]
        for uuid in self:
            if uuid in moved:
                insort(kept, uuid, key=self._sort_key)
        return kept

    def name_of(self, uuid: str) -> str:
        """Return the name of an object, its UUID if it has none."""
        return str(getattr(self.read(uuid), "name", None) or uuid)

    def _sort_key(self, uuid: str) -> NameKey:
        return name_key(self.name_of(uuid))

    @property
    def has_names(self) -> bool:
        """Whether objects of this kind have names."""
        return By.NAME in KEYS[self._name]

    # Objects.

    def read(self, uuid: str) -> R:
        """Return an object without keeping it: for a look at all of them."""
        found = self._decoded.get(uuid)
        return decode_record(self.raw[uuid], self._kind) if found is None else found

    def __getitem__(self, uuid: str) -> R:
        found = self._decoded.get(uuid)
        if found is None:
            found = self._decoded[uuid] = decode_record(self.raw[uuid], self._kind)
        return found

    def get(self, uuid: str, default: D = None) -> R | D:  # type: ignore[assignment]
        """Return the object, or the default; at a fraction of the cost of the inherited method."""
        found = self._decoded.get(uuid)
        if found is not None:
            return found
        return self[uuid] if uuid in self.raw else default

    def __iter__(self) -> Iterator[K]:
        return iter(self.raw)  # type: ignore[arg-type]  # UUIDs of this kind of object

    def __len__(self) -> int:
        return len(self.raw)

    def __contains__(self, uuid: object) -> bool:
        return uuid in self.raw

    def quick(self) -> Mapping[K, R]:
        """Return the objects in the mapping that is quickest to look them up in, in any order."""
        is_all = len(self._decoded) == len(self.raw)
        return self._decoded if is_all else self  # type: ignore[return-value]  # UUIDs went in

    def check(self) -> None:
        """Refuse objects that are new and wrong; none is kept.

        Raises:
            ConfigurationError: names the object and the field.
        """
        for uuid in self.changed & self.raw.keys():
            try:
                self.read(uuid)
            except ConfigurationError as err:
                raise ConfigurationError(f"{WHAT[self._name]} {uuid}: {err.message}") from err

    def decoded(self) -> Iterator[None]:
        """Decode the objects not decoded yet, in steps of some milliseconds.

        Raises:
            ConfigurationError: an object is not of its type.
        """
        if len(self._decoded) < len(self.raw):
            missing = [uuid for uuid in self.raw if uuid not in self._decoded]
            for number, uuid in enumerate(missing):
                self[uuid]
                if number % _STEP == _STEP - 1:
                    yield

    def prepared(self) -> Iterator[None]:
        """Build in such steps the tables that questions for some or all objects need."""
        yield from self.decoded()
        for by in KEYS[self._name].keys() & _PREPARED:
            if by not in self._indexes:
                yield from self._indexed(by)
        if self._order is None:
            for number, uuid in enumerate(self.raw):
                self._sort_key(uuid)  # is remembered
                if number % _STEP == _STEP - 1:
                    yield
            yield
            assert len(self.order) == len(self)

    # Keys and names.

    def keys_of(self, by: By, uuid: str) -> frozenset[Hashable]:
        """Return the keys of one kind of an object, none if it is not there."""
        if uuid not in self.raw:
            return frozenset()
        return frozenset(KEYS[self._name][by](self.read(uuid)))

    def _indexed(self, by: By) -> Iterator[None]:
        index, keys_of = Index(), KEYS[self._name][by]
        for number, uuid in enumerate(self.raw):
            index.add(uuid, dict.fromkeys(keys_of(self.read(uuid))))
            if number % _STEP == _STEP - 1:
                yield
        self._indexes[by] = index

    def find_all(self, by: By, key: Hashable) -> Sequence[K]:
        """Return the UUIDs of the objects that have a key."""
        index = self._indexes.get(by)
        if index is None:
            deque(self._indexed(by), maxlen=0)
            index = self._indexes[by]
        return index.of(key)  # type: ignore[return-value]  # UUIDs went in

    @property
    def order(self) -> Sequence[K]:
        """The UUIDs of all objects in natural order of their names."""
        if self._order is None:
            self._order = sorted(self, key=self._sort_key)
        return self._order

    def named(self, name: str) -> list[K]:
        """Return the UUIDs of all that have this full or short name."""
        near = self.find_all(By.SHORT_NAME, first_component(name))
        return [uuid for uuid in near if name_matches(name, self.name_of(uuid))]

    def find(self, key: str) -> K | None:
        """Return the UUID of the object meant by a UUID, a full name or, for some, a short one.

        Raises:
            OpPrereqError: the short name fits several (wrong_input).
        """
        if key in self.raw:
            return key  # type: ignore[return-value]  # it is one
        if By.SHORT_NAME not in KEYS[self._name]:
            return None
        near = {
            self.name_of(uuid): uuid for uuid in self.find_all(By.SHORT_NAME, first_component(key))
        }
        return meant_by(key, near) if self._name in TAKES_SHORT_NAMES else near.get(key)


# Kinds of keys that lists of queries need.
_PREPARED: Final = frozenset({By.SHORT_NAME, By.PRIMARY, By.DISK_OWNER})


class Tables:
    """One version of the configuration.

    Args:
        before: the version before.
        touched: all objects that may differ from that one, by table; without it all are compared.
    """

    def __init__(
        self,
        split: SplitConfig,
        before: Tables | None = None,
        touched: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self.split: Final = split
        old: Mapping[str, Table[Any, Any]] = {} if before is None else before.by_name
        touched = {} if touched is None else touched
        self.by_name: Final[Mapping[str, Table[Any, Any]]] = {
            name: Table(name, kind, split.tables[name], old.get(name), touched.get(name))
            for name, kind in TABLES.items()
        }
        self.nodes: Table[NodeUuid, Node] = self.by_name[NODES]
        self.groups: Table[GroupUuid, NodeGroup] = self.by_name[GROUPS]
        self.instances: Table[InstanceUuid, Instance] = self.by_name[INSTANCES]
        self.disks: Table[DiskUuid, Disk] = self.by_name[DISKS]
        self.networks: Table[NetworkUuid, Network] = self.by_name[NETWORKS]
        self.filters: Table[str, FilterRule] = self.by_name[FILTERS]
        self._by_secondary: Index | None = None
        if before is not None:
            self._take_over(before)

    def _take_over(self, before: Tables) -> None:
        if bytes(before.split.cluster) == bytes(self.split.cluster):
            self.cluster = before.cluster
        index, before._by_secondary = before._by_secondary, None
        if index is not None:
            for uuid in self.touched_instances:
                index.move(
                    uuid,
                    frozenset(before.secondary_nodes(uuid)),
                    frozenset(self.secondary_nodes(uuid)),
                )
        self._by_secondary = index

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster.

        Raises:
            ConfigurationError: it is not of its type.
        """
        return decode_record(self.split.cluster, Cluster)

    @cached_property
    def maintenance(self) -> Maintenance | None:
        """The state of the maintenance daemon; None while maintenance is off.

        Raises:
            ConfigurationError: it is not of its type.
        """
        raw = self.split.top.get(MAINTENANCE)
        return None if raw is None else decode_record(raw, Maintenance)

    @cached_property
    def serial_no(self) -> int:
        """Serial number of the configuration: of all that is in it, not of the cluster object."""
        return loads_as(int, bytes(self.split.top.get("serial_no", b"0")))

    @cached_property
    def touched_instances(self) -> frozenset[str]:
        """UUIDs of the instances that changed since the version before, or whose disks did."""
        owners = (
            uuid
            for disk in self.disks.changed
            for uuid in self.instances.find_all(By.DISK_OWNER, disk)
        )
        return self.instances.changed.union(owners)

    def disks_of(self, instance: Instance) -> list[Disk]:
        """Return the disks of an instance that are there, in order."""
        return [self.disks.read(uuid) for uuid in instance.disks if uuid in self.disks]

    def secondary_nodes(self, uuid: str) -> dict[str, None]:
        """Return the nodes that hold disks of an instance, without its primary node."""
        if uuid not in self.instances:
            return {}
        instance, nodes_of = self.instances.read(uuid), KEYS[DISKS][By.DISK_NODE]
        found = {str(node): None for disk in self.disks_of(instance) for node in nodes_of(disk)}
        found.pop(instance.primary_node, None)
        return found

    def primary_instances(self, node: str) -> Sequence[InstanceUuid]:
        """Return the UUIDs of the instances that have this primary node."""
        return self.instances.find_all(By.PRIMARY, node)

    def secondary_instances(self, node: str) -> Sequence[InstanceUuid]:
        """Return the UUIDs of the instances that have this secondary node."""
        if self._by_secondary is None:
            deque(self._indexed(), maxlen=0)
        assert self._by_secondary is not None
        return self._by_secondary.of(node)  # type: ignore[return-value]  # UUIDs went in

    def _indexed(self) -> Iterator[None]:
        index = Index()
        for number, uuid in enumerate(self.instances):
            index.add(uuid, self.secondary_nodes(uuid))
            if number % _STEP == _STEP - 1:
                yield
        self._by_secondary = index

    def group_nodes(self, group: str) -> Sequence[NodeUuid]:
        """Return the UUIDs of the nodes of a group."""
        return self.nodes.find_all(By.GROUP, group)

    def group_instances(self, group: str) -> list[InstanceUuid]:
        """Return the UUIDs of the instances whose primary node is in a group."""
        nodes = self.group_nodes(group)
        return [uuid for node in nodes for uuid in self.primary_instances(node)]

    def network_instances(self, network: str) -> Sequence[InstanceUuid]:
        """Return the UUIDs of the instances with a NIC in a network."""
        return self.instances.find_all(By.NETWORK, network)

    def prepared(self) -> Iterator[None]:
        """Build in small steps the tables that lists of queries need.

        Raises:
            ConfigurationError: an object is not of its type.
        """
        for table in (self.nodes, self.groups, self.networks, self.instances):
            yield from table.prepared()
        yield from self.disks.decoded()
        if self._by_secondary is None:
            yield from self._indexed()

    def check(self) -> None:
        """Refuse objects that are new and wrong.

        Raises:
            ConfigurationError: names the object and the field.
        """
        assert self.cluster is not None
        tables: tuple[Table[Any, Any], ...] = (self.nodes, self.instances, self.disks)
        for table in tables:
            table.check()


NO_TABLES: Final = Tables(split_config(b'{"cluster":{}}'))
"""No configuration, for queries that need none."""
