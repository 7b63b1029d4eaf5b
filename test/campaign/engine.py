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
from statistics import median

from campaign.checks import check_world
from campaign.faults import FAULTS, Fault
from campaign.work import WORK, Worker
from campaign.world import Keeper, World, make_world
from fakes.campaign import install_hook

Tell = Callable[[str], None]


PROMISED_S = 5.0  # after which everything works again that can be replaced
TWICE = 0.25  # the chance that a quick fault follows at once


@dataclass
class Times:
    """How long faults lasted, and how long it took from their end until the cluster worked again.

    One that is not taken back, as a process that was killed, lasts no time.
    """

    lasted: dict[str, list[float]] = field(default_factory=dict)
    found: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, lasted_s: float, works_after_s: float) -> None:
        self.lasted.setdefault(name, []).append(lasted_s)
        self.found.setdefault(name, []).append(works_after_s)

    def table(self) -> list[str]:
        title = f"{'fault':36} {'times':>5} {'lasted':>7} {'works again after':>18}"
        lines = [f"{title} {'longest':>8} {f'over {PROMISED_S:g} s':>9}"]
        for name, all_s in sorted(self.found.items()):
            lasted_s, middle_s = median(self.lasted[name]), median(all_s)
            over = sum(seconds > PROMISED_S for seconds in all_s)
            lines.append(
                f"{name:36} {len(all_s):5} {lasted_s:6.1f}s {middle_s:17.1f}s {max(all_s):7.1f}s"
                f" {over or '':>9}"
            )
        return lines


@dataclass(frozen=True)
class Round:
    """One fault, or two at once, with the generator that decides about them."""

    faults: Sequence[Fault]
    chance: random.Random

    @property
    def name(self) -> str:
        return self.faults[0].name if len(self.faults) == 1 else "two at once"

    def inflict(self, world: World) -> str:
        told = [f"{each.name}: {each.inflict(world, self.chance)}" for each in self.faults]
        return "; and ".join(told)


@dataclass(frozen=True)
class Known:
    """A round that once found a failure, by the names of its faults and the seed of its chances."""

    faults: Sequence[str]
    seed: str
    found: str


KNOWN = (
    Known(
        ["processes of NodeD hang"],
        "spare/7",
        "a call waited for its whole deadline for a spare child of NodeD that hung",
    ),
)


class Rounds:
    """The rounds of a campaign, drawn from its seed: first each fault once, then by their weights.

    Before them come those that once found a failure.  Some are followed at once by a quick one.
    """

    def __init__(self, seed: int, faults: Sequence[Fault]) -> None:
        self._seed = seed
        self._faults = faults
        self._quick = [fault for fault in faults if fault.is_quick]
        self._first = random.Random(seed).sample(faults, len(faults))

    def round(self, number: int) -> Round:
        if number < len(KNOWN):
            known = KNOWN[number]
            named = {fault.name: fault for fault in self._faults}
            return Round([named[name] for name in known.faults], random.Random(known.seed))
        number -= len(KNOWN)
        chance = random.Random(f"{self._seed}/{number}/faults")
        if number < len(self._first):
            drawn = [self._first[number]]
        else:
            drawn = chance.choices(self._faults, [fault.weight for fault in self._faults])
            if chance.random() < TWICE:
                drawn.append(chance.choice(self._quick))
        return Round(drawn, random.Random(f"{self._seed}/{number}"))


def play(seed: int, seconds: float, directory: Path, tell: Tell, *, journal: bool = False) -> Times:
    """Play one campaign.

    Args:
        seconds: for the faults; the checks come after them.
        directory: empty, for programs.
        journal: have WConfD keep a journal beside the configuration.
    """
    times, plan = Times(), Rounds(seed, FAULTS)
    with make_world(directory, journal=journal) as world:
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
                drawn = plan.round(number)
                time.sleep(drawn.chance.uniform(0.1, 0.6))  # this is the random moment
                begun = time.monotonic()
                what = drawn.inflict(world)
                ended = time.monotonic()
                world.wait_works()
                lasted_s, works_after_s = ended - begun, time.monotonic() - ended
                times.add(drawn.name, lasted_s, works_after_s)
                tell(f"{number:4} {what}; {lasted_s:.1f} s, works after {works_after_s:.1f} s")
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
