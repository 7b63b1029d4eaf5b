"""Which instances of dead nodes start where, and in what order.  Pure.

Theory of operation.  Instances start in the order of their priority, a few at a time, on nodes that
have the memory for them.  An instance with a copy of its disks starts on its secondary node; one
whose disks every node reaches, on the node with the most free memory.  What does not fit is named,
and waits.  A master begins only after all that were master before are dead, or have said that none
of their jobs runs any more: so no instance is started by two of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.availability.keeper import is_dead
from ganeti.availability.proof import CONFIRM_COMMAND
from ganeti.availability.records import Loss, Mastership
from ganeti.base.text import natural_sort_key

PRIORITY_DEFAULT: Final = 0
PRIORITY_TAG: Final = "ha:priority:"
NEVER: Final = "never"
_NUMBER: Final = re.compile(r"-?\d{1,6}", re.ASCII)
STARTS_MAX: Final = 8  # at a time
STARTS_PER_NODE_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class Guest:
    """An instance that should run, on a node that is dead.

    Attributes:
        priority: higher ones first; None for an instance that nobody is to restart.
        memory: MiB.
        nodes: those that have, or reach, its disks, besides the dead one.
        is_in_work: a job acts on it.
        is_shared: the nodes reach its disks; otherwise they have a copy.
    """

    name: str
    node: str
    memory: int
    nodes: Collection[str]
    priority: int | None = PRIORITY_DEFAULT
    is_in_work: bool = False
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """How many instances start at the same time, in all and on one node."""

    starts_max: int = STARTS_MAX
    per_node_max: int = STARTS_PER_NODE_MAX


LIMIT_NAMES: Final = {"starts": "starts_max", "per-node": "per_node_max"}  # as people type them


@dataclass(frozen=True, slots=True)
class Restart:
    """An instance that is to start on another node."""

    guest: Guest
    node: str


@dataclass(frozen=True, slots=True)
class RestartPlan:
    """What starts now, and {instance: why it does not}; those whose turn comes are in neither."""

    restarts: tuple[Restart, ...]
    left: Mapping[str, str]


def priority_of(tags: Iterable[str]) -> int | None:
    """Return the priority that an instance's tags give it; None for one that nobody restarts.

    Of several the lowest counts; what is no number is passed over.
    """
    words = [tag.removeprefix(PRIORITY_TAG) for tag in tags if tag.startswith(PRIORITY_TAG)]
    if NEVER in words:
        return None
    numbers = [int(word) for word in words if _NUMBER.fullmatch(word)]
    return min(numbers, default=PRIORITY_DEFAULT)


def objection(acting: Mapping[str, Mastership], losses: Mapping[str, Loss], own: str) -> str:
    """Return why this master may not restart anything yet; "" if it may.

    Args:
        acting: by name of the node, those on which jobs of a master may still run.
        losses: by name of the node.
    """
    for name, mastership in acting.items():
        if name != own and not is_dead(losses.get(name), mastership.boot_id):
            return (
                f"node {name} was the master, and nothing proves that its jobs have ended: it is"
                " neither dead nor has it said so; start its agent, or, if you know that it is off,"
                f" type '{CONFIRM_COMMAND} {name}'"
            )
    return ""


def plan_restarts(
    guests: Sequence[Guest],
    free_memory: Mapping[str, int],
    running: Mapping[str, str],
    limits: Limits,
) -> RestartPlan:
    """Decide which instances start now.

    Args:
        free_memory: MiB on each node that is alive.
        running: {instance: node} of the restarts that have not ended; their memory is not free.
    """
    free = dict(free_memory)
    busy = Counter(running.values())
    restarts: list[Restart] = []
    left: dict[str, str] = {}
    turn = [guest for guest in guests if not guest.is_in_work and guest.name not in running]
    for guest in sorted(turn, key=_rank):
        if guest.priority is None:
            left[guest.name] = "it is never to be restarted by itself"
            continue
        alive = [name for name in guest.nodes if name in free]
        if not alive:
            left[guest.name] = "no node that is alive has its disks"
            continue
        fits = [name for name in alive if free[name] >= guest.memory]
        if not fits:
            left[guest.name] = (
                f"it needs {guest.memory} MiB of memory, and {_most(alive, free)} has"
                f" {max(free[name] for name in alive)}"
            )
            continue
        if len(running) + len(restarts) >= limits.starts_max:
            continue
        chosen = _most([name for name in fits if busy[name] < limits.per_node_max], free)
        if chosen is None:
            # Its memory is kept for it, so that no less important one takes it meanwhile.
            free[str(_most(fits, free))] -= guest.memory
            continue
        free[chosen] -= guest.memory
        busy[chosen] += 1
        restarts.append(Restart(guest, chosen))
    return RestartPlan(tuple(restarts), left)


def _rank(guest: Guest) -> tuple[float, list[object]]:
    priority = PRIORITY_DEFAULT if guest.priority is None else guest.priority
    return (-priority, list(natural_sort_key(guest.name)))


def _most(names: Collection[str], free: Mapping[str, int]) -> str | None:
    """Return the node with the most free memory."""
    return min(names, key=lambda name: (-free[name], natural_sort_key(name)), default=None)
