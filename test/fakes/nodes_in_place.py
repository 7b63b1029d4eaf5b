"""Nodes without daemons: their handlers are called in place of the network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import NodeRpcClient, RpcResult, Target, encode_values
from ganeti.node_ops import dispatch
from ganeti.node_ops.context import NodeContext
from ganeti.protocol.node_rpc import NODE_RPC, decode_answer, encode_arguments


class NodesInPlace(NodeRpcClient):
    """Calls the handlers of these nodes; those in `down` do not answer."""

    def __init__(self, nodes: Mapping[str, Paths]) -> None:
        self.nodes = dict(nodes)
        self.down: set[str] = set()
        self.calls: list[tuple[str, str]] = []

    def close(self) -> None:
        pass

    def call(self, name: str, targets: Mapping[Target, Sequence[object]]) -> dict[str, RpcResult]:
        return {target.name: self._one(name, target, args) for target, args in targets.items()}

    def _one(self, name: str, target: Target, args: Sequence[object]) -> RpcResult:
        self.calls.append((target.name, name))
        if target.name in self.down:
            return RpcResult(target.name, error="connection refused", address="a:1811")
        call = NODE_RPC[name]
        context = NodeContext(self.nodes[target.name], target.name, name)
        body = encode_arguments(call, encode_values(call, args))
        success, value = decode_answer(dispatch.answer(context, call, body))
        if success:
            return RpcResult(target.name, payload=json.loads(json.dumps(value)))
        return RpcResult(target.name, error=str(value))
