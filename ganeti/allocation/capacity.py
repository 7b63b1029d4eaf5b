"""How many more instances fit: one after the other, each in the best place, until none is left.

`fill` places instances of one size; `fill_tiered` goes on with smaller ones, made smaller by what
most nodes lacked, down to the least that a policy allows.

Source: manual page hspace(1).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ganeti.allocation.limits import Obstacle
from ganeti.allocation.model import Instance, Rules
from ganeti.allocation.placing import GroupChoice, choose_group
from ganeti.allocation.snapshot import make_instance
from ganeti.allocation.state import ClusterState
from ganeti.allocation.tags import TagMeanings


class Filled(Struct, frozen=True):
    """The instances that were placed, the state with them, and why no more fit.

    ``choice`` is the last search, None if as many were placed as were wanted.
    """

    placed: list[Instance]
    after: ClusterState
    choice: GroupChoice | None = None

    @property
    def refused(self) -> Counter[Obstacle]:
        """How many nodes, or pairs, were refused in the end for each reason."""
        found: Counter[Obstacle] = Counter()
        for outcome in self.choice.failed if self.choice else ():
            for (_, why), number in outcome.refused.items():
                found[why] += number
        return found


class Search(Struct, frozen=True):
    """Where and by which rules to place instances."""

    rules: Rules
    groups: Iterable[str]
    is_explicit: bool = False

    def fill(
        self, cluster: ClusterState, instance: Instance, names: Iterator[str], count_max: int
    ) -> Filled:
        """Place copies of an instance, under these names as far as they are free."""
        placed: list[Instance] = []
        while len(placed) < count_max:
            choice = choose_group(
                cluster, instance, self.rules, self.groups, is_explicit=self.is_explicit
            )
            if choice.best is None:
                return Filled(placed, cluster, choice)
            name = next(each for each in names if each not in cluster.instances)
            placed.append(replace(instance, name=name, nodes=choice.best.nodes))
            cluster = cluster.with_instance(placed[-1])
        return Filled(placed, cluster)


class Size(Struct, frozen=True):
    """The size of instances to be placed; memory and disk in MiB."""

    memory: int
    disk: int
    vcpus: int
    spindle_use: int

    def instance(self, template: str) -> Instance:
        """Return an instance of this size, without a place."""
        return make_instance(
            "new",
            TagMeanings(),
            memory=self.memory,
            vcpus=self.vcpus,
            disk=self.disk,
            spindle_use=self.spindle_use,
            disk_template=template,
            disk_sizes=(self.disk,),
            nic_count=1,
        )

    def smaller(self, why: Obstacle, least: Size) -> Size | None:
        """Return the next size that takes less of what is lacking; None if there is none."""
        name, step = _STEPS.get(why, ("", 0))
        if not name or getattr(self, name) - step < getattr(least, name):
            return None
        return replace(self, **{name: getattr(self, name) - step})


_STEPS: Final = {
    Obstacle.MEMORY: ("memory", 64),
    Obstacle.REDUNDANCY: ("memory", 64),
    Obstacle.DISK: ("disk", 256),
    Obstacle.CPUS: ("vcpus", 1),
    Obstacle.SPINDLES: ("spindle_use", 1),
}


def new_names(prefix: str = "new", start: int = 0) -> Iterator[str]:
    """Yield names for instances."""
    return (f"{prefix}-{number}" for number in count(start))


def fill_tiered(
    search: Search, cluster: ClusterState, size: Size, least: Size, template: str, count_max: int
) -> Filled:
    """Place instances of a size, then smaller ones, until not even the least size fits."""
    names, placed = new_names(), list[Instance]()
    while True:
        filled = search.fill(cluster, size.instance(template), names, count_max - len(placed))
        placed += filled.placed
        cluster = filled.after
        sizes = (size.smaller(why, least) for why, _ in filled.refused.most_common())
        following = next(filter(None, sizes), None)
        if following is None:
            return Filled(placed, cluster, filled.choice)
        size = following
