"""Which files go to which nodes, when they go, and what is said of those that do not arrive."""

from __future__ import annotations

import os
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, make_cluster, uuid_of

from ganeti.base.errors import OpExecError
from ganeti.logical_units import context, lookup, node_files
from ganeti.logical_units.cluster.identity import failures
from ganeti.node_ops.machine.files import ALLOWED_PATHS
from ganeti.objects.model import Cluster
from ganeti.protocol.wconfd import Repeat, WConfCalls
from ganeti.system.filelock import FileLock
from ganeti.transport.unix_client import ConnectionLostError

BRIDGE = "/etc/ganeti/kvm-vif-bridge"
USERS = "/var/lib/ganeti/rapi/users"
HMAC = "/var/lib/ganeti/hmac.key"
STORAGE = "/etc/ganeti/file-storage-paths"


def write(cluster: FakeCluster, *paths: str, mode: int = 0o640) -> None:
    """Make files on the master."""
    for path in paths:
        local = cluster.context.paths.localize(path)
        os.makedirs(os.path.dirname(local), exist_ok=True)
        with open(local, "w", encoding="utf-8") as file:
            file.write(path)
        os.chmod(local, mode)


def got(cluster: FakeCluster) -> dict[str, list[str]]:
    """Return {file: the nodes that have it}."""
    found: dict[str, list[str]] = {}
    for node in cluster.rpc.nodes.values():
        for path in node.files:
            found.setdefault(path, []).append(node.name.partition(".")[0])
    return {path: sorted(nodes) for path, nodes in found.items()}


def paths_for(**changes: Any) -> set[str]:
    return {file.path for file in node_files.files_of(Cluster.from_wire(make_cluster(**changes)))}


@pytest.mark.shows("2.1/redist/hypervisor-files")
def test_only_enabled_hypervisors_have_files() -> None:
    assert BRIDGE in paths_for(enabled_hypervisors=["kvm"])
    assert BRIDGE not in paths_for(enabled_hypervisors=["fake"])
    assert "/etc/xen/xend-config.sxp" in paths_for(enabled_hypervisors=["xen-pvm"])


@pytest.mark.shows("2.1/redist/vnc-files", "2.1/vnc/published")
def test_password_files_of_parameters_are_distributed(cluster: FakeCluster) -> None:
    hvparams = {"kvm": {"vnc_password_file": "/etc/ganeti/vnc-cluster-password"}}
    os_hvp = {"debian": {"kvm": {"spice_password_file": "/etc/spice"}, "xen-hvm": {"x": "/y"}}}
    wire = make_cluster(hvparams=hvparams, os_hvp=os_hvp, enabled_hypervisors=["kvm"])
    own = {"vnc_password_file": "/etc/ganeti/vnc-web1"}
    cluster.add_instance(hypervisor="kvm", hvparams=own)
    instances = lookup.all_instances(cluster.config)
    found = {file.path for file in node_files.files_of(Cluster.from_wire(wire), instances)}
    assert found >= {"/etc/ganeti/vnc-cluster-password", "/etc/spice", "/etc/ganeti/vnc-web1"}
    write(cluster, "/etc/ganeti/vnc-web1", mode=0o600)
    cluster.execute("OP_CLUSTER_REDIST_CONF")
    assert got(cluster)["/etc/ganeti/vnc-web1"] == ["node2", "node3"]


@pytest.mark.shows("2.1/redist/own-files")
def test_the_administrator_lists_more_files(cluster: FakeCluster) -> None:
    write(cluster, "/etc/motd", HMAC, mode=0o644)
    assert "/etc/motd" not in got(cluster)
    path = cluster.context.paths.distributed_files_list
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"# ours\n/etc/motd\n{HMAC}\n/etc/absent\nrelative\n")
    cluster.execute("OP_CLUSTER_REDIST_CONF")
    for each in ("/etc/motd", "/etc/ganeti/distributed-files", HMAC):
        assert got(cluster)[each] == ["node2", "node3"]
    assert cluster.said("/etc/absent")
    sums = node_files.file_sums(cluster.context.paths, cluster.config.get_cluster(), [])
    assert {"/etc/motd", "/etc/ganeti/distributed-files"} <= set(sums.paths)


def test_an_instance_names_no_other_file_of_the_master(cluster: FakeCluster) -> None:
    named = ("/etc/shadow", "/etc/ganeti/vnc-a/../../shadow", "/etc/ganeti/rapi")
    for number, path in enumerate(named):
        own = {"vnc_password_file": path}
        cluster.add_instance(f"web{number}.example.com", hypervisor="kvm", hvparams=own)
    instances = lookup.all_instances(cluster.config)
    assert len(instances) == len(named)
    assert not set(node_files.password_files(cluster.config.get_cluster(), instances)) & set(named)


