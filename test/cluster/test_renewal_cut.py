"""New certificates, and a power failure in the middle: running the command again mends it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from fakes.failing_cluster import FailingCluster, failing_cluster
from fakes.waiting import wait_until

from ganeti.base.daemons import MASTER_DAEMONS
from ganeti.store import ssconf
from ganeti.store.job_files import JobFiles
from ganeti.store.notes import renewal
from ganeti.system import files

RENEW = ["gnt-cluster", "renew-crypto", "--force", "--new-cluster-certificate"]
OPTIONS = ["--new-node-certificates", "--new-cluster-certificate"]
POWER_CUT = 9
# The command, in a process that ends without another word after so many calls of a function.
CUT = """
import os, sys
from ganeti.bootstrap import node_setup
from ganeti.cli import programs
from ganeti.system import daemon_control
modules = {"node_setup": node_setup, "daemon_control": daemon_control}
name, function, count = sys.argv[1:4]
module, left = modules[name], int(count)
carried_out = getattr(module, function)

def cut(*args, **options):
    global left
    result = carried_out(*args, **options)
    left -= 1
    if left <= 0:
        os._exit(9)
    return result

setattr(module, function, cut)
sys.argv[:4] = ["gnt-cluster"]
sys.exit(programs.main())
"""
# The command, and a run of the watcher that begins once all daemons of the master are stopped.
WATCHED = """
import subprocess, sys
from ganeti.cli import programs
from ganeti.system import daemon_control
stop_all = daemon_control.stop_all

def watched(*args, **options):
    stop_all(*args, **options)
    subprocess.run(daemon_control.command("ganeti-watcher", ["--no-wait-children"]))

