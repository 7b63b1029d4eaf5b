"""Five virtual nodes lose each other: real daemons, real etcd, watchdogs that end a node's processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fakes.failing_cluster import FailingCluster, failing_cluster
from fakes.ha_world import WITHOUT, World
from rig import etcd
from rig.etcd import Member

from ganeti.availability.restarts import Limits
from ganeti.store import availability
from ganeti.system import daemon_control

pytestmark = pytest.mark.skipif(not etcd.is_there(), reason="needs etcd")


class SiteWorld(World):
    """One with an etcd of the site."""

    def __init__(self, cluster: FailingCluster, members: Sequence[Member]) -> None:
        super().__init__(cluster)
        self.members = members
        self.reader = etcd.Reader([member.url for member in members])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteWorld]:
    with (
        etcd.members(tmp_path_factory.mktemp("etcd")) as members,
        failing_cluster(5, without=WITHOUT) as cluster,
    ):
        made = SiteWorld(cluster, members)
        made.wait(made.reader.is_up, "etcd answers")
        try:
            urls = ",".join(member.url for member in members)
            made.enable(f"--endpoints={urls}", "--limits=per-node=1")
            yield made
        finally:
            made.close()


def test_all_nodes_show_that_they_live(world: SiteWorld) -> None:
    assert world.present() == set(world.cluster.nodes)
    world.wait(lambda: world.holder() == world.cluster.master, "the master holds its lease")
    text = world.cluster.gnt("cluster verify").out
    assert "Verifying high availability" in text
    assert "ERROR" not in text


def test_other_settings_are_known_on_all_nodes_and_no_agent_is_started_anew(
    world: SiteWorld,
) -> None:
    node = world.cluster.nodes[4]
    agents = {each: world.agent(each) for each in world.cluster.nodes}
    world.cluster.gnt("cluster ha-enable --limits=starts=4")
    for value, known in (("/bin/false", {node: "/bin/false"}), ("default", {})):
        world.cluster.gnt(f"node modify --node-parameters oob_program={value} {node}")
        for each in world.cluster.nodes:
            settings = availability.read(world.cluster.paths_of(each))
            assert settings is not None
            assert settings.helpers == known
            assert settings.limits == Limits(starts_max=4, per_node_max=1)
    world.wait(lambda: world.present() == set(world.cluster.nodes), "all are there again")
    assert {each: world.agent(each) for each in world.cluster.nodes} == agents


def test_keys_are_renewed_under_way_and_certificates_in_a_pause(world: SiteWorld) -> None:
    cluster = world.cluster
    cluster.gnt("cluster renew-crypto --force --new-confd-hmac-key")
    outcome = cluster.run("gnt-cluster renew-crypto --force --new-node-certificates")
    assert outcome.status == 1
    assert "pause it first: 'gnt-cluster ha-pause" in outcome.err
    cluster.gnt("cluster ha-pause --for=1h --reason=certificates")
    state = availability.read_state

    def is_told() -> bool:
        found = state(cluster.paths)
        return found is not None and bool(found.pause)

    world.wait(is_told, "the pause is known")
    cluster.gnt("cluster renew-crypto --force --new-node-certificates --new-cluster-certificate")
    cluster.gnt("cluster ha-pause --end")
    world.wait(lambda: world.guarded() == set(cluster.nodes), "the watchdogs run again")
    world.wait(lambda: world.present() == set(cluster.nodes), "all are there again")
    world.wait(lambda: world.holder() == cluster.master, "the master holds its lease")


def test_agents_that_do_not_feed_cost_their_nodes(world: SiteWorld) -> None:
    hung, killed = world.cluster.nodes[3:]
    boots = {node: world.boot_of(node) for node in (hung, killed)}
    for node, number in ((hung, signal.SIGSTOP), (killed, signal.SIGKILL)):
        pid = world.agent(node)
        assert pid is not None
        os.kill(pid, number)
    world.wait(lambda: world.has_bitten(hung, killed), "the watchdogs have reset them")
    world.wait_dead(boots)
    world.back(hung, killed)


def test_without_etcd_nobody_is_judged_and_nobody_is_reset(world: SiteWorld) -> None:
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


def test_a_lost_member_of_etcd_changes_nothing(world: SiteWorld) -> None:
    world.members[0].hang()
    try:
        world.cluster.gnt("cluster add-tags one-less")
        world.wait(lambda: world.holder() == world.cluster.master, "the master holds its lease")
    finally:
        world.members[0].go_on()


def test_a_lost_master_is_followed_and_proved_dead(world: SiteWorld) -> None:
    old = world.cluster.master
    boot = world.boot_of(old)
    world.cluster.cut_power(old)
    world.wait(world.has_moved, "another node is the master")
    world.wait_dead({old: boot})
    assert world.holder() == world.cluster.master
    world.cluster.gnt("cluster add-tags moved")
    world.back(old)


def test_it_leaves_nothing_behind(world: SiteWorld) -> None:
    prefix = world.settings.prefix
    said = world.cluster.gnt("cluster ha-disable --force")
    assert world.reader.read(prefix).entries == {}
    for node in world.cluster.nodes:
        paths = world.cluster.paths_of(node)
        left = [name for name in os.listdir(paths.data_dir) if name.startswith("high-avail")]
        assert left == [], (node, said)
        assert not Path(paths.ha_state).exists()
        assert world.agent(node) is None
        assert world.dogs[node].bitten_s is None


def test_what_cannot_work_is_refused_with_one_error(world: SiteWorld) -> None:
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
    assert "there is no limit 'foo'" in refused("--limits=foo=3")
    assert "no number" in refused("--limits=starts=0")


def test_an_etcd_of_our_own_follows_the_candidates(world: SiteWorld) -> None:
    cluster = world.cluster
    cluster.gnt("cluster ha-disable --force")
    world.enable()
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


def members(world: SiteWorld) -> list[str]:
    return world.settings.members
