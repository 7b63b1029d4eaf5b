"""Runs an asynchronous server in a thread, for tests of blocking clients."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

T = TypeVar("T")

START_TIMEOUT_S = 60.0


@contextlib.contextmanager
def served(make: Callable[[], AbstractAsyncContextManager[T]]) -> Iterator[T]:
    """Enter an asynchronous context in an event loop of its own; yields what it yields."""
    started = threading.Event()
    found: list[T] = []
    failed: list[BaseException] = []
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()

    async def run() -> None:
        async with make() as server:
            found.append(server)
            started.set()
            await stopping.wait()

    def target() -> None:
        try:
            loop.run_until_complete(run())
        except BaseException as err:
            failed.append(err)
        finally:
            loop.close()
            started.set()

    thread = threading.Thread(target=target, name="served")
    thread.start()
    assert started.wait(START_TIMEOUT_S), "the server did not start"
    try:
        if failed:
            raise failed[0]
        yield found[0]
    finally:
        if thread.is_alive():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(stopping.set)
            thread.join(START_TIMEOUT_S)
        assert not thread.is_alive(), "the server did not stop"
