"""Tests of ganeti/transport/tls.py and identity.py: files and decisions, no connections."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes.tls_node import TlsNode

from ganeti.base.errors import X509CertError
from ganeti.base.paths import Paths
from ganeti.system import certificates, clock
from ganeti.transport.clocks import clock_words
from ganeti.transport.curl_pool import TlsIdentity
from ganeti.transport.tls import (
    CandidatePolicy,
    PeerCertificate,
    digest_of,
    digest_of_file,
    node_server_context,
    server_context,
)

NOW = float(int(clock.now()))


@pytest.fixture
def node(tmp_path: Path) -> TlsNode:
    return TlsNode(tmp_path)


def peer(digest: str) -> PeerCertificate:
    return PeerCertificate(digest, "node1", valid_from=NOW - 50, valid_until=NOW + 50)


def test_a_digest_is_spelled_as_in_ssconf() -> None:
    assert digest_of(b"abc") == "A9:99:3E:36:47:06:81:6A:BA:3E:25:71:78:50:C2:6C:9C:D0:D8:9D"


def test_a_candidate_may_and_nobody_else(node: TlsNode) -> None:
    node.trust(node)
    policy = CandidatePolicy(node.paths, now=lambda: NOW)
    assert policy.refusal(peer(node.digest)) is None
    assert policy.refusal(peer("AA:BB")) == (
        "the certificate of 'node1' is not that of a master candidate"
    )
    cluster = digest_of_file(node.paths.server_pem)
    assert policy.refusal(peer(cluster)) is not None
    assert policy.refusal(None) == "a client certificate is required"


def test_without_candidates_the_cluster_certificate_may(node: TlsNode) -> None:
    cluster = digest_of_file(node.paths.server_pem)
    path = Path(node.paths.ssconf_file("master_candidates_certs"))
    policy = CandidatePolicy(node.paths, now=lambda: NOW)
    for content in (None, "", "\n"):
        if content is not None:
            path.write_text(content)
        assert policy.refusal(peer(cluster)) is None
        assert policy.refusal(peer(node.digest)) is not None


@pytest.mark.parametrize(
    ("now", "refusal"),
    [
        (
            NOW - 60,
            f"the certificate of 'node1' is not valid yet: {clock_words(NOW - 50, NOW - 60)}",
        ),
        (NOW - 50, None),
        (NOW + 50, None),
        (NOW + 51, "the certificate of 'node1' has expired"),
    ],
    ids=["before", "first", "last", "after"],  # the time of the run is no name
)
def test_a_certificate_counts_within_its_time_only(
    node: TlsNode, now: float, refusal: str | None
) -> None:
    node.trust(node)
    assert CandidatePolicy(node.paths, now=lambda: now).refusal(peer(node.digest)) == refusal


@pytest.mark.parametrize(
    ("made_s_ago", "words"),
    [
        (
            -3 * 86400,
            f"is not valid yet: {clock_words(NOW + 2 * 86400, NOW, 'the clock of node3')}",
        ),
        (1825 * 86400 + 1, "has expired"),
        (0, None),
    ],
)
def test_the_clusters_certificate_counts_within_its_time_only(
    tmp_path: Path, made_s_ago: float, words: str | None
) -> None:
    pem = certificates.make_self_signed(now=NOW - made_s_ago)
    node = TlsNode(tmp_path, "node1", pem)
    node.trust(node)
    found = CandidatePolicy(node.paths, lambda: NOW, "node3").refusal(peer(node.digest))
    assert found == (words and f"the certificate of the cluster {words}")


def test_a_change_of_the_file_counts_at_once(node: TlsNode, tmp_path: Path) -> None:
    other = TlsNode(tmp_path, "node2", node.server_pem)
    policy = CandidatePolicy(node.paths, now=lambda: NOW)
    for allowed, refused in ((node, other), (other, node), (node, other)):
        node.trust(allowed)
        assert policy.refusal(peer(allowed.digest)) is None
        assert policy.refusal(peer(refused.digest)) is not None


def test_a_damaged_or_unreadable_file_lets_nobody_in(
    node: TlsNode, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = peer(digest_of_file(node.paths.server_pem))
    policy = CandidatePolicy(node.paths, now=lambda: NOW)
    path = Path(node.paths.ssconf_file("master_candidates_certs"))
    path.write_bytes(b"\xff\xfe rubbish")
    assert policy.refusal(cluster) is not None
    path.unlink()
    path.mkdir()
    assert policy.refusal(cluster) == "this node cannot read whose requests it may accept"
    assert "Cannot tell whose requests to accept" in caplog.text


def test_without_any_certificate_nobody_gets_in(tmp_path: Path) -> None:
    policy = CandidatePolicy(Paths(str(tmp_path)), now=lambda: NOW)
    assert policy.refusal(peer("AA:BB")) is not None


def test_a_missing_or_broken_certificate_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "server.pem")
    for use in (server_context, digest_of_file):
        with pytest.raises(X509CertError, match=r"server\.pem: this file does not exist"):
            use(path)
    Path(path).write_text("rubbish")
    with pytest.raises(X509CertError, match=r"server\.pem: there is no certificate in this file"):
        digest_of_file(path)
    with pytest.raises(X509CertError, match=r"server\.pem: cannot be used"):
        server_context(path)
    Path(path).write_text("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n")
    with pytest.raises(X509CertError, match=r"server\.pem"):
        digest_of_file(path)


def test_a_missing_authority_is_named(node: TlsNode) -> None:
    with pytest.raises(X509CertError, match=r"/nowhere\.pem: this file does not exist"):
        server_context(node.paths.server_pem, "/nowhere.pem")


def test_the_node_context_asks_for_certificates(node: TlsNode) -> None:
    context = node_server_context(node.paths)
    assert context.verify_mode.name == "CERT_REQUIRED"
    assert context.num_tickets == 0  # nobody goes on with what was checked once
    assert server_context(node.paths.server_pem).verify_mode.name == "CERT_NONE"


def test_a_node_calls_with_its_own_certificate_or_the_clusters(node: TlsNode) -> None:
    assert TlsIdentity.of_node(node.paths).certificate_path == node.paths.client_pem
    os.unlink(node.paths.client_pem)
    assert TlsIdentity.of_node(node.paths).certificate_path == node.paths.server_pem
    os.unlink(node.paths.server_pem)
    with pytest.raises(X509CertError, match=r"server\.pem: .*is this node part of a cluster"):
        TlsIdentity.of_node(node.paths)
    Path(node.paths.client_pem).write_text("x")
    with pytest.raises(X509CertError, match=r"server\.pem: this file does not exist"):
        TlsIdentity.of_node(node.paths)
