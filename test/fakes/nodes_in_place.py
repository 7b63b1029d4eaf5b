"""Nodes without daemons: their handlers are called in place of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import NodeRpcClient, RpcResult, Target, read_answer
from ganeti.node_ops import dispatch
from ganeti.node_ops.context import NodeContext
from ganeti.protocol.node_rpc import NodeCall, encode_arguments


class NodesInPlace(NodeRpcClient):
    """Calls the handlers of these nodes; those in `down` do not answer."""

    def __init__(self, nodes: Mapping[str, Paths]) -> None:
        self.nodes = dict(nodes)
        self.down: set[str] = set()
        self.calls: list[tuple[str, str]] = []

    def close(self) -> None:
        pass

    def perform(
        self, call: NodeCall, targets: Mapping[Target, Sequence[object]]
    ) -> dict[str, RpcResult[Any]]:
        return {target.name: self._one(call, target, args) for target, args in targets.items()}

    def _one(self, call: NodeCall, target: Target, args: Sequence[object]) -> RpcResult[Any]:
        self.calls.append((target.name, call.name))
        if target.name in self.down:
            return RpcResult(target.name, error="connection refused", address="a:1811")
        context = NodeContext(self.nodes[target.name], target.name, call.name)
        answer = dispatch.answer(context, call, encode_arguments(call, args))
        return read_answer(call, target.name, answer)
