"""Another name of the cluster, and other certificates of its nodes."""

from __future__ import annotations

import os
from typing import Any

import pytest
from fakes.fake_cluster import FakeCluster, uuid_of

from ganeti.base.errors import GenericError, OpExecError, OpPrereqError
from ganeti.logical_units.cluster.identity import renamed_known_hosts

OLD, NEW = "cluster.example.com", "renamed.example.com"


@pytest.fixture
def resolving(cluster: FakeCluster) -> FakeCluster:
    """A cluster in whose hosts file the new name stands."""
    hosts = cluster.context.paths.etc_hosts
    os.makedirs(os.path.dirname(hosts), exist_ok=True)
    with open(hosts, "a", encoding="utf-8") as file:
        file.write(f"\n192.0.2.200 {NEW}\n192.0.2.2 taken.example.com\n192.0.2.100 {OLD}\n")
    return cluster


def rename(cluster: FakeCluster, name: str = NEW) -> Any:
    return cluster.execute("OP_CLUSTER_RENAME", name=name)


@pytest.mark.shows("backend/cluster-node/one-service")
def test_name_and_address_move_together(resolving: FakeCluster) -> None:
    paths = resolving.context.paths
    os.makedirs(paths.data_dir, exist_ok=True)
    with open(paths.known_hosts, "w", encoding="utf-8") as file:
        file.write(f"{OLD} ssh-rsa AAAA\n")
    assert rename(resolving) == NEW
    stored = resolving.config.cluster
    assert (stored["cluster_name"], stored["master_ip"]) == (NEW, "192.0.2.200")
    moves = [
        (name, args[0]["ip"])
        for name in ("node_deactivate_master_ip", "node_activate_master_ip")
        for _, args in resolving.rpc.called(name)
    ]
    assert moves == [
        ("node_deactivate_master_ip", "192.0.2.100"),
        ("node_activate_master_ip", "192.0.2.200"),
    ]
    with open(paths.known_hosts, encoding="utf-8") as file:
        assert file.read() == f"{NEW} ssh-rsa AAAA\n"
    sent = [
        node for node, args in resolving.rpc.called("upload_file") if args[0][0].endswith("hosts")
    ]
    assert sorted(sent) == ["node2", "node3"]
    assert ("cluster/BGL", "exclusive") in resolving.config.lock_history[0]


def test_an_address_of_another_ip_version_is_refused(resolving: FakeCluster) -> None:
    resolving.config.cluster.update(primary_ip_family=10, master_netmask=128)
    with pytest.raises(OpPrereqError, match=r"has the address 192.0.2.200, and .* uses IPv6"):
        rename(resolving)


def test_a_rename_that_fails_leaves_the_address_where_it_was(resolving: FakeCluster) -> None:
    resolving.config.failing["replaceCluster"] = GenericError("no room")
    with pytest.raises(GenericError, match="no room"):
        rename(resolving)
    assert resolving.config.cluster["cluster_name"] == OLD
    *_, (_, args) = resolving.rpc.called("node_activate_master_ip")
    assert args[0]["ip"] == "192.0.2.100"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (OLD, "nothing to do"),
        ("taken.example.com", "address of node 'node2.example.com'"),
        ("nowhere.example.com", "cannot be resolved"),
        ("a b", "no valid cluster name"),
    ],
)
def test_names_that_cannot_be(resolving: FakeCluster, name: str, text: str) -> None:
    with pytest.raises(OpPrereqError, match=text):
        rename(resolving, name)
    assert not resolving.rpc.called("node_deactivate_master_ip")


def test_only_the_cluster_is_renamed_in_known_hosts() -> None:
    text = "# a b\nab x 1\na x 1\na y 2"
    assert renamed_known_hosts(text, "a", "z") == "# a b\nab x 1\nz x 1\nz y 2"


def test_candidates_but_the_master_get_new_certificates(cluster: FakeCluster) -> None:
    cluster.config.node(3)["master_candidate"] = False
    cluster.execute("OP_CLUSTER_RENEW_CRYPTO", node_certificates=True)
    assert cluster.config.cluster["candidate_certs"] == {
        uuid_of("node1"): "AA:BB",
        uuid_of("node2"): "DIGEST:node2.example.com",
    }
    assert cluster.config.lock_history == [
        [("cluster/BGL", "shared"), ("node/" + uuid_of("node2"), "exclusive")]
    ]


def test_a_candidate_without_a_new_certificate_is_named(cluster: FakeCluster) -> None:
    cluster.rpc.fail("node_crypto_tokens", "node2", "disk full")
    with pytest.raises(OpExecError, match=r"no new client certificate for node2.example.com"):
        cluster.execute("OP_CLUSTER_RENEW_CRYPTO", node_certificates=True)
    assert cluster.said("disk full; going on")
    assert uuid_of("node3") in cluster.config.cluster["candidate_certs"]


def test_nothing_is_not_replaced(cluster: FakeCluster) -> None:
    with pytest.raises(OpPrereqError, match="say what"):
        cluster.execute("OP_CLUSTER_RENEW_CRYPTO")


def test_a_new_cluster_has_its_address_or_says_why_not(cluster: FakeCluster) -> None:
    assert cluster.execute("OP_CLUSTER_POST_INIT") is True
    [(node, args)] = cluster.rpc.called("node_activate_master_ip")
    assert (node, args[0]["ip"]) == ("node1", "192.0.2.100")
    assert not any("activate-master-ip" in text for text in cluster.messages)
    cluster.rpc.failure = lambda _node, call, _args: (
        "another machine answers" if call == "node_activate_master_ip" else None
    )
    assert cluster.execute("OP_CLUSTER_POST_INIT") is True
    [told] = [text for text in cluster.messages if "activate-master-ip" in text]
    assert "another machine answers; 'gnt-cluster activate-master-ip' does it once" in told
