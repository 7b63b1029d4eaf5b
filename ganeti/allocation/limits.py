"""Why a node cannot take an instance."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from ganeti.allocation.load import NodeLoad
from ganeti.allocation.model import Rules


class Obstacle(StrEnum):
    """What is in the way, in the words of the answer."""

    MEMORY = "memory"
    DISK = "disk"
    SPINDLES = "spindles"
    CPUS = "virtual CPUs"
    TAGS = "exclusion tags"
    MIGRATION = "migration tags"
    REDUNDANCY = "N+1"


Check = Callable[[NodeLoad, NodeLoad], bool]


def _lacks_spindles(old: NodeLoad, new: NodeLoad) -> bool:
    return new.node.exclusive_storage and new.free_spindles < min(0, old.free_spindles)


def _too_much_spindle_use(old: NodeLoad, new: NodeLoad) -> bool:
    if new.node.exclusive_storage:  # dedicated spindles instead
        return False
    return new.spindle_use > max(old.spindle_use, new.node.spindles_max)


# A limit that is exceeded already forbids only what makes it worse.
_HARD: Final[tuple[tuple[Obstacle, Check], ...]] = (
    (Obstacle.MEMORY, lambda old, new: new.free_memory <= 0 and new.free_memory < old.free_memory),
    (Obstacle.DISK, lambda old, new: new.free_disk <= 0 and new.free_disk < old.free_disk),
    (Obstacle.SPINDLES, _lacks_spindles),
)
_SOFT: Final[tuple[tuple[Obstacle, Check], ...]] = (
    (Obstacle.CPUS, lambda old, new: new.vcpus > max(old.vcpus, new.node.vcpus_max)),
    (Obstacle.SPINDLES, _too_much_spindle_use),
    (Obstacle.TAGS, lambda old, new: new.conflicts > old.conflicts),
    (Obstacle.REDUNDANCY, lambda old, new: new.deficit > old.deficit),
)


def obstacle(old: NodeLoad, new: NodeLoad, rules: Rules) -> Obstacle | None:
    """Return why a node may not go from one load to another, if so."""
    for reason, is_broken in _HARD if rules.ignores_soft else _HARD + _SOFT:
        if is_broken(old, new):
            return reason
    return None
