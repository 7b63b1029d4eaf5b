"""The journal beside ``config.data``: changes that the file does not have yet.

A record is one line: a sign, the length of its text, a checksum, the text.  The text is a change as
JSON: the version that it starts from, the version that it makes, and the objects that it replaces.
A journal ends before the first line that is not whole, as a power cut or a full disk leaves it.

The sign tells whether the record is known to be on the disk.  Whoever only reads believes in those;
whoever takes over believes in all, as one that was acknowledged may still have the other sign.

The sign is set once all that lies before the end of the record is synced.  So a power cut leaves no
such sign at or behind a line that is not whole: there the journal was damaged later, and whoever is
about to change or to remove it must not take it for one that ends.

A version is a serial number and a time, so a journal that was left behind by others, who went on
from the file without it, does not fit that file and is not applied.

Source: ARCHITECTURE, invariants 4 and 8.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw

from ganeti.base.errors import ConfigurationError, ProtocolError
from ganeti.base.json import dumps, loads_as
from ganeti.config.config_data import TABLES, SplitConfig, join_config, split_config
from ganeti.config.index import CLUSTER, MAINTENANCE, ObjectId
from ganeti.config.overlay import Stored
from ganeti.protocol.node_rpc_values import ConfigVersion

WRITTEN: Final = b"-"
SYNCED: Final = b"+"
_HEAD_BYTES: Final = len("- 00000000 00000000 ")
_HEX: Final = 16
_GONE: Final = b"null"


class JournalDamaged(ConfigurationError):
    """A record that was on the disk cannot be read any more."""

    wire_name = "ConfigurationError"


class Change(msgspec.Struct, frozen=True):
    """One change; an object that is null is removed."""

    base: ConfigVersion
    version: ConfigVersion
    objects: Mapping[str, Mapping[str, Raw]]


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a journal, the newline included, and what it says."""

    line: bytes
    change: Change

    @property
    def is_synced(self) -> bool:
        """Whether it is known to be on the disk."""
        return self.line.startswith(SYNCED)


def record_of(
    base: ConfigVersion, version: ConfigVersion, changed: Mapping[ObjectId, Stored | None]
) -> Record:
    """Return the record of a change, not yet synced."""
    objects: dict[str, dict[str, Raw]] = {}
    for (table, uuid), stored in changed.items():
        objects.setdefault(table, {})[uuid] = Raw(_GONE if stored is None else stored.raw)
    change = Change(base, version, objects)
    text = dumps(change)
    return Record(b"%b %08x %08x %b\n" % (WRITTEN, len(text), zlib.crc32(text), text), change)


def records_in(data: bytes) -> list[Record]:
    """Return the records of a journal, up to the first that is not whole."""
    found: list[Record] = []
    start = 0
    while (record := _record_at(data, start)) is not None:
        found.append(record)
        start += len(record.line)
    return found


def intact_records(data: bytes, path: str) -> list[Record]:
    """Return the records of a journal that is about to be changed or removed.

    Args:
        path: its name, for people.

    Raises:
        JournalDamaged: it does not end behind them.
    """
    records = records_in(data)
    end = sum(len(record.line) for record in records)
    if data.startswith(SYNCED, end) or _has_synced_record(data, end):
        raise JournalDamaged(
            f"{path} is damaged at byte {end}: a change that was acknowledged cannot be read."
            " 'gnt-cluster master-failover' on a master candidate goes on with the newest copy. To"
            f" go on here without the changes from there on, keep a copy of {path}, then cut it:"
            f" truncate --size={end} {path}"
        )
    return records


def _has_synced_record(data: bytes, start: int) -> bool:
    """Tell whether a whole record that was synced begins anywhere behind a place."""
    while (start := data.find(SYNCED + b" ", start)) >= 0:
        if _record_at(data, start) is not None:
            return True
        start += 1
    return False


def _record_at(data: bytes, start: int) -> Record | None:
    head = data[start : start + _HEAD_BYTES].split(b" ")
    try:
        sign, length, checksum = head[0], int(head[1], _HEX), int(head[2], _HEX)
    except (IndexError, ValueError):
        return None
    text_start = start + _HEAD_BYTES
    text = data[text_start : text_start + length]
    end = text_start + length
    if sign not in (WRITTEN, SYNCED) or len(text) != length or data[end : end + 1] != b"\n":
        return None
    if zlib.crc32(text) != checksum:
        return None
    try:
        return Record(data[start : end + 1], loads_as(Change, text))
    except ProtocolError:
        return None


def version_of(split: SplitConfig) -> ConfigVersion:
    """Return the version of a configuration.

    Raises:
        ConfigurationError: its serial number or time is none.
    """
    try:
        serial_no = loads_as(int, bytes(split.top.get("serial_no", b"0")))
        return ConfigVersion(serial_no, loads_as(float, bytes(split.top.get("mtime", b"0"))))
    except ProtocolError as err:
        raise ConfigurationError(f"the configuration's serial number: {err.message}") from err


def after(version: ConfigVersion, records: Sequence[Record]) -> list[Record] | None:
    """Return the records that come after a version; None if they do not belong to it."""
    found: list[Record] | None = None
    for record in records:
        if found is None and record.change.version == version:
            found = []
        elif found is None and record.change.base == version:
            found = [record]
        elif found is not None:
            if record.change.base != (found[-1].change.version if found else version):
                break
            found.append(record)
    return found if records else []


def with_changes(split: SplitConfig, changes: Iterable[Change]) -> SplitConfig:
    """Return a configuration with changes made, which must be for it."""
    tables = dict(split.tables)
    top, cluster, copied = dict(split.top), split.cluster, set[str]()
    for change in changes:
        for name, objects in change.objects.items():
            for uuid, raw in objects.items():
                is_gone = bytes(raw) == _GONE
                if name == CLUSTER:
                    cluster = raw
                elif name == MAINTENANCE:
                    top.pop(MAINTENANCE, None)
                    top |= {} if is_gone else {MAINTENANCE: raw}
                elif name in TABLES:
                    if name not in copied:
                        copied.add(name)
                        tables[name] = dict(tables[name])
                    table = tables[name]
                    assert isinstance(table, dict)
                    if is_gone:
                        table.pop(uuid, None)
                    else:
                        table[uuid] = raw
        top["serial_no"] = Raw(dumps(change.version.serial_no))
        top["mtime"] = Raw(dumps(change.version.mtime))
    return SplitConfig(cluster=cluster, tables=tables, top=top, order=split.order)


def replay(data: bytes, records: Sequence[Record]) -> bytes | None:
    """Return the file with the changes of its journal; None if that is the journal of another.

    Raises:
        ConfigurationError: it is not a configuration.
    """
    split = split_config(data)
    later = after(version_of(split), records)
    if later is None:
        return None
    return join_config(with_changes(split, (each.change for each in later))) if later else data
