"""Five virtual nodes that share a lease disk: real daemons, real etcd, a network that is cut.

A file stands for the disk; each node has a name of its own for it, so that one node can lose it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from fakes import lan
from fakes.failing_cluster import FailingCluster
from fakes.ha_cut_world import CutWorld, cut_world, guest_of
from fakes.ha_world import WATCHDOG_S
from fakes.hung_file import hung
from rig import etcd

from ganeti.availability.disk import MAGIC
from ganeti.availability.records import GUARDS, Guard, Proof

pytestmark = [
    pytest.mark.skipif(not etcd.is_there(), reason="needs etcd"),
    pytest.mark.skipif(not lan.is_possible(), reason="needs networks of its own, as root"),
]
only_in_long_runs = pytest.mark.skipif(
    "GANETI_TEST_KILLS" not in os.environ, reason="takes a minute: part of make test-long"
)

DISK: Final = "/dev/lease"
LEASE_S: Final = 3.0


def shared(cluster: FailingCluster) -> Path:
    return Path(cluster.layout.shared_directory) / "lease"


def name_of(cluster: FailingCluster, node: str) -> Path:
    """Return the name that a node has for the disk."""
    return Path(cluster.paths_of(node).localize(DISK))


def connect(cluster: FailingCluster) -> None:
    """Let all nodes have the disk."""
    for node in cluster.nodes:
        name_of(cluster, node).symlink_to(shared(cluster))


@pytest.fixture(scope="module")
def world() -> Iterator[CutWorld]:
    with cut_world(f"--lease-disk={DISK}", before=connect) as made:
        yield made


def on_disk(world: CutWorld) -> set[str]:
    """Return the nodes that live on by the disk, too, as etcd has it."""
    guards = world.read().below(GUARDS, Guard).items()
    return {node for node, guard in guards if guard.disk}


def wait_on_disk(world: CutWorld) -> None:
    world.wait(lambda: on_disk(world) == {*world.cluster.nodes}, "all hold their leases")


def wait_proved(world: CutWorld, node: str, boot: str) -> Proof:
    found: list[Proof] = []

    def is_proved() -> bool:
        loss = world.loss_of(node)
        if loss is not None and loss.boot_id == boot and loss.proof is not None:
            found.append(loss.proof)
        return bool(found)

    world.wait(is_proved, f"{node} is proved dead")
    return found[0]


def test_all_nodes_hold_leases_on_the_disk(world: CutWorld) -> None:
    wait_on_disk(world)
    cluster = world.cluster
    assert f"5 of 5 nodes hold a lease on {DISK}" in cluster.gnt("cluster ha-status").out
    assert "ERROR" not in cluster.gnt("cluster verify").out
    refused = cluster.run(["gnt-cluster", "ha-enable", "--watchdog=none"])
    assert "a lease on a disk proves nothing without a watchdog" in refused.err + refused.out


def test_when_the_whole_network_fails_nobody_is_reset(world: CutWorld) -> None:
    cluster = world.cluster
    boots = {node: world.boot_of(node) for node in cluster.nodes}
    world.lan.isolate(cluster.nodes)
    time.sleep(2 * (LEASE_S + WATCHDOG_S))  # that is the damage, not a wait
    world.lan.mend()
    world.wait(lambda: world.present() == set(cluster.nodes), "all are there again")
    assert {node: world.boot_of(node) for node in cluster.nodes} == boots
    assert not any(dog.bitten_s for dog in world.dogs.values())
    world.wait(lambda: world.holder() == cluster.master, "the master holds its lease")
    wait_on_disk(world)


def test_a_node_that_is_cut_off_gives_up_on_the_disk(world: CutWorld) -> None:
    cluster = world.cluster
    lost = next(node for node in cluster.nodes if node != cluster.master)
    boot, begun_s = world.boot_of(lost), time.monotonic()
    world.lan.cut([lost])
    assert wait_proved(world, lost, boot) is Proof.DISK
    print(f"{lost} is proved dead after {time.monotonic() - begun_s:.1f} s")
    assert world.has_bitten(lost)
    world.wait(lambda: world.runs_elsewhere(guest_of(lost), lost), "its guest runs")
    print(f"its guest runs elsewhere after {time.monotonic() - begun_s:.1f} s")
    world.settle()
    world.lan.mend()
    world.back(lost)
    wait_on_disk(world)


@only_in_long_runs
def test_who_loses_the_disk_or_finds_another_one_lives_and_is_proved_dead_as_ever(
    world: CutWorld,
) -> None:
    cluster = world.cluster
    lost, swapped = [node for node in cluster.nodes if node != cluster.master][-2:]
    name_of(cluster, lost).unlink()
    other = shared(cluster).with_name("other")
    before = shared(cluster).read_bytes()
    other.write_bytes(before.replace(b'"cluster":"', b'"cluster":"x', 1))
    name_of(cluster, swapped).unlink()
    name_of(cluster, swapped).symlink_to(other)
    content = other.read_bytes()
    world.wait(lambda: on_disk(world).isdisjoint({lost, swapped}), "etcd knows that")
    said = cluster.run(["gnt-cluster", "verify-config"])
    assert f"does not hold its lease on {DISK}: No such file" in said.out + said.err
    assert f"{swapped} does not hold its lease" in cluster.run("gnt-cluster ha-status").out
    assert other.read_bytes() == content
    boot = world.boot_of(lost)
    world.lan.cut([lost])
    assert wait_proved(world, lost, boot) is Proof.WATCHDOG
    world.settle()
    world.lan.mend()
    for node in (lost, swapped):
        name_of(cluster, node).unlink(missing_ok=True)
        name_of(cluster, node).symlink_to(shared(cluster))
    world.back(lost)
    wait_on_disk(world)


@only_in_long_runs
def test_a_disk_that_hangs_costs_nobody_anything(world: CutWorld) -> None:
    cluster = world.cluster
    boots = {node: world.boot_of(node) for node in cluster.nodes}
    with hung(shared(cluster)):
        world.wait(lambda: not on_disk(world), "nobody counts on the disk")
        said = cluster.run("gnt-cluster ha-status").out
        assert f"0 of 5 nodes hold a lease on {DISK}" in said
    wait_on_disk(world)
    assert {node: world.boot_of(node) for node in cluster.nodes} == boots
    assert not world.guests.twice


def test_it_is_taken_away_with_everything_on_it(world: CutWorld) -> None:
    cluster = world.cluster
    assert shared(cluster).read_bytes().startswith(MAGIC)
    cluster.gnt("cluster ha-enable --lease-disk=none")
    # Who was about to write its slot takes that back.
    world.wait(lambda: not any(shared(cluster).read_bytes()), "the disk is empty")
    world.wait(lambda: not on_disk(world), "etcd knows that")
    shared(cluster).write_bytes(b"somebody's data".ljust(1 << 20, b"."))
    refused = cluster.run(["gnt-cluster", "ha-enable", f"--lease-disk={DISK}"])
    assert "it is not empty" in refused.err + refused.out
    assert shared(cluster).read_bytes().startswith(b"somebody's data")
    shared(cluster).unlink()
    cluster.gnt(f"cluster ha-enable --lease-disk={DISK}")
    wait_on_disk(world)
    cluster.gnt("cluster ha-disable --force")
    assert not any(shared(cluster).read_bytes())
