"""Problems of SSH keys: whether candidates can log in everywhere, and no other node can.

Nodes of other groups are not locked by a verification, so one may change its role meanwhile.  What
looks wrong is looked at again while no other job changes keys.

Source: node_rpc.json, "node_verify_checks".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ganeti.base.errors import LockError
from ganeti.logical_units import lookup
from ganeti.logical_units.cluster.findings import Finding, as_sequence
from ganeti.logical_units.context import JobContext
from ganeti.logical_units.node.candidates import keys_alone, read_due
from ganeti.objects.model import Cluster, Node
from ganeti.objects.verify_errors import VerifyErrorCode
from ganeti.protocol.node_calls import NodeCalls

_CHECK: Final = "ssh-setup"
_RENEW: Final = "'gnt-cluster renew-crypto --new-ssh-keys'"


def checks(cluster: Cluster, nodes: Sequence[Node]) -> dict[str, object]:
    """Return the check that nodes are asked for, with all nodes and the kind of keys."""
    if not cluster.modify_ssh_setup:
        return {}
    rows = [
        [node.uuid, node.name, node.master_candidate, node.master_capable, not node.offline]
        for node in nodes
    ]
    return {_CHECK: [rows, str(cluster.ssh_key_type)]}


def judge(
    context: JobContext,
    cluster: Cluster,
    nodes: Sequence[Node],
    answers: Mapping[str, Mapping[str, object]],
) -> Iterator[Finding]:
    """Yield the problems of nodes that are online; `answers` are by their names."""
    if not cluster.modify_ssh_setup:
        return
    doubtful = [node for node in nodes if answers.get(node.name, {}).get(_CHECK)]
    if not doubtful and read_due(context).keys().isdisjoint(node.uuid for node in nodes):
        return
    try:
        with keys_alone(context):
            problems, due = _ask(context, cluster, doubtful), read_due(context)
    except LockError as err:
        context.warn(f"SSH keys are not verified: {err.message}")
        return
    for node in nodes:
        for problem in as_sequence(problems.get(node.name)):
            yield Finding(VerifyErrorCode.ENODESSH, node.name, str(problem))
        if node.uuid in due:
            readd = f"'gnt-node add --readd {node.name}'"
            text = (
                "may still let in SSH keys that were taken back;"
                f" {_RENEW if node.uuid == cluster.master_node else readd} ends that"
            )
            yield Finding(VerifyErrorCode.ENODESSH, node.name, text)


def _ask(context: JobContext, cluster: Cluster, nodes: Sequence[Node]) -> dict[str, object]:
    """Ask nodes with the roles that all nodes have by now; returns their answers by name."""
    results = context.nodes.call_all(
        NodeCalls.node_verify,
        nodes,
        checks(cluster, lookup.all_nodes(context.config)),
        cluster.cluster_name,
        {},
    )
    return {
        name: [f"node_verify: {result.error}"] if result.error else result.payload.get(_CHECK)
        for name, result in results.items()
    }
