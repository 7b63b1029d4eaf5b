#!/usr/bin/env python3
"""Runs a benchmark of two checkouts in turns, and compares the figures.

    bench/compare.py OTHER [--pairs 15] PROGRAM [ARGUMENT...]
    bench/compare.py ../before jobs --jobs 20 --instances 0

OTHER is a checkout of another version, with an environment of its own (`make venv` in it).  Both
take turns, so a machine that gets slower meanwhile slows both.  For each figure that the program
prints: the median of both, their ratio, and how far the middle half of the figures lies apart.  A
difference counts when the medians lie further apart than that.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

HERE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FIGURE: Final = re.compile(
    r"^\s*(?P<name>\S.*?)\s{2,}(?P<value>\d[\d,]*\.?\d*)\s*(?P<unit>[A-Za-z/%]*)"
)
_MACHINE: Final = ("load average", "bare interpreter", "write and fsync")  # not ours to compare
_RATES: Final = re.compile(r"per second|/s\b")  # more is better
_PAIRS: Final = 15

Figures = dict[str, list[float]]


def read(text: str) -> Mapping[str, float]:
    """Return the figures of one run by their name, with the section that they stand in."""
    found: dict[str, float] = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("---"):
            section = f"{line.strip('- ')}: "
        elif (match := _FIGURE.match(line)) and not line.strip().startswith(_MACHINE):
            name = f"{section}{match['name'].strip()} [{match['unit'] or 'number'}]"
            found.setdefault(name, float(match["value"].replace(",", "")))
    return found


def run(checkout: str, program: str, arguments: Sequence[str]) -> Mapping[str, float]:
    """Run the program of one checkout once."""
    command = [f"{checkout}/.venv/bin/python", f"{checkout}/bench/{program}.py", *arguments]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return read(done.stdout)


def spread(values: Sequence[float]) -> float:
    """Return how far the middle half of some values lies apart."""
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4)
    return high - low


def compare(name: str, before: Sequence[float], after: Sequence[float]) -> str:
    """Return the row of one figure."""
    old, new = statistics.median(before), statistics.median(after)
    apart = max(spread(before), spread(after))
    verdict = "same"
    if abs(new - old) > apart:
        more_is_better = _RATES.search(name) is not None
        verdict = "better" if (new > old) == more_is_better else "WORSE"
    ratio = f"{new / old:.2f}" if old else "-"
    return f"{name[:74]:74} {old:10.2f} {new:10.2f} {ratio:>6} {apart:9.2f}  {verdict}"


def main() -> None:
    """Take turns, then print one row for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("other", help="a checkout of the version to compare with")
    parser.add_argument("--pairs", type=int, default=_PAIRS)
    parser.add_argument("program", help="a program of bench/, without .py")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    before: Figures = defaultdict(list)
    after: Figures = defaultdict(list)
    turns = [(os.path.abspath(options.other), before), (HERE, after)]
    for pair in range(options.pairs):
        for checkout, figures in turns if pair % 2 else reversed(turns):
            for name, value in run(checkout, options.program, options.arguments).items():
                figures[name].append(value)
    print(f"{options.program}: {options.pairs} pairs, load {os.getloadavg()[0]:.1f}")
    print(f"{'':74} {'before':>10} {'after':>10} {'ratio':>6} {'spread':>9}")
    for name in (name for name in after if name in before):
        print(compare(name, before[name], after[name]))


if __name__ == "__main__":
    main()
