"""Master candidates: their number, and how a node becomes or ceases to be one.

A candidate holds the configuration and may give orders to all nodes, so its client certificate is
on the list that every node trusts.  WConfD keeps the flags and sends the configuration; the
certificate is made by the node itself; all other files are sent when a node is promoted.

Root of each candidate may log in by SSH as root of every node.  The daemons do not need it;
``gnt-cluster command`` and ``copyfile``, consoles and the set-up of nodes do.  The public keys are
kept in a file that goes to all candidates, one line ``<node uuid> <key>`` each; while keys are
being replaced a node has several, the newest last.  The key of a node that was a candidate stays in
it, so that it can be let out again.  A failure is told, and does not keep a node from its role.  A
second file like that one has what nodes are still to be told: lines ``<uuid of a
node> <key that it may still let in>``.

Source: design-2.0, "Node flags"; node_rpc.json, "tls" and "node_crypto_tokens"; constants.json,
"ssh"; config.json, "SSH_PUB_KEYS".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from ganeti.base.errors import GenericError, LockError, OpExecError
from ganeti.base.text import natural_sorted, shown, ssh_key_of, ssh_keys_by_node, ssh_keys_text
from ganeti.logical_units import lookup, node_files
from ganeti.logical_units.context import JobContext, alone
from ganeti.objects.model import Cluster, Node
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import TokenAction, TokenOptions, TokenRequest
from ganeti.store import lease
from ganeti.system import files
from ganeti.transport.unix_client import ConnectionLostError

_CERTIFICATE: Final = "ssl"  # the type of token on the wire


def is_capable(node: Node) -> bool:
    """Tell whether a node can be a candidate as it is."""
    return node.master_capable and not (node.offline or node.drained)


def has_room(nodes: Sequence[Node], pool_size: int) -> bool:
    """Tell whether one more capable node should become a candidate.

    Args:
        nodes: all nodes but that one.
    """
    candidates = sum(node.master_candidate for node in nodes)
    capable = sum(is_capable(node) or node.master_candidate for node in nodes)
    return candidates < min(capable + 1, pool_size)


def make_certificate(context: JobContext, node: Node) -> str:
    """Let a node make a client certificate; returns its digest.

    Raises:
        OpExecError: it did not.
    """
    doing = f"make a client certificate for node {node.name!r}"
    request = TokenRequest(_CERTIFICATE, TokenAction.CREATE, TokenOptions())
    answer = context.nodes.on(node, doing).node_crypto_tokens([request])
    match answer:
        case [(kind, digest)] if kind == _CERTIFICATE:
            return digest
    raise OpExecError(f"cannot {doing}: call node_crypto_tokens answered {answer!r:.200}")


def trust(context: JobContext, node: Node) -> None:
    """Make a node's client certificate and put it on the list that all nodes trust."""
    context.config.set_candidate_cert(node.uuid, make_certificate(context, node))


def promote(context: JobContext, node: Node) -> None:
    """Give a new candidate its certificate, its SSH access and the files of candidates."""
    trust(context, node)
    cluster = context.config.get_cluster()
    authorize_candidate(context, cluster, node)
    node_files.distribute(context, cluster, [node])


def tell_availability(context: JobContext) -> None:
    """Let high availability know of nodes, where it is on: they came, went or changed.

    Their role counts, and the helper that switches one off, which may be that of its group.
    """
    if lease.is_on(context.paths):
        from ganeti.logical_units.cluster import availability  # most clusters do without it

        availability.update(context)


def forget_boot(context: JobContext, node: Node) -> None:
    """Let high availability, where it is on, not miss a node that is taken back."""
    if lease.is_on(context.paths):
        from ganeti.logical_units.cluster import availability  # as above

        availability.forget_boot(context, node.name)


def check_availability(context: JobContext, leaving: Node | None = None) -> None:
    """Refuse to add or remove a node while high availability does not allow it.

    Args:
        leaving: the node that is removed; None for one that is added.
    """
    if lease.is_on(context.paths):
        from ganeti.logical_units.cluster import availability  # as above

        availability.check_most_are_there(context, lookup.all_nodes(context.config), leaving)


