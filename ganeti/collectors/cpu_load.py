"""Averages over time of counters that only grow, and collector "cpu-avg-load" of the processors.

Source: mond.json, collector "cpu-avg-load"; proc(5), /proc/stat.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.base.metrics import Sample, metrics_of
from ganeti.base.text import natural_sorted
from ganeti.collectors.collector import Collector, Data, NodeView, Timing, read_text
from ganeti.system import clock

STAT: Final = "/proc/stat"
_PROCESSOR: Final = re.compile(r"cpu[0-9]+")
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
# user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user
_BUSY_COLUMNS: Final = (0, 1, 2, 5, 6, 7)
SAMPLES_MAX: Final = 150
SPAN_S: Final = 600.0
_HELP: Final = "How busy a processor of the node was, on average over 10 minutes."
_SAMPLES_MIN: Final = 2  # however long the interval is, an average needs them


class LoadWindow:
    """The last samples of some counters, each counting seconds of use."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, dict[str, float]]] = deque(maxlen=SAMPLES_MAX)

    def add(self, now_s: float, used_s: Mapping[str, float]) -> None:
        """Take a sample; the clock must not jump.

        A counter that is smaller than before began anew: its older samples are forgotten.
        """
        last = self._samples[-1][1] if self._samples else {}
        for name in last.keys() - {
            name for name in last.keys() & used_s.keys() if used_s[name] >= last[name]
        }:
            for _, sample in self._samples:
                sample.pop(name, None)
        self._samples.append((now_s, dict(used_s)))
        while len(self._samples) > _SAMPLES_MIN and now_s - self._samples[0][0] > SPAN_S:
            self._samples.popleft()

    def loads(self) -> dict[str, float]:
        """Return {counter: seconds of use per second}, on average; 0 after a single sample."""
        if not self._samples:
            return {}
        now_s, newest = self._samples[-1]
        loads: dict[str, float] = {}
        for then_s, sample in self._samples:
            for name in sample.keys() - loads.keys():
                passed_s = now_s - then_s
                used_s = newest[name] - sample[name]
                loads[name] = used_s / passed_s if passed_s > 0 else 0.0
        return {name: loads[name] for name in newest}


def parse(text: str) -> dict[str, int]:
    """Return {processor: ticks that it was busy} of /proc/stat.

    Raises:
        GenericError: there is no processor in it, or a number is none.
    """
    found = {}
    for line in text.splitlines():
        name, *values = line.split() or [""]
        if _PROCESSOR.fullmatch(name):
            try:
                found[name] = sum(int(values[i]) for i in _BUSY_COLUMNS if i < len(values))
            except ValueError as err:
                raise GenericError(f"{STAT}: cannot understand {line!r}") from err
    if not found:
        raise GenericError(f"{STAT} names no processor")
    return found


class CpuLoad(Collector):
    """Collector "cpu-avg-load": how busy the processors of this node are."""

    name = "cpu-avg-load"
    summary = "how busy the processors were, on average over ten minutes"
    timing = Timing.STEADY
    empty = {"cpu_number": 0, "cpus": (), "cpu_total": 0.0}
    metrics = metrics_of(("cpu",), {"cpu_load_ratio": _HELP})

    def __init__(self, source: str = STAT) -> None:
        self._source = source
        self._window = LoadWindow()

    def collect(self, view: NodeView) -> object:
        """Return the load of each processor, and of all."""
        ticks = parse(read_text(self._source))
        used_s = {name: busy / _TICKS_PER_SECOND for name, busy in ticks.items()}
        self._window.add(clock.monotonic(), used_s)
        loads = self._window.loads()
        in_order = [loads[name] for name in natural_sorted(loads)]
        return {"cpu_number": len(in_order), "cpus": in_order, "cpu_total": sum(in_order)}

    @classmethod
    def samples(cls, data: Data) -> Iterator[Sample]:
        """Yield the load of each processor."""
        for number, load in enumerate(data["cpus"]):
            yield Sample("ganeti_cpu_load_ratio", load, (str(number),))
