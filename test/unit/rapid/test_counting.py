"""Tests of ganeti/rapid/counting.py."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from ganeti.base.paths import Paths
from ganeti.rapid import counting
from ganeti.rapid.counting import RoomCounts
from ganeti.rapid.luxi_pool import LuxiPool


class NoGrowth(LuxiPool):
    """A master daemon that only knows of a cluster that does not grow."""

    async def ask(self, method: str, args: object) -> bytes:  # type: ignore[override]
        return b"[]"


class Program:
    """Stands for the process that counts; ends when it is told to."""

    def __init__(self) -> None:
        self.starts = 0
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()

    async def run(self, argv: list[str], **_given: object) -> SimpleNamespace:
        self.starts += 1
        self.begun.set()
        await self.may_end.wait()
        return SimpleNamespace(check=lambda: SimpleNamespace(stdout=b"%d" % self.starts))


def test_who_asks_the_same_meanwhile_gets_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        program = Program()
        monkeypatch.setattr(counting, "run_aside", program.run)
        counts = RoomCounts(NoGrowth(Paths("/nowhere"), 1), "/nowhere")
        asked = [asyncio.create_task(counts.count({"memory": 128})) for _ in range(3)]
        other = asyncio.create_task(counts.count({"memory": 256}))
        await program.begun.wait()
        asked[0].cancel()  # it does not break off what the others wait for
        program.may_end.set()
        assert await asyncio.gather(*asked[1:]) == [b"1", b"1"]
        assert await other == b"2"
        assert await counts.count({"memory": 128}) == b"3"  # a later one is a new one

    asyncio.run(ask())
