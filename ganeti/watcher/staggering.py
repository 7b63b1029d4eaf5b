"""The order in which instances start again where high availability is on.  Pure.

After a power loss nothing starts until most nodes of the cluster are back, as a node that is
missing may still run what would start elsewhere.  Then instances start by their priority, a few at
a time in all and on each node: the job of each one depends on the end, good or bad, of the job so
many places before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ganeti.availability.restarts import PRIORITY_DEFAULT, Limits, priority_of
from ganeti.base.ids import JobId
from ganeti.base.text import natural_sort_key
from ganeti.jobs.votes import votes_needed
from ganeti.objects.model import InstanceStatus
from ganeti.opcodes.opcode import Dependency, FinalStatus
from ganeti.watcher.planning import Facts, Step, Work

_ANY_END: Final = list(FinalStatus)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an instance belongs, and its tags."""

    node: str
    tags: tuple[str, ...] = ()


def kept_down(
    facts: Facts, places: Mapping[str, Place], *, seen: int, nodes: int, pause: str
) -> dict[str, str]:
    """Return {instance: why it is not started now}.

    Args:
        seen, nodes: how many nodes of the cluster answer, and how many there are.
        pause: why nobody is to act; "" if they may.
    """
    why = pause
    if not why and seen < votes_needed(nodes):
        why = f"only {seen} of {nodes} nodes are back"
    found = {}
    for name, instance in facts.instances.items():
        if instance.status == InstanceStatus.ERROR_DOWN:
            is_never = priority_of(places[name].tags) is None if name in places else False
            if text := why or ("it is never to be restarted by itself" if is_never else ""):
                found[name] = text
    return found


def in_order(steps: Sequence[Step], places: Mapping[str, Place]) -> list[Step]:
    """Return the steps with the starts first, by priority."""

    def rank(step: Step) -> tuple[bool, int, list[object]]:
        place = places.get(step.instance)
        priority = PRIORITY_DEFAULT if place is None else priority_of(place.tags) or 0
        return (step.work is not Work.RESTART, -priority, list(natural_sort_key(step.instance)))

    return sorted(steps, key=rank)


def dependencies(
    steps: Sequence[Step], places: Mapping[str, Place], limits: Limits
) -> list[list[Dependency]]:
    """Return, for each step, the jobs of the same submission that have to end before."""
    found: list[list[Dependency]] = []
    of_node: dict[str, list[int]] = defaultdict(list)
    for turn, step in enumerate(steps):
        before: set[int] = set()
        if step.work is Work.RESTART:
            place = places.get(step.instance)
            lane = of_node["" if place is None else place.node]
            before |= {turn - limits.starts_max} if turn >= limits.starts_max else set()
            before |= {lane[-limits.per_node_max]} if len(lane) >= limits.per_node_max else set()
            lane.append(turn)
        found.append([(JobId(each - turn), _ANY_END) for each in sorted(before)])
    return found
