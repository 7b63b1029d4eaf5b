"""Mutual TLS between nodes: contexts, certificate digests, and the nodes that may give orders.

The cluster's certificate (``server.pem``) is the only authority; a node's own (``client.pem``) is
issued by it.  Being issued is not enough: for every request, the digest of the peer's certificate
must be among those of the master candidates, so that a demoted candidate is refused at once, on
connections that it holds open too.

Source: node_rpc.json, "tls"; ARCHITECTURE, invariant 10.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from ganeti.base.errors import GenericError, X509CertError
from ganeti.base.paths import Paths
from ganeti.system import clock, files
from ganeti.transport.clocks import clock_words

logger = logging.getLogger(__name__)

T = TypeVar("T")

CIPHERS: Final = "HIGH:-DES:-3DES:-EXPORT:-DH"
_PEM_BYTES_MAX: Final = 1 << 20
_NO_CHECK_TIME: Final = 0x200000  # X509_V_FLAG_NO_CHECK_TIME
_CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """The certificate that a peer has proved to own; times are seconds since the epoch."""

    digest: str
    common_name: str
    valid_from: float
    valid_until: float


def digest_of(certificate_der: bytes) -> str:
    """Return the SHA-1 digest of a certificate as ssconf spells it: ``AA:BB:...``."""
    # A name for a certificate that TLS has verified, frozen by the format; nothing is signed.
    return hashlib.sha1(certificate_der, usedforsecurity=False).digest().hex(":").upper()


def digest_of_file(path: str) -> str:
    """Return the digest of the first certificate in a PEM file.

    Raises:
        X509CertError: no such file, or no certificate in it.
    """
    try:
        text = files.read_bytes(path, _PEM_BYTES_MAX).decode("ascii", "replace")
    except OSError as err:
        raise X509CertError(path, _cannot_read(err)) from err
    found = _CERTIFICATE.search(text)
    if found is None:
        raise X509CertError(path, "there is no certificate in this file")
    try:
        return digest_of(ssl.PEM_cert_to_DER_cert(found.group()))
    except ValueError as err:
        raise X509CertError(path, f"the certificate is not well-formed: {err}") from err


def peer_certificate(connection: ssl.SSLObject) -> PeerCertificate | None:
    """Return the certificate that the peer of a verified connection showed, or None."""
    der = connection.getpeercert(binary_form=True)
    details = connection.getpeercert()
    if not der or not details:
        return None
    return PeerCertificate(
        digest_of(der),
        _common_name(details.get("subject", ())),
        ssl.cert_time_to_seconds(str(details["notBefore"])),
        ssl.cert_time_to_seconds(str(details["notAfter"])),
    )


def _common_name(subject: object) -> str:
    pairs = [pair for group in subject for pair in group] if isinstance(subject, tuple) else []
    return next((str(value) for name, value in pairs if name == "commonName"), "")


def validity_of(path: str) -> tuple[float, float] | None:
    """Return from when till when the authority in a PEM file is valid, if that can be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with contextlib.suppress(OSError):
        context.load_verify_locations(path)
    for each in context.get_ca_certs():
        begin, end = (ssl.cert_time_to_seconds(str(each[key])) for key in ("notBefore", "notAfter"))
        return begin, end
    return None


