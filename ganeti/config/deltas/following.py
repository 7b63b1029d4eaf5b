"""One version of the configuration after the other, for those who read ``config.data``.

Theory of operation.  The file is written anew with each change, and most of it stays as it was.  A
reader remembers its text as *runs*: some objects of a table that stand one after the other.  In the
next file a run is looked for where its first object begins.  If it is there, letter by letter, one
short *mark* takes its place; what is left is a small configuration, which is split like any other,
and then the objects of the runs stand where their marks do.  So a change costs a comparison of
bytes, and the decoding of the runs that it touched.  A file that looks different (blanks between
objects, tables in another order) is only read more slowly.

Where a journal is kept, its records lie on top: the objects that they changed count as touched
until a file has them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import msgspec
from msgspec import Raw

from ganeti.base.errors import ConfigurationError
from ganeti.base.json import dumps
from ganeti.config.config_data import TABLES, SplitConfig, split_config
from ganeti.config.deltas.journal import Record, after, version_of, with_changes
from ganeti.config.tables import NO_TABLES, Tables

RUN_OBJECTS: Final = 64
_SHORT_OBJECTS: Final = RUN_OBJECTS // 2
_GAP_BYTES_MAX: Final = 1 << 20  # between two runs; what is further away is not looked for
_MARK: Final = "\x7frun "  # no UUID begins so

_members: Final = msgspec.json.Decoder(dict[str, Raw])


class _Run:
    """Objects of a table, as their text stands in the file."""

    __slots__ = ("_whole", "first", "objects")

    def __init__(self, objects: Mapping[str, Raw]) -> None:
        texts = [b"%b:%b" % (dumps(uuid), bytes(raw)) for uuid, raw in objects.items()]
        self._whole = b"{%b}" % b",".join(texts)
        self.objects = _members.decode(self._whole)  # they refer to this text, not to the file's
        self.first = dumps(next(iter(objects))) + b":"

    def end(self, data: bytes, start: int) -> int | None:
        """Return where the run ends if it stands there, else None."""
        end = start + len(self._whole) - 2
        is_there = data.startswith(memoryview(self._whole)[1:-1], start)
        return end if is_there and data[end : end + 1] in (b",", b"}") else None


Runs = Mapping[str, list[_Run]]  # of each table, in the order of the file


# A file, the objects that may differ from the version before, by table, and its runs.
_Found = tuple[SplitConfig, Mapping[str, Collection[str]] | None, Runs | None]


@dataclass(frozen=True, slots=True)
class _Version:
    """A version, the runs of its file, and the objects that its journal changed after that."""

    tables: Tables = NO_TABLES
    runs: Runs | None = None  # made when they are needed
    ahead: Mapping[str, frozenset[str]] = field(default_factory=dict)


class ConfigFollower:
    """Keeps the newest version as `tables`."""

    def __init__(self) -> None:
        self._newest = _Version()
        self._read = self._newest

    @property
    def tables(self) -> Tables:
        """The newest version."""
        return self._newest.tables

    def read(self, data: bytes | None, records: Sequence[Record] = ()) -> Tables | None:
        """Return the version that the file and its journal hold; it becomes the newest by `take`.

        Args:
            data: the content of the file; None if that is the one read last.

        Returns:
            None if the journal belongs to another file, which has to be read as well.

        Raises:
            ConfigurationError: as of `split_config`.
        """
        found: _Found | None = None
        if data is None:
            found = (self.tables.split, {}, self._newest.runs)
        elif self.tables is not NO_TABLES:
            found = self._read_by_runs(data)
        if found is None:
            assert data is not None
            found = (split_config(data), None, None)
        split, touched, runs = found
        later = after(version_of(split), records) if records else []
        if later is None and data is None:
            return None
        ahead: dict[str, frozenset[str]] = {} if data is not None else dict(self._newest.ahead)
        for record in later or ():
            for name, objects in record.change.objects.items():
                ahead[name] = ahead.get(name, frozenset()).union(objects)
        if later:
            split = with_changes(split, (record.change for record in later))
        if touched is not None:
            before = self._newest.ahead
            touched = {
                name: {*touched.get(name, ()), *ahead.get(name, ()), *before.get(name, ())}
                for name in TABLES
            }
        self._read = _Version(Tables(split, self.tables, touched), runs, ahead)
        return self._read.tables

    def take(self, tables: Tables) -> None:
        """Take over the version read last."""
        assert self._read.tables is tables
        self._newest = self._read

    def _read_by_runs(self, data: bytes) -> _Found | None:
        """Return a file that is like the last one, what may differ, and its runs; or None."""
        before, runs = self.tables.split, self._newest.runs
        is_first = runs is None
        if runs is None:
            runs = {name: list(_runs_of([before.tables[name]])) for name in _in_order(before)}
        marked, found = _with_marks(data, runs)
        try:
            split = split_config(marked)
        except ConfigurationError:
            return None  # read as a whole it gives the right place of the mistake
        parts = {name: list(_parts(split.tables[name], found)) for name in _in_order(split)}
        if sum(isinstance(part, _Run) for each in parts.values() for part in each) != len(found):
            return None
        read = {name: list(_runs_of(each)) for name, each in parts.items()}
        touched = {name: _touched(runs.get(name, []), read.get(name, [])) for name in TABLES}
        ahead = self._newest.ahead
        tables = {
            name: before.tables[name]
            if not (is_first or touched[name] or name in ahead)
            else {uuid: raw for run in read.get(name, []) for uuid, raw in run.objects.items()}
            for name in TABLES
        }
        split = SplitConfig(cluster=split.cluster, tables=tables, top=split.top, order=split.order)
        return split, touched, read


def _in_order(split: SplitConfig) -> Iterator[str]:
    """Return the names of the tables in the order in which they stand in the file."""
    return (name for name in split.order if name in TABLES)


def _with_marks(data: bytes, runs: Runs) -> tuple[bytes, Mapping[str, _Run]]:
    """Return a file with marks in the place of the runs that it has, and these by their marks."""
    pieces: list[bytes] = []
    found: dict[str, _Run] = {}
    taken_to = 0
    for run in (run for each in runs.values() for run in each):
        start = data.find(run.first, taken_to, taken_to + _GAP_BYTES_MAX)
        end = None if start < 0 else run.end(data, start)
        if end is not None:
            mark = f"{_MARK}{len(found)}"
            found[mark] = run
            pieces += [data[taken_to:start], dumps(mark), b":0"]
            taken_to = end
    return b"".join([*pieces, data[taken_to:]]), found


def _parts(table: Mapping[str, Raw], found: Mapping[str, _Run]) -> Iterator[_Run | dict[str, Raw]]:
    """Return runs, and what stands between them."""
    others: dict[str, Raw] = {}
    for uuid, raw in table.items():
        run = found.get(uuid)
        if run is None:
            others[uuid] = raw
            continue
        if others:
            yield others
            others = {}
        yield run
    if others:
        yield others


def _runs_of(parts: Iterable[_Run | Mapping[str, Raw]]) -> Iterator[_Run]:
    """Return the runs of a table; short ones become parts of others."""
    loose: dict[str, Raw] = {}
    for part in parts:
        if isinstance(part, _Run) and len(part.objects) >= _SHORT_OBJECTS:
            yield from _cut(loose)
            loose = {}
            yield part
        else:
            loose |= part.objects if isinstance(part, _Run) else part
    yield from _cut(loose)


def _cut(objects: Mapping[str, Raw]) -> Iterator[_Run]:
    uuids = iter(objects)
    while some := list(islice(uuids, RUN_OBJECTS)):
        yield _Run({uuid: objects[uuid] for uuid in some})


def _touched(before: Iterable[_Run], now: Iterable[_Run]) -> set[str]:
    """Return the UUIDs of all objects that are not in a run as before."""
    return {uuid for run in {*before}.symmetric_difference(now) for uuid in run.objects}
