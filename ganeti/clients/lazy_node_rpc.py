"""A node RPC client that loads the HTTP library when it is first used.

Many jobs ask no node at all, and the library costs them more than their work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ganeti.base.paths import Paths

if TYPE_CHECKING:
    from ganeti.clients.node_rpc import NodeRpcClient, RpcResult, Target


class LazyNodeRpcClient:
    """As `NodeRpcClient`."""

    def __init__(self, paths: Paths, job_id: int | None = None) -> None:
        self._paths = paths
        self._job_id = job_id
        self._client: NodeRpcClient | None = None

    def _loaded(self) -> NodeRpcClient:
        if self._client is None:
            from ganeti.clients.node_rpc import NodeRpcClient

            self._client = NodeRpcClient(self._paths, self._job_id)
        return self._client

    def call(self, name: str, targets: Mapping[Target, Sequence[object]]) -> dict[str, RpcResult]:
        """Make one call on many nodes at once; as `NodeRpcClient.call`."""
        return self._loaded().call(name, targets)

    def single(self, name: str, target: Target, *args: object) -> RpcResult:
        """Make one call on one node; as `NodeRpcClient.single`."""
        return self._loaded().single(name, target, *args)

    def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            self._client.close()
