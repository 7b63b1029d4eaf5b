"""One campaign: work goes on while faults happen, one after the other; then everything is checked.

The same seed plays the same faults, with the same chances, against the same work; only the moments
are the machine's.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from campaign.checks import check_world
from campaign.faults import FAULTS, Fault
from campaign.work import WORK, Worker
from campaign.world import Keeper, make_world
from fakes.campaign import install_hook

Tell = Callable[[str], None]


@dataclass
class Times:
    """How long it took until the cluster worked again, by fault, in seconds."""

    found: dict[str, list[float]] = field(default_factory=dict)

    def add(self, fault: Fault, seconds: float) -> None:
        self.found.setdefault(fault.name, []).append(seconds)

    def table(self) -> list[str]:
        lines = [f"{'fault':36} {'times':>5} {'middle':>7} {'longest':>8}"]
        for name, all_s in sorted(self.found.items()):
            middle_s = sorted(all_s)[len(all_s) // 2]
            lines.append(f"{name:36} {len(all_s):5} {middle_s:6.1f}s {max(all_s):7.1f}s")
        return lines


class Rounds:
    """The faults of a campaign, drawn from its seed: first each once, then by their weights."""

    def __init__(self, seed: int, faults: Sequence[Fault]) -> None:
        self._seed = seed
        self._faults = faults
        self._first = random.Random(seed).sample(faults, len(faults))

    def fault(self, number: int) -> tuple[Fault, random.Random]:
        """Return a fault and the generator that decides about it."""
        chance = random.Random(f"{self._seed}/{number}")
        if number < len(self._first):
            return self._first[number], chance
        weights = [fault.weight for fault in self._faults]
        return chance.choices(self._faults, weights)[0], chance


def play(seed: int, seconds: float, directory: Path, tell: Tell) -> Times:
    """Play one campaign.

    Args:
        seconds: for the faults; the checks come after them.
        directory: empty, for programs.
    """
    times, plan = Times(), Rounds(seed, FAULTS)
    with make_world(directory) as world:
        ran_path = install_hook(world.cluster)
        made = [kind for kind, count in WORK for _ in range(count)]
        workers = [kind(world, seed * 1000 + number) for number, kind in enumerate(made)]
        keeper = Keeper(world)
        for thread in (keeper, *workers):
            thread.start()
        end = time.monotonic() + seconds
        number = 0
        try:
            while time.monotonic() < end:
                fault, chance = plan.fault(number)
                time.sleep(chance.uniform(0.1, 0.6))  # this is the random moment
                begun = time.monotonic()
                what = fault.inflict(world, chance)
                world.wait_works()
                times.add(fault, time.monotonic() - begun)
                tell(f"{number:4} {fault.name}: {what}; {time.monotonic() - begun:.1f} s")
                _raise_failures(workers)
                number += 1
        finally:
            for worker in workers:
                worker.stop()
            for worker in workers:
                worker.join(180)
            keeper.stop()
        tell("the faults are over")
        begun = time.monotonic()
        world.mend()
        world.wait_works()
        _raise_failures(workers)
        for line in check_world(world, workers, ran_path):
            tell(line)
        for kind in dict.fromkeys(made):
            done = sum((each.done for each in workers if type(each) is kind), Counter[str]())
            tell(f"{kind.__name__}: {dict(done)}")
        tell(f"checked in {time.monotonic() - begun:.0f} s")
    return times


def _raise_failures(workers: Sequence[Worker]) -> None:
    for worker in workers:
        if worker.failed is not None:
            raise worker.failed
