"""Two virtual nodes and a witness: real daemons, an etcd of the cluster's own, watchdogs.

The witness is a machine that is no node before; and the certificates of etcd are renewed under way.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.failing_cluster import failing_cluster
from fakes.ha_cut_world import NEW, guest_of
from fakes.ha_world import WITHOUT, World
from rig import etcd

from ganeti.availability.records import LOSSES
from ganeti.base.errors import GenericError
from ganeti.system import certificates, daemon_control

pytestmark = pytest.mark.skipif(not etcd.is_there(), reason="needs etcd")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with failing_cluster(3, without=WITHOUT) as cluster:
        made = World(cluster)
        try:
            cluster.gnt(f"node remove {cluster.nodes[2]}")
            for node in cluster.nodes[:2]:
                cluster.gnt(f"instance add {NEW} -n {node} {guest_of(node)}")
            yield made
        finally:
            made.close()
            for node in cluster.nodes:
                cluster.kill_node(node)


def nodes_of(world: World) -> list[str]:
    return world.cluster.gnt("node list --no-headers -o name").out.split()


def status(world: World) -> str:
    outcome = world.cluster.run("gnt-cluster ha-status")
    return outcome.out + outcome.err


def runs_on(world: World, node: str) -> list[str]:
    directory = world.cluster.paths_of(node).fake_dir
    found = os.listdir(directory) if os.path.exists(directory) else []
    return [name for name in found if "example.com" in name]


def test_a_machine_becomes_the_witness_of_two_nodes(world: World) -> None:
    cluster, witness = world.cluster, world.cluster.nodes[2]
    refused = cluster.run("gnt-cluster ha-enable")
    assert "take a third machine as a witness" in refused.out + refused.err
    world.enable(f"--witness={witness}")
    assert nodes_of(world) == list(cluster.nodes)
    assert world.settings.witness == witness
    assert sorted(world.settings.members) == list(cluster.nodes)
    world.wait(lambda: world.present() == set(cluster.nodes), "all are there")
    assert world.guarded() == set(cluster.nodes[:2])
    assert f"{cluster.nodes[1]} may take over" in status(world)
    assert "Warning" not in status(world)
    text = cluster.gnt("cluster verify").out
    assert "ERROR" not in text


def certificate_of(world: World, node: str, name: str) -> bytes:
    return Path(getattr(world.cluster.paths_of(node), name)).read_bytes()


class Reader(threading.Thread):
    """Asks etcd all the time.

    Attributes:
        failed: in a row, at most.
    """

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        self._world, self._is_over = world, threading.Event()
        self.answers = self.failed = 0
        self.start()

    def run(self) -> None:
        failed = 0
        while not self._is_over.wait(0.1):
            try:
                self._world.read()
            except GenericError:
                failed += 1
            else:
                self.answers, failed = self.answers + 1, 0
            self.failed = max(self.failed, failed)

    def stop(self) -> None:
        self._is_over.set()
        self.join()


def test_certificates_of_etcd_are_renewed_and_nobody_is_missed(world: World) -> None:
    cluster = world.cluster
    boots = {node: world.boot_of(node) for node in cluster.nodes}
    names = ("ha_certificate", "ha_authority", "ha_member_certificate", "ha_member_authority")
    before = {(n, name): certificate_of(world, n, name) for n in cluster.nodes for name in names}
    reader = Reader(world)
    cluster.gnt("cluster renew-crypto --force --new-etcd-certificates")
    reader.stop()
    assert reader.answers > 1
    assert reader.failed <= 2
    authority = certificates.facts(certificate_of(world, cluster.master, "ha_authority"), "")
    for (node, name), old in before.items():
        new = certificate_of(world, node, name)
        assert new != old
        assert new.count(b"BEGIN CERTIFICATE") == 1
        assert certificates.facts(new, name).issuer_name == authority.issuer_name
    assert {node: world.boot_of(node) for node in cluster.nodes} == boots
    assert not any(key.startswith(LOSSES) for key in world.read().entries)
    world.wait(lambda: world.present() == set(cluster.nodes), "all are there")
    cluster.gnt("cluster renew-crypto --force --new-etcd-certificates")  # and once more
    assert "ERROR" not in cluster.gnt("cluster verify").out


def test_without_the_witness_nothing_happens_but_that_it_is_told(world: World) -> None:
    cluster, witness = world.cluster, world.cluster.nodes[2]
    cluster.cut_power(witness)
    world.wait(lambda: "the witness, does not answer" in status(world), "it is told")
    assert world.loss_of(witness) is None
    assert world.holder() == cluster.master
    cluster.gnt("cluster add-tags without-witness")
    assert not any(dog.bitten_s for dog in world.dogs.values())
    world.boot(witness)
    world.wait(lambda: world.present() == set(cluster.nodes), "it is there again")


def test_one_of_two_nodes_is_lost_and_the_other_one_takes_over_all(world: World) -> None:
    cluster = world.cluster
    old, other, witness = cluster.nodes
    cluster.cut_power(old)
    world.wait(world.has_moved, "the other one is the master")
    assert cluster.master == other
    world.wait(lambda: len(runs_on(world, other)) == 2, "all guests run there")
    assert runs_on(world, witness) == []
    assert daemon_control.running_pid(cluster.paths_of(witness), "ganeti-luxid") is None
    world.wait(lambda: not any(k.startswith(LOSSES) for k in world.read().entries), "dealt with")
    world.back(old)
    assert "ERROR" not in cluster.gnt("cluster verify").out


def test_it_is_no_node_any_more_when_it_is_not_needed(world: World) -> None:
    cluster, witness = world.cluster, world.cluster.nodes[2]
    cluster.gnt("cluster ha-disable --force")
    assert nodes_of(world) == list(cluster.nodes[:2])
    assert not os.path.exists(cluster.paths_of(witness).high_availability)
    assert daemon_control.running_pid(cluster.paths_of(witness), "ganeti-etcd") is None
