"""Calls the daemons of other nodes from an event loop.

Apart from `node_rpc`, so that job processes, which have no event loop, need not load one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import Caller, RpcResult, Target, call_named, results, to_be_asked
from ganeti.transport.async_curl_pool import AsyncCurlPool


class AsyncNodeRpcClient(Caller[AsyncCurlPool]):
    """As `NodeRpcClient`, from the running event loop."""

    def __init__(self, paths: Paths, job_id: int | None = None) -> None:
        super().__init__(paths, AsyncCurlPool, job_id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self.close()

    async def call(
        self, name: str, targets: Mapping[Target, Sequence[object]]
    ) -> dict[str, RpcResult]:
        """Make one call on many nodes at once; as `NodeRpcClient.call`."""
        call = call_named(name)
        asked = to_be_asked(call, targets)
        requests = [self._request(call, target, targets[target]) for target in asked]
        responses = await self._current_pool().perform(requests) if requests else []
        return results(targets, zip(asked, responses, strict=True))

    async def single(self, name: str, target: Target, *args: object) -> RpcResult:
        """Make one call on one node; errors as of `call`."""
        return (await self.call(name, {target: args}))[target.name]
