"""Keys and certificates: made, issued, looked at.  The one module that knows `cryptography`.

Every file holds the private key (PKCS#8) and then the certificate, both PEM.  Keys are ECDSA on
P-256: their handshakes cost the least.  The cluster certificate (``server.pem``) is its own
authority; it issues the client certificate of each node.  The extensions satisfy OpenSSL's strict
checks, which newer Pythons switch on.

Source: node_rpc.json, "transport": "server_certificate_names", "client_certificate_names".
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ganeti.base.errors import X509CertError
from ganeti.base.text import name_in_certificate

COMMON_NAME: Final = "ganeti.example.com"  # constants.json, X509_CERT_CN
VALIDITY_DAYS: Final = 1825
CLUSTER_SERIAL: Final = 1
_SKEW: Final = datetime.timedelta(days=1)  # so much may a node's clock be behind
_LOOPBACK: Final = "127.0.0.1"

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey  # RSA: clusters made by 3.0


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """The facts of a certificate that checks need; times in seconds since the epoch."""

    common_name: str
    issuer_name: str
    serial: int
    digest: str
    not_before: float
    not_after: float


def make_self_signed(
    common_name: str = COMMON_NAME, *, now: float, days: int = VALIDITY_DAYS
) -> bytes:
    """Make a key and a certificate that is its own authority; returns both as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    builder = _builder(name, name, key, CLUSTER_SERIAL, now, days, is_authority=True)
    return _to_pem(key, builder.sign(key, hashes.SHA256()))


def issue(
    common_name: str,
    authority_pem: bytes,
    *,
    now: float,
    serial: int,
    alternative_names: Sequence[str] = (),
    addresses: Sequence[str] = (),
    is_for_both_ends: bool = False,
    days: int = VALIDITY_DAYS,
    filename: str = "the authority",
) -> bytes:
    """Make a key and a certificate issued by an authority; returns both as PEM.

    Args:
        alternative_names: DNS names.
        addresses: IP addresses that it is for as well.
        is_for_both_ends: it says that it is for servers and for clients of TLS, not nothing.

    Raises:
        X509CertError: the authority cannot be read; ``filename`` is named.
    """
    authority = _load_certificate(authority_pem, filename)
    authority_key = _load_key(authority_pem, filename)
    key = ec.generate_private_key(ec.SECP256R1())
    name, issuer = _name(common_name), authority.subject
    builder = _builder(name, issuer, key, serial, now, days, is_authority=False).add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
        critical=False,
    )
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in alternative_names]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if is_for_both_ends:
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
    return _to_pem(key, builder.sign(authority_key, hashes.SHA256()))


def issue_member_certificate(
    node_name: str,
    addresses: Sequence[str],
    authority_pem: bytes,
    *,
    now: float,
    serial: int,
    filename: str = "the authority",
) -> bytes:
    """Make key and certificate of a node for etcd, where it is a member or a client; both as PEM.

    A member looks whether another one comes from an address of its certificate.  Those that meet on
    one machine, as virtual nodes do, come from the loopback address.

    Args:
        addresses: all IP addresses from which the node may speak to others.
        authority_pem: key and certificate of the authority that etcd trusts.

    Raises:
        X509CertError: the authority cannot be read; ``filename`` is named.
    """
    return issue(
        node_name,
        authority_pem,
        now=now,
        serial=serial,
        alternative_names=[node_name],
        addresses=list(dict.fromkeys([*addresses, _LOOPBACK])),
        is_for_both_ends=True,
        filename=filename,
    )


def facts(pem: bytes, filename: str) -> CertificateFacts:
    """Return the facts of the first certificate in a file's content.

    Raises:
        X509CertError: there is none, or it cannot be read.
    """
    certificate = _load_certificate(pem, filename)
    return CertificateFacts(
        common_name=_common_name(certificate.subject),
        issuer_name=_common_name(certificate.issuer),
        serial=certificate.serial_number,
        # ``AA:BB:...`` as in 3.0: SHA-1 names the certificate, it does not protect it.
        digest=certificate.fingerprint(hashes.SHA1()).hex(":").upper(),  # noqa: S303
        not_before=certificate.not_valid_before_utc.timestamp(),
        not_after=certificate.not_valid_after_utc.timestamp(),
    )


def check_key_fits(pem: bytes, filename: str) -> None:
    """Check that a file's key belongs to its certificate.

    Raises:
        X509CertError: it does not, or one of them is missing.
    """
    if _load_key(pem, filename).public_key() != _load_certificate(pem, filename).public_key():
        raise X509CertError(filename, "the private key does not belong to the certificate")


def certificate_only(pem: bytes, filename: str) -> bytes:
    """Return the certificate without the key.

    Raises:
        X509CertError: there is none, or it cannot be read.
    """
    return _load_certificate(pem, filename).public_bytes(serialization.Encoding.PEM)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name_in_certificate(common_name))])


def _common_name(name: x509.Name) -> str:
    attributes = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(attributes[0].value) if attributes else ""


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: PrivateKey,
    serial: int,
    now: float,
    days: int,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    start = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(start - _SKEW)
        .not_valid_after(start + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(_usage(is_authority=is_authority), critical=True)
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=True,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _to_pem(key: PrivateKey, certificate: x509.Certificate) -> bytes:
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return key_pem + certificate.public_bytes(serialization.Encoding.PEM)


def _load_certificate(pem: bytes, filename: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as err:
        raise X509CertError(filename, f"no readable certificate: {err}") from err


def _load_key(pem: bytes, filename: str) -> PrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as err:
        raise X509CertError(filename, f"no readable private key: {err}") from err
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise X509CertError(filename, "its key is neither an elliptic curve nor an RSA key")
    return key
