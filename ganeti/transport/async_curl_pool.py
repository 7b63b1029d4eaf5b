"""Many HTTP requests at once from an event loop, without threads or polling.

libcurl tells which sockets it waits for and when it wants to be called; the loop does both.

Source: libcurl-multi(3), curl_multi_socket_action(3).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence

from ganeti.system import clock
from ganeti.transport.curl_pool import CurlRequest, CurlResponse, Pool, TlsIdentity, Transfer


class AsyncCurlPool(Pool):
    """Performs requests from the running event loop."""

    def __init__(self, identity: TlsIdentity | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._more_timer: asyncio.TimerHandle | None = None
        self._waiting: dict[asyncio.Future[CurlResponse], Transfer] = {}
        self._watched: dict[int, tuple[bool, bool]] = {}
        super().__init__(identity)

    def close(self) -> None:
        """Close all connections; open requests fail."""
        super().close()
        self._stop_timer()
        if self._more_timer is not None:
            self._more_timer.cancel()
            self._more_timer = None

    async def perform(self, requests: Sequence[CurlRequest]) -> list[CurlResponse]:
        """Make all requests at once; responses come in their order."""
        started = [self._start(request) for request in requests]
        try:
            return [await future for future in started]
        finally:  # leaves requests open only if the caller was cancelled
            for future in started:
                self._drop(future)

    def _start(self, request: CurlRequest) -> asyncio.Future[CurlResponse]:
        transfer = self._add(request)
        future: asyncio.Future[CurlResponse] = self._loop.create_future()
        self._waiting[future] = transfer
        transfer.on_done = functools.partial(self._finish, future)
        return future

    def _finish(self, future: asyncio.Future[CurlResponse], response: CurlResponse) -> None:
        del self._waiting[future]
        if not future.done():
            future.set_result(response)

    def _drop(self, future: asyncio.Future[CurlResponse]) -> None:
        """Give up a transfer, unless it has ended meanwhile."""
        future.cancel()
        transfer = self._waiting.pop(future, None)
        if transfer is not None:
            self._remove(transfer)

    def _watch(self, descriptor: int, *, reads: bool, writes: bool) -> None:
        """As declared; an unchanged watch costs nothing: the loop is slow at removing nothing."""
        read_before, written_before = self._watched.pop(descriptor, (False, False))
        if read_before and not reads:
            self._loop.remove_reader(descriptor)
        if written_before and not writes:
            self._loop.remove_writer(descriptor)
        if reads and not read_before:
            act = functools.partial(self._act, descriptor, reads=True, writes=False)
            self._loop.add_reader(descriptor, act)
        if writes and not written_before:
            act = functools.partial(self._act, descriptor, reads=False, writes=True)
            self._loop.add_writer(descriptor, act)
        if reads or writes:
            self._watched[descriptor] = (reads, writes)

    def _unwatch(self, descriptor: int) -> None:
        self._watch(descriptor, reads=False, writes=False)

    def _on_timer(self, timeout_ms: int) -> None:
        self._stop_timer()
        if timeout_ms >= 0:
            self._timer = self._loop.call_later(timeout_ms / 1000, self._act_on_timer)

    def _begin_more_at(self, when_s: float) -> None:
        if self._more_timer is not None:
            self._more_timer.cancel()
        delay_s = max(0.0, when_s - clock.monotonic())
        self._more_timer = self._loop.call_later(delay_s, self._begin_more)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