daemon_control.stop_all = watched
sys.argv[:1] = ["gnt-cluster"]
sys.exit(programs.main())
"""
CUTS = [
    ("node_setup", "_write_identity", 1),  # the master is new, the nodes know nothing of it
    ("node_setup", "set_up_remotely", 1),  # one node has been told
]


@pytest.fixture(scope="module")
def three() -> Iterator[FailingCluster]:
    with failing_cluster(3) as made:
        yield made


def servers(cluster: FailingCluster, *nodes: str) -> set[bytes]:
    return {files.read_bytes(cluster.paths_of(node).server_pem) for node in nodes or cluster.nodes}


def test_the_watcher_starts_no_daemons_meanwhile(three: FailingCluster) -> None:
    """They would have read the old certificates, and WConfD could not write any more."""
    outcome = three.run([sys.executable, "-c", WATCHED, *RENEW[1:]], timeout_s=300)
    assert outcome.status == 0, outcome
    assert (
        "a command that has stopped the daemons"
        in files.read_bytes(three.paths.log_watcher).decode()
    )
    assert "ERROR" not in three.gnt("cluster verify").out


@pytest.mark.parametrize(("module", "function", "count"), CUTS)
def test_after_a_power_failure_the_same_command_goes_on(
    three: FailingCluster, module: str, function: str, count: int
) -> None:
    before = servers(three)
    cut = three.run([sys.executable, "-c", CUT, module, function, str(count), *RENEW[1:]])
    assert cut.status == POWER_CUT, cut
    for node in three.nodes:
        three.kill_node(node)
    three.start_noded(*three.nodes)
    assert renewal.is_cut_off(three.paths)
    outcome = three.run(RENEW, timeout_s=300)
    assert outcome.status == 0, outcome
    assert "Going on with the replacement of certificates that was cut off" in outcome.out
    assert not renewal.is_cut_off(three.paths)
    assert len(servers(three)) == 1
    assert servers(three) != before
    assert set(ssconf.candidate_certs(three.paths)) == {
        str(uuid) for uuid in three.gnt("node list --no-headers -o uuid").lines
    }
    assert "unset" in three.gnt("cluster queue info").out
    wait_until(
        lambda: not any(JobFiles(three.paths_of(node)).is_drained() for node in three.nodes),
        "all candidates take jobs again",
    )
    verified = three.gnt("cluster verify")
    assert "ERROR" not in verified.out, verified


def test_another_master_makes_do_without_the_node_that_was_cut_off(three: FailingCluster) -> None:
    """The nodes that were not told go on as before; the old master is taken in again."""
    old, new, _third = three.nodes
    cut = three.run([sys.executable, "-c", CUT, "node_setup", "_write_identity", "1", *RENEW[1:]])
    assert cut.status == POWER_CUT, cut
    for node in three.nodes:
        three.kill_node(node)
    three.start_noded(*three.nodes)
    three.fail_over(new)
    assert "unset" not in three.gnt("cluster queue info").out
    assert "by renew-crypto: run that again" in three.gnt("cluster queue info").out
    three.gnt("cluster queue undrain")
    assert ssconf.master_node(three.paths_of(old)) == old, "nobody can tell it: it trusts nobody"
    before = {node: servers(three, node) for node in three.nodes}
    refused = three.run(RENEW, node=old)
    assert refused.status == 1
    assert f"gnt-node add --readd {old}" in refused.err
    assert {node: servers(three, node) for node in three.nodes} == before
    three.gnt(f"node add --readd {old}")
    assert not renewal.is_cut_off(three.paths_of(old))
    assert "ERROR" not in three.gnt("cluster verify").out


def test_a_node_that_is_down_meanwhile_is_taken_in_again_afterwards(three: FailingCluster) -> None:
    """LuxiD cannot start, as the third node does not trust this one, so none is marked offline."""
    down, away = three.others[1], f"{three.paths_of(three.others[1]).root}.away"
    cut = three.run([sys.executable, "-c", CUT, "node_setup", "_write_identity", "1", *RENEW[1:]])
    assert cut.status == POWER_CUT, cut
    for node in three.nodes:
        three.kill_node(node)
    os.rename(three.paths_of(down).root, away)
    three.start_noded(*(node for node in three.nodes if node != down))
    outcome = three.run(RENEW, timeout_s=300)
    assert outcome.status == 1, outcome
    assert f"Going on without {down}" in outcome.err
    assert not renewal.is_cut_off(three.paths)
    os.rename(away, three.paths_of(down).root)
    three.start_noded(down)
    three.gnt(f"node add --readd {down}")
    assert "ERROR" not in three.gnt("cluster verify").out


def cut_after(cluster: FailingCluster, told: int, option: str) -> None:
    """Lose the machine of the master once it has told so many nodes; the others are up."""
    renew = [*RENEW[1:-1], option]
    cut = cluster.run(
        [sys.executable, "-c", CUT, "node_setup", "set_up_remotely", str(told), *renew]
    )
    assert cut.status == POWER_CUT, cut
    for node in cluster.nodes:
        cluster.kill_node(node)
    cluster.start_noded(*cluster.others)


@pytest.mark.parametrize("option", OPTIONS)
def test_another_master_takes_over_when_the_nodes_have_been_told(
    three: FailingCluster, option: str
) -> None:
    """The master is lost before the job that has candidates make certificates of their own."""
    old, new, third = three.master, *three.others
    cut_after(three, 2, option)
    assert "Trusting the certificates" in three.fail_over(new).out
    three.gnt("cluster queue undrain")
    three.fail_over(third)  # which is trusted as well
    three.start_noded(old)
    three.gnt(f"node add --readd {old}")
    assert "ERROR" not in three.gnt("cluster verify").out


@pytest.mark.parametrize(("option", "was_told"), [(OPTIONS[0], True), (OPTIONS[1], False)])
def test_one_of_two_that_do_not_trust_each_other_takes_the_other_in_again(
    three: FailingCluster, option: str, was_told: bool
) -> None:
    """As the page on troubleshooting says."""
    old = three.master
    cut_after(three, 1, option)
    new, other = three.others if was_told else reversed(three.others)
    three.refused_failover(new, "Some have other certificates", "gnt-node add --readd NODE")
    three.fail_over(new, "--no-voting", "--yes-do-it")
    three.gnt("cluster queue undrain")
    three.start_noded(old)
    for node in (other, old):
        three.gnt(f"node add --readd {node}")
    assert "ERROR" not in three.gnt("cluster verify").out
    three.gnt(f"cluster renew-crypto --force {option}")


def test_one_that_is_left_alone_goes_on_without_the_nodes_that_are_lost(
    three: FailingCluster,
) -> None:
    """By the commands that the refusal names; the last test, as the nodes are not there again."""
    cut = three.run([sys.executable, "-c", CUT, "node_setup", "_write_identity", "1", *RENEW[1:]])
    assert cut.status == POWER_CUT, cut
    for node in three.nodes:
        three.kill_node(node)
    for node in three.others:
        os.rename(three.paths_of(node).root, f"{three.paths_of(node).root}.away")
    three.start_noded(three.master)
    refused = three.run(RENEW)
    assert refused.status == 1
    assert "1 of 3 nodes are reached, 2 are needed" in refused.err
    for name in MASTER_DAEMONS:
        assert name in refused.err
        started = three.run(["daemon-util", "start", name, "--no-voting", "--yes-do-it"])
        assert started.status == 0, started
    three.gnt("cluster queue undrain")
    for node in three.others:
        three.gnt(f"node modify --offline=yes {node}")
    for node in three.others:
        three.gnt(f"node remove {node}")
    renewed = three.run(RENEW, timeout_s=300)
    assert renewed.status == 0, renewed
    assert not renewal.is_cut_off(three.paths)
