"""The words of the allocator interface.

Source: constants.json, "iallocator" and "node_roles".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final


class IAllocatorMode(StrEnum):
    """The kinds of request to an allocator; ``balance`` and ``capacity`` are not in 3.0."""

    ALLOCATE = "allocate"
    ALLOCATE_SECONDARY = "allocate-secondary"
    BALANCE = "balance"
    CAPACITY = "capacity"
    CHANGE_GROUP = "change-group"
    MULTI_ALLOCATE = "multi-allocate"
    NODE_EVACUATE = "node-evacuate"
    RELOCATE = "relocate"


EVERY_KIND: Final = "default"
"""In lists of default allocators: the kinds of requests that have no list of their own."""


def default_allocators(
    first: str, lists: Mapping[str, Sequence[str]], mode: IAllocatorMode
) -> Sequence[str]:
    """Return the allocators that are tried one after the other, where none is named.

    Args:
        first: the default allocator as 3.0 knows it; "" for none.
        lists: by kind of request.  That of `EVERY_KIND` begins with ``first``, or is out of date.
    """
    general = lists.get(EVERY_KIND, ())
    if not general or general[0] != first:
        general = [first] if first else []
    return lists.get(mode.value, general)


class IAllocatorDirection(StrEnum):
    """Whether a test shows the request or sends it."""

    IN = "in"
    OUT = "out"


class EvacMode(StrEnum):
    """Which instances leave a node."""

    ALL = "all"
    PRIMARY_ONLY = "primary-only"
    SECONDARY_ONLY = "secondary-only"
