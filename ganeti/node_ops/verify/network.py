"""The checks of `verify` in the network around this node: other nodes, the master, SSH."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from ganeti.base.errors import CommandError
from ganeti.base.text import ssh_key_of, ssh_keys_by_node
from ganeti.node_ops.context import NodeContext
from ganeti.protocol.node_rpc import DEFAULT_PORT
from ganeti.store import ssconf
from ganeti.system import clock, files, process, ssh
from ganeti.transport.addresses import serves

# Source: constants.json, "timeouts": TCP_PING_TIMEOUT.
_PING_TIMEOUT_S: Final = 10.0
# All together must be done well before the call's own limit, with the other checks.
_ALL_TIMEOUT_S: Final = 120.0
_SSH_TIMEOUT_S: Final = 60.0
_AT_ONCE_MAX: Final = 16
_BYTES_MAX: Final = 16 << 20
# Behind a mark, as a login may print a greeting.
_MARK: Final = "is-host="
_COMMAND: Final = ("sh", "-c", f'echo "{_MARK}$(hostname --fqdn 2>/dev/null || hostname)"')
_Key = tuple[str, str] | str  # as of `ssh_key_of`
_SAID: Final = re.compile(rf"^{_MARK}(\S*)$", re.MULTILINE)


def reach_nodes(
    node: NodeContext, nodes: list[tuple[str, str, str]], candidates: list[str]
) -> dict[str, str]:
    """Return {node: why it is not reached} for (name, primary, secondary address) of each node.

    Only candidates look: all nodes looking at all nodes would be too much.  Several are tried at a
    time: nodes that do not answer must not use up the time of those that do.
    """
    if node.hostname not in candidates:
        return {}
    own = next(((first, second) for name, first, second in nodes if name == node.hostname), None)
    if own is None:
        return {node.hostname: "this node is not in the list of nodes"}
    deadline_s = clock.monotonic() + _ALL_TIMEOUT_S

    def one(other: tuple[str, str, str]) -> str | None:
        if clock.monotonic() >= deadline_s:
            return "not tried, as too many other nodes do not answer"
        missed = [
            f"{which} interface ({address})"
            for which, source, address in _ways(own, *other[1:])
            if not _reaches(address, source)
        ]
        return f"failure using {' and '.join(missed)}" if missed else None

    with ThreadPoolExecutor(min(_AT_ONCE_MAX, len(nodes))) as pool:
        answers = zip(nodes, pool.map(one, nodes), strict=True)
        return {name: text for (name, _, _), text in answers if text is not None}


def reach_master(
    node: NodeContext, _master: str, address: str, candidates: list[str]
) -> bool | None:
    """Tell whether the master address is reached; None on a node that is not to look."""
    if node.hostname not in candidates:
        return None
    return _reaches(address, None)


def _ways(own: tuple[str, str], primary: str, secondary: str) -> list[tuple[str, str, str]]:
    """Return (name, source, target) of the ways from this node to another."""
    ways = [("primary", own[0], primary)]
    if secondary != primary:
        ways.append(("secondary", own[1], secondary))
    return ways


def _reaches(address: str, source: str | None) -> bool:
    """Tell whether a node daemon takes a connection on an address."""
    return serves(address, DEFAULT_PORT, _PING_TIMEOUT_S, source=source)


def log_in(
    context: NodeContext,
    names: Sequence[str],
    more: Mapping[str, Sequence[str]],
    candidates: Sequence[str],
) -> dict[str, str]:
    """Try to log in to nodes as root; returns {node: why it cannot be logged in to}.

    Only candidates try, as only they are let in.  A virtual node has no SSH server.

    Args:
        more: {name of a node: other nodes that it tries as well}.
    """
    if context.paths.root or context.hostname not in candidates:
        return {}
    names = [*names, *more.get(context.hostname, ())]
    ports = _ports(context)
    cluster_name = ssconf.cluster_name(context.paths)

    def one(name: str) -> str | None:
        argv = ssh.command_line(
            name,
            _COMMAND,
            known_hosts=context.paths.known_hosts,
            alias=cluster_name,
            port=ports.get(name, ssh.SSH_PORT),
        )
        return _problem(name, argv)

    with ThreadPoolExecutor(min(_AT_ONCE_MAX, max(len(names), 1))) as pool:
        answers = zip(names, pool.map(one, names), strict=True)
        return {name: text for name, text in answers if text is not None}


def _problem(name: str, argv: Sequence[str]) -> str | None:
    try:
        result = process.run(argv, timeout_s=_SSH_TIMEOUT_S).check()
    except CommandError as err:
        return err.output or err.message
    return problem_with_answer(name, result.stdout.decode("utf-8", "replace"))


class NodeInfo(msgspec.Struct, frozen=True, array_like=True):
    """A node of the cluster, as the check of SSH keys needs it."""

    uuid: str
    name: str
    is_candidate: bool
    may_be_candidate: bool
    is_online: bool


def set_up(context: NodeContext, nodes: Sequence[NodeInfo], kind: str) -> list[str]:
    """Return the problems of the keys here: this node's own, and those of nodes that log in.

    Only candidates have the file with all public keys; the others are looked at for their own.
    """
    paths = context.paths
    own = next((node for node in nodes if node.name == context.hostname), None)
    if own is None:
        return ["this node is not in the list of nodes"]
    if not own.is_candidate:
        return []
    directory = ssh.directory_of(paths)
    public_key = _text(os.path.join(directory, f"id_{kind}.pub")).strip()
    found = [] if public_key else [f"root has no public key {directory}/id_{kind}.pub"]
    by_node = ssh_keys_by_node(_text(paths.ssh_pub_keys))
    known = {uuid: [ssh_key_of(key) for key in keys] for uuid, keys in by_node.items()}
    let_in = {ssh_key_of(line) for line in _authorized(directory)}
    for node in nodes:
        if not node.is_candidate:
            continue
        if node.uuid not in known:
            found.append(f"{paths.ssh_pub_keys} has no key of candidate {node.name}")
        elif known[node.uuid][-1] not in let_in:
            found.append(f"root of candidate {node.name} is not let in")
    if public_key and own.uuid in known and known[own.uuid][-1] != ssh_key_of(public_key):
        found.append(f"root's key is not the one in {paths.ssh_pub_keys}")
    return [*found, *_still_let_in(nodes, known, let_in)]


def _still_let_in(
    nodes: Sequence[NodeInfo], known: Mapping[str, Sequence[_Key]], let_in: Set[_Key]
) -> Iterator[str]:
    """Yield the problems of keys that nodes have no right to any more, as no candidate has them."""
    with_keys = [node for node in nodes if node.uuid in known]
    rightful = {known[node.uuid][-1] for node in with_keys if node.is_candidate}
    for node in with_keys:
        if not (let_in - rightful).isdisjoint(known[node.uuid]):
            yield (
                f"root of candidate {node.name} is let in by an old key, too; 'gnt-cluster"
                " renew-crypto --new-ssh-keys' ends that"
                if node.is_candidate
                else f"root of {node.name} is let in, which is no candidate; 'gnt-node modify"
                f" --master-candidate=no {node.name}' ends that"
            )


def clutter(context: NodeContext) -> list[str]:
    """Return the names that have several keys; all keys but one of each are left from before."""
    lines = _authorized(ssh.directory_of(context.paths))
    owners = Counter(line.split()[-1] for line in lines if "@" in line)
    return [
        f"{owner} is let in by {count} keys; remove the old ones from authorized_keys"
        for owner, count in sorted(owners.items())
        if count > 1
    ]


def _authorized(directory: str) -> list[str]:
    """Return the lines of authorized_keys that let somebody in."""
    lines = _text(os.path.join(directory, "authorized_keys")).splitlines()
    return [line for line in lines if isinstance(ssh_key_of(line), tuple)]


def _text(path: str) -> str:
    return (files.read_bytes_or_none(path, _BYTES_MAX) or b"").decode("utf-8", "replace")


def problem_with_answer(name: str, output: str) -> str | None:
    """Return the problem of a machine's answer, or None.

    >>> problem_with_answer("node2.example.com", "hello\\nis-host=node3\\n")
    "the machine calls itself 'node3'"
    """
    found = _SAID.search(output)
    if found is None:
        return f"the machine did not tell its name, but printed {output[:200]!r}"
    said = found.group(1).lower()
    if said not in (name, name.partition(".")[0]):
        return f"the machine calls itself {said!r}"
    return None


def _ports(context: NodeContext) -> dict[str, int]:
    """Return the SSH ports of the nodes that are known to have one."""
    text = ssconf.read_key_or_none(context.paths, "ssh_ports") or ""
    rows = (line.partition("=") for line in text.splitlines())
    return {name: int(port) for name, _, port in rows if port.isdecimal()}
