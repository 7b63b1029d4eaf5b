"""SSH as its files and command lines: how a node is reached, root's keys, the keys of the host.

Everything is below the root directory of a node, so that virtual nodes have keys of their own.

Source: constants.json, "ssh"; config.json, "well_known_paths".
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from ganeti.base.errors import CommandError, LockError, OpExecError
from ganeti.base.paths import Paths
from ganeti.base.text import ssh_key_of
from ganeti.system import files, process
from ganeti.system.filelock import DirectoryLock

SSH_PORT: Final = 22
SSH_USER: Final = "root"  # SSH_LOGIN_USER
CONNECT_TIMEOUT_S: Final = 10
HOST_KEY: Final = "/etc/ssh/ssh_host_{}_key"  # SSH_DAEMON_KEYFILES
KEY_KINDS: Final = ("dsa", "ecdsa", "rsa")  # SSHK_ALL
USER_KEY_KINDS: Final = (*KEY_KINDS, "ed25519")
"""The kinds of root's own keys, which an administrator may have made."""
KEYGEN_TIMEOUT_S: Final = 60.0
RELOAD_TIMEOUT_S: Final = 30.0
_LOCK_TIMEOUT_S: Final = 10.0  # for the keys that may log in
_PASSWORD: Final = "GANETI_SSH_PASSWORD"  # noqa: S105 - the name of a variable
_ANSWER: Final = f"#!/bin/sh\nprintf '%s\\n' \"${_PASSWORD}\"\n".encode()
_DIRECTORY_MODE: Final = 0o700
_SECRET_MODE: Final = 0o600
_PUBLIC_MODE: Final = 0o644
_BYTES_MAX: Final = 1 << 20
_ECDSA_BITS: Final = (256, 384, 521)
# Commands that make the SSH server read its keys again; the first that works is enough.
_RELOADS: Final = (
    ("systemctl", "reload-or-restart", "ssh.service"),
    ("systemctl", "reload-or-restart", "sshd.service"),
    ("service", "ssh", "reload"),
)


def command_line(
    node_name: str,
    argv: Sequence[str],
    *,
    known_hosts: str = "",
    alias: str = "",
    port: int = SSH_PORT,
    check_host_key: bool = True,
    ssh: str = "ssh",
    asks: bool = False,
    identity: str = "",
) -> list[str]:
    """Return the arguments that run a program on a machine as root; nobody at a terminal is asked.

    Args:
        asks: the password is asked for, once; `answering` answers.
        identity: the file of a private key that is tried before those of root.
        known_hosts: the cluster's own file, where all its nodes share the entry of the alias; the
            user's files are left out then.  Without it the user's files are read.
        alias: under which name the host key is looked for.
    """
    options = {
        "EscapeChar": "none",
        "HashKnownHosts": "no",
        "CheckHostIp": "no",
        "ConnectTimeout": str(CONNECT_TIMEOUT_S),
        "Port": str(port),
        "BatchMode": "no" if asks else "yes",
        "StrictHostKeyChecking": "yes" if check_host_key else "no",
    }
    if asks:
        options |= {"NumberOfPasswordPrompts": "1", "PubkeyAuthentication": "no"}
    if known_hosts:
        options |= {"GlobalKnownHostsFile": known_hosts, "HostKeyAlias": alias}
    if known_hosts or not check_host_key:
        options["UserKnownHostsFile"] = "/dev/null"
    # One that is named replaces those that SSH tries by itself, so these are named, too.
    tried = [identity, *_own_keys()] if identity else []
    named = [*options.items(), *(("IdentityFile", path) for path in tried)]
    settings = [word for name, value in named for word in ("-o", f"{name}={value}")]
    return [ssh, *settings, f"{SSH_USER}@{node_name}", "--", shlex.join(argv)]


def _own_keys() -> list[str]:
    """Return the files of root's private keys on this machine."""
    directory = directory_of(Paths(""))
    found = (os.path.join(directory, f"id_{kind}") for kind in USER_KEY_KINDS)
    return [path for path in found if os.path.exists(path)]


