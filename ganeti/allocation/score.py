"""The score of a node group: how far from evenly used and free of risks it is; lower is better.

The score is a weighted sum of components.  *Spreads* are standard deviations over the usable nodes
of a value of each; *counts* are sums over all nodes of things that should not be there at all.  A
`Tally` holds the sums from which all of them follow, so a change of one node costs that node only.

Some components are told twice: for the instances that there are, and for all that will be
(``_forth``).  Where no instance is down or forthcoming both are the same, and counted in one sum
with the weight of two; likewise the dynamic loads while nobody says anything about them
(`spreads_of`).

Source: manual page hbal(1), "Cluster scoring", for the components; weights and formulas as observed
of hbal 3.0.2, see doc/balancing.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from math import sqrt
from typing import Final

from msgspec import Struct

from ganeti.allocation.load import NodeLoad
from ganeti.allocation.model import Instance

# A variance is the difference of two numbers that may be as good as equal: a smaller one than this
# comes from rounding, and its root would be as large as the difference of two good places.
ROUNDING: Final = 1e-12


def deviation(variance: float) -> float:
    """Return the standard deviation for a variance; next to nothing is nothing."""
    return sqrt(variance - ROUNDING) if variance > ROUNDING else 0.0


class Metric(Struct, frozen=True):
    """A component of the score; ``together`` is another whose values are often the same."""

    name: str
    weight: float
    value: Callable[[NodeLoad], float]
    together: str = ""


def part(value: float, whole: float) -> float:
    """Return a value as a fraction of a whole; of nothing it is 0."""
    return value / whole if whole else 0.0


def _free_disk(load: NodeLoad) -> float:
    node = load.node
    if node.exclusive_storage:  # a need that is not known leaves less than nothing
        free = -1 if load.promised.unmeasured else load.free_spindles
        return part(free, node.spindle_count)
    return part(load.free_disk, node.total_disk)


def _present_free_disk(load: NodeLoad) -> float:
    node, promised = load.node, load.promised
    if node.exclusive_storage:
        return part(load.free_spindles + promised.spindles, node.spindle_count)
    return part(load.free_disk + promised.disk, node.total_disk)


def _spindles(load: NodeLoad) -> float:
    node = load.node
    return 0.0 if node.exclusive_storage else part(load.spindle_use, node.spindles_max)


def _present_spindles(load: NodeLoad) -> float:
    node, use = load.node, load.spindle_use - load.promised.spindle_use
    return 0.0 if node.exclusive_storage else part(use, node.spindles_max)


def reserved_share(load: NodeLoad) -> float:
    """Return the part of a node's memory that it keeps for its secondary instances."""
    return part(load.reserved, load.node.total_memory)


RESERVED: Final = "reserved_mem_cv"
RESERVED_TOTAL: Final = "reserved_mem_rtotal"
SPREADS: Final = (
    Metric(
        "free_mem_cv",
        0.5,
        lambda load: part(load.present_free_memory, load.node.total_memory),
        "free_mem_cv_forth",
    ),
    Metric("free_disk_cv", 0.5, _present_free_disk, "free_disk_cv_forth"),
    Metric(RESERVED, 1.0, reserved_share),
    Metric(
        "vcpu_ratio_cv",
        0.5,
        lambda load: part(load.vcpus - load.promised.vcpus, load.node.cpu_power),
        "vcpu_ratio_cv_forth",
    ),
    Metric("cpu_load_cv", 1.0, lambda load: load.load.cpu),
    Metric("mem_load_cv", 1.0, lambda load: load.load.memory, "cpu_load_cv"),
    Metric("disk_load_cv", 1.0, lambda load: load.load.disk),
    Metric("net_load_cv", 1.0, lambda load: load.load.network, "cpu_load_cv"),
    Metric("spindles_cv", 0.5, _present_spindles, "spindles_cv_forth"),
    Metric("free_mem_cv_forth", 0.5, lambda load: part(load.free_memory, load.node.total_memory)),
    Metric("free_disk_cv_forth", 0.5, _free_disk),
    Metric("vcpu_ratio_cv_forth", 0.5, lambda load: part(load.vcpus, load.node.cpu_power)),
    Metric("spindles_cv_forth", 0.5, _spindles),
)

DOMAIN_WEIGHT: Final = 1.0
CLASH_WEIGHT: Final = 1.0  # an exclusion tag twice in one failure domain
CLASHES: Final = "location_exclusion_score"
RESERVE_WEIGHT: Final = 0.25

COUNTS: Final = (
    Metric("n1_cnt", 1.0, lambda load: load.fails_n1 and load.primaries + load.secondaries),
    Metric("pri_tags_score", 2.0, lambda load: load.conflicts),
    Metric("location_score", DOMAIN_WEIGHT, lambda load: load.in_one_domain + load.unmet_wishes),
    Metric(RESERVED_TOTAL, 0.25, reserved_share),
)

# Of nodes that are offline or drained only this counts.
STRANDED: Final = (
    Metric("offline_all_cnt", 4.0, lambda load: load.primaries + load.secondaries),
    Metric("offline_pri_cnt", 16.0, lambda load: load.primaries),
)