@pytest.mark.parametrize("kind", ["directory", "FIFO", "large file"])
def test_what_is_no_file_to_send_stops_nothing_else(cluster: FakeCluster, kind: str) -> None:
    paths = cluster.context.paths
    write(cluster, "/etc/ganeti/real")
    with open(paths.distributed_files_list, "w", encoding="utf-8") as file:
        file.write("/etc/odd\n/etc/motd\n")
    os.symlink("ganeti/real", paths.localize("/etc/motd"))
    odd = paths.localize("/etc/odd")
    if kind == "directory":
        os.mkdir(odd)
    elif kind == "FIFO":
        os.mkfifo(odd)
    else:
        with open(odd, "wb") as large:
            large.truncate(node_files.FILE_BYTES_MAX + 1)
    cluster.execute("OP_CLUSTER_REDIST_CONF")
    assert cluster.said("cannot read file /etc/odd, which nodes need: ")
    assert got(cluster)["/etc/motd"] == ["node2", "node3"]
    sums = node_files.file_sums(paths, cluster.config.get_cluster(), [])
    assert "/etc/motd" in sums.paths
    assert [path for path, _ in sums.unreadable] == ["/etc/odd"]
    cluster.execute("OP_CLUSTER_VERIFY_GROUP", group_name="default")
    assert cluster.said("file /etc/odd, which nodes need, cannot be read: ")


def test_a_list_that_cannot_be_read_stops_nothing_else(cluster: FakeCluster) -> None:
    write(cluster, HMAC)
    os.makedirs(cluster.context.paths.distributed_files_list)
    cluster.execute("OP_CLUSTER_REDIST_CONF")
    assert cluster.said("cannot read file /etc/ganeti/distributed-files")
    assert got(cluster) == {HMAC: ["node2", "node3"]}


def test_the_hosts_file_goes_along_where_the_cluster_keeps_it() -> None:
    assert "/etc/hosts" in paths_for(modify_etc_hosts=True)
    assert "/etc/hosts" not in paths_for(modify_etc_hosts=False)


def test_nodes_accept_all_that_is_sent_and_decide_alone_what_storage_they_allow() -> None:
    hypervisors = ["kvm", "fake", "xen-hvm", "xen-pvm"]
    wire = make_cluster(enabled_hypervisors=hypervisors, modify_etc_hosts=True)
    files = node_files.files_of(Cluster.from_wire(wire))
    assert {file.path for file in files if file.sent} <= ALLOWED_PATHS
    assert {file.path for file in files if not file.sent} == {STORAGE}


@pytest.mark.shows("2.0/candidate/verify", "2.1/redist/rapi-files", "2.1/redist/network-scripts")
def test_each_file_goes_to_the_nodes_that_need_it(cluster: FakeCluster) -> None:
    write(cluster, BRIDGE, USERS, HMAC, STORAGE, mode=0o750)
    cluster.config.node(2)["vm_capable"] = False
    cluster.config.node(3)["master_candidate"] = False
    cluster.execute("OP_CLUSTER_REDIST_CONF")
    assert got(cluster) == {HMAC: ["node2", "node3"], BRIDGE: ["node3"], USERS: ["node2"]}
    assert cluster.rpc.node("node3").files[BRIDGE][2] == 0o750  # type: ignore[index]
    assert cluster.said("sent the configuration and 3 other file(s) to 2 of 2 node(s)")
    assert {"redistributeConfig", "flushConfig"} <= set(cluster.config.calls)


def test_what_a_node_does_not_take_is_named_and_the_others_go_on(cluster: FakeCluster) -> None:
    write(cluster, HMAC, USERS)
    cluster.config.node(3)["offline"] = True
    cluster.rpc.failure = lambda node, call, args: (
        "disk full" if call == "upload_file" and args[0][0] == HMAC else None
    )
    cluster.execute("OP_CLUSTER_REDIST_CONF")
    assert cluster.said(
        f"cannot send file {HMAC} to node node2.example.com, call upload_file: disk"
    )
    assert got(cluster) == {USERS: ["node2"]}
    assert cluster.said("sent the configuration and 2 other file(s) to 0 of 1 node(s)")


def test_a_node_without_the_newest_configuration_is_not_counted(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row("node2.example.com"), row("node3.example.com", serial_no=6, error="dead")]
    monkeypatch.setattr(cluster.context.config, "get_replication_status", lambda: rows)
    cluster.execute("OP_CLUSTER_REDIST_CONF")
    assert cluster.said("cannot send the configuration to node node3.example.com: dead")
    assert cluster.said("sent the configuration and 0 other file(s) to 1 of 2 node(s)")


def test_a_file_that_cannot_be_read_is_named(cluster: FakeCluster) -> None:
    os.makedirs(cluster.context.paths.localize(HMAC))
    cluster.execute("OP_CLUSTER_REDIST_CONF")
    assert cluster.said(f"cannot read file {HMAC}")


def test_too_few_candidates_fail_the_job_after_everything_was_tried(cluster: FakeCluster) -> None:
    write(cluster, HMAC)
    cluster.config.failing["flushConfig"] = OpExecError("not on enough master candidates")
    cluster.config.distribution.rows = [row("node2", serial_no=0, error="no route")]
    with pytest.raises(OpExecError, match="not on enough"):
        cluster.execute("OP_CLUSTER_REDIST_CONF")
    assert cluster.said("cannot send the configuration to node node2: no route")
    assert got(cluster) == {HMAC: ["node2", "node3"]}


