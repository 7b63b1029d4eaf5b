"""A group as arrays: what a search needs of its nodes, and of the instances that could move.

The loads of the nodes (`ganeti.allocation.load`) stay the truth.  When one changes, its column of
the arrays is written again, so that no error adds up over many steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from ganeti.allocation.load import NodeLoad, shared_domains
from ganeti.allocation.model import Instance, Rules
from ganeti.allocation.score import CLASH_WEIGHT, Metric, share_of
from ganeti.allocation.state import ClusterState, clash_keys, excess, group_state

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]


class _Effect(Struct, frozen=True):
    """How an instance changes a spread of its primary node, or of both its nodes.

    Attributes:
        amount: of the instance.
        whole: the amount that is 1 on this node; 0 where the amount does not count.
    """

    amount: Callable[[Instance], float]
    whole: Callable[[NodeLoad], float] = lambda _: 1.0
    on_both: bool = False


def _spindle_count(load: NodeLoad) -> float:
    return load.node.spindle_count if load.node.exclusive_storage else 0


_MEMORY = _Effect(lambda each: -each.memory, lambda load: load.node.total_memory)
_VCPUS = _Effect(lambda each: each.vcpus, lambda load: load.node.cpu_power)
_DISK = _Effect(
    lambda each: -each.disk,
    lambda load: 0 if load.node.exclusive_storage else load.node.total_disk,
    on_both=True,
)
_SPINDLES = _Effect(
    lambda each: each.spindle_use,
    lambda load: 0 if load.node.exclusive_storage else load.node.spindles_max,
    on_both=True,
)
_DEDICATED = _Effect(lambda each: -each.spindles, _spindle_count, on_both=True)
_DEDICATED_FORTH = replace(
    _DEDICATED, whole=lambda load: 0 if load.promised.unmeasured else _spindle_count(load)
)
# Of each spread but that of reserved memory, which is the largest of many sums.
_EFFECTS: Final[Mapping[str, tuple[_Effect, ...]]] = {
    "free_mem_cv": (replace(_MEMORY, amount=lambda each: -each.running_memory),),
    "free_mem_cv_forth": (_MEMORY,),
    "free_disk_cv": (_DISK, _DEDICATED),
    "free_disk_cv_forth": (_DISK, _DEDICATED_FORTH),
    "vcpu_ratio_cv": (_VCPUS,),
    "vcpu_ratio_cv_forth": (_VCPUS,),
    "cpu_load_cv": (_Effect(lambda each: each.load.cpu),),
    "mem_load_cv": (_Effect(lambda each: each.load.memory),),
    "disk_load_cv": (_Effect(lambda each: each.load.disk, on_both=True),),
    "net_load_cv": (_Effect(lambda each: each.load.network),),
    "spindles_cv": (_SPINDLES,),
    "spindles_cv_forth": (_SPINDLES,),
}


class Spread:
    """A spread: the values of the nodes, and by how much each instance changes them.

    Attributes:
        weight: that of the deviation in the score.
        values: of each node; 0 if it is not usable.
        offsets: the same less the mean; 0 if it is not usable.
        variance: that of the usable nodes.
        parts: amounts of the instances, and the factor of each node that makes values of them.
        on_both: whether secondary nodes change as primary ones do.
    """

    def __init__(
        self, metric: Metric, instances: Sequence[Instance], loads: Sequence[NodeLoad]
    ) -> None:
        self.metric = metric
        self.weight = metric.weight
        self.values: Floats = np.zeros(len(loads))
        self.offsets: Floats = np.zeros(len(loads))
        self.variance = 0.0
        effects = _EFFECTS.get(metric.name, ())
        self.on_both = any(each.on_both for each in effects)
        self.parts: list[tuple[Floats, Floats]] = []
        for effect in effects:
            amounts = np.array([effect.amount(each) for each in instances], dtype=float)
            factors = np.array([_factor(effect.whole(load), load) for load in loads])
            if amounts.any() and factors.any():
                self.parts.append((amounts, factors))

    @property
    def deviation(self) -> float:
        """The standard deviation."""
        return float(np.sqrt(self.variance))

    def measure(self, usable: Floats, size: int) -> None:
        """Compute mean and variance again, after values have changed."""
        self.offsets = (self.values - self.values.sum() / max(1, size)) * usable
        self.variance = float(np.dot(self.offsets, self.offsets)) / max(1, size)


def _factor(whole: float, load: NodeLoad) -> float:
    return 1 / whole if whole and load.node.is_usable else 0.0


class Labels:
    """Numbers for the different sets of labels that instances have."""

    def __init__(self, sets: Iterable[frozenset[str]]) -> None:
        self._numbers: dict[frozenset[str], int] = {frozenset(): 0}
        self.of: Indices = np.array(
            [self._numbers.setdefault(each, len(self._numbers)) for each in sets], dtype=np.int64
        )
        self.sets = list(self._numbers)

    def __bool__(self) -> bool:
        return len(self.sets) > 1


class Arrays:
    """The nodes of a group, and some of its instances.

    Columns are nodes in the order of `names`, rows are instances in the order of `instances`.

    Attributes:
        loads: of the nodes, as they are now.
        primary: column of each instance's primary node.
        secondary: that of its secondary node, -1 without one.
        guarded: memory (MiB) by the node that guards it (row) and the node that would fail.
        guarded_by: the same, transposed.
        has_tag: for each set of exclusion tags (row) how many of them a node has.
        has_tag_twice: the same of those that it has more than once.
        in_common: failure domains that two nodes share; None if there are none.
        unmet: for each set of wishes (row) how many of them a node does not meet.
        domains: whether a usable node (row) is in a failure domain.
        has_clash, has_clash_twice: as ``has_tag``, for failure domains.
    """

    def __init__(
        self, cluster: ClusterState, group: str, instances: Iterable[Instance], rules: Rules
    ) -> None:
        self._cluster = cluster
        self._group = group
        state = cluster.groups[group]
        self.loads = list(state.loads.values())
        self.nodes = [load.node for load in self.loads]
        self.names = [node.name for node in self.nodes]
        self._column = {name: column for column, name in enumerate(self.names)}
        self.instances = list(instances)
        self._moved: dict[str, Instance] = {}
        self._rules = rules
        count = len(self.nodes)
        self.usable: Floats = np.array([float(node.is_usable) for node in self.nodes])
        self.size = int(self.usable.sum())
        self._spread_metrics = state.tally.spreads
        self.spreads = [Spread(each, self.instances, self.loads) for each in state.tally.spreads]
        self._counts: Floats = np.zeros(count)
        self._fill_instances()
        self._fill_limits(count)
        self._fill_places(state.clashes)
        for column in range(count):
            self._copy(column)
        self._measure()

    @property
    def score(self) -> float:
        """The score of the group as it is now, exactly."""
        deviations = sum(each.weight * each.deviation for each in self.spreads)
        clashes = CLASH_WEIGHT * excess(self._clashes, self._clashes)
        return float(deviations + self._counts.sum() + clashes)

    def cluster(self) -> ClusterState:
        """Return the cluster as it is now."""
        old = self._cluster.groups[self._group]
        loads = dict(zip(self.names, self.loads, strict=True))
        state = group_state(old.group, loads, self._clashes, self._spread_metrics)
        return ClusterState(
            {**self._cluster.groups, self._group: state},
            self._cluster.nodes,
            {**self._cluster.instances, **self._moved},
        )

    def columns(self, names: Iterable[str]) -> list[int]:
        """Return the columns of nodes."""
        return [self._column[name] for name in names]

    def loads_after(self, row: int, nodes: tuple[str, ...]) -> dict[int, NodeLoad]:
        """Return the loads, by column, that change if an instance moves to these nodes."""
        before = self.instances[row]
        loads: dict[int, NodeLoad] = {}
        for instance, sign in ((before, -1), (replace(before, nodes=nodes), 1)):
            first, *rest = self.columns(instance.nodes)
            second = self.nodes[rest[0]] if rest else None
            load = loads.get(first, self.loads[first])
            loads[first] = load.with_primary(instance, second, sign)
            for other in rest:
                load = loads.get(other, self.loads[other])
                loads[other] = load.with_secondary(instance, instance.primary, sign)
        return loads

    def move(self, row: int, nodes: tuple[str, ...]) -> list[int]:
        """Move an instance to other nodes.

        Returns:
            The columns that have changed.
        """
        loads = self.loads_after(row, nodes)
        before = self.instances[row]
        after = self.instances[row] = self._moved[before.name] = replace(before, nodes=nodes)
        for instance, sign in ((before, -1), (after, 1)):
            for key in clash_keys(instance, self.nodes[self._column[instance.primary]]):
                self._clashes[key] = self._clashes.get(key, 0) + sign
        self._locate(row)
        for column, load in loads.items():
            self.loads[column] = load
            self._copy(column)
        if self.clash_tags:
            self._count_clashes()
        self._measure()
        return list(loads)

    def rows_on(self, columns: Sequence[int]) -> Indices:
        """Return the rows of the instances on any of these nodes."""
        marks = np.zeros(len(self.names) + 1, dtype=bool)
        marks[columns] = True
        return np.flatnonzero(marks[self.primary] | marks[self.secondary])

    def _fill_instances(self) -> None:
        def column(read: Callable[[Instance], float]) -> Floats:
            return np.array([read(each) for each in self.instances], dtype=float)

        self.memory = column(lambda each: each.memory)
        self.running_memory = column(lambda each: each.running_memory)
        self.kept_memory = column(lambda each: each.kept_memory)
        self.disk = column(lambda each: each.disk)
        self.spindles = column(lambda each: each.spindles)
        self.vcpus = column(lambda each: each.vcpus)
        self.spindle_use = column(lambda each: each.spindle_use)
        self.primary: Indices = np.zeros(len(self.instances), dtype=np.int64)
        self.secondary: Indices = np.full(len(self.instances), -1)
        for row in range(len(self.instances)):
            self._locate(row)

    def _locate(self, row: int) -> None:
        self.primary[row], *rest = self.columns(self.instances[row].nodes)
        self.secondary[row] = rest[0] if rest else -1

    def _fill_limits(self, count: int) -> None:
        self.guarded: Floats = np.zeros((count, count + 1))
        self.guarded_by: Floats = np.zeros((count, count))
        self.largest: Indices = np.zeros(count, dtype=np.int64)
        self.next_largest: Floats = np.zeros(count)
        self.reserved: Floats = np.zeros(count)
        self.present: Floats = np.zeros(count)
        self.deficit: Floats = np.zeros(count)
        self.members: Floats = np.zeros(count)
        self.failing: Floats = np.zeros(count)
        self.spare_memory: Floats = np.zeros(count)
        self.spare_disk: Floats = np.zeros(count)
        self.spare_spindles: Floats = np.zeros(count)
        self.spare_vcpus: Floats = np.zeros(count)
        self.spare_spindle_use: Floats = np.zeros(count)
        self.reserve_factor = np.array(
            [_factor(load.node.total_memory, load) for load in self.loads]
        )

    def _fill_places(self, clashes: Mapping[tuple[str, str], int]) -> None:
        count = len(self.nodes)
        self.tags = Labels(each.exclusion_tags for each in self.instances)
        self.wishes = Labels(each.wishes for each in self.instances)
        names = sorted({tag for each in self.tags.sets for tag in each})
        self._tag_number = {tag: number for number, tag in enumerate(names)}
        self._sets = np.array([[tag in each for tag in names] for each in self.tags.sets], float)
        self.has_tag: Floats = np.zeros((len(self.tags.sets), count))
        self.has_tag_twice: Floats = np.zeros((len(self.tags.sets), count))
        self.unmet: Floats = np.array(
            [[len(each - node.locations) for node in self.nodes] for each in self.wishes.sets],
            float,
        )
        places = sorted({place for node in self.nodes for place in node.locations})
        self.in_common: Floats | None = None
        if places:
            self.in_common = np.array(
                [[shared_domains(a, b) for b in self.nodes] for a in self.nodes], dtype=float
            )
        self._clashes = dict(clashes)
        self.clash_tags = bool(places and self.tags)
        self._places = places
        self.domains: Mask = np.array(
            [
                [node.is_usable and place in node.locations for place in places]
                for node in self.nodes
            ]
        )
        self.has_clash: Floats = np.zeros((len(self.tags.sets), len(places)))
        self.has_clash_twice = self.has_clash
        if self.clash_tags:
            self._count_clashes()

    def _count_clashes(self) -> None:
        counts = np.array(
            [
                [self._clashes.get((place, tag), 0) for tag in self._tag_number]
                for place in self._places
            ]
        )
        self.has_clash = self._sets @ (counts > 0).T
        self.has_clash_twice = self._sets @ (counts > 1).T

    def _copy(self, column: int) -> None:
        """Write what follows from the load of a node."""
        load = self.loads[column]
        node, share = load.node, share_of(load, self._spread_metrics)
        self._counts[column] = share.count
        for spread, value in zip(self.spreads, share.values, strict=True):
            spread.values[column] = value
        row = np.zeros(len(self.nodes) + 1)
        for name, memory in load.guarded.items():
            place = self._column.get(name, -1)  # at the end: the nodes of other groups
            row[place] = max(row[place], memory)
        self.guarded[column] = row
        self.guarded_by[:, column] = row[:-1]
        largest = self.largest[column] = int(row.argmax())
        row[largest] = 0
        self.next_largest[column] = row.max()
        self.reserved[column] = load.reserved
        self.present[column] = load.present_free_memory
        self.deficit[column] = load.deficit
        self.members[column] = load.primaries + load.secondaries
        self.failing[column] = load.fails_n1 and self.members[column]
        self.spare_memory[column] = load.free_memory - 1
        self.spare_disk[column] = load.free_disk - load.file_disk - node.disk_min - 1
        self.spare_spindles[column] = max(0, load.free_spindles)
        if not node.exclusive_storage:
            self.spare_spindles[column] = np.inf
        self._copy_soft(column, load)

    def _copy_soft(self, column: int, load: NodeLoad) -> None:
        node, is_strict = load.node, not self._rules.ignores_soft
        vcpus = max(0, node.vcpus_max - load.vcpus) if is_strict else np.inf
        self.spare_vcpus[column] = vcpus
        is_bound = is_strict and not node.exclusive_storage
        use = max(0, node.spindles_max - load.spindle_use) if is_bound else np.inf
        self.spare_spindle_use[column] = use
        counts = np.zeros(len(self._tag_number))
        for tag, count in load.exclusion.items():
            if tag in self._tag_number:
                counts[self._tag_number[tag]] = count
        self.has_tag[:, column] = self._sets @ (counts > 0)
        self.has_tag_twice[:, column] = self._sets @ (counts > 1)

    def _measure(self) -> None:
        for each in self.spreads:
            each.measure(self.usable, self.size)
