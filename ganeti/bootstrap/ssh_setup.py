"""SSH on nodes: the host key that names the cluster, and the keys that root logs in with.

All nodes have the host keys of the first one, so one line in the cluster's known_hosts stands for
all.  Root of each node has a key of its own; those of master candidates are let in everywhere.  A
virtual node has no SSH server and so no host key; the cluster then has none either.

Source: constants.json, "ssh".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ganeti.base.errors import ErrorCode, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.system import files, ssh


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
