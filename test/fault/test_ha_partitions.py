"""Five virtual nodes on a network that is cut, with helpers that do not help, and worse.

Real daemons, an etcd of the cluster's own on three of the nodes, watchdogs that end a node's
processes, and guests of which none may ever run twice: that is looked at all the time.

``GANETI_TEST_SEED`` plays the same damage again.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fakes import lan
from fakes.chance import seed
from fakes.dog import DEVICE
from fakes.failing_cluster import FailingCluster
from fakes.ha_cut_world import CutWorld, cut_world, guest_of
from fakes.ha_world import AGENT, DEADLINE_S
from rig import etcd

from ganeti.availability.records import FENCING, Fencing, Proof
from ganeti.system import daemon_control, process

pytestmark = [
    pytest.mark.skipif(not etcd.is_there(), reason="needs etcd"),
    pytest.mark.skipif(not lan.is_possible(), reason="needs networks of its own, as root"),
]

SEED = seed()
HITS = int(os.environ.get("GANETI_TEST_KILLS", "10"))
HIT_S_MAX = 2.0
PAUSE_S_MAX = 1.0
STUTTER_S = 0.3
MEMBERS = 3
HELPER_PATH = "/etc/ganeti/oob-helper"
HELPER = """#!/bin/sh
case "$1 $2" in
    *" {hanging}") exec sleep 600 ;;
    "power-status {lying}") echo '{{"powered": true}}' ;;
