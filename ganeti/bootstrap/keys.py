"""Keys and certificates of a cluster: made when it is, and when they are replaced."""

from __future__ import annotations

from typing import Final

from ganeti.base.paths import Paths
from ganeti.bootstrap import cluster_files
from ganeti.system import certificates, clock

SECRET_BYTES: Final = 20  # of the HMAC key and the domain secret, as 40 hexadecimal digits
CLIENT_SERIAL_BITS: Final = 63
# Well-known paths of what only root and the daemons read; the others are configuration.
_MODES: Final = {"cluster_domain_secret": cluster_files.CONFIG_MODE}


def mode_of(name: str) -> int:
    """Return the mode of a file with a key, by the name of its well-known path."""
    return _MODES.get(name, cluster_files.SECRET_MODE)


def make_secret() -> bytes:
    """Make a key of hexadecimal digits."""
    return clock.random_bytes(SECRET_BYTES).hex().encode() + b"\n"


def make_certificate() -> bytes:
    """Make a certificate that is its own authority, with its key."""
    return certificates.make_self_signed(now=clock.now())


def make_client_certificate(node_name: str, server_pem: bytes) -> bytes:
    """Make a node's client certificate, issued by the cluster's.

    Raises:
        X509CertError: the cluster's certificate cannot be read.
    """
    serial = int.from_bytes(clock.random_bytes(8), "big") >> (64 - CLIENT_SERIAL_BITS)
    return certificates.issue(node_name, server_pem, now=clock.now(), serial=max(serial, 2))


def make_spice_certificates(paths: Paths) -> dict[str, bytes]:
    """Make the certificate of SPICE consoles and its authority, by names of well-known paths."""
    now = clock.now()
    authority = certificates.make_self_signed("Ganeti SPICE CA", now=now)
    spice = certificates.issue(
        certificates.COMMON_NAME, authority, now=now, serial=2, filename=paths.spice_ca_pem
    )
    return {
        "spice_ca_pem": certificates.certificate_only(authority, paths.spice_ca_pem),
        "spice_pem": spice,
    }
