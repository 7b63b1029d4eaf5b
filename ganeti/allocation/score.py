"""The score of a node group: how far from evenly used and free of risks it is; lower is better.

The score is a weighted sum of metrics.  *Spreads* are standard deviations over the usable nodes of
values that are fractions; *counts* are sums over all nodes of things that should not be there at
all, and weigh so much more that no even use makes up for one of them.  A `Tally` holds the sums
from which all of them follow, so a change of one node costs that node only.

Source: manual page hbal(1), "Cluster scoring", for the list of metrics; the weights are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import sqrt
from typing import Final

from msgspec import Struct

from ganeti.allocation.load import NodeLoad

# A variance is the difference of two numbers that may be as good as equal: a smaller one than this
# comes from rounding, and its root would be as large as the difference of two good places.
ROUNDING: Final = 1e-12


def deviation(variance: float) -> float:
    """Return the standard deviation for a variance; next to nothing is nothing."""
    return sqrt(variance - ROUNDING) if variance > ROUNDING else 0.0


class Metric(Struct, frozen=True):
    """One component of the score.

    ``is_share``: the values are divided by their sum over the group.
    """

    name: str
    weight: float
    value: Callable[[NodeLoad], float]
    is_share: bool = False


def part(value: float, whole: float) -> float:
    """Return a value as a fraction of a whole; of nothing it is 0."""
    return value / whole if whole else 0.0


RESERVED: Final = "memory reserved"
SPREADS: Final = (
    Metric("free memory", 1.0, lambda load: part(load.free_memory, load.node.total_memory)),
    Metric(RESERVED, 1.0, lambda load: part(load.reserved, load.node.total_memory)),
    Metric("free disk", 1.0, lambda load: part(load.free_disk, load.node.total_disk)),
    Metric("virtual CPUs", 1.0, lambda load: part(load.vcpus, load.node.cpu_power)),
    Metric("spindle use", 1.0, lambda load: part(load.spindle_use, load.node.spindles_max)),
    # Without better knowledge every instance loads CPU, memory and network of its node alike.
    Metric("primary instances", 3.0, lambda load: load.primaries, is_share=True),
    Metric("disk load", 1.0, lambda load: load.primaries + load.secondaries, is_share=True),
)
LOAD_SPREADS: Final = frozenset({"primary instances", "disk load"})

DOMAIN_WEIGHT: Final = 4.0
CLASH_WEIGHT: Final = 2.0  # an exclusion tag twice in one failure domain

COUNTS: Final = (
    Metric("all memory reserved", 0.25, lambda load: part(load.reserved, load.node.total_memory)),
    Metric("nodes that cannot take over", 4.0, lambda load: float(load.deficit > 0)),
    Metric("instances in one failure domain", DOMAIN_WEIGHT, lambda load: load.in_one_domain),
    Metric("exclusion tags twice on a node", 4.0, lambda load: load.conflicts),
    Metric("unmet wishes for a location", 1.0, lambda load: load.unmet_wishes),
)

# Of nodes that are offline or drained only this counts.
STRANDED: Final = (
    Metric("instances on them", 16.0, lambda load: load.primaries + load.secondaries),
    Metric("primary instances on them", 16.0, lambda load: load.primaries),
)


class Share(Struct, frozen=True):
    """The share of one node in the sums: the values of its spreads, and its weighted counts."""

    values: tuple[float, ...]
    count: float


_NO_VALUES: Final = (0.0,) * len(SPREADS)


def share_of(load: NodeLoad) -> Share:
    """Return the addends of a node to the sums of its group."""
    if not load.node.is_usable:
        return Share(_NO_VALUES, sum(each.weight * each.value(load) for each in STRANDED))
    return Share(
        tuple([each.value(load) for each in SPREADS]),
        sum([each.weight * each.value(load) for each in COUNTS]),
    )


class Tally(Struct, frozen=True):
    """Sums over the nodes of a group; ``size`` is the number of usable ones."""

    size: int
    sums: tuple[float, ...] = _NO_VALUES
    squares: tuple[float, ...] = _NO_VALUES
    count: float = 0.0

    def changed(self, old: Share, new: Share) -> Tally:
        """Return the sums after a node's share has changed."""
        return Tally(
            self.size,
            tuple([s - a + b for s, a, b in zip(self.sums, old.values, new.values, strict=True)]),
            tuple(
                [
                    s - a * a + b * b
                    for s, a, b in zip(self.squares, old.values, new.values, strict=True)
                ]
            ),
            self.count - old.count + new.count,
        )

    def with_count(self, amount: float) -> Tally:
        """Return the sums with something more to count."""
        return Tally(self.size, self.sums, self.squares, self.count + amount)

    def score(self, weights: tuple[float, ...]) -> float:
        """Return the score; ``weights`` are those of `weights_of`."""
        total = self.count
        size = self.size
        if not size:
            return total
        for weight, spread, s, q in zip(weights, SPREADS, self.sums, self.squares, strict=True):
            if weight:
                mean = s / size
                found = deviation(q / size - mean * mean)
                total += weight * (part(found, s) if spread.is_share else found)
        return total


def weights_of(*, counts_load: bool) -> tuple[float, ...]:
    """Return the weights of the spreads."""
    return tuple(
        each.weight if counts_load or each.name not in LOAD_SPREADS else 0.0 for each in SPREADS
    )


def tally_of(loads: Iterable[NodeLoad]) -> Tally:
    """Return the sums of a group from scratch."""
    loads = list(loads)
    shares = [share_of(load) for load in loads]
    columns = list(zip(*(share.values for share in shares), strict=True)) or [()] * len(SPREADS)
    return Tally(
        sum(load.node.is_usable for load in loads),
        tuple(float(sum(column)) for column in columns),
        tuple(float(sum(value * value for value in column)) for column in columns),
        sum(share.count for share in shares),
    )
