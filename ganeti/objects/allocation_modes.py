"""The words of the allocator interface.

Source: constants.json, "iallocator" and "node_roles".
"""

from __future__ import annotations

from enum import StrEnum


class IAllocatorMode(StrEnum):
    """The kinds of request to an allocator."""

    ALLOCATE = "allocate"
    ALLOCATE_SECONDARY = "allocate-secondary"
    CHANGE_GROUP = "change-group"
    MULTI_ALLOCATE = "multi-allocate"
    NODE_EVACUATE = "node-evacuate"
    RELOCATE = "relocate"


class IAllocatorDirection(StrEnum):
    """Whether a test shows the request or sends it."""

    IN = "in"
    OUT = "out"


class EvacMode(StrEnum):
    """Which instances leave a node."""

    ALL = "all"
    PRIMARY_ONLY = "primary-only"
    SECONDARY_ONLY = "secondary-only"
