"""Master candidates: their number, and how a node becomes or ceases to be one.

A candidate holds the configuration and may give orders to all nodes, so its client certificate is
on the list that every node trusts.  WConfD keeps the flags and sends the configuration; the
certificate is made by the node itself; all other files are sent when a node is promoted.

Source: design-2.0, "Node flags"; node_rpc.json, "tls" and "node_crypto_tokens".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ganeti.base.errors import OpExecError
from ganeti.base.text import natural_sorted
from ganeti.logical_units import ancillary, lookup
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.node import ssh_keys
from ganeti.objects.model import Node
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import TokenAction, TokenOptions, TokenRequest

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
    ssh_keys.admit(context, cluster, node)
    master = lookup.require_node(context.config, cluster.master_node)
    ancillary.distribute(context, cluster, [node], master_name=master.name)


def refill_pool(context: JobContext, exempt: Sequence[str]) -> None:
    """Promote and demote nodes until the pool has its size.

    Args:
        exempt: UUIDs of nodes that are left as they are.
    """
    changed = context.config.maintain_candidate_pool(list(exempt))
    promoted = lookup.present(context.config.get_nodes(changed["promoted"]))
    if promoted:
        names = ", ".join(natural_sorted(node.name for node in promoted))
        context.info(f"promoted nodes to master candidate role: {names}")
    for node in promoted:
        promote(context, node)
    for node in lookup.present(context.config.get_nodes(changed["demoted"])):
        context.info(f"demoted node {node.name}: there are enough master candidates")
        demote(context, node)


def demote(context: JobContext, node: Node) -> None:
    """Take a node's certificate off the list, and the master's files off the node."""
    context.config.set_candidate_cert(node.uuid, None)
    ssh_keys.dismiss(context, context.config.get_cluster(), node)
    if node.offline:
        return
    result = context.nodes.call_one(NodeCalls.node_demote_from_mc, node)
    if result.error is not None:
        doing = f"take the master's files from node {node.name!r}"
        context.warn(f"{result.explain(doing)}; ignoring")
