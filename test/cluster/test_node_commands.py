"""What an operator does with whole nodes: empty them, see to their power, run something on them."""

from __future__ import annotations

import os
import stat

import pytest
from fakes.virtual_cluster import TestCluster

HELPER = """#!/bin/sh
case $1 in
    power-status) echo '{"powered": true}' ;;
    health) echo '[["fan", "OK"], ["disk0", "CRITICAL"]]' ;;
    power-off) echo "$2" >> "${0%/*}/off" ;;
esac
"""


def put(path: str, text: str, mode: int) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


def add(cluster: TestCluster, name: str, node: str, template: str = "sharedfile") -> None:
    cluster.gnt(
        f"instance add --no-name-check --no-ip-check -t {template} --disk 0:size=4 -H fake"
        f" -o bootsector+default -n {node} {name}"
    )


def where(cluster: TestCluster) -> dict[str, str]:
    lines = cluster.gnt("instance list --no-headers --separator=: -o name,pnode,status").lines
    return {name: f"{node} {status}" for name, node, status in (x.split(":") for x in lines)}


@pytest.fixture
def instances(cluster: TestCluster) -> TestCluster:
    """Two instances that run on node2, and can run anywhere."""
    for name in ("one.example.com", "two.example.com"):
        add(cluster, name, "node2")
    return cluster


def test_nodes_are_emptied(instances: TestCluster) -> None:
    names = ("one.example.com", "two.example.com")
    outcome = instances.gnt("node migrate -f -n node3 node2")
    assert "for INSTANCE_MIGRATE(one.example.com) ..." in outcome.out
    assert where(instances) == dict.fromkeys(names, "node3.example.com running")
    instances.gnt("node evacuate -f -n node1 node3")
    assert where(instances) == dict.fromkeys(names, "node1.example.com running")
    outcome = instances.gnt("node failover -f -n node2 node1")
    assert "Submitted jobs" in outcome.out
    assert where(instances) == dict.fromkeys(names, "node2.example.com running")


def test_what_holds_instances_back_is_named(instances: TestCluster) -> None:
    add(instances, "local.example.com", "node2", "file")
    outcome = instances.run("gnt-node evacuate -f -n node3 node2")
    assert outcome.status == 1
    assert "holds the only copy of the disks of local.example.com" in outcome.err
    assert set(where(instances).values()) == {"node2.example.com running"}


def test_an_instance_that_cannot_migrate_holds_no_other_back(instances: TestCluster) -> None:
    add(instances, "local.example.com", "node2", "file")
    outcome = instances.run("gnt-node migrate -f -n node3 node2")
    assert outcome.status == 1
    assert "for INSTANCE_MIGRATE(local.example.com) has failed:" in outcome.err
    assert "'file' keeps the disks on node 'node2.example.com'" in outcome.err
    assert "1 instance(s) could not be moved" in outcome.err
    assert where(instances) == {
        "local.example.com": "node2.example.com running",
        "one.example.com": "node3.example.com running",
        "two.example.com": "node3.example.com running",
    }


def test_power_by_a_helper(cluster: TestCluster) -> None:
    helper = "/etc/ganeti/oob"
    path = cluster.paths.localize(helper)
    put(path, HELPER, 0o755)
    cluster.gnt(f"node modify --node-parameters oob_program={helper} node3")
    try:
        asked = cluster.run("gnt-node power --no-headers --separator=: status")
        others = ["node1.example.com:(unavail)", "node2.example.com:(unavail)"]
        assert (asked.status, asked.lines) == (1, [*others, "node3.example.com:powered"])
        health = cluster.gnt("node health --no-headers --separator=: node3").lines
        assert health == ["node3.example.com:fan=OK", "node3.example.com:disk0=CRITICAL"]
        cluster.gnt("node power -f off node3")
        with open(f"{os.path.dirname(path)}/off", encoding="utf-8") as file:
            assert file.read() == "node3.example.com\n"
        listed = cluster.gnt("node list --no-headers --separator=: -o offline,powered node3")
        assert listed.lines == ["Y:N"]
        cluster.gnt("node power on node3")
        cluster.gnt("node modify --offline no node3")
        assert cluster.gnt("node list --no-headers -o powered node3").out.strip() == "Y"
        outcome = cluster.run("gnt-node power -f cycle node1")
        assert "no out-of-band helper is set for node1" in outcome.err
        outcome = cluster.run("gnt-node power -f off node2 node3")
        assert outcome.status == 1
        assert "no out-of-band helper is set for node2.example.com, so nothing" in outcome.err
        assert cluster.gnt("node list --no-headers -o offline").out.split() == ["N"] * 3
    finally:
        cluster.gnt("node modify --offline no --node-parameters oob_program=default node3")
        os.unlink(path)


def test_without_helpers_an_emergency_stops_the_instances(instances: TestCluster) -> None:
    names = {"one.example.com", "two.example.com"}
    outcome = instances.gnt("cluster epo -f --all")
    assert "node2.example.com has no out-of-band helper" in outcome.out
    assert where(instances) == dict.fromkeys(names, "node2.example.com ERROR_down")
    assert instances.gnt("node list --no-headers -o offline").out.split() == ["N"] * 3
    instances.gnt("cluster epo -f --on --all")
    assert where(instances) == dict.fromkeys(names, "node2.example.com running")


def test_a_virtual_node_has_no_power_to_switch(cluster: TestCluster) -> None:
    outcome = cluster.run("gnt-node powercycle --yes node2")
    assert outcome.status == 1
    assert "node2.example.com is virtual" in outcome.err


def test_commands_that_nodes_allow(cluster: TestCluster) -> None:
    for node in cluster.nodes[:2]:
        directory = cluster.paths_of(node).restricted_commands_dir
        put(f"{directory}/who", f"#!/bin/sh\necho I am {node}\n", 0o755)
        os.chmod(directory, 0o755)
    outcome = cluster.run("gnt-node restricted-command who")
    assert outcome.status == 1
    assert outcome.lines == [f"{node}: I am {node}" for node in cluster.nodes[:2]]
    assert cluster.nodes[2] in outcome.err
    assert cluster.gnt("node restricted-command who node2").lines == [f"I am {cluster.nodes[1]}"]
    outcome = cluster.run("gnt-node restricted-command ../who node2")
    assert "is not a valid name" in outcome.err


@pytest.mark.shows("2.0/master/ssh-commands")
def test_commands_and_files_go_to_the_nodes(cluster: TestCluster) -> None:
    outcome = cluster.gnt(["cluster", "command", "-M", "echo $GANETI_HOSTNAME; exit 3"])
    assert outcome.lines[-3:] == [
        "-" * 48,
        f"{cluster.master}: {cluster.master}",
        "return code = 3",
    ]
    outcome = cluster.gnt(["cluster", "command", "-n", "node2", "echo hi"])
    assert outcome.lines == ["-" * 48, f"node: {cluster.nodes[1]}", "hi", "", "return code = 0"]
    path = f"{cluster.paths.root}/etc/motd"
    put(path, "welcome\n", 0o640)
    cluster.gnt(f"cluster copyfile {path}")
    for node in cluster.nodes[1:]:
        copy = f"{cluster.paths_of(node).root}/etc/motd"
        with open(copy, encoding="utf-8") as file:
            assert file.read() == "welcome\n"
        assert stat.S_IMODE(os.stat(copy).st_mode) == 0o640
    assert "not below" in cluster.run("gnt-cluster copyfile /etc/hostname").err
    assert "node 'node9' is not known" in cluster.run("gnt-cluster command -n node9 true").err
