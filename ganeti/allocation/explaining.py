"""Why a new instance goes to its nodes, and why not to the others: lines for people.

Each other node is tried in place of one of the nodes chosen: it is possible, with the score that
its group would have then, or refused, in the words of `limits`.

Source: manual page hail(1), "--explain".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ganeti.allocation.limits import Obstacle, is_unmeasured, obstacle
from ganeti.allocation.load import NodeLoad
from ganeti.allocation.model import Instance, Rules
from ganeti.allocation.placing import Outcome, Role, describe, find_place, refusal
from ganeti.allocation.state import ClusterState, GroupState

LOOKED_AT_MAX: Final = 250  # nodes of a group; trying one costs a few milliseconds in a large one
LINES_MAX: Final = 40  # of nodes; the others are counted

_POSSIBLE: Final = "possible"
_NOT_TRIED: Final = "not tried"


class _Row(Struct, frozen=True):
    """A node that was not chosen; ``kind`` is what it counts as where it gets no line."""

    name: str
    kind: str
    text: str
    score: float = inf


def explain(
    cluster: ClusterState,
    instance: Instance,
    rules: Rules,
    groups: Sequence[str],
    chosen: Sequence[str],
    *,
    is_explicit: bool,
) -> list[str]:
    """Return lines on the place of a new instance and on all other nodes, the best first.

    Args:
        groups: UUIDs of the groups that it may go to.
        chosen: its nodes; none if it has no place.
        is_explicit: as for `choose_group`.
    """
    lines: list[str] = []
    rows: list[_Row] = []
    for uuid in groups:
        state = cluster.groups[uuid]
        why_not = refusal(state.group, instance, is_explicit=is_explicit)
        if why_not is not None:
            lines.append(f"group {state.group.name} ({len(state.loads)} nodes): {why_not}")
            continue
        outcome = find_place(state, instance, rules)
        if chosen and outcome.nodes == tuple(chosen):
            better = f"; {state.score:.6f} without it"
            lines.insert(0, f"instance {instance.name} goes to {describe(outcome)}{better}")
        elif outcome.nodes:
            lines.append(f"also possible: {describe(outcome)}")
        else:
            lines.append(f"group {state.group.name}: {outcome.reasons()}")
        rows += _rows(state, instance, rules, outcome)
    outside = [uuid for uuid in cluster.groups if uuid not in groups]
    lines += [f"group {cluster.groups[uuid].group.name}: not asked for" for uuid in outside]
    rows.sort(key=lambda row: row.score)  # else in the order of groups and names
    lines += [f"node {row.name}: {row.text}" for row in rows[:LINES_MAX]]
    counts = Counter(row.kind for row in rows[LINES_MAX:])
    if counts:
        listed = ", ".join(f"{kind}: {count}" for kind, count in counts.most_common())
        lines.append(f"and {counts.total()} more nodes ({listed})")
    return lines


def _rows(state: GroupState, instance: Instance, rules: Rules, best: Outcome) -> Iterator[_Row]:
    tried = 0
    for name, load in state.loads.items():
        if name in best.nodes:
            continue
        if not load.node.is_usable:
            yield _row(name, "offline" if load.node.is_offline else "drained or not vm_capable")
        elif rules.only is not None and name not in rules.only:
            yield _row(name, "not among the nodes to choose from")
        elif refused := _refused(load, instance, rules):
            text = ", ".join(
                f"{role} {why}{_amounts(load, instance, why)}" for role, why in refused.items()
            )
            yield _Row(name, ", ".join(dict.fromkeys(refused.values())), f"refused {text}")
        elif tried == LOOKED_AT_MAX:
            yield _row(name, _NOT_TRIED)
        else:
            tried += 1
            yield _tried(name, state, instance, rules, best)


def _row(name: str, kind: str) -> _Row:
    return _Row(name, kind, kind)


def _refused(load: NodeLoad, instance: Instance, rules: Rules) -> Mapping[Role, Obstacle] | None:
    """Return why a node can have none of the roles of an instance; None if it can have one."""
    loads = {Role.PRIMARY: load.with_primary(instance, None)}
    if instance.node_count > 1:
        loads[Role.SECONDARY] = load.with_secondary(instance, "")
    found = {role: obstacle(load, new, rules) for role, new in loads.items()}
    if is_unmeasured(load.node, instance):
        found = dict.fromkeys(loads, Obstacle.UNTOLD_SPINDLES)
    refused = {role: why for role, why in found.items() if why is not None}
    return refused if len(refused) == len(found) else None


def _amounts(load: NodeLoad, instance: Instance, why: Obstacle) -> str:
    """Return what is there and what is wanted, where that says more than the word."""
    free, wanted = {
        Obstacle.MEMORY: (load.free_memory, instance.memory),
        Obstacle.DISK: (load.free_disk, instance.disk),
    }.get(why, (0, 0))
    return f" ({free} MiB free, {wanted} MiB wanted)" if wanted else ""


def _tried(name: str, state: GroupState, instance: Instance, rules: Rules, best: Outcome) -> _Row:
    """Return how good the place would be with a node in it."""
    others: Sequence[frozenset[str]] = [frozenset()]
    if instance.node_count > 1:
        others = [frozenset({other}) for other in best.nodes]
    outcomes = [
        find_place(state, instance, replace(rules, only=other | {name})) for other in others
    ]
    possible = [outcome for outcome in outcomes if outcome.nodes]
    if not possible:
        whys = {why: None for outcome in outcomes for _role, why in outcome.refused}
        kind = ", ".join(whys) or "no second node"
        return _Row(name, kind, f"refused ({kind})")
    place = min(possible, key=lambda outcome: outcome.score)
    pair = f" as {' and '.join(place.nodes)}" if len(place.nodes) > 1 else ""
    worse = f", {place.score - best.score:.6f} more" if best.nodes else ""
    return _Row(name, _POSSIBLE, f"possible{pair}, score {place.score:.6f}{worse}", place.score)
