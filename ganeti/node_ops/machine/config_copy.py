"""The copy of the configuration on this node: never replaced by an older one.

The master sends the whole file, or the parts in which it differs from the one that this daemon
wrote or compared last; a file that somebody else has touched since is not patched, but sent as a
whole.  A master that keeps a journal sends its records first, and the file follows.

Source: ARCHITECTURE, invariants 4 and 8.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ganeti.base.errors import GenericError, ProtocolError
from ganeti.base.json import loads_as
from ganeti.base.paths import Paths
from ganeti.config.deltas import journal
from ganeti.config.deltas.journal import Record
from ganeti.protocol.node_rpc_values import ConfigPatch, ConfigVersion
from ganeti.store.config_file import (
    JournalFile,
    digest_of,
    only_writer,
    read_intact_journal,
    read_journal,
)
from ganeti.system import files
from ganeti.system.files import Piece

logger = logging.getLogger(__name__)


class _ClusterHead(msgspec.Struct, frozen=True):
    """The identity of a cluster."""

    uuid: str = ""


class ConfigHead(msgspec.Struct, frozen=True):
    """The age of a configuration; everything else is skipped when it is read."""

    serial_no: int
    cluster: _ClusterHead
    mtime: float = 0.0

    @property
    def version(self) -> ConfigVersion:
        """The version that a patch names as the one it is for."""
        return ConfigVersion(self.serial_no, self.mtime)


def refusal(present: ConfigHead | None, incoming: ConfigHead) -> str | None:
    """Decide whether one configuration may replace another; returns why not.

    The configuration of another cluster, left over on this node, has no say.
    """
    if present is None or present.cluster != incoming.cluster:
        return None
    if incoming.serial_no < present.serial_no:
        return (
            f"the configuration sent has serial number {incoming.serial_no}, older than"
            f" {present.serial_no} on this node; not replaced"
        )
    return None


Write = Callable[[Sequence[Piece]], None]
_Identity = tuple[str, int, int, int]  # of a file

_mutex: Final = threading.Lock()
_journals: Final[dict[str, JournalFile]] = {}
_heads: Final[dict[_Identity, ConfigHead]] = {}  # of the file looked at last
# Of the file that this process wrote, or compared, last.
_written: Final[dict[_Identity, ConfigHead]] = {}
_durable: Final[set[_Identity]] = set()  # the file that this process wrote, or synced, last


def replace(paths: Paths, content: bytes, write: Write) -> None:
    """Replace the copy by a whole file.

    Raises:
        GenericError: this node has a newer one.
        ProtocolError: it is no configuration.
        OSError: the old one stays.
    """
    with _mutex, only_writer(paths):
        head = loads_as(ConfigHead, content)
        _take(paths, _newest_head(paths, read_journal(paths)), head, lambda: write([content]))


def _take(
    paths: Paths, present: ConfigHead | None, incoming: ConfigHead, write: Callable[[], None]
) -> None:
    """Write a file that is not older; it has all that the journal has."""
    text = refusal(present, incoming)
    if text is not None:
        raise GenericError(text)
    write()
    files.remove_if_exists(paths.config_journal)
    _remember(paths.config_data, incoming)


def patch(paths: Paths, change: ConfigPatch, write: Write) -> bool:
    """Make the next version from the one here; returns whether that is the one it is for.

    Raises:
        GenericError: the next version would be older, or a part of it is not here.
        OSError: the old one stays.
    """
    with _mutex, only_writer(paths):
        head = _written.get(_identity(paths.config_data) or _NO_FILE)
        if head is None or head.version != change.base:
            return False
        incoming = ConfigHead(change.version.serial_no, head.cluster, change.version.mtime)
        old = memoryview(files.read_bytes(paths.config_data))
        pieces = _patched(old, change.parts)
        _take(paths, _newest_head(paths, read_journal(paths)), incoming, lambda: write(pieces))
        return True


def confirm(paths: Paths, version: ConfigVersion, digest: str) -> bool:
    """Tell whether the file here is this one, and durable; then it may be patched.

    Raises:
        FileNotFoundError: there is none.
    """
    path = paths.config_data
    with _mutex, only_writer(paths):
        identity, head = _identity(path), _present_head(path)
        if head is None or head.version != version or os.path.exists(paths.config_journal):
            return False
        _make_durable(paths)
        is_same = digest_of([files.read_bytes(path)]) == digest and _identity(path) == identity
        if is_same:
            _remember(path, head)
        return is_same


def append(paths: Paths, data: bytes) -> bool:
    """Add records to the journal; returns whether they go on from what is here.

    Raises:
        GenericError: they are none, or the journal here is damaged.
        OSError: they could not be written.
    """
    incoming = journal.records_in(data)
    if sum(len(record.line) for record in incoming) != len(data):
        raise GenericError("these are no records of a journal")
    with _mutex, only_writer(paths):
        records = read_intact_journal(paths)
        head = _newest_head(paths, records)
        later = None if head is None else journal.after(head.version, incoming)
        if later is None:
            return False
        _make_durable(paths)
        # An earlier daemon may have been killed before it synced what is there.
        if later or not all(record.is_synced for record in records):
            file = _journals.setdefault(paths.config_journal, JournalFile(paths))
            file.append([record.line for record in later])
        return True


def _make_durable(paths: Paths) -> None:
    """Sync the file here, once: whoever wrote it may have been killed before that."""
    identity = _identity(paths.config_data)
    if identity is None or identity in _durable:
        return
    with open(paths.config_data, "rb") as file:
        os.fsync(file.fileno())
    files.fsync_directory(paths.data_dir)
    _durable.clear()
    _durable.add(identity)


def _newest_head(paths: Paths, records: Sequence[Record]) -> ConfigHead | None:
    """Return the age of the configuration here, with its journal; None without one."""
    head = _present_head(paths.config_data)
    later = None if head is None else journal.after(head.version, records)
    if head is None or not later:
        return head
    newest = later[-1].change.version
    return ConfigHead(newest.serial_no, head.cluster, newest.mtime)


def _patched(old: memoryview, parts: Sequence[tuple[int, int] | str]) -> list[Piece]:
    pieces: list[Piece] = []
    for part in parts:
        if isinstance(part, str):
            pieces.append(part.encode())
            continue
        start, size = part
        if not 0 <= start <= start + size <= len(old):
            raise GenericError(f"there are no bytes {start} to {start + size} in the file here")
        pieces.append(old[start : start + size])
    return pieces


_NO_FILE: Final[_Identity] = ("", 0, 0, 0)


def _identity(path: str) -> _Identity | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return (path, status.st_ino, status.st_mtime_ns, status.st_size)


def _remember(path: str, head: ConfigHead) -> None:
    identity = _identity(path)
    for known in (_heads, _written):
        known.clear()
        if identity is not None:
            known[identity] = head
    _durable.clear()
    _durable.update(_written)


def _present_head(path: str) -> ConfigHead | None:
    """Return the age of the configuration on disk; None when there is no readable one."""
    identity = _identity(path)
    if identity is None:
        return None
    if identity not in _heads:
        try:
            head = loads_as(ConfigHead, files.read_bytes(path))
        except ProtocolError as err:
            logger.warning("%s is unreadable and will be replaced: %s", path, err.message)
            return None
        _heads.clear()
        _heads[identity] = head
    return _heads[identity]
