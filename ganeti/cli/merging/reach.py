"""How the nodes of the other cluster are reached, and what they are asked.

A real node is reached by SSH: by a key of root's that it lets in, or by root's password, which is
asked for once.  The password opens the master only; root's key there opens the other nodes, and
is used until all of them let in the key of this node.  A virtual node is one below the directory
that has the nodes of this cluster, too.

Source: design-2.1, "Automated Ganeti Cluster Merger", initial contact.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ganeti.base import errors, json
from ganeti.base.errors import CommandError, GenericError, OpExecError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.bootstrap.node_transport import (
    NodeTransport,
    SshTransport,
    VirtualTransport,
    virtual_sibling,
)
from ganeti.cli.command import Context
from ganeti.cli.merging import peer
from ganeti.cli.merging.peer import Answer, Ask
from ganeti.cli.run.secret import ask_secret
from ganeti.store import ssconf
from ganeti.system import daemon_control, files, process, ssh

ANSWER_BYTES_MAX: Final = 256 << 20
TRY_TIMEOUT_S: Final = 60.0
STEP_TIMEOUT_S: Final = 1800.0  # stopping all instances
_SSH_FAILED: Final = 255
_KEY_BYTES_MAX: Final = 1 << 16
_REFUSED: Final = "permission denied"
_SECRET_MODE: Final = 0o600


class KeyRefusedError(OpExecError):
    """A machine lets none of root's keys in."""


def ask(transport: NodeTransport, name: str, action: str, **data: Any) -> Answer:
    """Have an action done on a node; returns its answer.

    Raises:
        KeyRefusedError: it was reached, and no key opens it.
        OpExecError: it was not reached, or the action failed; its output is in the text.
    """
    argv = daemon_control.command(peer.NAME, [action])
    stdin = json.dumps(Ask(**data))
    try:
        result = transport.run(
            argv, stdin=stdin, timeout_s=STEP_TIMEOUT_S, output_bytes_max=ANSWER_BYTES_MAX
        ).check()
    except CommandError as err:
        said = err.output.removeprefix(f"{peer.NAME}: ") or err.message
        kind = KeyRefusedError if _is_refusal(err.status, said) else OpExecError
        raise kind(f"{action} on {name} ({transport.describe()}): {said}") from err
    return peer.decode_answer(result.stdout)


def _is_refusal(status: int | None, said: str) -> bool:
    return status == _SSH_FAILED and _REFUSED in said.lower()


@dataclass(slots=True)
class Reach:
    """The way to the nodes of one cluster.

    Attributes:
        cluster: its name.
        known_hosts: a file with the host keys of its nodes, under the name of the cluster.
        identity: the file with root's private key of its master, while it is needed.
    """

    paths: Paths
    cluster: str
    known_hosts: str = ""
    identity: str = ""
    check_host_key: bool = True
    ports: dict[str, int] = field(default_factory=dict)
    program: str = "ssh"

    def to(self, name: str) -> NodeTransport:
        """Return the way to a node."""
        if self.paths.root:
            return VirtualTransport(name, virtual_sibling(self.paths, name))
        return SshTransport(
            name,
            self.known_hosts,
            self.cluster if self.known_hosts else "",
            port=self.ports.get(name, ssh.SSH_PORT),
            check_host_key=self.check_host_key,
            ssh=self.program,
            identity=self.identity,
        )


@dataclass(frozen=True, slots=True)
class Contact:
    """The first answer of a cluster's master, and root's keys there if a password opened it."""

    answer: Answer
    private_keys: Sequence[bytes] = ()


def contact(context: Context, given: str, *, check_host_key: bool, program: str = "ssh") -> Contact:
    """Reach the master of another cluster, whose name or any node of which is given.

    Raises:
        OpPrereqError: there is no such cluster, or it cannot be reached.
    """
    if context.paths.root:
        name = _virtual_node(context.paths, given)
        first: NodeTransport = VirtualTransport(name, virtual_sibling(context.paths, name))
        return Contact(_follow(context, first, name))
    reached = SshTransport(given, "", "", check_host_key=check_host_key, ssh=program)
    if not _opens(reached):
        password = _password(context, given)
        reached = replace(reached, password=password)
    answer = _look(reached, given)
    if answer.config is None:
        reached = replace(reached, node_name=answer.master)
        answer = _look(reached, answer.master)
    keys = _read_keys(reached) if reached.password is not None else []
    return Contact(answer, keys)


