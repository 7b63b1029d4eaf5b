"""Asks LuxiD and WConfD from an event loop, by the typed methods of their declarations.

    jobs = await luxi.ask(LuxiCalls.query_jobs, [7], ["status"])

A question is asked once more when the connection broke before the answer; a change only where the
rules of the call say that it may be repeated.

Source: luxi.json and wconfd.json, "transport".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from msgspec import Raw

from ganeti.base.paths import Paths
from ganeti.base.versions import LUXI_VERSION
from ganeti.clients.luxi import perhaps_done
from ganeti.protocol.envelope import decode_response_as, encode_request
from ganeti.protocol.luxi import LuxiCalls
from ganeti.protocol.service import Call, call_of
from ganeti.protocol.wconfd import ClientId, Repeat, WConfCalls
from ganeti.transport.async_unix_client import AsyncUnixClient
from ganeti.transport.unix_client import ConnectionLostError

P = ParamSpec("P")
R = TypeVar("R")

CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 60.0


class _Asker:
    """One connection, opened when first used and again after it broke; tasks ask one by one."""

    def __init__(self, path: str, version: int | None) -> None:
        self._version = version
        self._connection = AsyncUnixClient(
            path, connect_timeout_s=CONNECT_TIMEOUT_S, timeout_s=ANSWER_TIMEOUT_S
        )

    def close(self) -> None:
        """Close the connection; the next question opens another."""
        self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        self.close()

    async def _make(self, call: Call[Any], args: Sequence[object], *, may_repeat: bool) -> Any:
        request = encode_request(call.name, args, self._version)
        try:
            answer = await self._connection.exchange(request)
        except ConnectionLostError as err:
            if not may_repeat:
                raise perhaps_done(call.name, err) from err
            answer = await self._connection.exchange(request)
        return call.decode_answer(decode_response_as(Raw, answer, self._version))


class AsyncLuxiClient(_Asker):
    """Asks LuxiD."""

    def __init__(self, paths: Paths) -> None:
        super().__init__(paths.query_socket, LUXI_VERSION)

    async def ask(
        self, method: Callable[Concatenate[LuxiCalls, P], R], *args: P.args, **named: P.kwargs
    ) -> R:
        """Make a call.

        Raises:
            TransportError: no answer; the text says whether a change may have been made.
            GenericError: the error that LuxiD answered.
        """
        call = call_of(method)
        bound = call.bind(args, named)
        rules = call.rules
        while rules.ours and len(bound) > len(call.names) - rules.ours and bound[-1] is None:
            bound.pop()
        found: R = await self._make(call, bound, may_repeat=not rules.changes)
        return found


class AsyncWConfClient(_Asker):
    """Asks WConfD, in the name of an owner."""

    def __init__(self, paths: Paths, owner: ClientId) -> None:
        super().__init__(paths.wconfd_socket, None)
        self._owner = owner

    async def ask(
        self, method: Callable[Concatenate[WConfCalls, P], R], *args: P.args, **named: P.kwargs
    ) -> R:
        """Make a call that does not wait; errors as of `AsyncLuxiClient.ask`."""
        call = call_of(method)
        assert not call.rules.waits, call
        wire = call.write(call.bind(args, named))
        if call.rules.owner is not None:
            wire.insert(call.rules.owner, self._owner.to_wire())
        may_repeat = call.rules.repeat is Repeat.SAFE
        found: R = await self._make(call, wire, may_repeat=may_repeat)
        return found
