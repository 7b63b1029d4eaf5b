"""Connections to LuxiD, one for each question that is open.

Answers come in the order of the questions on a connection, so one that waits would hold up others:
each has a connection to itself for as long as it takes, and leaves it for the next.
"""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Raw

from ganeti.base.errors import TransportError
from ganeti.base.paths import Paths
from ganeti.base.versions import LUXI_VERSION
from ganeti.clients.luxi import check_is_master
from ganeti.protocol.envelope import decode_response_as
from ganeti.protocol.luxi import LuxiCalls, Rules
from ganeti.protocol.rapi.values import HttpProblem
from ganeti.transport.async_unix_client import AsyncUnixClient
from ganeti.transport.unix_client import AnswerTimeoutError, ConnectionLostError, NobodyListensError

CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 60.0
WAITING_MAX: Final = 500  # clients that wait for a job at the same time


class LuxiPool:
    """Asks LuxiD."""

    def __init__(self, paths: Paths, at_once_max: int) -> None:
        self._paths = paths
        self._turns = asyncio.Semaphore(at_once_max)
        self._waiting = 0
        self._free: list[AsyncUnixClient] = []

    async def ask(self, method: str, request: bytes) -> Raw:
        """Send an encoded request of this method and return the result in its answer.

        Raises:
            HttpProblem: no answer, for a reason that has a status of its own.
            GenericError: what LuxiD refused it with, or that it cannot be reached.
        """
        rules: Rules = LuxiCalls.calls[method].rules
        if rules.waits:
            return await self._wait(request)
        async with self._turns:
            try:
                return await self._exchange(request)
            except ConnectionLostError as err:
                if rules.changes:
                    raise TransportError(
                        f"{err.message}; {method} may have been carried out, look before you"
                        " try again"
                    ) from err
            return await self._exchange(request)  # a question may be asked again

    async def _wait(self, request: bytes) -> Raw:
        if self._waiting >= WAITING_MAX:
            raise HttpProblem(503, f"{WAITING_MAX} clients wait for jobs already")
        self._waiting += 1
        try:
            return await self._exchange(request)
        finally:
            self._waiting -= 1

    async def _exchange(self, request: bytes) -> Raw:
        client = self._free.pop() if self._free else self._new_client()
        is_reusable = False
        try:
            answer = await client.exchange(request)
            result = decode_response_as(Raw, answer, LUXI_VERSION)
            is_reusable = True
        except AnswerTimeoutError as err:
            raise HttpProblem(504, f"LuxiD did not answer within {ANSWER_TIMEOUT_S:g} s") from err
        except NobodyListensError as err:
            check_is_master(self._paths, err)
            raise TransportError(f"{err.message}; is ganeti-luxid running here?") from err
        else:
            return result
        finally:
            if is_reusable:
                self._free.append(client)
            else:
                client.close()  # after an error of ours or a cancellation its answer may still come

    def _new_client(self) -> AsyncUnixClient:
        return AsyncUnixClient(
            self._paths.query_socket,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            timeout_s=ANSWER_TIMEOUT_S,
        )

    def close(self) -> None:
        """Close all connections that nobody uses."""
        for client in self._free:
            client.close()
        self._free.clear()
