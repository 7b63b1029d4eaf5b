"""Putting questions to RConfD, on whichever master candidates there are at the time."""

from __future__ import annotations

from typing import Final

from ganeti.base.paths import Paths
from ganeti.clients.confd import AsyncConfdClient
from ganeti.collectors.node_lookup import value_or_none
from ganeti.protocol.confd_queries import QueryType

_TIMEOUT_S: Final = 5.0  # on a network where answers come in milliseconds


class Questions:
    """Asks on behalf of a node."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    async def __call__(self, query_type: QueryType, query: object = None) -> object:
        """Return the answer; None if there is no such thing.

        Raises:
            TransportError: nobody answered.
            GenericError: RConfD could not answer, or this node cannot ask.
        """
        # A new client for each question: candidates come and go, and we ask rarely.
        client = AsyncConfdClient.of_node(self._paths, timeout_s=_TIMEOUT_S)
        try:
            answer = await client.ask(query_type, query)
        finally:
            client.close()
        return value_or_none(answer)
