"""Whose slow password check is next: those who ask from different places take turns.

Whoever sends thousands of wrong passwords waits for himself; others wait for one check of his.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

_IPV6_PREFIX: Final = 64  # what one customer has, and can take any address of


def origin_of(address: str) -> str:
    """Return what stands for everybody who may be at that address."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    if ip.version == 6:
        return str(ipaddress.ip_network((ip, _IPV6_PREFIX), strict=False))
    return str(ip)


class Turns:
    """One turn at a time; origins in a circle, and within one in the order in which they came."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, origin: str) -> AsyncIterator[None]:
        """Have the turn for a block."""
        if self._is_taken:
            await self._wait(origin)
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, origin: str) -> None:
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(origin, deque()).append(called)
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():  # called in vain
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Call the first who still waits, of the origin that has waited for longest."""
        self._is_taken = False
        while self._waiting:
            origin = next(iter(self._waiting))
            queue = self._waiting.pop(origin)
            while queue:
                called = queue.popleft()
                if not called.done():
                    called.set_result(None)
                    self._is_taken = True
                    break
            if queue:
                self._waiting[origin] = queue  # behind all others
            if self._is_taken:
                return
