"""gnt-cluster apply and export-spec on a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.virtual_cluster import TestCluster

SPEC = """
groups:
  default: {nodes: [node1]}
  rack7: {alloc_policy: last_resort, ndparams: {spindle_count: 3}, tags: [far]}
networks:
  lan:
    network: 192.0.2.0/28
    gateway: 192.0.2.1
    reserved: [192.0.2.2]
    groups: {default: {mode: bridged, link: br0, vlan: 7}}
instances:
  web7.example.com: &small
    os: bootsector+default
    hypervisor: fake
    disk_template: file
    node: node1
    name_check: false
    beparams: {memory: 32}
    disks: [{size: 8}]
    nics: [{network: lan, ip: pool}]
    install: false
    tags: [web]
  db7.example.com:
    <<: *small
    node: node2
    state: down
"""
OF_INSTANCES = ["instance", "list", "--no-headers", "--separator=|"]


def apply(cluster: TestCluster, path: Path, text: str, *options: str) -> str:
    path.write_text(text)
    return cluster.gnt(["cluster", "apply", *options, str(path)]).out


def fields(cluster: TestCluster, *names: str) -> list[str]:
    return cluster.gnt([*OF_INSTANCES, "-o", ",".join(names)]).lines


def test_a_cluster_becomes_what_a_file_says(cluster: TestCluster, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    told = apply(cluster, path, SPEC, "--dry-run")
    assert "instance web7.example.com:\n  make it on node1, file\n  start it\n" in told
    assert fields(cluster, "name") == []
    try:
        apply(cluster, path, SPEC, "--reason=ticket-17")
        wanted = ["db7.example.com|down|192.0.2.3|web", "web7.example.com|up|192.0.2.4|web"]
        swapped = ["db7.example.com|down|192.0.2.4|web", "web7.example.com|up|192.0.2.3|web"]
        assert fields(cluster, "name", "admin_state", "nic.ip/0", "tags") in (wanted, swapped)
        assert apply(cluster, path, SPEC) == "Nothing to do.\n"
        with cluster.client() as client:
            jobs = client.query_jobs(None, ["ops"])
        [made] = [str(ops) for [ops] in jobs if ops[0].get("instance_name") == "web7.example.com"]
        assert "ticket-17" in made
        assert "gnt:client:gnt-cluster" in made

        changed = SPEC.replace("size: 8", "size: 16").replace("state: down", "state: up")
        told = apply(cluster, path, changed)
        assert "grow disk 0 to 16 MiB" in told
        assert "start it" in told
        assert "network" not in told
        assert fields(cluster, "name", "disk.sizes", "admin_state") == [
            "db7.example.com|16|up",
            "web7.example.com|16|up",
        ]
        exported = cluster.gnt("cluster export-spec").out
        assert apply(cluster, path, exported, "--remove") == "Nothing to do.\n"

        path.write_text("instances: {}\nnetworks: {}\n")
        kept = cluster.gnt(["cluster", "apply", str(path)])
        assert "instance web7.example.com stays" in kept.err
        command = ["cluster", "apply", "--remove", str(path)]
        cluster.refused(command, "Something is removed of: instance db7.example.com")
    finally:
        emptied = "groups: {default: {}}\nnetworks: {}\ninstances: {}\n"
        apply(cluster, path, emptied, "--remove", "--force")
    assert fields(cluster, "name") == []
    assert cluster.gnt("network list --no-headers").lines == []
    assert cluster.gnt("group list --no-headers -o name").out.split() == ["default"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("instances:\n  web7: {colour: red}", "spec.yaml:2: instances.web7.colour: is unknown"),
        ("groups:\n  g:\n    nodes: [node9]", "spec.yaml:3: groups.g.nodes[0]: node 'node9'"),
        ("groups: [", "spec.yaml:1: "),
    ],
)
def test_mistakes_name_file_line_and_object(
    cluster: TestCluster, tmp_path: Path, text: str, told: str
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    cluster.refused(["cluster", "apply", str(path)], told)