esac
"""


@pytest.fixture(scope="module")
def world() -> Iterator[CutWorld]:
    with cut_world() as made:
        yield made


def test_both_sides_of_a_cut_think_that_the_other_is_dead(world: CutWorld) -> None:
    cluster = world.cluster
    old, last = cluster.nodes[0], cluster.nodes[4]
    boots = {node: world.boot_of(node) for node in (old, last)}
    others = {node: world.boot_of(node) for node in cluster.nodes[1:4]}
    begun_s = time.monotonic()
    world.lan.cut([old, last])
    world.wait(world.has_moved, "the larger side has a master")
    print(f"another master after {time.monotonic() - begun_s:.1f} s")
    world.wait(lambda: world.has_bitten(old, last), "the smaller side is reset")
    world.wait_dead(boots)
    for node in boots:
        world.wait(
            lambda node=node: world.runs_elsewhere(guest_of(node), old, last),
            f"the guest of {node} runs on the larger side",
        )
    print(f"all guests after {time.monotonic() - begun_s:.1f} s")
    for node, boot in others.items():
        assert guest_of(node) in world.guests.on(node)
        assert world.boot_of(node) == boot
    world.settle()
    world.lan.mend()
    world.back(old, last)
    world.settle()


def test_helpers_that_hang_or_lie_prove_nothing_and_a_second_loss_comes_in_the_middle(
    world: CutWorld,
) -> None:
    cluster = world.cluster
    hanging, lying = [n for n in cluster.nodes if n != cluster.master][-2:]
    for name in cluster.nodes:
        helper = Path(cluster.paths_of(name).localize(HELPER_PATH))
        helper.write_text(HELPER.format(hanging=hanging, lying=lying))
        helper.chmod(0o755)
    # Its agent finds no watchdog any more.
    pipe = Path(cluster.paths_of(hanging).localize(DEVICE))
    daemon_control.stop_daemon(cluster.paths_of(hanging), AGENT)
    pipe.rename(f"{pipe}.away")
    world.start_agent(hanging)
    world.wait(lambda: hanging in world.present(), "it is there")
    for name in (hanging, lying):
        cluster.gnt(f"node modify --node-parameters oob_program={HELPER_PATH} {name}")
    boot = world.boot_of(lying)
    lost = {name: world.guests.on(name) for name in (hanging, lying)}
    cluster.cut_power(hanging)
    world.wait(lambda: world.loss_of(hanging), "it is missed")
    cluster.cut_power(lying)

    def trouble(name: str) -> str:
        found = world.read().one(FENCING + name, Fencing)
        return "" if found is None else found.trouble

    world.wait(lambda: "does not say that the node is off" in trouble(lying), "the lie is seen")
    world.wait(lambda: trouble(hanging), "it hangs")
    world.wait(lambda: world.is_dead(lying, boot), "its watchdog proves it")
    for guest in lost[lying]:
        world.wait(lambda g=guest: world.runs_elsewhere(g, hanging, lying), f"{guest} runs")
    loss = world.loss_of(hanging)
    assert loss is not None
    assert loss.proof is None
    assert all(world.guests.node_of(guest) is None for guest in lost[hanging])
    cluster.gnt(f"cluster ha-confirm-dead --yes {hanging}")
    for guest in lost[hanging]:
        world.wait(lambda g=guest: world.runs_elsewhere(g, hanging, lying), f"{guest} runs")
    confirmed = world.loss_of(hanging)
    assert confirmed is None or confirmed.proof is Proof.CONFIRMED
    world.settle()
    Path(f"{pipe}.away").rename(pipe)
    for name in (hanging, lying):
        cluster.gnt(f"node modify --node-parameters oob_program=default {name}")
    world.back(hanging, lying)


def etcds_of(cluster: FailingCluster, node: str) -> list[int]:
    """Return what the daemon ganeti-etcd of a node has started."""
    pid = daemon_control.running_pid(cluster.paths_of(node), "ganeti-etcd")
    children = Path("/proc").glob(f"{pid}/task/*/children")
    return [int(word) for file in children for word in file.read_text().split()]


def stutter(pids: Sequence[int], is_over: threading.Event) -> None:
    """Let processes stand still every now and then."""
    while not is_over.is_set():
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(STUTTER_S)


def test_agents_are_hit_at_random_while_a_node_is_lost_and_etcd_is_slow(world: CutWorld) -> None:
    chance = random.Random(SEED)
    cluster = world.cluster
    lost = [n for n in cluster.nodes if n != cluster.master and world.guests.on(n)][-1]
    guests = world.guests.on(lost)
    assert guests
    boot = world.boot_of(lost)
    etcds = [pid for node in cluster.nodes for pid in etcds_of(cluster, node)]
    assert len(etcds) == MEMBERS
    is_over = threading.Event()
    slow = threading.Thread(target=stutter, args=(etcds, is_over))
    cluster.cut_power(lost)
    slow.start()
    try:
        for _ in range(HITS):
            time.sleep(chance.uniform(0, HIT_S_MAX))  # that is the damage, not a wait
            hit(world, chance.choice([n for n in cluster.nodes if n != lost]), chance)
    finally:
        is_over.set()
        slow.join()
    proved_s = time.monotonic()

    def is_dead() -> bool:
        for node in cluster.nodes:
            if node != lost and world.dogs[node].bitten_s is not None:
                print(f"the watchdog has reset {node}, whose agent was hit")
                world.boot(node)
        # With many hits all may be done about it before the last one.
        return world.is_dead(lost, boot) or all(world.runs_elsewhere(g, lost) for g in guests)

    world.wait(is_dead, f"it is proved dead, seed {SEED}")
    # It comes back in the middle of what is done about that.
    world.boot(lost)
    for guest in guests:
        world.wait(lambda g=guest: is_up(world, g), f"{guest} runs, seed {SEED}")
    print(f"proved and restarted {time.monotonic() - proved_s:.1f} s after the last hit")
    world.settle()
    for node in cluster.nodes:
        cluster.gnt(f"node modify --offline=no --auto-promote --force {node}")
    assert world.present() == set(cluster.nodes)
    running = [world.guests.node_of(guest_of(node)) for node in cluster.nodes]
    assert None not in running, (SEED, running)
    assert not world.guests.twice, SEED


def hit(world: CutWorld, node: str, chance: random.Random) -> None:
    """Kill an agent, which is started again as systemd does, or let it stand still for a moment."""
    pid = world.agent(node)
    if pid is None:
        return
    if chance.random() < 0.5:
        os.kill(pid, signal.SIGKILL)
        assert process.wait_gone(pid, DEADLINE_S)
        world.start_agent(node)
        return
    os.kill(pid, signal.SIGSTOP)
    time.sleep(chance.uniform(0, PAUSE_S_MAX))  # damage, too
    os.kill(pid, signal.SIGCONT)


def is_up(world: CutWorld, guest: str) -> bool:
    """Tell whether a guest runs; the watcher starts what ended with a node that came back."""
    if world.guests.node_of(guest) is not None:
        return True
    if world.is_settled():
        world.cluster.run("ganeti-watcher --ignore-pause")
    return world.guests.node_of(guest) is not None
