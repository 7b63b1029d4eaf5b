"""The cluster itself: what init leaves on the nodes, what the first commands say, being second."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
from fakes.virtual_cluster import TestCluster
from fakes.waiting import PROMPT_S, wait_until

from ganeti.base.daemons import DAEMONS, Place
from ganeti.store import ssconf
from ganeti.system import certificates
from ganeti.system.files import read_bytes, read_bytes_or_none


@pytest.mark.shows("backend/certificates/at-init", "2.1/confd/key")
def test_init_leaves_every_file_with_its_mode(cluster: TestCluster) -> None:
    paths = cluster.paths
    for path, mode in (
        (paths.server_pem, 0o440),
        (paths.client_pem, 0o440),
        (paths.rapi_pem, 0o440),
        (paths.spice_pem, 0o440),
        (paths.spice_ca_pem, 0o440),
        (paths.hmac_key, 0o440),
        (paths.cluster_domain_secret, 0o640),
        (paths.config_data, 0o640),
        (paths.known_hosts, 0o644),
        (paths.ssconf_file("master_node"), 0o444),
    ):
        assert stat.S_IMODE(os.stat(path).st_mode) == mode, path
    assert read_bytes(paths.queue_version) == b"1\n"


@pytest.mark.shows("backend/certificates/at-init")
def test_certificates_are_as_the_wire_wants_them(cluster: TestCluster) -> None:
    server = certificates.facts(read_bytes(cluster.paths.server_pem), "server.pem")
    assert (server.common_name, server.serial) == ("ganeti.example.com", 1)
    digests = set()
    for node in cluster.nodes:
        pem = read_bytes(cluster.paths_of(node).client_pem)
        client = certificates.facts(pem, "client.pem")
        assert client.issuer_name == "ganeti.example.com"
        assert client.common_name == node
        digests.add(client.digest)
    assert set(ssconf.candidate_certs(cluster.paths).values()) == digests


@pytest.mark.shows("backend/roles/candidate-copies")
def test_every_candidate_has_configuration_and_queue(cluster: TestCluster) -> None:
    cluster.gnt("cluster redist-conf")
    job_id = cluster.submit("debug delay 0")
    cluster.run(f"gnt-job wait {job_id}")
    paths = cluster.paths
    for path in (paths.config_data, paths.job_file(job_id), paths.queue_serial):
        for node in cluster.nodes[1:]:
            copy = cluster.paths_of(node).root + path.removeprefix(paths.root)
            wait_until(lambda a=path, b=copy: same(a, b), copy)  # type: ignore[misc]
    for node in cluster.nodes:
        assert ssconf.master_node(cluster.paths_of(node)) == cluster.master


def same(first: str, second: str) -> bool:
    return read_bytes_or_none(first) == read_bytes_or_none(second)


def test_second_init_is_refused_and_changes_nothing(cluster: TestCluster) -> None:
    before = read_bytes(cluster.paths.config_data)
    for node in cluster.nodes[:2]:
        outcome = cluster.run(
            "gnt-cluster init --enabled-hypervisors=fake --enabled-disk-templates=file cluster",
            node=node,
        )
        assert outcome.status == 1
        assert "already belongs to a cluster (cluster.example.com)" in outcome.err
    assert read_bytes(cluster.paths.config_data) == before
    cluster.gnt("cluster master-ping")


@pytest.mark.shows("backend/roles/master-only", "2.12/overview/where")
def test_commands_on_another_node_name_the_master(cluster: TestCluster) -> None:
    for command in ("gnt-node list", "gnt-cluster info", "gnt-instance add -t diskless x"):
        outcome = cluster.run(command, node=cluster.nodes[1])
        assert outcome.status == 11
        assert f"'{cluster.master}'" in outcome.err
    assert cluster.run("gnt-cluster getmaster", node=cluster.nodes[2]).out.strip() == cluster.master


def test_info_version_and_lists(cluster: TestCluster) -> None:
    info = cluster.gnt("cluster info").out
    assert "Cluster name: cluster.example.com" in info
    assert f"Master node: {cluster.master}" in info
    assert "Software version: 3.0.2" in cluster.gnt("cluster version").out
    nodes = cluster.gnt("node list --no-headers --separator=: -o name,role,pip,offline").lines
    expected = [
        f"{name}:{'M' if name == cluster.master else 'C'}:{cluster.layout.address_of(name)}:N"
        for name in cluster.nodes
    ]
    assert nodes == expected
    assert cluster.gnt("group list --no-headers -o name,node_cnt").out.split() == ["default", "3"]
    assert "bootsector+default" in cluster.gnt("os list").lines
    assert "valid" in cluster.gnt("os diagnose").out
    assert cluster.gnt("node info node2").out.startswith("- Node name: node2.example.com")
    assert cluster.gnt("cluster verify").status == 0


def test_unknown_field_is_named_and_changes_the_status(cluster: TestCluster) -> None:
    outcome = cluster.run("gnt-node list -o name,nonsense")
    assert outcome.status == 14
    assert "unknown fields: nonsense" in outcome.err
    assert "??" in outcome.out


def test_filters_patterns_and_short_names(cluster: TestCluster) -> None:
    def names(*words: str) -> list[str]:
        return cluster.gnt(["node", "list", "--no-headers", "-o", "name", *words]).out.split()

    assert names("node2") == [cluster.nodes[1]]
    assert names("node*") == list(cluster.nodes)
    cluster.refused(["node", "list", "master"], "node 'master' is not known")
    assert names("-F", "master") == [cluster.master]
    assert names('name =~ m/^node[23]/ and not (name == "node3.example.com")') == [cluster.nodes[1]]
    cluster.refused(["node", "list", "name =="], "cannot understand")


@pytest.mark.shows("2.0/interaction/in-list")
def test_list_fields_names_every_field(cluster: TestCluster) -> None:
    for program, least in (("instance", 100), ("node", 40), ("group", 20), ("job", 15)):
        lines = cluster.gnt(f"{program} list-fields").lines
        assert len(lines) > least
    assert len(cluster.gnt("node list-fields --no-headers name,pip").lines) == 2
    cluster.refused("node list-fields name --no-headers", "options come before")


def test_tags_come_and_go(cluster: TestCluster) -> None:
    cluster.gnt("cluster add-tags site:a owner:b")
    cluster.gnt("node add-tags node2 rack:7")
    assert cluster.gnt("cluster list-tags").lines == ["owner:b", "site:a"]
    assert cluster.gnt("node list-tags node2").lines == ["rack:7"]
    found = cluster.gnt("cluster search-tags rack")
    assert found.lines == ["/nodes/node2.example.com rack:7"]
    cluster.gnt("cluster remove-tags site:a owner:b")
    cluster.gnt("node remove-tags node2 rack:7")
    assert cluster.gnt("cluster list-tags").lines == []
    cluster.refused("cluster add-tags not<allowed>", "tag")


def test_groups_come_and_go(cluster: TestCluster) -> None:
    cluster.gnt("group add --alloc-policy=last_resort racks")
    cluster.gnt("group assign-nodes racks node3")
    assert cluster.gnt("node list --no-headers -o group node3").out.strip() == "racks"
    cluster.refused("group remove racks", "node")
    cluster.gnt("group assign-nodes default node3")
    cluster.gnt("group modify --alloc-policy=preferred racks")
    cluster.gnt("group rename racks shelves")
    assert "shelves" in cluster.gnt("group info shelves").out
    cluster.gnt("group remove shelves")
    assert cluster.gnt("group list --no-headers -o name").out.split() == ["default"]


@pytest.mark.shows("backend/instance/changed-cluster")
def test_cluster_parameters_change(cluster: TestCluster) -> None:
    cluster.gnt("cluster modify -B vcpus=2 --max-running-jobs=21")
    info = cluster.gnt("cluster info").out
    assert "vcpus: 2" in info
    assert "simultaneously: 21" in info
    cluster.gnt("cluster modify -B vcpus=1 --max-running-jobs=20")
    cluster.refused("cluster modify", "nothing to change")
    cluster.refused("cluster modify -B color=red", "color")


def test_daemons_stay_small(cluster: TestCluster) -> None:
    for found in cluster.processes():
        if "/daemons/ganeti-" in found.command:
            with open(f"/proc/{found.pid}/status", encoding="utf-8") as file:
                rss_kib = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
            assert rss_kib < 50 * 1024, found


@pytest.mark.shows("2.1/uuid-two/outside")
def test_uuids_are_as_good_as_names(cluster: TestCluster) -> None:
    def uuid(program: str, name: str) -> str:
        return cluster.gnt(f"{program} list --no-headers -o uuid {name}").out.strip()

    node2, node3 = uuid("node", "node2"), uuid("node", "node3")
    cluster.gnt(
        "instance add --no-name-check --no-ip-check -t sharedfile --disk 0:size=4 -H fake"
        f" -o bootsector+default -n {node2} byuuid.example.com"
    )
    instance = uuid("instance", "byuuid.example.com")
    assert cluster.instance_field("byuuid.example.com", "pnode") == "node2.example.com"
    cluster.gnt(f"instance migrate -f -n {node3} {instance}")
    assert cluster.instance_field("byuuid", "pnode") == "node3.example.com"
    assert "byuuid.example.com" in cluster.gnt(f"instance info {instance}").out
    cluster.gnt(f"instance add-tags {instance} found")
    assert cluster.gnt(f"instance list-tags {instance}").lines == ["found"]
    assert "node2.example.com" in cluster.gnt(f"node info {node2}").out
    assert uuid("group", "default") == uuid("group", "")
    cluster.gnt(f"instance shutdown {instance}")
    cluster.gnt(f"instance remove -f {instance}")


def test_lists_of_all_fields_are_answered(cluster: TestCluster) -> None:
    """In 3.0, the list of instances with all fields timed out even on an empty cluster."""
    cluster.gnt(
        "instance add --no-name-check --no-ip-check -t file --disk 0:size=4 -H fake"
        " -o bootsector+default -n node1 fields.example.com"
    )
    for program in ("instance", "node", "group", "job", "network", "filter"):
        names = [
            line.split("|")[0]
            for line in cluster.gnt(f"{program} list-fields --no-headers --separator=|").lines
        ]
        started = time.monotonic()
        outcome = cluster.gnt([program, "list", "--separator=|", "-o", ",".join(names)])
        assert time.monotonic() - started < PROMPT_S
        assert len(outcome.lines[0].split("|")) == len(names)
        assert "??" not in outcome.out


@pytest.mark.shows("2.12/overview/where")
def test_each_daemon_runs_where_it_belongs(cluster: TestCluster) -> None:
    running = {(os.path.basename(each.root), each.command) for each in cluster.processes()}
    for daemon in DAEMONS:
        if daemon.is_essential:
            nodes = {node for node, command in running if command.endswith(daemon.name)}
            everywhere = daemon.place is Place.NODE
            assert nodes == set(cluster.nodes if everywhere else cluster.nodes[:1]), daemon.name


def test_scripts_stop_and_start_daemons_by_daemon_util(cluster: TestCluster) -> None:
    node, daemon = cluster.nodes[1], "ganeti-noded"

    def util(command: str) -> tuple[int, str]:
        outcome = cluster.run(f"daemon-util {command}", node=node)
        return outcome.status, outcome.out

    assert util(f"check {daemon}") == (0, "")
    assert util(f"stop {daemon}")[0] == 0
    assert util(f"check {daemon}") == (3, "")
    assert util("start-all") == (0, f"started {daemon}\n")
    assert util("start-all") == (0, "")
    assert util(f"check {daemon}") == (0, "")
    assert util("check-config") == (0, "")
    assert util("is-daemon-name ganeti-masterd")[0] == 1
    assert daemon in util("list-start-daemons")[1].split()
    assert util(f"daemon-executable {daemon}")[1].rstrip().endswith(f"/{daemon}")
    assert util(f"rotate-logs {daemon}") == (0, "")


@pytest.mark.shows("2.12/noded/from-jobs", "backend/opcodes/by-jobs")
def test_a_change_is_the_work_of_a_job_which_the_node_names(cluster: TestCluster) -> None:
    add = "instance add -t diskless --no-install -H fake --no-name-check --no-ip-check"
    name, node = "byjob.example.com", cluster.nodes[1]
    job_id = cluster.submit(f"{add} -n {node} {name}")
    cluster.run(f"gnt-job wait {job_id}")
    assert cluster.job_status(job_id) == "success"
    log = Path(cluster.paths_of(node).log_file("ganeti-noded")).read_text()
    work = [each for each in log.splitlines() if f"job={job_id}" in each]
    assert any("hpath=instance-add" in each for each in work)
    assert all(f"({cluster.nodes[0]})" in each for each in work)
    cluster.gnt(f"instance remove -f --shutdown-timeout=1 {name}")
