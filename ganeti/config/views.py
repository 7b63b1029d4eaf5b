"""The configuration as something to look at and to change in layers.

Theory of operation.  The *base* is the durable configuration.  On top of it lie at most three
layers, each holding only differences to the layers below: the changes being written to disk now
(*flushing*), the changes accepted meanwhile (*open*), and the change being computed (a
`Transaction`).  Readers look at the base, so they never see a change that may yet fail; a change
looks at the top, so it never loses another one.  A change that is refused drops its layer; a write
that succeeds pours its layer into the base; a write that fails drops everything above the base.
None of this depends on how large the configuration is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

from msgspec import Raw

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.text import meant_by
from ganeti.config import index
from ganeti.config.overlay import Stored, decode_record
from ganeti.objects.model import Cluster, Disk, Instance, Network, Node, NodeGroup
from ganeti.objects.record import Record

R = TypeVar("R", bound=Record)
Ids = tuple[index.ObjectId, ...]

_MISSING: Final = object()


class View(ABC):
    """The configuration as of one instant."""

    @abstractmethod
    def stored(self, identity: index.ObjectId) -> Stored | None:
        """Return an object, or None."""

    @abstractmethod
    def find(self, what: index.By, key: object) -> Ids:
        """Return the objects that an index entry leads to."""

    def record(self, identity: index.ObjectId, kind: type[R]) -> R | None:
        """Return an object, decoded, or None."""
        stored = self.stored(identity)
        return None if stored is None else stored.decode(kind)

    @property
    def cluster(self) -> Cluster:
        """The cluster."""
        cluster = self.record(index.CLUSTER_ID, Cluster)
        assert cluster is not None
        return cluster

    def node(self, uuid: str) -> Node | None:
        """Return a node by UUID, or None."""
        return self.record((index.NODES, uuid), Node)

    def group(self, uuid: str) -> NodeGroup | None:
        """Return a node group by UUID, or None."""
        return self.record((index.GROUPS, uuid), NodeGroup)

    def instance(self, uuid: str) -> Instance | None:
        """Return an instance by UUID, or None."""
        return self.record((index.INSTANCES, uuid), Instance)

    def disk(self, uuid: str) -> Disk | None:
        """Return a disk by UUID, or None."""
        return self.record((index.DISKS, uuid), Disk)

    def network(self, uuid: str) -> Network | None:
        """Return a network by UUID, or None."""
        return self.record((index.NETWORKS, uuid), Network)

    def name_of(self, identity: index.ObjectId) -> str:
        """Return the name of an object for messages: its name, or its UUID if it has none."""
        record = self.record(identity, index.KINDS[identity[0]])
        return getattr(record, "name", None) or identity[1]

    def resolve(self, table: str, key: str) -> str | None:
        """Return the UUID of the object meant by a UUID, a full name or, for some, a short one.

        Raises:
            OpPrereqError: the short name fits several (wrong_input).
        """
        if self.stored((table, key)) is not None:
            return key
        found = self.find(index.By.NAME, (table, key))
        if not found:
            if table not in index.TAKES_SHORT_NAMES:
                return None
            short = key.lower() if table == index.DISKS else index.first_component(key)
            near = self.find(index.By.SHORT_NAME, (table, short))
            return meant_by(key, {self.name_of(identity): identity[1] for identity in near})
        return found[0][1]

    def existing(self, table: str, key: str) -> index.ObjectId:
        """Return the identity of the object meant by a UUID or name.

        Raises:
            OpPrereqError: there is none (unknown_entity) or several (wrong_input).
        """
        uuid = self.resolve(table, key)
        if uuid is None:
            raise OpPrereqError(f"{index.WHAT[table]} {key!r} not found", ErrorCode.NOENT)
        return (table, uuid)


class Base(View):
    """The durable configuration."""

    def __init__(
        self, cluster: Raw, tables: Mapping[str, Mapping[str, Raw]], top: Mapping[str, Raw]
    ) -> None:
        """Take the parts of a file; errors of `decode_record` name the object that is wrong."""
        self.top = {key: value.copy() for key, value in top.items()}  # apart from the file's text
        maintenance = self.top.pop(index.MAINTENANCE, None)
        self.tables: dict[str, dict[str, Stored]] = {
            index.CLUSTER: {"": Stored(bytes(cluster))},
            index.MAINTENANCE: {} if maintenance is None else {"": Stored(bytes(maintenance))},
        }
        for table, objects in tables.items():
            self.tables[table] = {uuid: Stored(raw) for uuid, raw in objects.items()}
        self._index = index.Indexes(self.tables)
        self._index.fill(self._decode)

    def _decode(self, identity: index.ObjectId) -> Record:
        table, uuid = identity
        return decode_record(self.tables[table][uuid].raw, index.KINDS[table])

    def stored(self, identity: index.ObjectId) -> Stored | None:
        """Return an object, or None."""
        return self.tables[identity[0]].get(identity[1])

    def find(self, what: index.By, key: object) -> Ids:
        """Return the objects that an index entry leads to."""
        return self._index.of(what, key)

    def names(self, table: str) -> dict[str, str]:
        """Return the names of all objects of a kind that has names, by UUID."""
        found = self._index.names(table)
        return {uuid: found.get(uuid, uuid) for uuid in self.tables[table]}

    def identities(self) -> Iterator[index.ObjectId]:
        """Iterate over all objects, the cluster first."""
        for table, objects in self.tables.items():
            for uuid in objects:
                yield (table, uuid)

    def take(self, layer: Layer) -> None:
        """Pour a layer in: it is durable now."""
        for (table, uuid), stored in layer.objects.items():
            if stored is None:
                self.tables[table].pop(uuid, None)
            else:
                self.tables[table][uuid] = stored
        for (by, key), ids in layer.index.items():
            self._index.put(by, key, ids)


class Layer(View):
    """Differences from the view below."""

    def __init__(self, below: View) -> None:
        self.below = below
        self.objects: dict[index.ObjectId, Stored | None] = {}
        self.index: dict[index.Key, Ids] = {}

    def stored(self, identity: index.ObjectId) -> Stored | None:
        """Return an object, or None."""
        if identity in self.objects:
            return self.objects[identity]
        return self.below.stored(identity)

    def find(self, what: index.By, key: object) -> Ids:
        """Return the objects that an index entry leads to."""
        ids = self.index.get((what, key))
        return self.below.find(what, key) if ids is None else ids

    def put(self, identity: index.ObjectId, stored: Stored | None) -> None:
        """Store an object, or remove it with None, and keep the index right.

        Raises:
            ConfigurationError: the object is not of the right shape; nothing was changed.
        """
        kind = index.KINDS[identity[0]]
        old = self.record(identity, kind)
        new = None if stored is None else stored.decode(kind)
        before = frozenset() if old is None else index.entries_of(identity, old)
        after = frozenset() if new is None else index.entries_of(identity, new)
        self.objects[identity] = stored
        for what, key in before - after:
            self.index[what, key] = tuple(i for i in self.find(what, key) if i != identity)
        for what, key in after - before:
            self.index[what, key] = (*self.find(what, key), identity)

    def take(self, layer: Layer) -> None:
        """Pour another layer, which lies on this one, in."""
        assert layer.below is self
        self.objects.update(layer.objects)
        self.index.update(layer.index)
