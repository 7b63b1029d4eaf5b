"""Tests of ganeti/maintd/restarting.py: one that acts on losses goes on when settings change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from ganeti.availability.restarts import Limits
from ganeti.base.paths import Paths
from ganeti.maintd import restarting
from ganeti.maintd.restarting import Restarter
from ganeti.store.availability import Settings

FIRST = Settings(endpoints=["https://192.0.2.1:1818"], prefix="/x/")
THEN = replace(FIRST, endpoints=["https://192.0.2.2:1818"], limits=Limits(starts_max=3))


def test_other_settings_are_no_new_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[Settings | None] = iter([FIRST, FIRST, THEN, THEN, THEN, None, None])
    opened: list[Settings] = []
    turns: list[tuple[Restarter, object, Limits]] = []

    @asynccontextmanager
    async def client(settings: Settings, _timeout_s: float) -> AsyncIterator[object]:
        opened.append(settings)
        yield settings

    async def turn(self: Restarter, *, holds_lease: bool) -> None:
        assert holds_lease
        turns.append((self, self._etcd, self._limits))

    monkeypatch.setattr(restarting.availability, "read", lambda _paths: next(answers))
    monkeypatch.setattr(restarting.lease, "is_held", lambda _paths: True)
    monkeypatch.setattr(restarting.EtcdClient, "of", client)
    monkeypatch.setattr(restarting, "IDLE_TURN_S", 0.0)
    monkeypatch.setattr(Restarter, "turn", turn)
    context: Any = SimpleNamespace(paths=Paths("/nowhere"), hostname="node1")
    service = SimpleNamespace(losses=list, publish=lambda: None)
    nobody = cast("Any", None)
    asyncio.run(restarting.run(context, nobody, nobody, cast("Any", service)))
    assert opened == [FIRST, THEN]
    [one] = {each for each, _, _ in turns}  # which knows what it submitted
    assert [(etcd, limits) for _, etcd, limits in turns] == [
        (FIRST, FIRST.limits),
        (THEN, THEN.limits),
    ]
    assert isinstance(one, Restarter)
    assert service.losses is list