def _follow(_context: Context, transport: NodeTransport, name: str) -> Answer:
    answer = _look(transport, name)
    if answer.config is None:
        assert isinstance(transport, VirtualTransport)
        there = virtual_sibling(transport.paths, answer.master)
        answer = _look(VirtualTransport(answer.master, there), answer.master)
    return answer


def _look(transport: NodeTransport, name: str) -> Answer:
    try:
        return ask(transport, name, "look")
    except OpExecError as err:
        raise OpPrereqError(f"the other cluster: {err.message}", errors.ErrorCode.ENVIRON) from err


def _virtual_node(paths: Paths, given: str) -> str:
    """Return the node beside this one that is meant: by its name, or that of its cluster."""
    base = os.path.dirname(paths.root)
    found = []
    for name in sorted(os.listdir(base)):
        there = virtual_sibling(paths, name)
        try:
            cluster = ssconf.read_key_or_none(there, "cluster_name")
        except GenericError:
            continue
        if cluster is None:
            continue
        if given in (name, name.partition(".")[0]):
            return name
        if given in (cluster, cluster.partition(".")[0]):
            found.append(name)
    if not found:
        raise OpPrereqError(
            f"neither a cluster nor a node of one in {base} is called {given!r}",
            errors.ErrorCode.NOENT,
        )
    return found[0]


def _opens(transport: SshTransport) -> bool:
    """Tell whether a key opens a machine.

    Raises:
        OpPrereqError: it is not reached at all.
    """
    result = transport.run(["true"], stdin=b"", timeout_s=TRY_TIMEOUT_S)
    if result.status == 0:
        return True
    if _is_refusal(result.status, result.output):
        return False
    said = result.output_tail() or process.describe_end(result)
    raise OpPrereqError(
        f"cannot reach {transport.node_name}: {said}; root of this node must know its host key"
        " ('ssh-keyscan', or give --no-ssh-key-check)",
        errors.ErrorCode.ENVIRON,
    )


def _password(context: Context, given: str) -> str:
    password = ask_secret(context.terminal, f"Password of root of cluster {given}: ")
    if not password:
        raise OpPrereqError(f"no key of root's opens {given}, and no password was given")
    return password


def _read_keys(transport: SshTransport) -> list[bytes]:
    """Return root's private keys on a machine; its nodes let these in."""
    names = " ".join(f"~/.ssh/id_{kind}" for kind in ssh.USER_KEY_KINDS)
    script = f"for key in {names}; do if [ -e $key ]; then cat $key; exit; fi; done"
    result = transport.run(["sh", "-c", script], stdin=b"", timeout_s=TRY_TIMEOUT_S)
    return [result.stdout] if result.status == 0 and result.stdout else []


def unreached(reach: Reach, names: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each node that cannot be asked."""
    for name in names:
        try:
            ask(reach.to(name), name, "settings")
        except GenericError as err:
            yield (
                f"node {name} is not reached ({err.message}); mend that, or, if it is down, run"
                f" 'gnt-node modify --offline=yes {name}' there"
            )


def write_keys(prefix: str, found: Contact, own: bytes) -> tuple[str, str]:
    """Write the files by which the other's nodes are reached; returns two of `Reach`.

    Args:
        prefix: the beginning of their paths.
        own: the host keys that they have after the merge.

    Returns:
        `known_hosts`, "" if their cluster tells of no host key, and `identity`.
    """
    known_hosts = _write_known_hosts(f"{prefix}.known_hosts", found.answer, own)
    identity = ""
    for private_key in found.private_keys:
        identity = f"{prefix}.key"
        files.write_durable(identity, private_key, _SECRET_MODE)
    return known_hosts, identity


def _write_known_hosts(path: str, answer: Answer, own: bytes) -> str:
    lines = [line for line in answer.known_hosts.splitlines() if line.strip()]
    if not lines:
        return ""
    words = [line.split(maxsplit=1) for line in own.decode().splitlines()]
    lines += [f"{answer.cluster} {each[1]}" for each in words if len(each) > 1]
    files.write_durable(path, "".join(f"{line}\n" for line in lines).encode(), _SECRET_MODE)
    return path
