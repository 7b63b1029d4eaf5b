"""Logins by SSH: root of each master candidate may log in as root of every node.

The daemons do not need it; ``gnt-cluster command`` and ``copyfile``, consoles and the set-up of
nodes do.  The public keys are kept in a file that goes to all candidates, one line
``<node uuid> <key>`` each; while keys are being replaced a node has several, the newest last.  A
failure is told, and does not keep a node from its role.

Source: constants.json, "ssh"; config.json, "SSH_PUB_KEYS".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.logical_units import ancillary, lookup
from ganeti.logical_units.context import JobContext
from ganeti.objects.model import Cluster, Node
from ganeti.protocol.node_calls import NodeCalls
from ganeti.system import files

Keys = dict[str, list[str]]

_FILE_MODE: Final = 0o600
_BYTES_MAX: Final = 16 << 20


def admit(context: JobContext, cluster: Cluster, node: Node) -> None:
    """Let a new candidate log in everywhere."""
    if not cluster.modify_ssh_setup:
        return
    result = context.nodes.call_one(
        NodeCalls.ssh_root_key, node, str(cluster.ssh_key_type), cluster.ssh_key_bits
    )
    if result.error is not None or not isinstance(result.payload, str):
        context.warn(f"node {node.name} did not tell its SSH key: {result.error}; ignoring")
        return
    key = result.payload
    known = {**read_keys(context), node.uuid: [key]}
    write_keys(context, cluster, known, _online(context, node))
    _authorize(context, _online(context, node), add=[key])


def introduce(context: JobContext, cluster: Cluster, node: Node) -> None:
    """Let all candidates log in on a node that has joined."""
    if not cluster.modify_ssh_setup:
        return
    known = read_keys(context)
    keys = [
        key
        for other in lookup.all_nodes(context.config)
        if other.master_candidate
        for key in known.get(other.uuid, ())
    ]
    _authorize(context, [node], add=keys)


def dismiss(context: JobContext, cluster: Cluster, node: Node) -> None:
    """Let a node log in nowhere any more: it is no candidate any more, or is about to leave."""
    keys = read_keys(context).get(node.uuid)
    if not cluster.modify_ssh_setup or not keys:
        return
    others = [other for other in _online(context, node) if other.uuid != node.uuid]
    _authorize(context, others, remove=keys)


def farewell(context: JobContext, cluster: Cluster, node: Node) -> None:
    """Let no other node log in on a node that leaves, and forget its key."""
    if not cluster.modify_ssh_setup:
        return
    known = read_keys(context)
    if not node.offline:
        others = [key for uuid, keys in known.items() if uuid != node.uuid for key in keys]
        _authorize(context, [node], remove=others)
    if known.pop(node.uuid, None) is not None:
        left = [other for other in _online(context, node) if other.uuid != node.uuid]
        write_keys(context, cluster, known, left)


def _online(context: JobContext, also: Node) -> list[Node]:
    nodes = {node.uuid: node for node in lookup.all_nodes(context.config)}
    nodes.setdefault(also.uuid, also)
    return [node for node in nodes.values() if not node.offline]


def _authorize(
    context: JobContext,
    nodes: Sequence[Node],
    *,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
) -> None:
    for name, result in context.nodes.call_all(
        NodeCalls.ssh_authorize, nodes, list(add), list(remove)
    ).items():
        if result.error is not None:
            context.warn(f"node {name} did not change its SSH keys: {result.error}; ignoring")


def read_keys(context: JobContext) -> Keys:
    """Return the keys by the UUIDs of their nodes; an unreadable file is told."""
    path = context.paths.ssh_pub_keys
    try:
        text = (files.read_bytes_or_none(path, _BYTES_MAX) or b"").decode()
    except (OSError, UnicodeDecodeError, GenericError) as err:
        context.warn(f"cannot read {path}: {err}; ignoring")
        return {}
    found: Keys = {}
    for line in text.splitlines():
        uuid, _, key = line.partition(" ")
        if key.strip():
            found.setdefault(uuid, []).append(key.strip())
    return found


def write_keys(context: JobContext, cluster: Cluster, keys: Keys, nodes: Sequence[Node]) -> None:
    """Write the keys here and on the other candidates among some nodes."""
    path = context.paths.ssh_pub_keys
    text = "".join(f"{uuid} {key}\n" for uuid in sorted(keys) for key in keys[uuid])
    try:
        files.write_durable(path, text.encode(), _FILE_MODE)
    except OSError as err:
        context.warn(f"cannot write {path}: {err.strerror}; ignoring")
        return
    others = [node for node in nodes if node.master_candidate and node.uuid != cluster.master_node]
    ancillary.send(context, path, others)
