"""Five virtual nodes lose each other: real daemons, real etcd, watchdogs that end a node's processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fakes.dog import DEVICE, Dog
from fakes.failing_cluster import FailingCluster, failing_cluster
from fakes.waiting import wait_until
from rig import etcd
from rig.etcd import Member

from ganeti.availability.records import LOSSES, MASTER_KEY, NODES, Loss, Mastership, Proof
from ganeti.store import availability
from ganeti.system import daemon_control

pytestmark = pytest.mark.skipif(not etcd.is_there(), reason="needs etcd")

TIMING = "lease=3,beat=0.5,answer=1.5,watchdog=4,margin=0.5,retry=1,helper=4"
WATCHDOG_S = 4.0  # machines under test are busy
DEADLINE_S = 90.0
AGENT = "ganeti-ha"
WITHOUT = ("ganeti-mond", "ganeti-rapi", "ganeti-confd")


class World:
    """The cluster, its etcd, its dogs."""

    def __init__(self, cluster: FailingCluster, members: Sequence[Member]) -> None:
        self.cluster, self.members = cluster, members
        self.dogs = {node: Dog(cluster, node, WATCHDOG_S) for node in cluster.nodes}
        self.reader = etcd.Reader([member.url for member in members])

    @property
    def prefix(self) -> str:
        settings = availability.read(self.cluster.paths)
        assert settings is not None
        return settings.prefix

    def loss_of(self, node: str) -> Loss | None:
        return self.reader.read(self.prefix).one(LOSSES + node, Loss)

    def boot_of(self, node: str) -> str:
        return Path(self.cluster.paths_of(node).run_dir, "boot-id").read_text()

    def is_dead(self, node: str, boot: str) -> bool:
        loss = self.loss_of(node)
        return loss is not None and (loss.boot_id, loss.proof) == (boot, Proof.WATCHDOG)

    def present(self) -> set[str]:
        keys = self.reader.read(self.prefix).entries
        return {key.removeprefix(NODES) for key in keys if key.startswith(NODES)}

    def holder(self) -> str:
        found = self.reader.read(self.prefix).one(MASTER_KEY, Mastership)
        return "" if found is None else found.node

    def agent(self, node: str) -> int | None:
        return daemon_control.running_pid(self.cluster.paths_of(node), AGENT)

    def enable(self, *more: str) -> None:
        urls = ",".join(member.url for member in self.members)
        words = [f"--endpoints={urls}", f"--watchdog={DEVICE}", f"--timing={TIMING}", *more]
        self.cluster.gnt(f"cluster ha-enable {' '.join(words)}")

    def wait(self, what: object, text: str) -> None:
        assert callable(what)
        wait_until(what, text, timeout_s=DEADLINE_S)

    def close(self) -> None:
        for dog in self.dogs.values():
            dog.stop()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with (
        etcd.members(tmp_path_factory.mktemp("etcd")) as members,
        failing_cluster(5, without=WITHOUT) as cluster,
    ):
        made = World(cluster, members)
        made.wait(made.reader.is_up, "etcd answers")
        try:
            made.enable()
            yield made
        finally:
            made.close()


def back(world: World, node: str) -> None:
    """Let a node boot, and take it into the cluster again."""
    world.dogs[node].bitten_s = None
    world.cluster.switch_on(node)
    world.cluster.gnt(f"node modify --offline=no --auto-promote --force {node}")
    world.wait(lambda: node in world.present(), f"{node} is there again")


def test_all_nodes_show_that_they_live(world: World) -> None:
    assert world.present() == set(world.cluster.nodes)
    world.wait(lambda: world.holder() == world.cluster.master, "the master holds its lease")
    text = world.cluster.gnt("cluster verify").out
    assert "Verifying high availability" in text
    assert "ERROR" not in text


def test_a_helper_that_is_named_later_is_known_on_all_nodes(world: World) -> None:
    node = world.cluster.nodes[4]
    for value, known in (("/bin/false", {node: "/bin/false"}), ("default", {})):
        world.cluster.gnt(f"node modify --node-parameters oob_program={value} {node}")
        for each in world.cluster.nodes:
            settings = availability.read(world.cluster.paths_of(each))
            assert settings is not None
            assert settings.helpers == known
    world.wait(lambda: world.present() == set(world.cluster.nodes), "all are there again")


def test_a_node_without_power_is_proved_dead(world: World) -> None:
    node = world.cluster.nodes[4]
    boot = world.boot_of(node)
    world.cluster.cut_power(node)
    world.wait(lambda: world.is_dead(node, boot), "it is proved dead")
    back(world, node)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL], ids=["hangs", "is killed"])
def test_an_agent_that_does_not_feed_costs_its_node(world: World, number: signal.Signals) -> None:
    node = world.cluster.nodes[3]
    pid, boot = world.agent(node), world.boot_of(node)
    assert pid is not None
    os.kill(pid, number)
    world.wait(lambda: world.dogs[node].bitten_s is not None, "the watchdog has reset it")
    world.wait(lambda: world.is_dead(node, boot), "it is proved dead")
    back(world, node)


def test_without_etcd_nobody_is_judged_and_nobody_is_reset(world: World) -> None:
    before = {node: world.agent(node) for node in world.cluster.nodes}
    losses = {node: world.loss_of(node) for node in world.cluster.nodes}
    for member in world.members:
        member.hang()
    try:
        state = availability.read_state

        def is_silent() -> bool:
            found = [state(world.cluster.paths_of(node)) for node in world.cluster.nodes]
            return all(each is not None and each.etcd for each in found)

        world.wait(is_silent, "all agents miss etcd")
        world.cluster.gnt("cluster add-tags without-etcd")  # jobs go on, after a vote
    finally:
        for member in world.members:
            member.go_on()
    world.wait(lambda: world.present() == set(world.cluster.nodes), "all are there again")
    assert {node: world.agent(node) for node in world.cluster.nodes} == before
    for node in world.cluster.nodes:  # what was dealt with before goes
        assert world.loss_of(node) in (None, losses[node])


def test_a_lost_member_of_etcd_changes_nothing(world: World) -> None:
    world.members[0].hang()
    try:
        world.cluster.gnt("cluster add-tags one-less")
        world.wait(lambda: world.holder() == world.cluster.master, "the master holds its lease")
    finally:
        world.members[0].go_on()


def test_a_lost_master_is_followed_and_proved_dead(world: World) -> None:
    old = world.cluster.master
    boot = world.boot_of(old)
    world.cluster.cut_power(old)
    others = [node for node in world.cluster.nodes if node != old]

    def has_moved() -> bool:
        for node in others:
            if len(world.cluster.running(node)) == 2:
                world.cluster.master = node
                return True
        return False

    world.wait(has_moved, "another node is the master")
    world.wait(lambda: world.is_dead(old, boot), "the old one is proved dead")
    assert world.holder() == world.cluster.master
    world.cluster.gnt("cluster add-tags moved")
    back(world, old)


def test_it_leaves_nothing_behind(world: World) -> None:
    prefix = world.prefix
    said = world.cluster.gnt("cluster ha-disable --force")
    assert world.reader.read(prefix).entries == {}
    for node in world.cluster.nodes:
        paths = world.cluster.paths_of(node)
        left = [name for name in os.listdir(paths.data_dir) if name.startswith("high-avail")]
        assert left == [], (node, said)
        assert not Path(paths.ha_state).exists()
        assert world.agent(node) is None
        assert world.dogs[node].bitten_s is None


def test_what_cannot_work_is_refused_with_one_error(world: World) -> None:
    gnt = world.cluster.run

    def refused(*words: str) -> str:
        outcome = gnt(["gnt-cluster", "ha-enable", *words])
        assert outcome.status != 0
        assert "Traceback" not in outcome.err
        return outcome.err + outcome.out

    assert "no such file" in refused("--watchdog=/dev/none").lower()
    assert "there is no time 'foo'" in refused("--timing=foo=3")
    assert "no number" in refused("--timing=lease=soon")
    assert "twice" in refused("--timing=lease=1,beat=1")


def test_an_etcd_of_our_own_follows_the_candidates(world: World) -> None:
    cluster = world.cluster
    cluster.gnt("cluster ha-disable --force")
    cluster.gnt(f"cluster ha-enable --watchdog={DEVICE} --timing={TIMING}")
    first = members(world)
    assert len(first) == 3
    assert cluster.master in first
    gone = next(node for node in first if node != cluster.master)
    out = cluster.gnt(f"node modify --offline=yes {gone}").out
    assert "Modified node" in out
    then = members(world)
    assert gone not in then, out
    assert len(then) == 3
    cluster.gnt(f"node modify --offline=no --auto-promote {gone}")
    text = cluster.gnt("cluster verify").out
    assert "ERROR" not in text
    pid = daemon_control.running_pid(cluster.paths_of(then[-1]), "ganeti-etcd")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)  # etcd ends with its parent
    cluster.gnt("cluster add-tags two-members")
    found = cluster.run(["gnt-cluster", "verify-config"])
    assert "is to run a member of etcd, and runs none" in found.out + found.err
    daemon_control.start_daemon(cluster.paths_of(then[-1]), "ganeti-etcd", hostname=then[-1])
    cluster.gnt("cluster verify")
    # The power fails in the middle of it: the master knows nothing any more.
    os.unlink(cluster.paths.high_availability)
    cluster.gnt("cluster ha-disable --force")
    for node in cluster.nodes:
        names = os.listdir(cluster.paths_of(node).data_dir)
        assert not [name for name in names if name.startswith(("high-avail", "etcd"))]
        assert daemon_control.running_pid(cluster.paths_of(node), "ganeti-etcd") is None


def members(world: World) -> list[str]:
    settings = availability.read(world.cluster.paths)
    assert settings is not None
    return settings.members
