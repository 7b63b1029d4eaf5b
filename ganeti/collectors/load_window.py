"""Averages over time from counters that only grow.  Pure.

Source: mond.json, collector "cpu-avg-load", "window".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

SAMPLES_MAX: Final = 150
SPAN_S: Final = 600.0
_SAMPLES_MIN: Final = 2  # however long the interval is, an average needs them


class LoadWindow:
    """The last samples of some counters, each counting seconds of use."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, dict[str, float]]] = deque(maxlen=SAMPLES_MAX)

    def add(self, now_s: float, used_s: Mapping[str, float]) -> None:
        """Take a sample; the clock must not jump.

        A counter that is smaller than before began anew: what it was before is forgotten.
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