@contextmanager
def changing_nodes(context: JobContext, leaving: Node | None = None) -> Iterator[None]:
    """Add or remove a node within this: with high availability one at a time, as it allows.

    Args:
        leaving: as of `check_availability`.

    Raises:
        OpPrereqError: as `check_availability`.
        LockError: another job has still not changed them after some minutes.
    """
    if not lease.is_on(context.paths):
        yield
        return
    with alone(context, "high-availability-nodes", "adds or removes a node"):
        check_availability(context, leaving)
        yield


def refill_pool(context: JobContext, exempt: Sequence[str]) -> None:
    """Promote and demote nodes until the pool has its size, as far as nodes can be promoted.

    Args:
        exempt: UUIDs of nodes that are left as they are.
    """
    failed: list[str] = []
    is_full = False
    while not is_full:
        changed = _change_pool(context, list(exempt), failed)
        promoted = lookup.present(context.config.get_nodes(changed["promoted"]))
        done = [node.name for node in promoted if _is_promoted(context, node)]
        if done:
            names = ", ".join(natural_sorted(done))
            context.info(f"promoted nodes to master candidate role: {names}")
        for node in lookup.present(context.config.get_nodes(changed["demoted"])):
            context.info(f"demoted node {node.name}: there are enough master candidates")
            demote(context, node)
        failed += [node.uuid for node in promoted if node.name not in done]
        is_full = len(done) == len(promoted)


def _change_pool(
    context: JobContext, exempt: list[str], failed: list[str]
) -> Mapping[str, Sequence[str]]:
    """Have the flags of nodes changed; returns the UUIDs of those "promoted" and "demoted".

    An answer that was lost with a WConfD that was killed is found in the flags.
    """
    before = _candidates(context)
    try:
        return context.config.maintain_candidate_pool(exempt, failed)
    except ConnectionLostError:
        after = _candidates(context)
        if after == before:
            return context.config.maintain_candidate_pool(exempt, failed)
        return {"promoted": sorted(after - before), "demoted": sorted(before - after)}


def _candidates(context: JobContext) -> set[str]:
    return {node.uuid for node in lookup.all_nodes(context.config) if node.master_candidate}


def _is_promoted(context: JobContext, node: Node) -> bool:
    """Promote a node that was chosen, and tell a failure, which is of that node alone."""
    try:
        promote(context, node)
    except GenericError as err:
        context.warn(f"node {node.name} does not become a master candidate: {err.message}")
        return False
    return True


def demote(context: JobContext, node: Node) -> None:
    """Take a node's certificate off the list, and the master's files off the node."""
    context.config.set_candidate_cert(node.uuid, None)
    revoke_key(context, context.config.get_cluster(), node)
    if not node.offline:
        doing = f"take the master's files from node {node.name!r}"
        context.attempt(doing, NodeCalls.node_demote_from_mc, node)


def keeps_rights(context: JobContext, node: Node) -> bool:
    """Tell whether a node that is no candidate may have rights of one: nobody took them away."""
    is_trusted = node.uuid in context.config.get_cluster().candidate_certs
    return not node.master_candidate and (is_trusted or node.uuid in read_keys(context))


Keys = dict[str, list[str]]

_FILE_MODE: Final = 0o600
_BYTES_MAX: Final = 16 << 20
_READD: Final = "; 'gnt-node add --readd' does that"


@contextmanager
def keys_alone(context: JobContext) -> Iterator[None]:
    """Keep two jobs from changing SSH keys at the same time; never to be entered twice.

    Raises:
        LockError: another job has still not ended after some minutes.
    """
    with alone(context, "ssh-keys", "changes SSH keys"):
        yield


def authorize_candidate(context: JobContext, cluster: Cluster, node: Node) -> None:
    """Let a new candidate log in everywhere, with the key that it has now and no other."""
    if not cluster.modify_ssh_setup:
        return
    try:
        with keys_alone(context):
            _authorize_candidate(context, cluster, node)
    except LockError as err:
        context.warn(f"node {node.name} is not let in by the others: {err.message}{_READD}")