@contextlib.contextmanager
def answering(password: str | None) -> Iterator[dict[str, str] | None]:
    """Give the environment in which SSH gets a password; None as long as there is no password.

    It goes by the environment of the one process, and is in no file.
    """
    if password is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="ssh-") as directory:
        program = os.path.join(directory, "answer")
        files.write_atomic(program, _ANSWER, _DIRECTORY_MODE)
        asked = {"SSH_ASKPASS": program, "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": "none"}
        yield {**os.environ, **asked, _PASSWORD: password}


def directory_of(paths: Paths) -> str:
    """Return root's directory for SSH; a virtual node has its own."""
    return os.path.join(paths.root + os.path.expanduser("~root"), ".ssh")


def ensure_user_key(directory: str, kind: str, bits: int, *, host: str) -> str:
    """Make root's SSH key if there is none; returns the public key as a line.

    Args:
        host: this machine's name, for the comment of the key.

    Raises:
        OpExecError: it cannot be made.
    """
    private = os.path.join(directory, f"id_{kind}")
    files.ensure_directory(directory, _DIRECTORY_MODE)
    if not os.path.exists(private):
        _generate(private, kind, bits, host)
    return files.read_bytes(private + ".pub", _BYTES_MAX).decode().strip()


def _generate(private: str, kind: str, bits: int, host: str) -> None:
    argv = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", f"{SSH_USER}@{host}", "-f", private]
    if kind == "rsa" or (kind == "ecdsa" and bits in _ECDSA_BITS):
        argv += ["-b", str(bits)]  # otherwise it is the length of keys of another type
    try:
        process.run(argv, timeout_s=KEYGEN_TIMEOUT_S).check()
    except CommandError as err:
        said = err.output or err.message
        raise OpExecError(f"cannot make the SSH key {private}: {said}") from err


def make_next_key(directory: str, kind: str, bits: int, *, host: str) -> str:
    """Make the key that root is to have next, beside the present one; returns the public key.

    One that was made before, and never taken, is used.

    Raises:
        OpExecError: it cannot be made.
    """
    files.ensure_directory(directory, _DIRECTORY_MODE)
    private = _finish_taking(directory, kind)
    public_key = files.read_bytes_or_none(f"{private}.pub", _BYTES_MAX)
    if public_key is None:
        files.remove_if_exists(private)  # cut off while it was made
        _generate(private, kind, bits, host)
        public_key = files.read_bytes(f"{private}.pub", _BYTES_MAX)
    return public_key.decode().strip()


def take_next_key(directory: str, kind: str, public_key: str) -> None:
    """Make that key, which was made before, the one that root has; it may be that already.

    Raises:
        OpExecError: it is not there.
    """
    private, present = _finish_taking(directory, kind), os.path.join(directory, f"id_{kind}")
    if _is_key(f"{private}.pub", public_key):
        os.replace(private, present)
        os.replace(f"{private}.pub", f"{present}.pub")
        files.fsync_directory(directory)
    elif not _is_key(f"{present}.pub", public_key):
        raise OpExecError(f"the SSH key that root was to take is not in {directory}; make another")


def _is_key(path: str, public_key: str) -> bool:
    found = files.read_bytes_or_none(path, _BYTES_MAX)
    return found is not None and ssh_key_of(found.decode()) == ssh_key_of(public_key)


def _finish_taking(directory: str, kind: str) -> str:
    """Finish a replacement of the key that was cut off; returns where the next one is made.

    The private half is made, and taken, before the public one.
    """
    present = os.path.join(directory, f"id_{kind}")
    private = f"{present}.ganeti-next"
    if os.path.exists(f"{private}.pub") and not os.path.exists(private):
        os.replace(f"{private}.pub", f"{present}.pub")
    return private


