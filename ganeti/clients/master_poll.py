"""Asks nodes for the master's name and their facts; nodes that run Ganeti 3.0 only name the master.

Source: ARCHITECTURE, invariant 9.
"""

from __future__ import annotations

from ganeti.base.errors import ConfigurationError, X509CertError
from ganeti.base.paths import Paths
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.node_rpc import NodeRpcClient, RpcResult, Target, target_of
from ganeti.config import config_data
from ganeti.jobs.votes import Answer
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc_values import NodeFacts
from ganeti.store import config_file, ssconf


def other_nodes(paths: Paths, own_name: str) -> list[Target]:
    """Return all nodes but this one; from the configuration where ssconf does not tell.

    Raises:
        ConfigurationError: this node knows no nodes.
    """
    try:
        offline = ssconf.offline_nodes(paths)
        addresses = ssconf.node_primary_ips(paths)
    except ConfigurationError:
        if not config_file.has_config(paths):
            raise
        return nodes_of(config_file.readable_config(paths), own_name)
    return [
        Target(name, address, offline=name in offline)
        for name, address in addresses.items()
        if name != own_name
    ]


def nodes_of(config: bytes, own_name: str) -> list[Target]:
    """Return all nodes but this one, as a configuration has them; raises ConfigurationError."""
    nodes = config_data.nodes_of(config_data.split_config(config))
    return [target_of(node) for node in nodes if node.name != own_name]


def ask_all(rpc: NodeRpcClient, targets: list[Target]) -> tuple[dict[str, Answer], dict[str, str]]:
    """Ask many nodes at once; returns their answers, and why others did not answer."""
    first = {target.name: target for target in map(_even_if_offline, targets)}
    results = rpc.call_all(NodeCalls.master_facts, first.values())
    old = [first[name] for name, result in results.items() if _is_refused(result)]
    names = rpc.call_all(NodeCalls.master_node_name, old)
    found = {name: _answer(names.get(name, result)) for name, result in results.items()}
    answers = {name: each for name, each in found.items() if isinstance(each, Answer)}
    return answers, {name: each for name, each in found.items() if isinstance(each, str)}


async def ask_one(rpc: AsyncNodeRpcClient, target: Target) -> Answer | str:
    """Ask one node; returns its answer, or why there is none."""
    reachable = _even_if_offline(target)
    try:
        result = await rpc.call_one(NodeCalls.master_facts, reachable)
        if _is_refused(result):
            return _answer(await rpc.call_one(NodeCalls.master_node_name, reachable))
    except X509CertError as err:  # it may be replaced just now
        return err.message
    return _answer(result)


def _even_if_offline(target: Target) -> Target:
    return Target(target.name, target.address, target.port)


def _is_refused(result: RpcResult[NodeFacts]) -> bool:
    """Tell whether a node answered with a refusal: one of Ganeti 3.0 does not know the call."""
    return result.error is not None and (
        not result.address or result.error.startswith("HTTP status")
    )


def _answer(result: RpcResult[NodeFacts] | RpcResult[str]) -> Answer | str:
    """Return the answer of a new or an old node, or the reason why there is none."""
    if result.error is not None:
        return result.error
    found = result.payload
    return Answer(found) if isinstance(found, str) else Answer(found.master_name, found)
