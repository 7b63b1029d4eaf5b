"""Keys and certificates of a cluster, made when it is and when they are replaced; SSH on nodes.

All nodes have the SSH host keys of the first one, so one line in the cluster's known_hosts stands
for all.  Root of each node has a key of its own; those of master candidates are let in everywhere.
A virtual node has no SSH server and so no host key; the cluster then has none either.

Source: constants.json, "ssh".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap import cluster_files
from ganeti.system import certificates, clock, files, ssh

SECRET_BYTES: Final = 20  # of the HMAC key and the domain secret, as 40 hexadecimal digits
CLIENT_SERIAL_BITS: Final = 63
# Well-known paths of files that only root and the daemons read; the others are configuration.
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


class HostKey(NamedTuple):
    """A public host key; both empty where there is none."""

    algorithm: str
    key: str


def host_key(paths: Paths, kind: str) -> HostKey:
    """Return the public host key in base64; an empty one on a virtual node that has none.

    Raises:
        OpPrereqError: a real machine without such a key.
    """
    path = f"{paths.root}{ssh.HOST_KEY.format(kind)}.pub"
    content = files.read_bytes_or_none(path)
    if content is None:
        if paths.root:
            return HostKey("", "")
        raise OpPrereqError(
            f"{path} is missing; is the SSH server installed? --ssh-key-type names the kind of key",
            ErrorCode.ENVIRON,
        )
    words = content.decode().split()
    if len(words) < 2:
        raise OpPrereqError(f"{path} holds no public key", ErrorCode.ENVIRON)
    return HostKey(words[0], words[1])


def known_hosts(cluster_name: str, host: HostKey) -> bytes:
    """Return the content of the cluster's known_hosts file: one key for all nodes."""
    return f"{cluster_name} {host.algorithm} {host.key}\n".encode() if host.key else b""


def set_up_user_key(directory: str, kind: str, bits: int, *, host: str) -> str:
    """Make root's SSH key if there is none, and let it log in here; returns the public key.

    Raises:
        OpExecError: the key cannot be made.
    """
    public_key = ssh.ensure_user_key(directory, kind, bits, host=host)
    ssh.change_authorized_keys(directory, add=[public_key])
    return public_key


def let_keys_be_managed(paths: Paths) -> None:
    """Note on this machine that the master may change its SSH keys."""
    files.write_durable(paths.ssh_managed, b"", 0o644)


def take_host_keys(paths: Paths, keys: Sequence[tuple[str, str, str]]) -> list[str]:
    """Give this machine the host keys of the cluster; returns the steps left for the administrator.

    Raises:
        OpExecError: an unknown kind of key.
        OSError: a file cannot be written.
    """
    has_changed = ssh.write_host_keys(paths, keys)
    if has_changed and not paths.root and not ssh.reload_server():
        return ["the SSH server could not be told of its new host keys; restart it by hand"]
    return []
