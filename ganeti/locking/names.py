"""Lock names: levels, the one linear order, and which lock stands for a whole group of others.

A name is ``<level>/<key>``.  ``<level>/[lockset]`` is a *group lock*: holding it is like holding
every lock of its level.  Locks are ordered by level, then the group lock, then by plain text.
``cluster/config`` comes last and belongs to no group.

Source: wconfd.json, "locks" and "lock_request".
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ganeti.base.errors import LockError
from ganeti.protocol.wconfd import LockMode

LOCKSET: Final = "[lockset]"
BGL: Final = "cluster/BGL"
CONFIG_LOCK: Final = "cluster/config"
NODE_RES: Final = "node-res"
LEVELS: Final = ("cluster", "instance", "nodegroup", "node", NODE_RES, "network", "config")
NAME_BYTES_MAX: Final = 512  # the longest real name is an instance's: a host name, 253 bytes

OrderKey = tuple[int, int, str]
Request = tuple[tuple[str, LockMode], ...]

_LEVEL_NUMBER: Final = {level: number for number, level in enumerate(LEVELS)}
_CLUSTER_LOCKS: Final = frozenset({f"cluster/{LOCKSET}", BGL, CONFIG_LOCK})


@lru_cache(maxsize=65536)
def order_key(name: str) -> OrderKey:
    """Return the key by which locks are sorted.

    Raises:
        LockError: there is no lock of that name.
    """
    level, slash, key = name.partition("/")
    number = _LEVEL_NUMBER.get(level)
    if number is None or not slash or not key or level == "config":
        raise LockError(f"there is no lock {name!r:.600}; locks are called <level>/<name>")
    if number == 0 and name not in _CLUSTER_LOCKS:
        raise LockError(f"there is no lock {name!r:.600} at level 'cluster'")
    if len(name) > NAME_BYTES_MAX:
        raise LockError(f"lock name {name[:40]!r}... is longer than {NAME_BYTES_MAX} bytes")
    if name == CONFIG_LOCK:
        return (_LEVEL_NUMBER["config"], 1, name)
    return (number, 0 if key == LOCKSET else 1, name)


@lru_cache(maxsize=65536)
def group_of(name: str) -> str | None:
    """Return the group lock that a lock belongs to; None for group locks themselves."""
    if name == CONFIG_LOCK or name.endswith("/" + LOCKSET):
        return None
    return name.partition("/")[0] + "/" + LOCKSET


def is_group(name: str) -> bool:
    """Tell whether a lock stands for all locks of its level."""
    return name.endswith("/" + LOCKSET)


def level_of(name: str) -> str:
    """Return the level of a lock."""
    return LEVELS[order_key(name)[0]]


def check_level(level: str) -> str:
    """Return the level.

    Raises:
        LockError: there is no such level.
    """
    if level not in _LEVEL_NUMBER:
        raise LockError(f"there is no lock level {level!r:.100}; levels are {', '.join(LEVELS)}")
    return level


def in_order(names: Iterable[str]) -> list[str]:
    """Sort locks in the linear order."""
    return sorted(names, key=order_key)


def parse_request(value: object) -> Request:
    """Decode ``[[lock name, "exclusive" | "shared" | "release"], ...]``.

    Raises:
        LockError: wrong shape, unknown lock, or a lock named twice.
    """
    if not isinstance(value, list):
        raise LockError(f"a lock request is a list of [lock, mode], not {value!r:.100}")
    wanted: dict[str, LockMode] = {}
    for item in value:
        match item:
            case [str(name), "shared" | "exclusive" | "release" as mode]:
                order_key(name)
                if name in wanted:
                    raise LockError(f"lock {name!r} is named twice in one request")
                wanted[name] = LockMode(mode)
            case _:
                raise LockError(f"a lock request is a list of [lock, mode], not of {item!r:.100}")
    return tuple(wanted.items())
