"""Long answers are worked out beside everything else, and not for ever."""

from __future__ import annotations

import asyncio

import pytest

from ganeti.base.errors import ParameterError
from ganeti.luxid import slices
from ganeti.luxid.slices import Sliced, Slicer
from ganeti.query.engine import Steps


def counted(done: list[int], count: int) -> Steps[str]:
    for number in range(count):
        done.append(number)
        yield
    return "all"


def test_what_is_quickly_done_takes_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 3600.0)
    work = Sliced(counted([], 1000))
    assert work.go_on()
    assert work.result == ["all"]


def test_others_get_their_turn_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    seen: list[int] = []

    async def watch(done: list[int]) -> None:
        while len(done) < 10:
            seen.append(len(done))
            await asyncio.sleep(0)

    async def scene() -> str:
        done: list[int] = []
        watching = asyncio.ensure_future(watch(done))
        result = await Slicer().do(counted(done, 10))
        await watching
        return result

    assert asyncio.run(scene()) == "all"
    assert len(set(seen)) > 5


def test_endless_work_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "EFFORT_S_MAX", 0.01)

    def endless() -> Steps[None]:
        while True:
            yield

    with pytest.raises(ParameterError, match="use a simpler filter"):
        asyncio.run(Slicer().do(endless()))


def test_an_error_in_the_work_reaches_whoever_asked() -> None:
    def broken() -> Steps[None]:
        yield
        raise ParameterError("no such value")

    with pytest.raises(ParameterError, match="no such value"):
        asyncio.run(Slicer().do(broken()))
