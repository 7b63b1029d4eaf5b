"""Which group a new instance goes to, and one that leaves its own.

Groups are taken by their allocation policy, and among those of the same policy by the score that
the group has with the instance in it.

Source: manual pages gnt-group(8), "alloc-policy"; hail(1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from ganeti.allocation.model import Group, Instance, Node, Rules
from ganeti.allocation.placing import Outcome, find_place
from ganeti.allocation.state import ClusterState
from ganeti.objects.instance_policy import violations
from ganeti.objects.model import AllocPolicy

_RANK: Final = {AllocPolicy.PREFERRED: 0, AllocPolicy.LAST_RESORT: 1, AllocPolicy.UNALLOCABLE: 2}


class GroupChoice(Struct, frozen=True):
    """The best outcome, if there is one, and what to say of every group."""

    best: Outcome | None
    text: str


def choose_group(
    cluster: ClusterState,
    instance: Instance,
    rules: Rules,
    among: Iterable[str],
    *,
    is_explicit: bool,
    source: Node | None = None,
) -> GroupChoice:
    """Find the best place in the groups given by UUID.

    Args:
        is_explicit: somebody named these groups, so that they may be closed for others.
        source: the node from which the instance would be migrated.
    """
    places: list[Outcome] = []
    texts: list[str] = []
    for uuid in among:
        state = cluster.groups[uuid]
        why_not = _refusal(state.group, instance, is_explicit=is_explicit)
        if why_not is None:
            outcome = find_place(state, instance, rules, source=source)
            if outcome.nodes:
                places.append(outcome)
                continue
            why_not = outcome.reasons()
        texts.append(f"group {state.group.name}: {why_not}")
    if not places:
        return GroupChoice(None, "; ".join(texts) or "there is no group to choose from")
    best = min(places, key=_preference)
    texts += [f"also possible: {describe(each)}" for each in places if each is not best]
    return GroupChoice(best, "; ".join([describe(best), *texts]))


def _preference(outcome: Outcome) -> tuple[int, float, str]:
    group = outcome.state.group
    return _RANK[group.alloc_policy], outcome.score, group.name


def describe(outcome: Outcome) -> str:
    """Say where a place is and how good."""
    group = outcome.state.group
    return (
        f"{' and '.join(outcome.nodes)} in group {group.name} ({group.alloc_policy}),"
        f" score {outcome.score:.6f}"
    )


def _refusal(group: Group, instance: Instance, *, is_explicit: bool) -> str | None:
    """Say why no node of a group can have an instance, whatever is free there."""
    if group.alloc_policy is AllocPolicy.UNALLOCABLE and not is_explicit:
        return "closed for new instances (unallocable)"
    if not instance.networks <= group.networks:
        missing = sorted(instance.networks - group.networks)
        return f"not connected to network {', '.join(missing)}"
    broken = violations(group.ipolicy, instance.spec)
    if broken:
        return f"its instance policy forbids it: {'; '.join(broken)}"
    return None
