"""A line between nodes that is slow and breaks: it stands before a node daemon, and passes bytes on."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from typing import Self

_PIECE_BYTES = 65536


class BadLine:
    """Listens at a port of an address and passes everything on to another port there.

    Args:
        delay_s: each piece of data is so late.
        resets: the share of pieces in whose place the connection is reset.
    """

    def __init__(
        self, address: str, port: int, behind: int, delay_s: float, resets: float, seed: int
    ) -> None:
        self._address, self._port, self._behind = address, port, behind
        self._delay_s, self._resets = delay_s, resets
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._ready, self._over = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        try:
            server = await asyncio.start_server(
                self._connect, self._address, self._port, reuse_address=True
            )
        finally:
            self._ready.set()
        await self._over.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection(self._address, self._behind)
            ways = (self._pass_on(reader, far_writer), self._pass_on(far_reader, writer))
            try:
                await asyncio.gather(*ways)
            finally:
                for each in (writer, far_writer):
                    each.transport.abort()
        writer.transport.abort()

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while piece := await source.read(_PIECE_BYTES):
            if self._random.random() < self._resets:
                raise ConnectionResetError
            await asyncio.sleep(self._delay_s)
            target.write(piece)
            await target.drain()
        target.write_eof() if target.can_write_eof() else None