def change_authorized_keys(
    directory: str, *, add: Collection[str] = (), remove: Collection[str] = ()
) -> bool:
    """Let owners of keys log in as root, or not any more; tells whether that changed anything.

    Raises:
        OpExecError: another process is changing them, and does not finish.
    """
    files.ensure_directory(directory, _DIRECTORY_MODE)
    with _changing_keys(directory):
        path, before = _authorized_keys(directory)
        after = with_keys(before, add=add, remove=remove)
        if after != before:
            files.write_durable(path, after.encode("utf-8", "surrogateescape"), _SECRET_MODE)
    return after != before


def _changing_keys(directory: str) -> DirectoryLock:
    """Return the lock that keeps changes of the keys that may log in apart; it is taken.

    It is on the directory itself: a file for it would stay there when the package is gone.
    """
    lock = DirectoryLock(directory)
    try:
        lock.acquire(timeout_s=_LOCK_TIMEOUT_S)
    except LockError as err:
        raise OpExecError(
            f"the SSH keys that let in to this node are being changed ({lock.path} is locked);"
            " try again later"
        ) from err
    return lock


def lets_in(directory: str, key: str) -> bool:
    """Tell whether the owner of a public key may log in as root."""
    _path, text = _authorized_keys(directory)
    return ssh_key_of(key) in map(ssh_key_of, text.splitlines())


def _authorized_keys(directory: str) -> tuple[str, str]:
    """Return the file of the keys that may log in, and its text, "" without one."""
    path = os.path.join(directory, "authorized_keys")
    content = files.read_bytes_or_none(path, _BYTES_MAX) or b""
    return path, content.decode("utf-8", "surrogateescape")


def with_keys(text: str, *, add: Collection[str] = (), remove: Collection[str] = ()) -> str:
    """Return the content of an authorized_keys file with other keys.

    Keys that differ in comments or options only are the same.

    >>> with_keys("ssh-rsa AA me", add=["ssh-rsa AA you", "ssh-rsa BB"], remove=["ssh-rsa CC"])
    'ssh-rsa AA me\\nssh-rsa BB\\n'
    """
    gone = {ssh_key_of(line) for line in remove}
    lines = [line for line in text.splitlines() if not line.strip() or ssh_key_of(line) not in gone]
    for line in add:
        if ssh_key_of(line) not in {ssh_key_of(known) for known in lines}:
            lines.append(line.strip())
    return "".join(f"{line}\n" for line in lines)


def read_host_keys(paths: Paths) -> list[tuple[str, str, str]]:
    """Return (kind, private key, public key) of all keys that this host has."""
    found = []
    for kind in KEY_KINDS:
        path = paths.root + HOST_KEY.format(kind)
        private = files.read_bytes_or_none(path, _BYTES_MAX)
        public = files.read_bytes_or_none(f"{path}.pub", _BYTES_MAX)
        if private is not None and public is not None:
            found.append((kind, private.decode(), public.decode()))
    return found


def write_host_keys(paths: Paths, keys: Sequence[tuple[str, str, str]]) -> bool:
    """Give this host other keys; returns whether any of them is new.

    Raises:
        OpExecError: a kind that there is not.
    """
    changed = False
    for kind, private, public in keys:
        if kind not in KEY_KINDS:
            raise OpExecError(f"there is no kind {kind!r} of SSH keys; known are {KEY_KINDS}")
        path = paths.root + HOST_KEY.format(kind)
        if files.read_bytes_or_none(path, _BYTES_MAX) == private.encode():
            continue
        files.ensure_directory(os.path.dirname(path), 0o755)
        files.write_durable(path, private.encode(), _SECRET_MODE)
        files.write_durable(f"{path}.pub", public.encode(), _PUBLIC_MODE)
        changed = True
    return changed


def reload_server() -> bool:
    """Make the SSH server read its keys again; returns whether that worked."""
    for argv in _RELOADS:
        try:
            process.run(argv, timeout_s=RELOAD_TIMEOUT_S).check()
        except CommandError:
            continue
        return True
    return False
