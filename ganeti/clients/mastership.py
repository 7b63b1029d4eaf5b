"""Asks nodes who is master and what they have; nodes that run Ganeti 3.0 only name the master.

Source: ARCHITECTURE, invariant 9.
"""

from __future__ import annotations

from typing import Final

from ganeti.base.errors import ConfigurationError, ProtocolError, X509CertError
from ganeti.base.paths import Paths
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.node_rpc import NodeRpcClient, RpcResult, Target
from ganeti.jobs.mastership import Answer
from ganeti.objects.node import Node
from ganeti.objects.overlay import decode_record
from ganeti.objects.split import split_config
from ganeti.protocol.mastership import decode_facts
from ganeti.store import config_file, ssconf

FACTS_CALL: Final = "master_facts"
OLD_CALL: Final = "master_node_name"


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
        return nodes_of(config_file.read_config(paths), own_name)
    return [
        Target(name, address, offline=name in offline)
        for name, address in addresses.items()
        if name != own_name
    ]


def nodes_of(config: bytes, own_name: str) -> list[Target]:
    """Return all nodes but this one, as a configuration has them; raises ConfigurationError."""
    nodes = [decode_record(raw, Node) for raw in split_config(config).tables["nodes"].values()]
    return [
        Target(node.name, node.primary_ip, offline=node.offline)
        for node in nodes
        if node.name != own_name
    ]


def ask_all(rpc: NodeRpcClient, targets: list[Target]) -> tuple[dict[str, Answer], dict[str, str]]:
    """Ask many nodes at once; returns what they answered, and why others did not."""
    first = {target.name: target for target in map(_even_if_offline, targets)}
    results = rpc.call(FACTS_CALL, {target: [] for target in first.values()})
    again: dict[Target, list[object]] = {
        first[name]: [] for name, result in results.items() if _is_refused(result)
    }
    results.update(rpc.call(OLD_CALL, again) if again else {})
    answers: dict[str, Answer] = {}
    silent: dict[str, str] = {}
    for name, result in results.items():
        answer = _understood(result, is_old=first[name] in again)
        if isinstance(answer, Answer):
            answers[name] = answer
        else:
            silent[name] = answer
    return answers, silent


async def ask_one(rpc: AsyncNodeRpcClient, target: Target) -> Answer | str:
    """Ask one node; returns its answer, or why there is none."""
    reachable = _even_if_offline(target)
    try:
        result = await rpc.single(FACTS_CALL, reachable)
        is_old = _is_refused(result)
        if is_old:
            result = await rpc.single(OLD_CALL, reachable)
    except X509CertError as err:  # it may be replaced just now
        return err.message
    return _understood(result, is_old=is_old)


def _even_if_offline(target: Target) -> Target:
    return Target(target.name, target.address, target.port)


def _is_refused(result: RpcResult) -> bool:
    """Tell whether a node answered, but not what it was asked for."""
    return result.error is not None and (
        not result.address or result.error.startswith("HTTP status")
    )


def _understood(result: RpcResult, *, is_old: bool) -> Answer | str:
    if result.error is not None:
        return result.error
    if is_old:
        return Answer(str(result.payload))
    try:
        facts = decode_facts(result.payload)
    except ProtocolError as err:
        return err.message
    return Answer(facts.master_name, facts)
