"""From a request to its handler: method, arguments, fence.

Source: wconfd.json, "methods".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ganeti.base.errors import GenericError
from ganeti.protocol.envelope import Request
from ganeti.protocol.wconfd import WCONFD_METHODS
from ganeti.protocol.wconfd_stub import python_name
from ganeti.transport.unix_connection import Connection
from ganeti.wconfd.arguments import decode_arguments
from ganeti.wconfd.fencing import Fence
from ganeti.wconfd.keeper import Keeper

Handler = Callable[..., object]

_WITH_CONNECTION: Final = frozenset({"waitLocks", "waitOpportunisticUnion"})


class Dispatcher:
    """Answers requests; `handlers` are objects with a method for each row of the table."""

    def __init__(self, keeper: Keeper, handlers: Sequence[object]) -> None:
        self._fence = Fence(keeper)
        self._handlers: dict[str, Handler] = {}
        for name in WCONFD_METHODS:
            owners = [handler for handler in handlers if hasattr(handler, python_name(name))]
            assert len(owners) == 1, f"{name} has {len(owners)} handlers"
            self._handlers[name] = getattr(owners[0], python_name(name))

    async def __call__(self, request: Request, connection: Connection) -> object:
        """Answer one request.

        Raises:
            GenericError: unknown method, wrong arguments, or whatever the method refused.
        """
        method = WCONFD_METHODS.get(request.method)
        if method is None:
            raise GenericError(f"unknown method {request.method!r:.100}")
        args = decode_arguments(method, request.args)
        self._fence.check(method, args)
        handler = self._handlers[method.name]
        if method.name in _WITH_CONNECTION:
            result = handler(*args, connection=connection)
        else:
            result = handler(*args)
        if isinstance(result, Awaitable):
            result = await result
        return [] if result is None and method.result == "void" else result
