#!/usr/bin/env python3
"""Measures how long the loss of a node lasts, under high availability at its default settings.

    bench/availability.py [--rounds 5]

Five virtual nodes with an etcd of their own; a watchdog of each node ends its processes if nobody
feeds it.  In each round the node of an instance on shared storage loses its power, and then the
master does; both come back afterwards.  The guest is of hypervisor ``fake`` and runs at once, so
what is measured is the way to its start: silence, proof, job.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

CHECKOUT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [CHECKOUT, os.path.join(CHECKOUT, "test"), os.path.join(CHECKOUT, "bench")]

from fakes.failing_cluster import failing_cluster  # noqa: E402 - needs that path
from fakes.ha_world import WITHOUT, World  # noqa: E402
from report import record  # noqa: E402

GUEST = "guest.example.com"
ADD = "--no-name-check --no-ip-check -o test -B memory=16 --disk 0:size=8m -t sharedfile"
GUEST_AIM_S, MASTER_AIM_S = 30, 20


class DefaultWorld(World):
    """One at the settings that a cluster has unless somebody says otherwise."""

    timing = ""


def timed(world: World, what: Callable[[], object], text: str) -> float:
    """Return the seconds until something is so."""
    begun_s = time.monotonic()
    world.wait(what, text)
    return time.monotonic() - begun_s


def runs_on(world: World, node: str) -> bool:
    """Tell whether the guest runs there, by what the node itself has."""
    return Path(world.cluster.paths_of(node).fake_dir, GUEST).exists()


def node_of_guest(world: World) -> str:
    """Return the guest's node, which is made another one than the master."""
    node = world.cluster.gnt(f"instance list --no-headers -o pnode {GUEST}").out.strip()
    if node == world.cluster.master:
        node = world.cluster.others[0]
        world.cluster.gnt(f"instance failover --force -n {node} {GUEST}")
    return node


def lose_guest(world: World) -> float:
    """Cut the power of the guest's node; return the seconds until it runs elsewhere."""
    lost = node_of_guest(world)
    others = [node for node in world.cluster.nodes if node != lost]
    world.cluster.cut_power(lost)
    took_s = timed(
        world, lambda: any(runs_on(world, node) for node in others), f"{GUEST} runs again"
    )
    world.back(lost)
    return took_s


def lose_master(world: World) -> float:
    """Cut the power of the master; return the seconds until another one answers."""
    lost = world.cluster.master
    node_of_guest(world)
    world.cluster.cut_power(lost)
    took_s = timed(world, world.has_moved, "another node is the master")
    world.cluster.gnt("cluster getmaster")
    world.back(lost)
    return took_s


def told(what: str, found: list[float], aim_s: int) -> None:
    """Print and record the times of one kind of loss."""
    found.sort()
    middle, worst = found[len(found) // 2], found[-1]
    print(f"{what:<48}{middle:6.1f} s, at most {worst:.1f} s (aim {aim_s} s)")
    record(f"{what}, median", f"{middle:.1f} s", f"{aim_s} s")
    record(f"{what}, longest", f"{worst:.1f} s", f"{aim_s} s")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description="measure the loss of nodes")
    parser.add_argument("--rounds", type=int, default=5)
    wanted = parser.parse_args()
    guests: list[float] = []
    masters: list[float] = []
    with failing_cluster(5, without=WITHOUT) as cluster:
        world = DefaultWorld(cluster)
        try:
            world.enable()
            cluster.gnt(f"instance add {ADD} -n {cluster.others[0]} {GUEST}")
            for _ in range(wanted.rounds):
                world.wait(lambda: world.guarded() == {*cluster.nodes}, "all are guarded")
                guests.append(lose_guest(world))
                world.wait(lambda: world.guarded() == {*cluster.nodes}, "all are guarded")
                masters.append(lose_master(world))
            cluster.gnt("cluster ha-disable --force")
        finally:
            world.close()
    told("a node's loss until its guest runs elsewhere", guests, GUEST_AIM_S)
    told("the master's loss until another one is it", masters, MASTER_AIM_S)


if __name__ == "__main__":
    main()
