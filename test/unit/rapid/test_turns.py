"""Tests of ganeti/rapid/turns.py."""

from __future__ import annotations

import asyncio

import pytest
from fakes.loop import run

from ganeti.protocol.rapi.values import HttpProblem
from ganeti.rapid.turns import Turns


async def visit(turns: Turns, origin: str, seen: list[str]) -> None:
    async with turns.turn(origin):
        seen.append(origin)
        await asyncio.sleep(0)


def test_origins_take_turns_whoever_has_more_to_ask() -> None:
    seen: list[str] = []

    async def test() -> None:
        turns = Turns("nothing", 100)
        tasks = [asyncio.ensure_future(visit(turns, "many", seen)) for _ in range(100)]
        await asyncio.sleep(0)
        tasks += [asyncio.ensure_future(visit(turns, "two", seen)) for _ in range(2)]
        tasks += [asyncio.ensure_future(visit(turns, "one", seen))]
        await asyncio.gather(*tasks)
        assert not turns._waiting

    run(test())
    assert len(seen) == 103
    assert "one" in seen[:6]
    assert seen[:10].count("two") == 2


def test_one_at_a_time_however_they_end() -> None:
    async def test() -> None:
        turns, inside = Turns("nothing", 100), 0

        async def fail(number: int) -> None:
            nonlocal inside
            async with turns.turn(str(number % 3)):
                inside += 1
                assert inside == 1
                await asyncio.sleep(0)
                inside -= 1
                if number % 2:
                    raise ValueError

        await asyncio.gather(*(fail(number) for number in range(30)), return_exceptions=True)
        assert not turns._is_taken
        async with turns.turn("x"):
            assert turns._is_taken

    run(test())


@pytest.mark.parametrize("late", [False, True])
def test_who_goes_away_keeps_nobody_waiting(late: bool) -> None:
    """Also when his turn has come in that very moment."""

    async def test() -> None:
        turns, seen = Turns("nothing", 100), list[str]()
        async with turns.turn("first"):
            gone = asyncio.ensure_future(visit(turns, "gone", seen))
            await asyncio.sleep(0)
            last = asyncio.ensure_future(visit(turns, "last", seen))
            await asyncio.sleep(0)
            if not late:
                gone.cancel()
        gone.cancel()
        await last
        assert seen == ["last"]
        assert not turns._is_taken
        with pytest.raises(asyncio.CancelledError):
            await gone

    run(test())


def test_so_many_of_one_origin_wait_and_those_who_go_away_are_forgotten() -> None:
    async def test() -> None:
        turns, seen = Turns("a cake", 3), list[str]()
        async with turns.turn("first"):
            waiting = [asyncio.ensure_future(visit(turns, "many", seen)) for _ in range(3)]
            await asyncio.sleep(0)
            with pytest.raises(HttpProblem, match="3 requests from your address wait for a cake"):
                await visit(turns, "many", seen)
            other = asyncio.ensure_future(visit(turns, "other", seen))
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            assert list(turns._waiting) == ["other"]
            last = asyncio.ensure_future(visit(turns, "many", seen))
            await asyncio.sleep(0)
        await asyncio.gather(other, last)
        assert seen == ["other", "many"]
        assert not turns._count._of_origin

    run(test())
