"""Calls the daemons of other nodes from an event loop.

Apart from `node_rpc`, so that job processes, which have no event loop, need not load one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, TypeVarTuple

from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import Caller, RpcResult, Target, results, target_of, to_be_asked
from ganeti.objects.model import Node
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import NodeCall
from ganeti.protocol.service import call_of
from ganeti.transport.async_curl_pool import AsyncCurlPool

P = ParamSpec("P")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class AsyncNodeRpcClient(Caller[AsyncCurlPool]):
    """As `NodeRpcClient`, from the running event loop."""

    def __init__(self, paths: Paths, job_id: int | None = None) -> None:
        super().__init__(paths, AsyncCurlPool, job_id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self.close()

    async def perform(
        self, call: NodeCall, targets: Mapping[Target, Sequence[object]]
    ) -> dict[str, RpcResult[Any]]:
        """Make one call on many nodes at once; as `NodeClient.perform`."""
        asked = to_be_asked(call, targets)
        requests = [self._request(call, target, targets[target]) for target in asked]
        responses = await self._current_pool().perform(requests) if requests else []
        return results(call, targets, zip(asked, responses, strict=True))

    async def call_one(
        self,
        method: Callable[Concatenate[NodeCalls, P], R],
        node: Node | Target,
        *args: P.args,
        **named: P.kwargs,
    ) -> RpcResult[R]:
        """Make one call on one node."""
        return (await self.call_all(method, [node], *args, **named))[node.name]

    async def call_all(
        self,
        method: Callable[Concatenate[NodeCalls, P], R],
        nodes: Iterable[Node | Target],
        *args: P.args,
        **named: P.kwargs,
    ) -> dict[str, RpcResult[R]]:
        """Make one call on many nodes at once, under one deadline."""
        call = call_of(method)
        bound = call.bind(args, named)
        return await self.perform(call, {target_of(node): bound for node in nodes})

    async def call_each(
        self, method: Callable[[NodeCalls, *Ts], R], nodes: Mapping[Target, tuple[*Ts]]
    ) -> dict[str, RpcResult[R]]:
        """As `call_all`, with arguments of its own for each node."""
        return await self.perform(call_of(method), nodes)
