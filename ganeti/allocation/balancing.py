"""A few moves that balance groups: each time the one that makes the score of its group lowest.

An instance is worth a closer look if the group would be much better without it; the best of its
moves within the group is then one of those by which it would leave a node.  So a step looks at
every instance cheaply, and at few of them in full.

Source: manual page hbal(1), "Algorithm used"; design-2.1, "Cluster balancing".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import Final

from msgspec import Struct

from ganeti.allocation import moves
from ganeti.allocation.model import Instance, Rules
from ganeti.allocation.state import ClusterState
from ganeti.objects.allocation_modes import EvacMode
from ganeti.objects.disk_templates import Mirroring

# hbal(1), --min-score, --min-gain and --min-gain-limit: a score that is good enough, and the gain
# that a move must bring once the score is below the limit.
SCORE_MIN: Final = 1e-9
GAIN_MIN: Final = 1e-2
GAIN_LIMIT: Final = 0.1
LOOKED_AT_MAX: Final = 24  # instances of a group in one step


class _Step(Struct, frozen=True):
    move: moves.Move
    gain: float


def balancing_moves(
    cluster: ClusterState, groups: Iterable[str], rules: Rules, count_max: int
) -> Iterator[moves.Move]:
    """Yield moves one after the other, each in the state that the moves before it leave.

    Args:
        groups: UUIDs of the groups to balance; no instance leaves its group.
    """
    steps = {uuid: _best_step(cluster, uuid, rules) for uuid in groups}
    for _ in range(count_max):
        found = [(step.gain, uuid) for uuid, step in steps.items() if step is not None]
        if not found:
            return
        _, best = max(found)
        step = steps[best]
        assert step is not None
        # The best moves of other groups were found before this one: made again in the new state.
        yield step.move
        cluster = step.move.after
        steps = {uuid: _best_step(cluster, uuid, rules) for uuid in steps}


def _best_step(cluster: ClusterState, group: str, rules: Rules) -> _Step | None:
    """Return the best move in a group, or None if none is worth its while."""
    score = cluster.groups[group].score
    if score <= SCORE_MIN:
        return None
    best: _Step | None = None
    for instance in _worth_a_look(cluster, group):
        for move in _moves_of(cluster, instance, rules):
            gain = score - move.after.groups[group].score
            if best is None or gain > best.gain:
                best = _Step(move, gain)
    least = GAIN_MIN if score < GAIN_LIMIT else SCORE_MIN
    return best if best is not None and best.gain > least else None


def _worth_a_look(cluster: ClusterState, group: str) -> list[Instance]:
    """Return the instances without which the group would be best."""

    def without(instance: Instance) -> float:
        return -cluster.without_instance(instance).groups[group].score

    members = [
        instance
        for instance in cluster.instances.values()
        if instance.mirroring is not Mirroring.NONE
        and all(cluster.nodes[name].group == group for name in instance.nodes)
    ]
    return nlargest(LOOKED_AT_MAX, members, key=without)


def _moves_of(cluster: ClusterState, instance: Instance, rules: Rules) -> Iterator[moves.Move]:
    for mode in EvacMode:
        try:
            yield moves.evacuate(cluster, instance, mode, rules)
        except moves.CannotMove:
            continue  # another way may be open
