"""The search for steps that make the score of a group better: each time the best one of all.

Source: manual page hbal(1), "Algorithm used".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from ganeti.allocation.balancing.steps import (
    Limits,
    Option,
    Step,
    is_candidate,
    keeps_redundancy,
    options_of,
)
from ganeti.allocation.state import ClusterState

# The sums of a group are right to six digits; a step must bring more than what rounding could.
_ROUNDING: Final = 1e-8


class Ends(Struct, frozen=True):
    """When a search ends.

    Attributes:
        score_min: a score that is good enough.
        gain_min: what a step must bring, once the score is below ``gain_limit``.
        count_max: how many steps, if not any number.
    """

    score_min: float
    gain_min: float
    gain_limit: float
    count_max: int | None = None


class Done(Struct, frozen=True):
    """A step that was chosen, the cluster after it, and the exact score of the group then."""

    step: Step
    cluster: ClusterState
    score: float


def search(cluster: ClusterState, group: str, limits: Limits, ends: Ends) -> Iterator[Done]:
    """Yield steps one after the other, each with the lowest score after it.

    Args:
        group: UUID of the group; nothing leaves it.
    """
    score = cluster.groups[group].exact_score
    count = 0
    while score > ends.score_min and (ends.count_max is None or count < ends.count_max):
        best = _best(cluster, group, limits)
        if best is None:
            return
        after = best.step.applied(cluster)
        reached = after.groups[group].exact_score
        least = ends.gain_min if score < ends.gain_limit else 0.0
        if score - reached <= max(least, _ROUNDING):
            return
        yield Done(best.step, after, reached)
        cluster, score, count = after, reached, count + 1


def _best(cluster: ClusterState, group: str, limits: Limits) -> Option | None:
    """Return the option with the lowest score, if one is better than to stay."""
    state = cluster.groups[group]
    best: Option | None = None
    lowest = state.score - _ROUNDING
    for instance in cluster.instances.values():
        if is_candidate(instance, cluster, group, limits):
            for option in options_of(state, instance, limits):
                score = option.state.score
                if score < lowest and keeps_redundancy(state, option):
                    best, lowest = option, score
    return best