_ORDER: Final = (
    *("free_mem_cv", "free_disk_cv", "n1_cnt", RESERVED, "offline_all_cnt", "offline_pri_cnt"),
    *("vcpu_ratio_cv", "cpu_load_cv", "mem_load_cv", "disk_load_cv", "net_load_cv"),
    *("pri_tags_score", "spindles_cv", "free_mem_cv_forth", "free_disk_cv_forth"),
    *("vcpu_ratio_cv_forth", "spindles_cv_forth", "location_score", CLASHES),
    "reserved_mem_rtotal",
)

Spreads = tuple[Metric, ...]


def spreads_of(instances: Collection[Instance], loads: Sequence[NodeLoad]) -> Spreads:
    """Return the spreads to be computed for a cluster with these instances, with their weights.

    Those that are equal for every node, whatever happens to these instances or to others that run,
    become one.
    """
    dynamic = {instance.load for instance in instances}
    differing = set()
    if any(load.idle_memory for load in loads) or [
        1 for instance in instances if instance.running_memory < instance.memory
    ]:
        differing.add("free_mem_cv")
    if [1 for instance in instances if instance.is_forthcoming]:
        differing.update(("free_disk_cv", "vcpu_ratio_cv", "spindles_cv"))
    if any(not load.cpu == load.memory == load.network for load in dynamic) or any(
        load.node.own_cpu_load for load in loads
    ):
        differing.update(("mem_load_cv", "net_load_cv"))
    weights = {each.name: each.weight for each in SPREADS}
    for each in SPREADS:
        if each.together and each.name not in differing:
            weights[each.together] += weights.pop(each.name)
    return tuple(
        Metric(each.name, weights[each.name], each.value)
        for each in SPREADS
        if each.name in weights
    )


class Share(Struct, frozen=True):
    """The share of one node in the sums: the values of its spreads, and its weighted counts."""

    values: tuple[float, ...]
    count: float


def share_of(load: NodeLoad, spreads: Spreads) -> Share:
    """Return the addends of a node to the sums of its group."""
    if not load.node.is_usable:
        nothing = (0.0,) * len(spreads)
        return Share(nothing, sum(each.weight * each.value(load) for each in STRANDED))
    return Share(
        tuple([each.value(load) for each in spreads]),
        sum([each.weight * each.value(load) for each in COUNTS]),
    )


class Tally(Struct, frozen=True):
    """Sums over the nodes of a group; ``size`` is the number of usable ones."""

    spreads: Spreads
    size: int
    sums: tuple[float, ...]
    squares: tuple[float, ...]
    count: float = 0.0

    def changed(self, old: Share, new: Share) -> Tally:
        """Return the sums after a node's share has changed."""
        return Tally(
            self.spreads,
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
        return Tally(self.spreads, self.size, self.sums, self.squares, self.count + amount)

    @property
    def score(self) -> float:
        """The score."""
        total = self.count
        size = self.size
        if not size:
            return total
        for spread, s, q in zip(self.spreads, self.sums, self.squares, strict=True):
            mean = s / size
            total += spread.weight * deviation(q / size - mean * mean)
        return total


def tally_of(loads: Iterable[NodeLoad], spreads: Spreads) -> Tally:
    """Return the sums of a group from scratch."""
    loads = list(loads)
    shares = [share_of(load, spreads) for load in loads]
    columns = list(zip(*(share.values for share in shares), strict=True)) or [()] * len(spreads)
    return Tally(
        spreads,
        sum(load.node.is_usable for load in loads),
        tuple(float(sum(column)) for column in columns),
        tuple(float(sum(value * value for value in column)) for column in columns),
        sum(share.count for share in shares),
    )


class Component(Struct, frozen=True):
    """A component of a score as it is printed."""

    name: str
    value: float
    weight: float


def components_of(loads: Iterable[NodeLoad], clashes: float) -> list[Component]:
    """Return all components of the score of a group, exactly and in the order of hbal.

    Args:
        clashes: exclusion tags too many in failure domains.
    """
    loads = list(loads)
    usable = [load for load in loads if load.node.is_usable]
    others = [load for load in loads if not load.node.is_usable]
    found = {CLASHES: Component(CLASHES, clashes, CLASH_WEIGHT)}
    for each in SPREADS:
        values = [each.value(load) for load in usable]
        found[each.name] = Component(each.name, _exact_deviation(values), each.weight)
    for metrics, among in ((COUNTS, usable), (STRANDED, others)):
        for each in metrics:
            total = float(sum(each.value(load) for load in among))
            found[each.name] = Component(each.name, total, each.weight)
    return [found[name] for name in _ORDER]


def least_reserve(loads: Iterable[NodeLoad]) -> float:
    """Return the part of the score that no balancing takes away: what reservations come to at best.

    With instances spread as memory is, the largest node has its share of the mirrored ones, and the
    others keep memory for these.
    """
    loads = list(loads)
    kept = sum(sum(load.guarded.values()) for load in loads)
    totals = [load.node.total_memory for load in loads]
    whole, largest = sum(totals), max(totals, default=0)
    return RESERVE_WEIGHT * part(kept * largest, whole * (whole - largest))


def score_of(components: Iterable[Component]) -> float:
    """Return the score that follows from its components."""
    return sum(each.value * each.weight for each in components)


def _exact_deviation(values: Sequence[float]) -> float:
    if not values:
        return 0.0
    mean = sum(values) / len(values)
    return sqrt(sum((value - mean) ** 2 for value in values) / len(values))
