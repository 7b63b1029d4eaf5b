"""The copy of the configuration on this node: never replaced by an older one.

The master sends the whole file, or the parts in which it differs from the one that this daemon
wrote last; a file that somebody else has touched since is not patched, but sent as a whole.

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
from ganeti.protocol.node_rpc_values import ConfigPatch, ConfigVersion
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
_heads: Final[dict[_Identity, ConfigHead]] = {}  # of the file looked at last
_written: Final[dict[_Identity, ConfigHead]] = {}  # of the file that this process wrote last


def replace(path: str, content: bytes, write: Write) -> None:
    """Replace the copy by a whole file.

    Raises:
        GenericError: this node has a newer one.
        ProtocolError: it is no configuration.
        OSError: the old one stays.
    """
    with _mutex:
        head = loads_as(ConfigHead, content)
        text = refusal(_present_head(path), head)
        if text is not None:
            raise GenericError(text)
        write([content])
        _remember(path, head)


def patch(path: str, change: ConfigPatch, write: Write) -> bool:
    """Make the next version from the one here; returns whether that is the one it is for.

    Raises:
        GenericError: the next version would be older, or a part of it is not here.
        OSError: the old one stays.
    """
    with _mutex:
        head = _written.get(_identity(path) or _NO_FILE)
        if head is None or head.version != change.base:
            return False
        incoming = ConfigHead(change.version.serial_no, head.cluster, change.version.mtime)
        text = refusal(head, incoming)
        if text is not None:
            raise GenericError(text)
        write(_patched(memoryview(files.read_bytes(path)), change.parts))
        _remember(path, incoming)
        return True


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
