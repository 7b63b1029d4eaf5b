"""SSH on real nodes: the host key that names the cluster, and the key that root logs in with.

A virtual node has no SSH server and so no host key; the cluster then has none either.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from ganeti.base.errors import CommandError, ErrorCode, OpExecError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.system import files, process

HOST_KEY: Final = "/etc/ssh/ssh_host_{}_key.pub"  # constants.json, SSH_DAEMON_KEYFILES
KEYGEN_TIMEOUT_S: Final = 60.0


class HostKey(NamedTuple):
    """A public host key; both empty where there is none."""

    algorithm: str
    key: str


def host_key(paths: Paths, kind: str) -> HostKey:
    """Return the public host key in base64; an empty one on a virtual node that has none.

    Raises:
        OpPrereqError: a real machine without such a key.
    """
    path = paths.root + HOST_KEY.format(kind)
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


def set_up_user_key(kind: str, bits: int, *, home: str | None = None) -> None:
    """Make root's SSH key if there is none, and let it log in here.

    Raises:
        OpExecError: the key cannot be made.
    """
    directory = os.path.join(home or os.path.expanduser("~root"), ".ssh")
    private = os.path.join(directory, f"id_{kind}")
    public = private + ".pub"
    files.ensure_directory(directory, 0o700)
    if not os.path.exists(private):
        argv = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", private]
        if kind != "ecdsa":
            argv += ["-b", str(bits)]
        try:
            process.run(argv, timeout_s=KEYGEN_TIMEOUT_S).check()
        except CommandError as err:
            raise OpExecError(f"cannot make the SSH key {private}: {err.message}") from err
    authorize(os.path.join(directory, "authorized_keys"), files.read_bytes(public))


def authorize(path: str, public_key: bytes) -> None:
    """Add a public key to an authorized_keys file, unless it stands there."""
    content = files.read_bytes_or_none(path) or b""
    key = public_key.strip()
    if key in content.splitlines():
        return
    if content and not content.endswith(b"\n"):
        content += b"\n"
    files.write_durable(path, content + key + b"\n", 0o600)
