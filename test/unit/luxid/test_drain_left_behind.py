"""The watch over a queue that a fail-over closed goes on whatever cannot be read."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from types import SimpleNamespace

import pytest

from ganeti.base.errors import GenericError
from ganeti.luxid import daemon as luxid

DEADLINE_S = 60
MARK = (1, 2)


def test_the_queue_is_opened_once_the_flag_can_be_looked_at(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[Exception] = [OSError(errno.EIO, os.strerror(errno.EIO)), GenericError("no answer")]
    opened = asyncio.Event()

    def drain_mark() -> tuple[int, int]:
        if looks:
            raise looks.pop(0)
        return MARK

    async def is_left(_self: luxid.LuxiDaemon) -> bool:
        return True

    async def set_drain_flag(flag: bool) -> None:
        assert not flag
        opened.set()

    async def run() -> None:
        async with asyncio.timeout(DEADLINE_S):
            watch = asyncio.create_task(daemon._end_drain_left_behind())
            await asyncio.wait(
                [watch, asyncio.create_task(opened.wait())], return_when=asyncio.FIRST_COMPLETED
            )
            assert watch.cancel()

    monkeypatch.setattr(luxid, "DRAIN_LOOK_S", 0.0)
    monkeypatch.setattr(luxid.LuxiDaemon, "_is_drain_left_behind", is_left)
    daemon = object.__new__(luxid.LuxiDaemon)
    daemon._store = SimpleNamespace(files=SimpleNamespace(drain_mark=drain_mark))
    daemon._commands = SimpleNamespace(set_drain_flag=set_drain_flag)
    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert opened.is_set()
    said = [record.message for record in caplog.records]
    assert ["Input/output error" in said[0], "no answer" in said[1]] == [True, True]
