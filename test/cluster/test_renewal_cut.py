"""New certificates, and a power failure in the middle: running the command again mends it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from fakes.failing_cluster import FailingCluster, failing_cluster
from fakes.waiting import wait_until

from ganeti.store import renewal, ssconf
from ganeti.store.job_files import JobFiles
from ganeti.system import files

RENEW = ["gnt-cluster", "renew-crypto", "--force", "--new-cluster-certificate"]
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
CUTS = [
    ("node_setup", "_write_identity", 1),  # the master is new, the nodes know nothing of it
    ("node_setup", "set_up_remotely", 1),  # one node has been told
]


@pytest.fixture(scope="module")
def three() -> Iterator[FailingCluster]:
    with failing_cluster(3) as made:
        yield made


def servers(cluster: FailingCluster) -> set[bytes]:
    return {files.read_bytes(cluster.paths_of(node).server_pem) for node in cluster.nodes}


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
    ssconf.write_values(three.paths_of(old), {"master_node": new})  # as it hears, taken in again
    refused = three.run(RENEW, node=old)
    assert refused.status == 1
    assert f"gnt-node add --readd {old}" in refused.err
    three.gnt(f"node add --readd {old}")
    assert not renewal.is_cut_off(three.paths_of(old))
    assert "ERROR" not in three.gnt("cluster verify").out