def _authorize_candidate(context: JobContext, cluster: Cluster, node: Node) -> None:
    result = context.nodes.call_one(
        NodeCalls.ssh_root_key, node, str(cluster.ssh_key_type), cluster.ssh_key_bits
    )
    if result.error is not None or not isinstance(result.payload, str):
        context.warn(f"node {node.name} did not tell its SSH key: {result.error}; ignoring")
        return
    key = result.payload
    known = read_keys(context)
    nodes = [*_others(context, node), node]
    old = [each for each in known.get(node.uuid, ()) if ssh_key_of(each) != ssh_key_of(key)]
    write_keys(context, cluster, {**known, node.uuid: [*old, key]}, nodes)
    own = _of_it_alone(context, known, node, old)
    change_access(context, cluster, nodes, add=[key], remove=own)
    if old:  # let out by now, or noted for the nodes that are still to be told
        write_keys(context, cluster, {**known, node.uuid: [key]}, nodes)


def let_in_candidates_alone(context: JobContext, cluster: Cluster, node: Node) -> None:
    """Let all candidates log in on a node that joins or comes back, and nobody who was one."""
    if not cluster.modify_ssh_setup:
        return
    try:
        with keys_alone(context):
            known = read_keys(context)
            keys = _of_candidates(context, known)
            others = [key for each in known.values() for key in each]
            change_access(context, cluster, [node], add=keys, remove=others)
    except LockError as err:
        context.warn(f"node {node.name} did not change whom it lets in: {err.message}{_READD}")


def revoke_key(context: JobContext, cluster: Cluster, node: Node, *, has_key: bool = True) -> None:
    """Let a node log in nowhere any more: it is no candidate any more, or is about to leave.

    Args:
        has_key: it was a candidate, so it is told if no key of it is known.
    """
    if not cluster.modify_ssh_setup:
        return
    with keys_alone(context):
        known = read_keys(context)
        keys = known.get(node.uuid)
        if keys:
            own = _of_it_alone(context, known, node, keys)
            change_access(context, cluster, _others(context, node), remove=own)
        elif has_key:
            context.warn(
                f"{context.paths.ssh_pub_keys} has no key of node {node.name}: whoever lets it in"
                " still does; look into the authorized_keys of root on the other nodes"
            )


def _of_it_alone(context: JobContext, known: Keys, node: Node, keys: Sequence[str]) -> list[str]:
    """Return keys of a node without those of other candidates, which stay let in, and are told.

    Machines that were cloned from one image have the same keys.
    """
    ours = set(map(ssh_key_of, keys))
    shared = {
        other.name: ours & set(map(ssh_key_of, known.get(other.uuid, ())))
        for other in _others(context, node)
        if other.master_candidate
    }
    if names := [name for name, common in shared.items() if common]:
        context.warn(
            f"an SSH key of node {node.name} stays let in, as it is also that of {shown(names)};"
            " 'gnt-cluster renew-crypto --new-ssh-keys' gives each node a key of its own"
        )
    own = ours.difference(*shared.values())
    return [key for key in keys if ssh_key_of(key) in own]


def remove_keys_from(context: JobContext, cluster: Cluster, node: Node) -> None:
    """Let no other node log in on a node that leaves, and forget its key."""
    if not cluster.modify_ssh_setup:
        return
    with keys_alone(context):
        known, others = read_keys(context), _others(context, node)
        if not node.offline:
            keys = [key for uuid, keys in known.items() if uuid != node.uuid for key in keys]
            _authorize(context, [node], remove=keys)
        if known.pop(node.uuid, None) is not None:
            write_keys(context, cluster, known, others)
        due = read_due(context)
        if due.pop(node.uuid, None) is not None:
            _write(context, cluster, context.paths.ssh_revoked_keys, due, others)


