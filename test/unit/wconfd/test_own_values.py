"""The simple values on the master's own node."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ganeti.base.paths import Paths
from ganeti.wconfd.copies.own import OwnValues
from ganeti.wconfd.copies.sending import SimpleValues, SsconfState


def test_all_values_are_written_again_although_a_write_was_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[Mapping[str, str]] = []
    begun, goes_on = threading.Event(), threading.Event()

    def write(_paths: Paths, values: Mapping[str, str]) -> list[str]:
        written.append(values)
        if len(written) == 2:
            begun.set()
            assert goes_on.wait(60)
        return []

    monkeypatch.setattr("ganeti.store.ssconf.write_values", write)

    async def play() -> None:
        simple = SimpleNamespace(state=SsconfState("x.1", 1, {"a": "1", "b": "1"}))
        tasks: list[asyncio.Task[Any]] = []
        own = OwnValues(
            Paths("/nowhere"),
            cast("SimpleValues", simple),
            lambda work, _name: tasks.append(asyncio.ensure_future(work)),
        )
        simple.state = SsconfState("x.2", 2, {"a": "2", "b": "1"})
        own.follow()
        assert await asyncio.to_thread(begun.wait, 60)
        own.write_all_again()
        goes_on.set()
        await own.wait(60)

    asyncio.run(play())
    assert written == [{"a": "1", "b": "1"}, {"a": "2"}, {"a": "2", "b": "1"}]
