"""User ids for guests, each of its own: taken from the cluster's pool on this node.

An id is locked by a file of its name while it is looked at and until the guest runs under it; then
the lock goes and the file stays, as a hint that the id is most likely in use.  Whether it is, is
decided each time by the processes that there are.

Source: design-2.1, "User-id pool", "Locking".
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

from ganeti.base.errors import ErrorCode, OpPrereqError, ParameterError
from ganeti.base.paths import Paths
from ganeti.objects.uid_pool import UidRange, count, parse_uid_pool, uid_at
from ganeti.store import ssconf
from ganeti.system import clock
from ganeti.system.filelock import open_locked
from ganeti.system.files import ensure_directory, remove_if_exists

_DIRECTORY_MODE: Final = 0o750
_RANDOM_BYTES: Final = 8
_ENDED: Final = (b"State:\tZ", b"State:\tX")  # nothing but its exit status is left
_STATUS_BYTES: Final = 4096  # the line with the ids is among the first of /proc/PID/status


class LockedUid:
    """A user id that is locked for us."""

    def __init__(self, uid: int, path: str, descriptor: int) -> None:
        self.uid = uid
        self._path = path
        self._descriptor = descriptor

    def in_use(self) -> None:
        """Say that a process runs under the id now: it can be seen by others, so the lock goes."""
        os.close(self._descriptor)

    def release(self) -> None:
        """Say that nothing came of it."""
        remove_if_exists(self._path)
        os.close(self._descriptor)


def pool_of(paths: Paths) -> list[UidRange]:
    """Return the cluster's pool as this node knows it.

    Raises:
        OpPrereqError: it is empty or not to be read.
    """
    try:
        pool = parse_uid_pool(ssconf.read_key_or_none(paths, "uid_pool") or "", "\n")
    except ParameterError as err:
        raise OpPrereqError(f"the pool of user ids: {err.message}", ErrorCode.ENVIRON) from err
    if not pool:
        raise OpPrereqError(
            "the pool of user ids is empty; add some with 'gnt-cluster modify --add-uids'",
            ErrorCode.STATE,
        )
    return pool


def request_unused_uid(paths: Paths) -> LockedUid:
    """Lock an id that no process of this node has; the caller releases it.

    Raises:
        OpPrereqError: there is none.
    """
    pool = pool_of(paths)
    directory = paths.uid_pool_dir
    ensure_directory(directory, _DIRECTORY_MODE)
    in_use = uids_in_use()
    for uid in in_random_order(pool):
        if uid in in_use:
            continue
        path = os.path.join(directory, str(uid))
        descriptor = open_locked(path)
        if descriptor is None:
            continue
        if uid not in uids_in_use():  # looked at again now that no other process can take it
            return LockedUid(uid, path, descriptor)
        os.close(descriptor)
    raise OpPrereqError(
        f"all {count(pool)} user ids of the pool are in use on this node; add more with"
        " 'gnt-cluster modify --add-uids'",
        ErrorCode.NORES,
    )


def release_uid(paths: Paths, uid: int) -> None:
    """Return an id to the pool once its process has ended; one that is locked again stays so."""
    path = os.path.join(paths.uid_pool_dir, str(uid))
    if not os.path.exists(path):
        return
    descriptor = open_locked(path)
    if descriptor is None:
        return
    if uid not in uids_in_use():
        remove_if_exists(path)
    os.close(descriptor)


def in_random_order(pool: Sequence[UidRange]) -> Iterator[int]:
    """Yield every id of a pool, from a random place on, around its end."""
    total = count(pool)
    start = int.from_bytes(clock.random_bytes(_RANDOM_BYTES), "big") % total
    for index in range(total):
        yield uid_at(pool, (start + index) % total)


def uids_in_use() -> set[int]:
    """Return the real, effective, saved and file system user ids of all processes."""
    found: set[int] = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            found |= _uids_of(name)
    return found


def _uids_of(pid: str) -> set[int]:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            lines = file.read(_STATUS_BYTES).split(b"\n")
    except OSError:  # it has ended meanwhile
        return set()
    if any(line.startswith(_ENDED) for line in lines):
        return set()
    return {int(uid) for line in lines if line.startswith(b"Uid:") for uid in line.split()[1:]}
