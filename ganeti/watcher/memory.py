"""The files in which the watcher remembers, and the states of instances that others read.

A file that cannot be understood counts as missing: then tries are counted from the beginning, and
nodes taken for booted, as after an administrator has removed it.

Source: config.json, "well_known_paths" (WATCHER_GROUP_STATE_FILE, INSTANCE_STATUS_FILE).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.base.text import natural_sorted
from ganeti.store import ssconf
from ganeti.system import files
from ganeti.system.filelock import FileLock

logger = logging.getLogger(__name__)

MemoryT = TypeVar("MemoryT", bound=msgspec.Struct)

_BYTES_MAX: Final = 64 << 20
_MODE: Final = 0o640
_STATUS_MODE: Final = 0o644
_MERGE_TIMEOUT_S: Final = 10.0


def read(path: str, kind: type[MemoryT]) -> MemoryT:
    """Return what a file holds; nothing where it is missing, empty or broken.

    Raises:
        OSError: it cannot be read.
    """
    try:
        data = files.read_regular(path, _BYTES_MAX)
        return msgspec.json.decode(data, type=kind) if data else kind()
    except (GenericError, msgspec.MsgspecError, UnicodeDecodeError) as err:
        logger.warning("%s cannot be understood: %s; beginning anew", path, err)
        return kind()


def write(path: str, memory: msgspec.Struct) -> None:
    """Replace a file; raises OSError, and the old content stays."""
    files.write_durable(path, msgspec.json.encode(memory), _MODE)


def write_status(paths: Paths, group_uuid: str, states: Mapping[str, str]) -> None:
    """Tell others the states of the instances of a group, and of all groups in one file.

    Raises:
        OSError: a file cannot be written.
        LockError: another run merges them all the time.
    """
    lines = [f"{name} {states[name]}\n" for name in natural_sorted(states)]
    files.write_atomic(paths.watcher_status(group_uuid), "".join(lines).encode(), _STATUS_MODE)
    lock = FileLock(paths.watcher_group_lock("status"))
    lock.acquire(timeout_s=_MERGE_TIMEOUT_S)
    with lock:
        merged = "".join(f"{name} {state}\n" for name, state in _all_states(paths))
        files.write_atomic(paths.instance_status, merged.encode(), _STATUS_MODE)


def _all_states(paths: Paths) -> Iterable[tuple[str, str]]:
    """Return the state of each instance; of one that changed groups, that of the newest file."""
    groups = ssconf.parse_map("nodegroups", ssconf.read_key_or_none(paths, "nodegroups") or "", " ")
    present = [path for path in map(paths.watcher_status, groups) if os.path.exists(path)]
    found: dict[str, str] = {}
    for path in sorted(present, key=lambda each: os.stat(each).st_mtime_ns):
        lines = files.read_bytes(path, _BYTES_MAX).decode("utf-8", "replace").splitlines()
        found |= dict(line.split(" ", 1) for line in lines if " " in line)
    return ((name, found[name]) for name in natural_sorted(found))
