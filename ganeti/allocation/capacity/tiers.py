"""How many instances fit if those that no longer fit are made smaller.

A size that has no place gets smaller in one respect, by as little as possible, so that it has one:
first in what most nodes lack.  If no single respect will do, all get as small as it takes.

Source: manual page hspace(1), "--tiered-alloc".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ganeti.allocation.capacity.filling import fill, groups_for
from ganeti.allocation.capacity.search import Filled, Search
from ganeti.allocation.limits import Obstacle
from ganeti.allocation.model import Instance
from ganeti.allocation.snapshot import Snapshot, make_instance
from ganeti.allocation.state import ClusterState
from ganeti.allocation.tags import TagMeanings

_STEPS: Final = {"memory": 64, "disk": 256, "vcpus": 1, "spindles": 1}
_LACKING: Final = {
    Obstacle.MEMORY: "memory",
    Obstacle.REDUNDANCY: "memory",
    Obstacle.DISK: "disk",
    Obstacle.CPUS: "vcpus",
    Obstacle.SPINDLES: "spindles",
}


class Size(Struct, frozen=True):
    """The size of instances to be placed; memory and disk in MiB.

    Attributes:
        spindles: those that it has for itself, where storage is exclusive.
        spindle_use: its load on spindles, where they are shared; this gets no smaller.
    """

    memory: int
    disk: int
    vcpus: int
    spindles: int
    spindle_use: int = 1
    is_exclusive: bool = False

    def instance(self, template: str) -> Instance:
        """Return an instance of this size, without a place."""
        made = make_instance(
            "new",
            TagMeanings(),
            memory=self.memory,
            vcpus=self.vcpus,
            disk=self.disk,
            spindle_use=self.spindle_use,
            disk_template=template,
            disk_sizes=(self.disk,),
            nic_count=None,
        )
        if not self.is_exclusive:
            return made
        spec = replace(made.spec, spindles=self.spindles)
        return replace(
            made, spec=spec, spindles=self.spindles if made.template.traits.is_lvm else 0
        )

    def smaller(self, name: str, steps: int) -> Size:
        """Return the size with less of something."""
        return replace(self, **{name: getattr(self, name) - steps * _STEPS[name]})

    def steps_to(self, least: Size, name: str) -> int:
        """Return how many steps lead down to the least size; nothing gets as small as nothing."""
        difference: int = getattr(self, name) - max(1, getattr(least, name))
        return max(0, difference // _STEPS[name])


def size_of(spec: Mapping[str, int], *, spindle_use: int = 1, is_exclusive: bool = False) -> Size:
    """Return the size that a policy tells."""
    memory, disk, vcpus = spec["memory-size"], spec["disk-size"], spec["cpu-count"]
    return Size(memory, disk, vcpus, spec["spindle-use"], spindle_use, is_exclusive)


def has_exclusive_storage(snapshot: Snapshot) -> bool:
    """Tell whether new instances need spindles of their own on some node."""
    return any(node.exclusive_storage for node in snapshot.nodes.values())


class Range(Struct, frozen=True):
    """The sizes that a policy allows, from the largest to the least."""

    largest: Size
    least: Size


def fill_tiered(
    search: Search,
    cluster: ClusterState,
    ranges: Sequence[Range],
    template: str,
    names: Iterator[str],
    count_max: int,
) -> Filled:
    """Place instances of the largest size of each range, then smaller ones, down to the least."""
    placed: list[Instance] = []
    refused: Counter[Obstacle] = Counter()
    forbidden: Mapping[str, int] = {}
    tiers: Counter[tuple[int, int, int, int]] = Counter()
    for each in ranges:
        size: Size | None = each.largest
        while size is not None and len(placed) < count_max:
            instance = size.instance(template)
            filled = fill(cluster, search, instance, names, count_max - len(placed))
            placed += filled.placed
            if filled.placed:
                tiers[size.memory, size.disk, size.vcpus, size.spindles] += len(filled.placed)
            cluster, refused, forbidden = filled.after, Counter(filled.refused), filled.forbidden
            size = _next(search, cluster, size, each.least, template, refused)
    return Filled(placed, cluster, refused, forbidden, tiers=tiers)


def _next(
    search: Search,
    cluster: ClusterState,
    size: Size,
    least: Size,
    template: str,
    refused: Counter[Obstacle],
) -> Size | None:
    """Return the largest smaller size that has a place; None if there is none."""

    def has_place(wanted: Size) -> bool:
        groups = groups_for(cluster, search, wanted.instance(template))
        return any(group.best() is not None for group in groups)

    lacking = [_LACKING[why] for why, _ in refused.most_common() if why in _LACKING]
    order = list(dict.fromkeys([*lacking, *_STEPS]))
    for name in dict.fromkeys(lacking):
        steps = _fewest_steps(size, least, name, has_place)
        if steps is not None:
            return size.smaller(name, steps)
    # From the least of all, give back what is not lacking.
    smallest = size
    for name in order:
        smallest = smallest.smaller(name, smallest.steps_to(least, name))
    if smallest == size or not has_place(smallest):
        return None
    for name in reversed(order):
        whole = replace(smallest, **{name: getattr(size, name)})
        steps = 0 if has_place(whole) else _fewest_steps(whole, least, name, has_place)
        smallest = whole.smaller(name, steps or 0)
    return smallest


def _fewest_steps(
    size: Size, least: Size, name: str, has_place: Callable[[Size], bool]
) -> int | None:
    """Return the fewest steps after which a size has a place, by halving; it has none yet."""
    low, high = 0, size.steps_to(least, name)
    if not high or not has_place(size.smaller(name, high)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if has_place(size.smaller(name, middle)):
            high = middle
        else:
            low = middle
    return high
