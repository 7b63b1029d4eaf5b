"""The load of each node, and how placing or removing an instance changes it.

A `NodeLoad` is never changed: placing makes a new one, so a search can look at thousands of
possibilities and forget them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from ganeti.allocation.model import Instance, Node
from ganeti.objects.disk_templates import Mirroring


class Free(Struct, frozen=True):
    """The free resources that a node reports; memory less that of its instances that are down."""

    memory: int
    disk: int
    spindles: int = 0


class NodeLoad(Struct, frozen=True):
    """The free resources of a node, and its instances in numbers.

    Attributes:
        vcpus: virtual CPUs of its primary instances, and CPUs that the node uses itself.
        guarded: memory (MiB) of its secondary instances, by their primary node.
        reserved: memory that the failure of one other node would need here: the largest of these.
        partners: memory of running mirrored primary instances, by secondary node.
        movable: memory of its running primary instances that any other node could restart.
        exclusion: how many primary instances have each exclusion tag.
        in_one_domain: primary instances with a secondary node in this node's failure domains.
        unmet_wishes: places that primary instances would like and that this node is not.
    """

    node: Node
    free_memory: int
    free_disk: int
    free_spindles: int
    vcpus: int
    spindle_use: int
    primaries: int = 0
    secondaries: int = 0
    guarded: Mapping[str, int] = {}
    reserved: int = 0
    partners: Mapping[str, int] = {}
    movable: tuple[int, ...] = ()
    exclusion: Mapping[str, int] = {}
    in_one_domain: int = 0
    unmet_wishes: int = 0

    @property
    def deficit(self) -> int:
        """Memory missing to take over from the worst other node, and not be full to the brim."""
        return max(0, self.reserved - self.free_memory + 1) if self.reserved else 0

    @property
    def conflicts(self) -> int:
        """How many exclusion tags too many there are."""
        return sum([count - 1 for count in self.exclusion.values()]) if self.exclusion else 0

    def with_primary(self, instance: Instance, secondary: Node | None, sign: int = 1) -> NodeLoad:
        """Return the load with (1) or without (-1) an instance that has it as primary node."""
        partners, movable = self.partners, self.movable
        if secondary is not None:
            partners = _added(partners, secondary.name, sign * instance.running_memory)
        elif instance.mirroring is Mirroring.EXTERNAL:
            movable = _with_or_without(movable, instance.running_memory, sign)
        exclusion = self.exclusion
        for tag in instance.exclusion_tags:
            exclusion = _added(exclusion, tag, sign)
        return NodeLoad(
            self.node,
            self.free_memory - sign * instance.memory,
            self.free_disk - sign * instance.disk,
            self.free_spindles - sign * instance.spindles,
            self.vcpus + sign * instance.vcpus,
            self.spindle_use + sign * instance.spindle_use,
            self.primaries + sign,
            self.secondaries,
            self.guarded,
            self.reserved,
            partners,
            movable,
            exclusion,
            self.in_one_domain + sign * fails_together(self.node, secondary),
            self.unmet_wishes + sign * unmet(self.node, instance),
        )

    def with_secondary(self, instance: Instance, primary: str, sign: int = 1) -> NodeLoad:
        """Return the load with (1) or without (-1) the instance's mirror."""
        guarded = _added(self.guarded, primary, sign * instance.memory)
        if sign > 0:
            reserved = max(self.reserved, guarded.get(primary, 0))
        else:
            reserved = max(guarded.values(), default=0)
        return replace(
            self,
            free_disk=self.free_disk - sign * instance.disk,
            free_spindles=self.free_spindles - sign * instance.spindles,
            spindle_use=self.spindle_use + sign * instance.spindle_use,
            secondaries=self.secondaries + sign,
            guarded=guarded,
            reserved=reserved,
        )


def fails_together(node: Node, other: Node | None) -> int:
    """Return 1 if the two nodes have a common cause of failure."""
    return int(other is not None and not node.locations.isdisjoint(other.locations))


def unmet(node: Node, instance: Instance) -> int:
    """Return how many of the places that an instance would like this node is not."""
    return len(instance.wishes - node.locations)


def _added(counts: Mapping[str, int], key: str, amount: int) -> Mapping[str, int]:
    if not amount:
        return counts
    value = counts.get(key, 0) + amount
    if value:
        return {**counts, key: value}
    return {name: count for name, count in counts.items() if name != key}


def _with_or_without(values: tuple[int, ...], value: int, sign: int) -> tuple[int, ...]:
    if sign > 0:
        return (*values, value)
    where = values.index(value)
    return values[:where] + values[where + 1 :]


def load_of(
    node: Node,
    free: Free,
    primaries: Iterable[Instance],
    secondaries: Iterable[Instance],
    nodes: Mapping[str, Node],
) -> NodeLoad:
    """Return the load of a node that has these instances already."""
    primaries, secondaries = list(primaries), list(secondaries)
    guarded: Counter[str] = Counter()
    for instance in secondaries:
        guarded[instance.primary] += instance.memory
    partners: Counter[str] = Counter()
    for instance in primaries:
        if instance.secondary is not None:
            partners[instance.secondary] += instance.running_memory
    second = [nodes.get(instance.secondary or "") for instance in primaries]
    return NodeLoad(
        node=node,
        free_memory=free.memory,
        free_disk=free.disk,
        free_spindles=free.spindles,
        vcpus=node.own_cpus + sum(instance.vcpus for instance in primaries),
        spindle_use=sum(instance.spindle_use for instance in (*primaries, *secondaries)),
        primaries=len(primaries),
        secondaries=len(secondaries),
        guarded=_without_zeroes(guarded),
        reserved=max(guarded.values(), default=0),
        partners=_without_zeroes(partners),
        movable=tuple(
            each.running_memory for each in primaries if each.mirroring is Mirroring.EXTERNAL
        ),
        exclusion=dict(Counter(tag for each in primaries for tag in each.exclusion_tags)),
        in_one_domain=sum(fails_together(node, other) for other in second),
        unmet_wishes=sum(unmet(node, instance) for instance in primaries),
    )


def _without_zeroes(counts: Mapping[str, int]) -> Mapping[str, int]:
    return {name: count for name, count in counts.items() if count}
