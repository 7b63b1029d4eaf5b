"""The order in which instances start again where high availability is on.  Pure.

After a power loss nothing starts until most nodes of the cluster are back, as a node that is
missing may still run what would start elsewhere.  Nor does anything start on a node that etcd does
not know in the boot that answers: the proof that its last boot is dead would take it for dead, too,
and start its instances elsewhere; nor on one whose loss is not dealt with.  Then instances start by
their priority, a few at a time in all and on each node: the job of each one depends on the end,
good or bad, of the job so many places before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
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
    facts: Facts,
    places: Mapping[str, Place],
    *,
    seen: int,
    nodes: int,
    pause: str,
    absent: Collection[str] = (),
) -> dict[str, str]:
    """Return {instance: why it is not started now}.

    Args:
        seen, nodes: how many nodes of the cluster answer, and how many there are.
        pause: why nobody is to act; "" if they may.
        absent: nodes that may be proved dead, or were, whether they answer or not.
    """
    why = pause
    if not why and seen < votes_needed(nodes):
        why = f"only {seen} of {nodes} nodes are back"
    down = (n for n, i in facts.instances.items() if i.status == InstanceStatus.ERROR_DOWN)
    found = {name: why or _objection(places.get(name), absent) for name in down}
    return {name: text for name, text in found.items() if text}


def _objection(place: Place | None, absent: Collection[str]) -> str:
    """Return why an instance at a place is not started; "" if it is."""
    if place is None:
        return ""
    if priority_of(place.tags) is None:
        return "it is never to be restarted by itself"
    if place.node in absent:
        return (
            f"node {place.node} answers, but its agent is not present in etcd, or its loss is not"
            " dealt with; see 'gnt-cluster ha-status', and ganeti-ha there"
        )
    return ""


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