def row(node: str, **changes: object) -> dict[str, Any]:
    """Return one row of the status of replication; all is well unless changed."""
    values: dict[str, Any] = {
        "node": node,
        "candidate": True,
        "offline": False,
        "serial_no": 7,
        "wanted_serial_no": 7,
        "ssconf_is_current": True,
        "error": None,
    }
    return {**values, **changes}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, None),
        ({"offline": True, "serial_no": 0, "ssconf_is_current": False}, None),
        ({"candidate": False, "serial_no": 0}, None),
        ({"serial_no": 6, "error": "no route"}, "the configuration to node n: no route"),
        ({"ssconf_is_current": False}, "the simple configuration to node n: no answer yet"),
    ],
)
def test_failures_of_replication_are_told(changes: dict[str, Any], text: str | None) -> None:
    found = failures([row("n", **changes)])
    assert (text is None) == (found == {})
    assert text is None or text in found["n"]


# Promotion.


@pytest.mark.shows("2.1/redist/node-promoted")
def test_a_promoted_node_gets_the_files_of_candidates(cluster: FakeCluster) -> None:
    write(cluster, USERS, BRIDGE)
    cluster.config.node(2)["master_candidate"] = False
    cluster.execute("OP_NODE_SET_PARAMS", node_name="node2", master_candidate=True)
    assert got(cluster) == {USERS: ["node2"], BRIDGE: ["node2"]}


@pytest.mark.shows("2.1/redist/node-promoted")
def test_a_larger_pool_sends_them_as_well(cluster: FakeCluster) -> None:
    write(cluster, USERS)
    cluster.config.node(3)["master_candidate"] = False
    cluster.execute("OP_CLUSTER_SET_PARAMS", candidate_pool_size=7)
    assert cluster.said("promoted nodes to master candidate role: node3")
    assert got(cluster) == {USERS: ["node3"]}


@pytest.mark.parametrize("was_done", [True, False])
def test_a_node_is_promoted_in_full_though_the_answer_was_lost(
    cluster: FakeCluster, was_done: bool
) -> None:
    """WConfD was killed, before or after it had recorded who becomes a candidate."""
    write(cluster, USERS)
    cluster.config.node(3)["master_candidate"] = False
    call = WConfCalls.calls["maintainCandidatePool"]

    def lost(*args: Any) -> None:
        del cluster.config.stand_ins["maintain_candidate_pool"]
        if was_done:
            cluster.config.serve(call, list(args))
        raise ConnectionLostError("closed the connection before it answered")

    cluster.config.stand_ins["maintain_candidate_pool"] = lost
    cluster.execute("OP_CLUSTER_SET_PARAMS", candidate_pool_size=7)
    assert call.rules.repeat is Repeat.NEVER
    assert cluster.said("promoted nodes to master candidate role: node3")
    assert uuid_of("node3") in cluster.config.cluster["candidate_certs"]
    assert got(cluster) == {USERS: ["node3"]}


@pytest.mark.shows("2.1/redist/hypervisor-files")
def test_files_of_a_hypervisor_go_out_when_it_is_enabled(cluster: FakeCluster) -> None:
    write(cluster, USERS, BRIDGE)
    cluster.config.cluster["enabled_hypervisors"] = ["fake"]
    cluster.execute("OP_CLUSTER_SET_PARAMS", max_running_jobs=7)
    assert got(cluster) == {}
    cluster.execute("OP_CLUSTER_SET_PARAMS", enabled_hypervisors=["fake", "kvm"])
    assert got(cluster)[BRIDGE] == ["node2", "node3"]


# Verification.


@pytest.mark.shows("2.0/candidate/verify")
def test_sums_are_those_of_what_a_node_needs(cluster: FakeCluster) -> None:
    write(cluster, USERS, BRIDGE, STORAGE)
    sums = node_files.file_sums(cluster.context.paths, cluster.config.get_cluster(), [])
    assert sums.paths == sorted([BRIDGE, STORAGE, USERS])
    cluster.config.node(2).update(vm_capable=False)
    cluster.config.node(3).update(master_candidate=False)
    two, three = cluster.config.get_nodes([uuid_of("node2"), uuid_of("node3")])
    assert set(sums.of(two)) == {USERS}
    assert set(sums.of(three)) == {BRIDGE, STORAGE}


def test_one_job_after_the_other_reads_and_sends(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "_ALONE_S_MAX", 0.0)
    write(cluster, HMAC)
    lock = FileLock(cluster.context.paths.job_lock("sent-files"))
    nodes = [node for node in lookup.all_nodes(cluster.config) if node.uuid != uuid_of("node1")]
    with lock:
        node_files.send(cluster.context, cluster.context.paths.hmac_key, nodes)
    assert not got(cluster).get(HMAC)
    assert cluster.said("type 'gnt-cluster redist-conf' later")
    node_files.send(cluster.context, cluster.context.paths.hmac_key, nodes)
    assert got(cluster)[HMAC] == ["node2", "node3"]
    with lock:
        cluster.execute("OP_CLUSTER_REDIST_CONF")
    assert cluster.said("sent the configuration and 0 other file(s) to 0 of 2 node(s)")
