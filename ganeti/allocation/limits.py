"""The limits of a node, and of restarts after a node's failure: why it cannot take an instance.

Could the instances of each node run elsewhere if it failed?  Instances with mirrors start on their
secondary nodes: each node must keep enough memory free for the worst other node
(`NodeLoad.deficit`).  Instances on storage that every node reaches can start anywhere in the group:
the largest first, each where most memory is free.  Instances whose disks are on their node only
cannot be saved by anybody, so they do not count.  Nor do instances that are down, on the failed
node or elsewhere, but secondary nodes keep memory for those too.

A placement must not make any of this worse.  A limit that was exceeded before does not forbid it.

Source: manual page hail(1), "--no-capacity-checks".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from heapq import heapify, heapreplace, nlargest
from operator import attrgetter
from typing import Final

from ganeti.allocation.load import NodeLoad
from ganeti.allocation.model import Instance, Node, Rules


class Obstacle(StrEnum):
    """The reason why a node is refused, in the words of the answer."""

    MEMORY = "memory"
    DISK = "disk"
    SPINDLES = "spindles"
    UNTOLD_SPINDLES = "number of spindles not given"
    CPUS = "virtual CPUs"
    TAGS = "exclusion tags"
    MIGRATION = "migration tags"
    REDUNDANCY = "N+1"


Check = Callable[[NodeLoad, NodeLoad], bool]


def _lacks_spindles(old: NodeLoad, new: NodeLoad) -> bool:
    return new.node.exclusive_storage and new.free_spindles < min(0, old.free_spindles)


def _room(load: NodeLoad) -> int:
    return load.free_disk - load.file_disk - load.node.disk_min


def _too_much_spindle_use(old: NodeLoad, new: NodeLoad) -> bool:
    if new.node.exclusive_storage:  # dedicated spindles instead
        return False
    return new.spindle_use > max(old.spindle_use, new.node.spindles_max)


# A limit that is exceeded already forbids only changes that make it worse.
_HARD: Final[tuple[tuple[Obstacle, Check], ...]] = (
    (Obstacle.MEMORY, lambda old, new: new.free_memory <= 0 and new.free_memory < old.free_memory),
    (Obstacle.DISK, lambda old, new: _room(new) <= 0 and _room(new) < _room(old)),
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


def is_unmeasured(node: Node, instance: Instance) -> bool:
    """Tell whether an instance does not say how many spindles of its own it needs on a node."""
    is_silent = node.exclusive_storage and instance.has_unknown_spindles
    return is_silent and instance.template.traits.is_lvm


_present_memory = attrgetter("present_free_memory")


class Redundancy:
    """The memory of each node's instances that could not be restarted, in one state of a group."""

    def __init__(self, loads: Mapping[str, NodeLoad]) -> None:
        self._loads = {name: load for name, load in loads.items() if load.node.is_usable}
        self._ranking = sorted(self._loads.values(), key=_present_memory, reverse=True)
        self._movers = [name for name, load in self._loads.items() if any(load.movable)]
        self._lost: dict[str, int] = {}

    def gets_worse(self, changes: Mapping[str, NodeLoad]) -> bool:
        """Tell whether less could be restarted if these nodes had these loads instead."""
        changed = {name: load for name, load in changes.items() if load.node.is_usable}
        movers = dict.fromkeys(self._movers)
        movers.update(dict.fromkeys(name for name, load in changed.items() if any(load.movable)))
        return any(self._gets_worse_for(name, changed) for name in movers)

    def stuck(self) -> list[str]:
        """Return the nodes of which not all instances could be restarted if they failed."""
        return [name for name, load in self._loads.items() if self._is_stuck(name, load)]

    def _is_stuck(self, name: str, load: NodeLoad) -> bool:
        lacking = any(
            self._loads[partner].present_free_memory < memory
            for partner, memory in load.partners.items()
            if partner in self._loads
        )
        return lacking or self._lost_before(name) > 0

    def _gets_worse_for(self, name: str, changed: Mapping[str, NodeLoad]) -> bool:
        load = changed.get(name, self._loads[name])
        if self._is_easy(load, len(changed)):
            return False
        lost = self._lost_memory(load, changed)
        return lost > 0 and lost > self._lost_before(name)

    def _lost_before(self, name: str) -> int:
        if name not in self._lost:
            self._lost[name] = self._lost_memory(self._loads[name], {})
        return self._lost[name]

    def _is_easy(self, load: NodeLoad, changes: int) -> bool:
        """Tell whether each instance could have a node of its own, one that nothing changes."""
        nodes_needed = len(load.movable) + len(load.partners) + changes + 1
        if nodes_needed > len(self._ranking):
            return False
        return self._ranking[nodes_needed - 1].present_free_memory > max(load.movable, default=0)

    def _lost_memory(self, failed: NodeLoad, changed: Mapping[str, NodeLoad]) -> int:
        """Return the memory (MiB) of the instances of a failed node that find no other."""
        wanted = len(failed.movable) + len(failed.partners) + len(changed) + 1
        free = {load.node.name: load.present_free_memory for load in self._ranking[:wanted]}
        free.update({name: load.present_free_memory for name, load in changed.items()})
        free.pop(failed.node.name, None)
        for partner, memory in failed.partners.items():
            if partner in free:
                free[partner] -= memory
        room = [-memory for memory in nlargest(len(failed.movable), free.values())]
        heapify(room)
        lost = 0
        for memory in sorted(filter(None, failed.movable), reverse=True):
            if room and -room[0] > memory:
                heapreplace(room, room[0] + memory)
            else:
                lost += memory
        return lost
