"""Certificates: what is made can be read back, and chains as TLS expects."""

from __future__ import annotations

import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from ganeti.base.errors import X509CertError
from ganeti.system import certificates
from ganeti.transport.tls import digest_of

NOW = 1_700_000_000.0
CLUSTER = certificates.make_self_signed(now=NOW)


@pytest.mark.shows("backend/certificates/server-pem")
def test_cluster_certificate_is_its_own_authority() -> None:
    facts = certificates.facts(CLUSTER, "server.pem")
    assert facts.common_name == facts.issuer_name == "ganeti.example.com"
    assert facts.serial == 1
    assert facts.not_before == NOW - 86400  # clocks differ
    assert facts.not_after == NOW + 5 * 365 * 86400
    certificate = x509.load_pem_x509_certificate(CLUSTER)
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.value.ca


def test_key_stands_before_the_certificate_and_fits() -> None:
    assert CLUSTER.index(b"BEGIN PRIVATE KEY") < CLUSTER.index(b"BEGIN CERTIFICATE")
    certificates.check_key_fits(CLUSTER, "server.pem")


def test_issued_certificate_names_the_node_and_its_issuer() -> None:
    pem = certificates.issue("node1.example.com", CLUSTER, now=NOW, serial=7)
    facts = certificates.facts(pem, "client.pem")
    assert (facts.common_name, facts.issuer_name) == ("node1.example.com", "ganeti.example.com")
    assert facts.serial == 7
    issued = x509.load_pem_x509_certificate(pem)
    issued.verify_directly_issued_by(x509.load_pem_x509_certificate(CLUSTER))


def test_digest_is_that_of_openssl() -> None:
    der = ssl.PEM_cert_to_DER_cert(certificates.certificate_only(CLUSTER, "x").decode())
    facts = certificates.facts(CLUSTER, "server.pem")
    assert facts.digest == digest_of(der)  # as the TLS of nodes names it
    assert len(facts.digest) == 59
    assert facts.digest == facts.digest.upper()


def test_long_node_name_still_gets_a_certificate() -> None:
    name = "n" * 60 + ".example.com"
    pem = certificates.issue(name, CLUSTER, now=NOW, serial=2, alternative_names=[name])
    assert certificates.facts(pem, "client.pem").common_name == name[:64]


def test_certificate_of_a_member_of_etcd_is_for_its_addresses_and_both_ends() -> None:
    authority = certificates.make_self_signed("authority of etcd", now=NOW)
    addresses = ["192.0.2.7", "127.0.0.1", "2001:db8::7"]
    pem = certificates.issue_member_certificate(
        "node7.example.com", addresses, authority, now=NOW, serial=3
    )
    certificates.check_key_fits(pem, "etcd.pem")
    issued = x509.load_pem_x509_certificate(pem)
    issued.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    names = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["node7.example.com"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == addresses
    usage = issued.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert {each.dotted_string for each in usage} == {"1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"}
    others = certificates.issue_member_certificate(
        "node8.example.com", ["192.0.2.8"], authority, now=NOW, serial=4
    )
    names = (
        x509.load_pem_x509_certificate(others)
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )
    found = [str(each) for each in names.get_values_for_type(x509.IPAddress)]
    assert found == ["192.0.2.8", "127.0.0.1"]


def test_rsa_authority_of_an_older_cluster_can_issue() -> None:
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ganeti.example.com")])
    own = x509.load_pem_x509_certificate(CLUSTER)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(own.not_valid_before_utc)
        .not_valid_after(own.not_valid_after_utc)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(serialization.Encoding.PEM)
    issued = certificates.issue("node2", pem, now=NOW, serial=3)
    assert certificates.facts(issued, "client.pem").issuer_name == "ganeti.example.com"


@pytest.mark.parametrize("pem", [b"", b"nonsense", CLUSTER[:40], CLUSTER[: len(CLUSTER) // 2]])
def test_unreadable_authority_is_named(pem: bytes) -> None:
    with pytest.raises(X509CertError, match=r"server\.pem"):
        certificates.issue("node1", pem, now=NOW, serial=2, filename="server.pem")


def test_foreign_key_is_found() -> None:
    other = certificates.make_self_signed(now=NOW)
    key_end = CLUSTER.index(b"-----BEGIN CERTIFICATE")
    mixed = CLUSTER[:key_end] + other[other.index(b"-----BEGIN CERTIFICATE") :]
    with pytest.raises(X509CertError, match="does not belong"):
        certificates.check_key_fits(mixed, "server.pem")