def change_access(
    context: JobContext,
    cluster: Cluster,
    nodes: Sequence[Node],
    *,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
) -> list[str]:
    """Let keys in on nodes, and others no more; other jobs are kept away by the caller.

    What an offline node, or one that fails, is still to let out is kept in a file like that of the
    public keys: it is told at the next change, and when it comes back.

    Returns:
        The names of the nodes that failed.
    """
    path = context.paths.ssh_revoked_keys
    added, gone = set(map(ssh_key_of, add)), set(map(ssh_key_of, remove))
    candidates = set(map(ssh_key_of, _of_candidates(context, read_keys(context))))
    wanted = added | (candidates - gone)
    before = read_due(context)
    due = {uuid: [*keys] for uuid, keys in before.items()}
    for node in nodes:
        due[node.uuid] = list(dict.fromkeys([*due.get(node.uuid, ()), *remove]))
    due = {
        uuid: left
        for uuid, keys in due.items()
        if (left := [key for key in keys if ssh_key_of(key) not in wanted])
    }
    changes = due != before
    if changes:
        _write(context, cluster, path, due)  # so that whatever is cut off here is not forgotten
    online = [node for node in nodes if not node.offline]
    away = [node.name for node in nodes if node.offline and gone - wanted]
    told = dict.fromkeys(key for node in online for key in due.get(node.uuid, ()))
    failed = _authorize(context, online, add, list(told))
    for node in online:
        if node.name not in failed:
            due.pop(node.uuid, None)
    if away:
        context.warn(
            f"offline and not told that SSH keys are let in no more: {', '.join(away)}; they are"
            " told when they come back"
        )
    if due != before:
        _write(context, cluster, path, due, lookup.all_nodes(context.config))
    elif changes and due:
        _write(context, cluster, path, due)
    elif changes:
        files.remove_if_exists(path)
    return failed


def _of_candidates(context: JobContext, known: Keys) -> list[str]:
    nodes = lookup.all_nodes(context.config)
    return [key for node in nodes if node.master_candidate for key in known.get(node.uuid, ())]


def _others(context: JobContext, node: Node) -> list[Node]:
    return [other for other in lookup.all_nodes(context.config) if other.uuid != node.uuid]


def _authorize(
    context: JobContext, nodes: Sequence[Node], add: Sequence[str] = (), remove: Sequence[str] = ()
) -> list[str]:
    """Change the keys that nodes let in; returns the names of those that fail, which are told."""
    results = context.nodes.call_all(NodeCalls.ssh_authorize, nodes, list(add), list(remove))
    failed = {name: result.error for name, result in results.items() if result.error is not None}
    for name, error in failed.items():
        context.warn(f"node {name} did not change its SSH keys: {error}; ignoring")
    return list(failed)


def read_keys(context: JobContext) -> Keys:
    """Return the keys by the UUIDs of their nodes; an unreadable file is told."""
    return _read(context, context.paths.ssh_pub_keys)


def _read(context: JobContext, path: str) -> Keys:
    try:
        text = (files.read_bytes_or_none(path, _BYTES_MAX) or b"").decode()
    except (OSError, UnicodeDecodeError, GenericError) as err:
        context.warn(f"cannot read {path}: {err}; ignoring")
        return {}
    return ssh_keys_by_node(text)


def read_due(context: JobContext) -> Keys:
    """Return the keys that nodes may still let in, by the UUIDs of these nodes."""
    return _read(context, context.paths.ssh_revoked_keys)


def write_keys(context: JobContext, cluster: Cluster, keys: Keys, nodes: Sequence[Node]) -> None:
    """Write the keys here and on the other candidates among some nodes."""
    _write(context, cluster, context.paths.ssh_pub_keys, keys, nodes)


def _write(
    context: JobContext, cluster: Cluster, path: str, keys: Keys, nodes: Sequence[Node] = ()
) -> None:
    try:
        files.write_durable(path, ssh_keys_text(keys).encode(), _FILE_MODE)
    except OSError as err:
        context.warn(f"cannot write {path}: {err.strerror}; ignoring")
        return
    candidates = [node for node in nodes if node.master_candidate and not node.offline]
    others = [node for node in candidates if node.uuid != cluster.master_node]
    node_files.send(context, path, others)
