"""The configuration that WConfD keeps: the durable one, accepted changes, and its bytes.

The bytes of ``config.data`` are joined from kept pieces, and encoded where something changed.  Each
table is cut into chunks of some objects, and the joined bytes of a chunk are kept until one of its
objects changes.  So one change joins one chunk, and the whole file is a short list of pieces that
can be written without being copied once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import add
from typing import Final, TypeVar

from msgspec import Raw

from ganeti.base.errors import ConfigurationError, ProtocolError
from ganeti.base.json import dumps, loads_as
from ganeti.config.checks import cluster_problems, problems_of
from ganeti.config.config_data import TABLES, split_config
from ganeti.config.index import CLUSTER, MAINTENANCE, MAINTENANCE_ID, ObjectId
from ganeti.config.overlay import Run, Stored
from ganeti.config.transaction import Transaction
from ganeti.config.views import Base, Layer, View
from ganeti.protocol.node_rpc_values import ConfigVersion

T = TypeVar("T")


CHUNK_OBJECTS: Final = 64  # joining one costs 0.02 ms; a file of 40,000 objects has 625 pieces

_MOVED_BYTES_MIN: Final = 64  # shorter pieces are at many places

Lookup = Callable[[ObjectId], Stored | None]


class _Chunk:
    """Some objects of a table, each with the place that it keeps in the run of their texts."""

    __slots__ = ("places", "run", "used")

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.used = 0
        self.run: Run | None = None


class _Table:
    """The objects of one table in the order in which they are written."""

    def __init__(self, name: str, uuids: Iterable[str]) -> None:
        self.name = name
        self._chunks: list[_Chunk] = []
        self._chunk_of: dict[str, _Chunk] = {}
        for uuid in uuids:
            self._append(uuid)

    def _append(self, uuid: str) -> None:
        if not self._chunks or self._chunks[-1].used >= CHUNK_OBJECTS:
            self._chunks.append(_Chunk())
        chunk = self._chunks[-1]
        chunk.places[uuid] = chunk.used
        chunk.used += 1
        chunk.run = None
        self._chunk_of[uuid] = chunk

    def touch(self, uuid: str, *, exists: bool) -> None:
        """Note that an object was changed, added or removed."""
        chunk = self._chunk_of.get(uuid)
        if chunk is None:
            if exists:
                self._append(uuid)
            return
        chunk.run = None
        if not exists:
            del chunk.places[uuid]
            del self._chunk_of[uuid]
            if not chunk.places:
                self._chunks.remove(chunk)

    def pieces(self, lookup: Lookup) -> list[bytes]:
        """Return the pieces of the table, without its braces."""
        found: list[bytes] = []
        for chunk in self._chunks:
            if chunk.run is None:
                chunk.run = self._join(chunk, lookup)
            if found:
                found.append(b",")
            found.append(chunk.run.data)
        return found

    def _join(self, chunk: _Chunk, lookup: Lookup) -> Run:
        """Join objects; from now on their texts are parts of what is returned."""
        keys, objects, texts = [], [], []
        for uuid in chunk.places:
            stored = lookup((self.name, uuid))
            assert stored is not None, (self.name, uuid)
            keys.append(dumps(uuid) + b":")
            objects.append(stored)
            texts.append(stored.raw)
        joined = b",".join(map(add, keys, texts))
        ends = [0] * (2 * chunk.used)
        end = -1  # the comma that is not before the first
        for key, place, text in zip(keys, chunk.places.values(), texts, strict=True):
            start = end + 1 + len(key)
            end = start + len(text)
            ends[2 * place : 2 * place + 2] = start, end
        run = Run(joined, ends)
        for stored, place in zip(objects, chunk.places.values(), strict=True):
            stored.lies_in(run, place)
        return run


class ConfigEncoder:
    """Joins the configuration; `order` is the order of its keys in the file it came from."""

    def __init__(self, tables: Mapping[str, Iterable[str]], order: Iterable[str]) -> None:
        self._tables = {name: _Table(name, tables.get(name, ())) for name in TABLES}
        self._order = list(order)
        self._order += [name for name in (CLUSTER, *TABLES) if name not in self._order]

    def touch(self, identity: ObjectId, *, exists: bool) -> None:
        """Note that an object was changed, added or removed."""
        table, uuid = identity
        if table in self._tables:
            self._tables[table].touch(uuid, exists=exists)

    def pieces(self, lookup: Lookup, top: Mapping[str, bytes]) -> list[bytes]:
        """Return the whole file in pieces.

        Args:
            lookup: finds the objects; those not touched since the last call are not asked for.
            top: the encoded values of all other keys.
        """
        found: list[bytes] = []
        new = [key for key in top if key not in self._order]
        for key in (*self._order, *new):
            if key in self._tables:
                value = [b"{", *self._tables[key].pieces(lookup), b"}"]
            elif key == CLUSTER:
                cluster = lookup((CLUSTER, ""))
                assert cluster is not None
                value = [cluster.raw]
            elif key in top:
                value = [top[key]]
            else:
                continue
            found.append((b"," if found else b"{") + dumps(key) + b":")
            found.extend(value)
        found.append(b"}")
        return found


def parts_since(before: Sequence[bytes], now: Sequence[bytes]) -> list[tuple[int, int] | str]:
    """Return a version as offsets and lengths in the file of another one, and texts between them.

    Pieces that stayed are mostly the same objects in both, in the same order.
    """
    offsets = list(accumulate(map(len, before), initial=0))
    places = {id(piece): place for place, piece in enumerate(before)}
    parts: list[tuple[int, int] | list[bytes]] = []
    expected = 0
    for piece in now:
        if before[expected : expected + 1] != [piece]:
            found = places.get(id(piece)) if len(piece) >= _MOVED_BYTES_MIN else None
            if found is None:
                expected += 1  # most changes replace one piece by another
                if parts and isinstance(parts[-1], list):
                    parts[-1].append(piece)
                else:
                    parts.append([piece])
                continue
            expected = found
        last = parts[-1] if parts else None
        if isinstance(last, tuple) and sum(last) == offsets[expected]:
            parts[-1] = (last[0], last[1] + len(piece))
        else:
            parts.append((offsets[expected], len(piece)))
        expected += 1
    return [b"".join(part).decode() if isinstance(part, list) else part for part in parts]


@dataclass(frozen=True, slots=True)
class Flush:
    """The write to be made now: from which version to which, and the objects that changed."""

    pieces: list[bytes]
    base: ConfigVersion
    version: ConfigVersion
    changed: Mapping[ObjectId, Stored | None]

    @property
    def serial_no(self) -> int:
        """The serial number that it gives the configuration."""
        return self.version.serial_no


class ConfigState:
    """The configuration; see `ganeti.config.views` for how its layers work.

    Attributes:
        version: of the durable configuration.
        serial_floor: the next version to be written gets a serial number above this one.
    """

    def __init__(self, data: bytes) -> None:
        """Take the content of ``config.data``.

        Raises:
            ConfigurationError: it is not JSON (the text names the byte), or an object in it is
                not of the right shape (the text names the object).
        """
        split = split_config(data)
        self._base = Base(split.cluster, split.tables, split.top)
        self._encoder = ConfigEncoder(split.tables, split.order)
        self._flushing: Layer | None = None
        self._flush: Flush | None = None
        self._open = Layer(self._base)
        self.serial_floor = 0
        self.version = ConfigVersion(
            _top_value(int, split.top, "serial_no", 0), _top_value(float, split.top, "mtime", 0.0)
        )
        self._pieces = self._encoder.pieces(self._base.stored, self._top(self._base))

    @property
    def durable(self) -> Base:
        """The view of readers."""
        return self._base

    @property
    def head(self) -> View:
        """The view that the next change starts from."""
        return self._open

    @property
    def serial_no(self) -> int:
        """The serial number of the durable configuration."""
        return self.version.serial_no

    @property
    def mtime(self) -> float:
        """The time of the durable configuration."""
        return self.version.mtime

    @property
    def pieces(self) -> list[bytes]:
        """The bytes of the durable configuration."""
        return self._pieces

    @property
    def has_changes(self) -> bool:
        """True when something accepted is not being written yet."""
        return bool(self._open.objects)

    def begin(self, now: float) -> Transaction:
        """Begin a change; nothing else may be begun before it is accepted or dropped."""
        return Transaction(self._open, now)

    def accept(self, change: Transaction) -> None:
        """Take a change over."""
        self._open.take(change)

    def start_flush(self, now: float) -> Flush:
        """Freeze the changes accepted so far and return the write to be made."""
        assert self._flushing is None, "only one flush at a time"
        layer, self._flushing = self._open, self._open
        self._open = Layer(layer)
        for identity, stored in layer.objects.items():
            self._encoder.touch(identity, exists=stored is not None)
        serial_no = max(self.serial_no, self.serial_floor) + 1
        top = self._top(layer) | {"serial_no": dumps(serial_no), "mtime": dumps(now)}
        pieces = self._encoder.pieces(layer.stored, top)
        self._flush = Flush(pieces, self.version, ConfigVersion(serial_no, now), layer.objects)
        return self._flush

    def flush_done(self) -> None:
        """Note that the flush is durable: readers see it from now on."""
        assert self._flushing is not None
        assert self._flush is not None
        self._base.take(self._flushing)
        self._open.below = self._base
        self._flushing = None
        self._pieces = self._flush.pieces
        self.version = self._flush.version
        self._base.top["serial_no"] = Raw(dumps(self.version.serial_no))
        self._base.top["mtime"] = Raw(dumps(self.version.mtime))

    def flush_failed(self) -> None:
        """Drop the changes being written, and all that were accepted on top of them."""
        assert self._flushing is not None
        for identity in self._flushing.objects:
            exists = self._base.stored(identity) is not None
            self._encoder.touch(identity, exists=exists)
        self._flushing = None
        self._open = Layer(self._base)

    def _top(self, view: View) -> dict[str, bytes]:
        top = {key: bytes(value) for key, value in self._base.top.items()}
        maintenance = view.stored(MAINTENANCE_ID)
        return top if maintenance is None else {**top, MAINTENANCE: maintenance.raw}


def _top_value(kind: type[T], top: Mapping[str, Raw], key: str, default: T) -> T:
    if key not in top:
        return default
    try:
        return loads_as(kind, top[key])
    except ProtocolError as err:
        raise ConfigurationError(f"the configuration's {key}: {err.message}") from err


def problems_in(data: bytes) -> list[str]:
    """Return the problems of a configuration of the current version, a sentence each.

    Raises:
        ConfigurationError: it cannot be read at all; names the byte, or object and field.
    """
    view = ConfigState(data).durable
    found = cluster_problems(view, view.tables)
    for identity in view.identities():
        found += problems_of(view, identity)
    return found
