"""The objects of the configuration by UUID and by name, and what is known about all of them.

Tables are made anew for each version of the file; what stayed the same is taken over from the
table before: decoded objects, names, the order of names, and encoded rows of answers.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final, Generic, TypeVar

from msgspec import Raw

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.objects.overlay import decode_record
from ganeti.objects.query_words import QueryResource
from ganeti.objects.record import Record
from ganeti.query.context import NameKey, name_key
from ganeti.query.names import NameIndex

K = TypeVar("K", bound=str)
R = TypeVar("R", bound=Record)
D = TypeVar("D")

# Different lists whose rows are kept: those of the commands, of RAPI and of a few programs.
LISTS_KEPT_MAX: Final = 4
_INSERTED_MAX: Final = 100  # above that, sorting all is no slower
_STEP: Final = 250  # objects: 1 to 2 ms

RowsByFields = dict[tuple[str, ...], dict[str, Raw]]


class Table(Mapping[K, R], Generic[K, R]):
    """All objects of one kind by UUID, each decoded when first asked for.

    Attributes:
        changed: the UUIDs of what is new, gone or different since the table before.

    Args:
        before: the table as it was: what did not change is taken over from it.
    """

    def __init__(
        self, kind: type[R], raw: Mapping[str, Raw], before: Table[K, R] | None = None
    ) -> None:
        self._kind = kind
        self._raw = raw
        self._decoded: dict[str, R] = {}
        self._names: NameIndex | None = None
        self._order: list[K] | None = None
        self.changed: frozenset[str] = frozenset(raw)
        if before is not None:
            before.hand_over(self)

    def hand_over(self, after: Table[K, R]) -> None:
        """Give a newer table what is the same there.

        Whoever still reads this one goes on to see it as it was.
        """
        raw = after._raw
        changed = {uuid for uuid, text in self._raw.items() if raw.get(uuid) != text}
        after.changed = frozenset(changed | (raw.keys() - self._raw.keys()))
        decoded = dict(self._decoded)
        for uuid in changed:
            decoded.pop(uuid, None)
        after._decoded = decoded
        names, self._names = self._names, None
        if names is not None:
            for uuid in changed:
                names.remove(uuid, self._name_of(uuid))
            for uuid in after.changed & raw.keys():
                names.add(uuid, after._name_of(uuid))
        after._names = names
        if self._order is not None and len(after.changed) <= _INSERTED_MAX:
            after._order = after._reordered(self._order)

    def _reordered(self, order: Iterable[K]) -> list[K]:
        """Return an order with what changed in its new places."""
        kept = [uuid for uuid in order if uuid not in self.changed]
        for uuid in self:
            if uuid in self.changed:
                insort(kept, uuid, key=self._sort_key)
        return kept

    def _name_of(self, uuid: str) -> str:
        return str(getattr(self[uuid], "name", uuid))

    def _sort_key(self, uuid: str) -> NameKey:
        return name_key(self._name_of(uuid))

    def __getitem__(self, uuid: str) -> R:
        found = self._decoded.get(uuid)
        if found is None:
            found = decode_record(self._raw[uuid], self._kind)
            self._decoded[uuid] = found
        return found

    def get(self, uuid: str, default: D = None) -> R | D:  # type: ignore[assignment]
        """Return the object, or the default; a fraction of what the inherited one costs."""
        found = self._decoded.get(uuid)
        if found is not None:
            return found
        return self[uuid] if uuid in self._raw else default

    def quick(self) -> Mapping[K, R]:
        """Return the objects in what is quickest to look them up in, in any order."""
        is_all = len(self._decoded) == len(self._raw)
        return self._decoded if is_all else self  # type: ignore[return-value]  # UUIDs went in

    def decoded(self) -> Iterator[None]:
        """Decode what is not decoded yet, in steps of some milliseconds.

        Raises:
            ConfigurationError: an object is not what it should be.
        """
        if len(self._decoded) < len(self._raw):
            for number, uuid in enumerate(self._raw):
                self[uuid]
                if number % _STEP == _STEP - 1:
                    yield

    def prepared(self) -> Iterator[None]:
        """Find out in such steps what questions for some or all objects need."""
        yield from self.decoded()
        if self._names is None:
            names = NameIndex()
            for number, uuid in enumerate(self._raw):
                name = self._name_of(uuid)
                names.add(uuid, name)
                name_key(name)  # is remembered
                if number % _STEP == _STEP - 1:
                    yield
            self._names = names
        if self._order is None:
            yield
            assert len(self.order) == len(self)

    def __iter__(self) -> Iterator[K]:
        return iter(self._raw)  # type: ignore[arg-type]  # UUIDs of this kind of object

    def __len__(self) -> int:
        return len(self._raw)

    def __contains__(self, uuid: object) -> bool:
        return uuid in self._raw

    @property
    def order(self) -> Sequence[K]:
        """The UUIDs of all objects in natural order of their names."""
        if self._order is None:
            self._order = sorted(self, key=self._sort_key)
        return self._order

    def matching(self, name: str) -> Sequence[K]:
        """Return the UUIDs of all that have this full or short name."""
        if self._names is None:
            self._names = NameIndex((uuid, self._name_of(uuid)) for uuid in self._raw)
        return self._names.matching(name)  # type: ignore[return-value]  # UUIDs went in

    def find(self, key: str) -> R | None:
        """Return the object of that UUID, name or short name; None if there is none.

        Raises:
            OpPrereqError: the short name fits several.
        """
        if key in self._raw:
            return self[key]
        matching = self.matching(key)
        exact = [uuid for uuid in matching if self._name_of(uuid) == key]
        if len(exact or matching) > 1:
            names = ", ".join(sorted(map(self._name_of, matching)))
            raise OpPrereqError(f"the name {key!r} is ambiguous: {names}", ErrorCode.INVAL)
        return self[(exact or matching)[0]] if matching else None


class RowCache:
    """Encoded rows about instances, by fields and UUID; of the few lists asked for last."""

    def __init__(self, rows: RowsByFields | None = None) -> None:
        self._rows: RowsByFields = rows or {}

    @property
    def lists(self) -> tuple[tuple[str, ...], ...]:
        """The fields of the lists asked for last, the last one last."""
        return tuple(self._rows)

    def emptied(self) -> RowCache:
        """Return the same lists without any rows."""
        return RowCache({fields: {} for fields in self._rows})

    def of(self, fields: tuple[str, ...]) -> MutableMapping[str, Raw]:
        """Return the rows of these fields that are known, for more to be added."""
        found = self._rows.pop(fields, None)
        if found is None:
            found = {}
            while len(self._rows) >= LISTS_KEPT_MAX:
                del self._rows[next(iter(self._rows))]
        self._rows[fields] = found  # asked for last
        return found

    def without(self, uuids: Iterable[str]) -> RowCache:
        """Return the rows of all other instances."""
        gone = list(uuids)
        kept = {fields: dict(rows) for fields, rows in self._rows.items()}
        for rows in kept.values():
            for uuid in gone:
                rows.pop(uuid, None)
        return RowCache(kept)


class ConfigIndex:
    """What is known about one version of the configuration; see `ganeti.query.view.Index`."""

    def __init__(self, tables: Mapping[QueryResource, Table[str, Record]], rows: RowCache) -> None:
        self._tables = tables
        self.row_cache = rows
        self.made: MutableMapping[str, Any] = {}

    def matching(self, resource: QueryResource, name: str) -> Sequence[str]:
        """Return the UUIDs of the things of one kind that have this full or short name."""
        return self._tables[resource].matching(name)

    def ordered(self, resource: QueryResource) -> Sequence[str] | None:
        """Return the UUIDs of all things of one kind by name; None where they have none."""
        return None if resource is QueryResource.FILTER else self._tables[resource].order

    def rows(
        self, resource: QueryResource, fields: tuple[str, ...]
    ) -> MutableMapping[str, Raw] | None:
        """Return the known rows; of other things than instances there are few."""
        return self.row_cache.of(fields) if resource is QueryResource.INSTANCE else None
