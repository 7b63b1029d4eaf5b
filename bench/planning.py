#!/usr/bin/env python3
"""Compares hbal's steps with a whole plan: score, data, moves, downtime, gap to the bound, time.

    bench/planning.py [--nodes 20 80 200] [--instances-per-node 10] [--kinds random new]
                      [--time 120] [--numbers 1]

The clusters are those of test/fakes/uneven_clusters.py.  Time is that of the processor, of the plan
and of the bound; each of them ends after --time seconds of the clock, and is marked "+" then.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [CHECKOUT, os.path.join(CHECKOUT, "test")]

from fakes.uneven_clusters import uneven  # noqa: E402

from ganeti.allocation.balancing.search import Ends  # noqa: E402
from ganeti.allocation.balancing.steps import Limits  # noqa: E402
from ganeti.allocation.planning.plan import Figures, Task, bound_of, make_plan  # noqa: E402
from ganeti.allocation.sources.text_data import read_text  # noqa: E402
from ganeti.allocation.state import make_state  # noqa: E402

COLUMNS = ("nodes", "kind", "", "score", "moves", "GiB", "share", "pauses s", "bound", "gap", "s")


def line(*cells: object) -> None:
    """Print a row of the table."""
    print(" ".join(str(cell).rjust(9) for cell in cells), flush=True)


def row(nodes: int, kind: str, name: str, figures: Figures, *more: object) -> None:
    cells = (f"{figures.score:.4f}", figures.moves, f"{figures.data / 1024:.0f}")
    share, *rest = more
    line(nodes, kind, name, *cells, share, f"{figures.downtime:.2f}", *rest)


def compare(nodes: int, per_node: int, kind: str, number: int, limit_s: float) -> None:
    """Print the two rows of a cluster."""
    cluster = make_state(read_text(uneven(nodes, per_node, number, kind).encode(), "", ()))
    task = Task(cluster, next(iter(cluster.groups)), Limits(), Ends(1e-9, 0.01, 0.1))
    ends: dict[str, float] = {}
    started, began = time.monotonic(), time.process_time()

    def watch(phase: str, _part: float) -> bool:
        ends[phase] = time.process_time() - began
        return time.monotonic() - started > limit_s

    plan = make_plan(task, watch)
    started, bound_began = time.monotonic(), time.process_time()
    bound = bound_of(task, plan, lambda _: time.monotonic() - started > limit_s)
    bound_s = time.process_time() - bound_began
    row(nodes, kind, "greedy", plan.greedy, "100%", "", "", f"{ends['step by step']:.0f}")
    gap = plan.figures.data / bound.data - 1 if bound.data > 0 else 0.0
    share = f"{plan.figures.data / max(1, plan.greedy.data):.0%}"
    least = f"{bound.data / 1024:.0f}" + "+" * bound.is_cut
    spent = f"{ends['']:.0f}{'+' * plan.is_cut}, {bound_s:.0f}"
    row(nodes, kind, "plan", plan.figures, share, least, f"{gap:.0%}", spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[20, 80, 200])
    parser.add_argument("--instances-per-node", type=int, default=10)
    parser.add_argument("--kinds", nargs="+", default=["random", "new"])
    parser.add_argument("--numbers", type=int, default=1)
    parser.add_argument("--time", type=float, default=120)
    args = parser.parse_args()
    line(*COLUMNS)
    for nodes in args.nodes:
        for kind in args.kinds:
            for number in range(args.numbers):
                compare(nodes, args.instances_per_node, kind, number, args.time)


if __name__ == "__main__":
    main()
