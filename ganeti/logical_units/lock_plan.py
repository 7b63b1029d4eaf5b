"""Which locks an opcode needs, as plain values.

A need maps lock names to modes.  Names are ``<level>/<key>``; the key is a name for instances and
a UUID for everything else; ``<level>/[lockset]`` stands for all locks of a level at once.

Source: wconfd.json, "locks".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from ganeti.locking.names import LOCKSET, group_of, in_order
from ganeti.protocol.wconfd import LockMode


class LockLevel(StrEnum):
    """The levels that logical units lock at, in the order in which locks are taken."""

    CLUSTER = "cluster"
    INSTANCE = "instance"
    NODEGROUP = "nodegroup"
    NODE = "node"
    NODE_RES = "node-res"
    NETWORK = "network"


LockNeed = Mapping[str, LockMode]


def lock_name(level: LockLevel, key: str) -> str:
    """Return the name of one lock."""
    return f"{level.value}/{key}"


def shared(level: LockLevel, keys: Iterable[str]) -> dict[str, LockMode]:
    """Need these locks of a level, shared."""
    return {lock_name(level, key): LockMode.SHARED for key in keys}


def exclusive(level: LockLevel, keys: Iterable[str]) -> dict[str, LockMode]:
    """Need these locks of a level, exclusively."""
    return {lock_name(level, key): LockMode.EXCLUSIVE for key in keys}


def all_shared(level: LockLevel) -> dict[str, LockMode]:
    """Need every lock of a level, shared."""
    return shared(level, [LOCKSET])


def all_exclusive(level: LockLevel) -> dict[str, LockMode]:
    """Need every lock of a level, exclusively."""
    return exclusive(level, [LOCKSET])


def union(*needs: LockNeed) -> dict[str, LockMode]:
    """Join needs; where two name the same lock, the stronger mode wins."""
    joined: dict[str, LockMode] = {}
    for need in needs:
        for name, mode in need.items():
            if joined.get(name) is not LockMode.EXCLUSIVE:
                joined[name] = mode
    return joined


def covers(held: LockNeed, needed: LockNeed) -> bool:
    """Tell whether holding one set of locks is enough for a need."""
    return all(_is_held(held, name, mode) for name, mode in needed.items())


def _is_held(held: LockNeed, name: str, mode: LockMode) -> bool:
    modes = {held.get(name), held.get(group_of(name) or name)}
    return LockMode.EXCLUSIVE in modes or (mode is LockMode.SHARED and LockMode.SHARED in modes)


def to_request(need: LockNeed) -> list[tuple[str, str]]:
    """Write a need as the request that WConfD takes, in the order of the locks."""
    return [(name, need[name].value) for name in in_order(need)]
