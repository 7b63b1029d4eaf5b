"""The best place for one instance: in one group, and among groups.

Groups are taken by their allocation policy, and among those of the same policy by the score that
the group has with the instance in it.

In a group, each search answers with an `Outcome`: the nodes and the group's score with the instance
there, or none and on how many nodes each obstacle was found.  A search looks at one instance at a
time and never moves another to make room.

Source: manual pages gnt-group(8), "alloc-policy"; hail(1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from ganeti.allocation.limits import Obstacle, Redundancy, is_unmeasured, obstacle
from ganeti.allocation.load import NodeLoad
from ganeti.allocation.model import Group, Instance, Node, Rules
from ganeti.allocation.pairs import Side, best_pair, side
from ganeti.allocation.state import ClusterState, GroupState
from ganeti.objects.instance_policy import violations
from ganeti.objects.model import AllocPolicy

_DIGITS = 12  # scores that differ only behind this digit are equal: the first node wins then


class Role(StrEnum):
    """The role for which a node was looked at."""

    PRIMARY = "as primary node"
    SECONDARY = "as secondary node"
    PAIR = "as a pair"


class Outcome(Struct):
    """The result of a search in a group.

    Attributes:
        nodes: primary node first; empty if there is no place.
        looked_at: how many nodes there were to choose from.
        refused: how many nodes (or pairs) were refused in a role, and why.
    """

    state: GroupState
    nodes: tuple[str, ...] = ()
    score: float = 0.0
    looked_at: int = 0
    refused: Counter[tuple[Role, Obstacle]] = field(default_factory=Counter)

    def reasons(self) -> str:
        """Say why there is no place, with a count for each reason."""
        left_out = self._left_out()
        return f"{self._refusals()}; left out {left_out}" if left_out else self._refusals()

    def _left_out(self) -> str:
        """Count the nodes that nobody looked at."""
        nodes = [load.node for load in self.state.loads.values()]
        counts = Counter(
            "offline" if node.is_offline else "drained or not vm_capable"
            for node in nodes
            if not node.is_usable
        )
        counts["ruled out by the request"] = len(nodes) - counts.total() - self.looked_at
        return ", ".join(f"({why}: {count})" for why, count in counts.items() if count > 0)

    def _refusals(self) -> str:
        if not self.looked_at:
            return "no usable node to choose from"
        total = f"{self.looked_at} node" + "s" * (self.looked_at > 1)
        if not self.refused:
            return f"{total} to choose from, too few"
        parts = []
        for role in Role:
            counts = {why: count for (what, why), count in self.refused.items() if what is role}
            if counts:
                listed = ", ".join(f"{why}: {counts[why]}" for why in Obstacle if why in counts)
                parts.append(f"{role} ({listed})")
        return f"{total} to choose from, refused {'; '.join(parts)}"


def candidates(
    state: GroupState, rules: Rules, excluded: Iterable[str] = ()
) -> Mapping[str, NodeLoad]:
    """Return the nodes of a group that an instance may come to."""
    without = frozenset(excluded)
    return {
        name: load
        for name, load in state.loads.items()
        if load.node.is_usable
        and name not in without
        and (rules.only is None or name in rules.only)
    }


def find_place(
    state: GroupState,
    instance: Instance,
    rules: Rules,
    excluded: Iterable[str] = (),
    source: Node | None = None,
) -> Outcome:
    """Find one node, or a pair of nodes for an instance that needs two.

    Args:
        excluded: nodes that will not do.
        source: the node from which the instance would be migrated.
    """
    found = candidates(state, rules, excluded)
    outcome = Outcome(state, looked_at=len(found))
    allowed = {}
    for name, load in found.items():
        if source is not None and not load.node.accepts_from(source):
            outcome.refused[Role.PRIMARY, Obstacle.MIGRATION] += 1
        else:
            allowed[name] = load
    if instance.node_count > 1:
        _find_pair(outcome, allowed, found, instance, rules)
    else:
        _find_primary(outcome, allowed, instance, rules)
    return outcome


def _find_primary(
    outcome: Outcome, found: Mapping[str, NodeLoad], instance: Instance, rules: Rules
) -> None:
    state = outcome.state
    ranked = []
    for old, new in _possible(outcome, Role.PRIMARY, found, instance, rules):
        clashes = state.clash_count(instance, old.node)
        tally = state.tally.changed(state.share(old), state.share(new)).with_count(clashes)
        ranked.append((tally.score, old.node.name, new))
    ranked.sort(key=lambda row: round(row[0], _DIGITS))
    redundancy = _redundancy(state, rules)
    for score, name, new in ranked:
        if redundancy is None or not redundancy.gets_worse({name: new}):
            outcome.nodes, outcome.score = (name,), score
            return
        outcome.refused[Role.PRIMARY, Obstacle.REDUNDANCY] += 1


def _redundancy(state: GroupState, rules: Rules) -> Redundancy | None:
    return Redundancy(state.loads) if rules.checks_capacity else None


def _find_pair(
    outcome: Outcome,
    firsts: Mapping[str, NodeLoad],
    seconds: Mapping[str, NodeLoad],
    instance: Instance,
    rules: Rules,
) -> None:
    state = outcome.state
    primaries = _sides(outcome, Role.PRIMARY, firsts, instance, rules)
    secondaries = _sides(outcome, Role.SECONDARY, seconds, instance, rules)
    redundancy = _redundancy(state, rules)
    worse_primaries: dict[str, bool] = {}

    def special(first: Side, second: Side) -> Side | None:
        new = second.old.with_secondary(instance, first.name)
        if obstacle(second.old, new, rules) is not None:
            outcome.refused[Role.PAIR, Obstacle.REDUNDANCY] += 1
            return None
        return side(state.share, second.old, new)

    def is_redundant(first: Side, second: Side) -> bool:
        """Look at the primary node alone first: that answer is the same for all of its pairs."""
        if redundancy is None:
            return True
        worse = worse_primaries.get(first.name)
        if worse is None:
            worse = worse_primaries[first.name] = redundancy.gets_worse({first.name: first.new})
            if worse:
                outcome.refused[Role.PRIMARY, Obstacle.REDUNDANCY] += 1
        if worse:
            return False
        mirrored = first.old.with_primary(instance, second.old.node)
        if not redundancy.gets_worse({first.name: mirrored, second.name: second.new}):
            return True
        outcome.refused[Role.PAIR, Obstacle.REDUNDANCY] += 1
        return False

    best = best_pair(state.tally, primaries, secondaries, special, is_redundant)
    if best is not None:
        outcome.nodes = (best[0].name, best[1].name)
        outcome.score = best[2]


def _sides(
    outcome: Outcome, role: Role, found: Mapping[str, NodeLoad], instance: Instance, rules: Rules
) -> list[Side]:
    """Return the nodes that can have the role, before the other node is known."""
    clashes = outcome.state.clash_count
    return [
        side(
            outcome.state.share,
            old,
            new,
            clashes(instance, old.node) if role is Role.PRIMARY else 0.0,
        )
        for old, new in _possible(outcome, role, found, instance, rules)
    ]


_NOBODY = ""  # a primary node that no secondary node has mirrors of yet


def _possible(
    outcome: Outcome,
    role: Role,
    found: Mapping[str, NodeLoad],
    instance: Instance,
    rules: Rules,
    primary: str = _NOBODY,
) -> Iterator[tuple[NodeLoad, NodeLoad]]:
    """Yield the loads, without and with the instance, of the nodes that can have a role."""
    for old in found.values():
        if role is Role.PRIMARY:
            new = old.with_primary(instance, None)
        else:
            new = old.with_secondary(instance, primary)
        why = obstacle(old, new, rules)
        if is_unmeasured(old.node, instance):
            why = Obstacle.UNTOLD_SPINDLES
        if why is None:
            yield old, new
        else:
            outcome.refused[role, why] += 1


def find_secondary(
    state: GroupState, instance: Instance, primary: Node, rules: Rules, excluded: Iterable[str] = ()
) -> Outcome:
    """Find a secondary node for an instance with a given primary node.

    ``state`` is the secondary's group, as it is without the instance.
    """
    found = candidates(state, rules, {primary.name, *excluded})
    outcome = Outcome(state, looked_at=len(found))
    ranked = []
    for old, new in _possible(outcome, Role.SECONDARY, found, instance, rules, primary.name):
        tally = state.tally.changed(state.share(old), state.share(new))
        if primary.name in state.loads:
            first = state.loads[primary.name]
            mirrored = first.with_primary(instance, old.node)
            tally = tally.changed(state.share(first), state.share(mirrored))
        ranked.append((tally.score, old.node.name))
    if ranked:
        outcome.score, name = min(ranked, key=lambda row: round(row[0], _DIGITS))
        outcome.nodes = (primary.name, name)
    return outcome


_RANK: Final = {AllocPolicy.PREFERRED: 0, AllocPolicy.LAST_RESORT: 1, AllocPolicy.UNALLOCABLE: 2}


class GroupChoice(Struct, frozen=True):
    """The best outcome, if there is one, and a text about every group."""

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
        why_not = refusal(state.group, instance, is_explicit=is_explicit)
        if why_not is None:
            outcome = find_place(state, instance, rules, source=source)
            if outcome.nodes:
                places.append(outcome)
                continue
            why_not = outcome.reasons()
        texts.append(f"group {state.group.name}: {why_not}")
    if not places:
        return GroupChoice(None, "; ".join(texts) or "there is no group to choose from")
    best = min(places, key=lambda each: preference(each.state.group, each.score))
    texts += [f"also possible: {describe(each)}" for each in places if each is not best]
    return GroupChoice(best, "; ".join([describe(best), *texts]))


def preference(group: Group, score: float) -> tuple[int, float, str]:
    """Return the rank of a group among those with a place, by the score that it has then."""
    return _RANK[group.alloc_policy], score, group.name


def describe(outcome: Outcome) -> str:
    """Say where a place is and how good."""
    group = outcome.state.group
    return (
        f"{' and '.join(outcome.nodes)} in group {group.name} ({group.alloc_policy}),"
        f" score {outcome.score:.6f}"
    )


def refusal(group: Group, instance: Instance, *, is_explicit: bool) -> str | None:
    """Return why no node of a group can have an instance, free resources apart; or None."""
    if group.alloc_policy is AllocPolicy.UNALLOCABLE and not is_explicit:
        return "closed for new instances (unallocable)"
    if not instance.networks <= group.networks:
        missing = sorted(instance.networks - group.networks)
        return f"not connected to network {', '.join(missing)}"
    broken = violations(group.ipolicy, instance.spec)
    if broken:
        return f"its instance policy forbids it: {'; '.join(broken)}"
    return None