def server_context(
    certificate_path: str, authority_path: str | None = None, *, key_path: str | None = None
) -> ssl.SSLContext:
    """Return the context of a server that asks clients for a certificate.

    Args:
        certificate_path: PEM file with the server's key and certificate.
        key_path: PEM file with the key, if it is not in the other one.
        authority_path: PEM file of the authority for clients; None asks for no certificate.

    Raises:
        X509CertError: a file is missing or not usable; names it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    _load(certificate_path, lambda: context.load_cert_chain(certificate_path, key_path))
    if authority_path is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _load(authority_path, lambda: context.load_verify_locations(authority_path))
        # Certificates of 3.0 do not say that they may issue others, but are trusted themselves.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        # A client that comes back shows its certificate again, to be checked against today's
        # authority; tickets to go on without that would be a third of the costs of a handshake.
        context.num_tickets = 0
    return context


def node_server_context(paths: Paths, certificate_path: str | None = None) -> ssl.SSLContext:
    """Return the context of this node's daemon; errors as of `server_context`.

    Whether it is the time of a certificate is left to `CandidatePolicy`, which answers what is
    wrong; after a handshake that fails the client knows nothing.
    """
    context = server_context(certificate_path or paths.server_pem, paths.server_pem)
    if validity_of(paths.server_pem) is not None:
        context.verify_flags |= _NO_CHECK_TIME
    return context


def node_client_context(paths: Paths) -> ssl.SSLContext:
    """Return the context of a client of node daemons; errors as of `server_context`.

    As of calls made by libcurl: the certificate names the cluster, not hosts.
    """
    own = paths.client_pem if os.path.exists(paths.client_pem) else paths.server_pem
    return client_context(own, paths.server_pem)


def client_context(certificate_path: str, authority_path: str) -> ssl.SSLContext:
    """Return the context of a client that does not look at the name of the server.

    Args:
        certificate_path: PEM file with the client's key and certificate.
        authority_path: PEM file of the authority for servers, or the certificate of the only one.

    Raises:
        X509CertError: a file is missing or not usable; names it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _load(certificate_path, lambda: context.load_cert_chain(certificate_path))
    _load(authority_path, lambda: context.load_verify_locations(authority_path))
    return context


def _load(path: str, load: Callable[[], object]) -> None:
    try:
        load()
    except ssl.SSLError as err:
        reason = err.reason or str(err)
        raise X509CertError(path, f"cannot be used: {reason.replace('_', ' ').lower()}") from err
    except OSError as err:
        raise X509CertError(path, _cannot_read(err)) from err


def _cannot_read(err: OSError) -> str:
    if isinstance(err, FileNotFoundError):
        return "this file does not exist"
    return f"cannot be read: {err.strerror}"


class _Followed(Generic[T]):
    """A value read from a file, and read again once the file is another."""

    def __init__(self, path: str, read: Callable[[], T]) -> None:
        self._path = path
        self._read = read
        self._seen: tuple[int, int, int] | None = None
        self._value: T | None = None

    def get(self) -> T:
        """Return the value; raises the errors of reading it."""
        seen = None
        with contextlib.suppress(FileNotFoundError):
            state = os.stat(self._path)
            seen = (state.st_mtime_ns, state.st_ino, state.st_size)
        if self._value is None or seen is None or seen != self._seen:
            self._value = self._read()
            self._seen = seen
        return self._value


class CandidatePolicy:
    """Decides for each request whether its sender may give this node orders."""

    def __init__(
        self, paths: Paths, now: Callable[[], float] = clock.now, node_name: str = ""
    ) -> None:
        certificates = paths.ssconf_file("master_candidates_certs")
        server_pem = paths.server_pem
        self._now = now
        self._clock_name = f"the clock of {node_name}" if node_name else "this node's clock"
        self._candidates = _Followed(certificates, lambda: _read_digests(certificates))
        self._cluster = _Followed(server_pem, lambda: frozenset({digest_of_file(server_pem)}))
        self._authority = _Followed(server_pem, lambda: validity_of(server_pem) or (0.0, math.inf))

    def refusal(self, peer: PeerCertificate | None) -> str | None:
        """Return why this peer may not, or None if it may."""
        if peer is None:
            return "a client certificate is required"
        now = self._now()
        for what, begin, end in (
            (f"the certificate of {peer.common_name!r}", peer.valid_from, peer.valid_until),
            ("the certificate of the cluster", *self._authority.get()),
        ):
            if now > end:
                return f"{what} has expired"
            if now < begin:
                words = clock_words(begin, now, self._clock_name)
                return f"{what} is not valid yet: {words}"
        try:
            allowed = self._candidates.get() or self._cluster.get()
        except (GenericError, OSError) as err:  # the allowed peers are unknown, so none is allowed
            logger.error("Cannot tell whose requests to accept: %s", err)  # noqa: TRY400 - says all
            return "this node cannot read whose requests it may accept"
        if peer.digest not in allowed:
            return f"the certificate of {peer.common_name!r} is not that of a master candidate"
        return None


def _read_digests(path: str) -> frozenset[str]:
    """Read the lines ``<node uuid>=<digest>`` of ssconf; a damaged line matches nobody."""
    data = files.read_bytes_or_none(path, _PEM_BYTES_MAX) or b""
    lines = data.decode("ascii", "replace").split("\n")
    return frozenset(line.partition("=")[2].strip().upper() for line in lines if line)
