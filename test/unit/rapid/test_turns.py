"""Tests of ganeti/rapid/turns.py."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from fakes.loop import run, run_in_virtual_time
from fakes.waiting import until
from msgspec import Raw

from ganeti.base.errors import GenericError
from ganeti.protocol.rapi.values import HttpProblem
from ganeti.rapid.turns import JOB_S_MAX, OpenJobs, Turns
from ganeti.system import clock


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


# Jobs.


class Queue:
    """LuxiD: a job ends once it ``may_end``."""

    def __init__(self) -> None:
        self.submitted: list[Any] = []
        self.archived: list[int] = []
        self.status = "success"
        self.may_end = asyncio.Event()
        self.is_full = False

    async def ask(self, method: str, args: list[Any]) -> Raw:
        await asyncio.sleep(0)
        return Raw(json.dumps(await self._answer(method, args)).encode())

    async def _answer(self, method: str, args: list[Any]) -> object:
        if method == "SubmitJob":
            if self.is_full:
                raise GenericError("the queue is full")
            self.submitted.append(args[0])
            return len(self.submitted)
        if method == "WaitForJobChange":
            if args[2] is None:
                return [["running"], []]
            await self.may_end.wait()
            return [[self.status], []]
        if method == "QueryJobs":
            return [[[f"result of {args[0][0]}"]]]
        assert method == "ArchiveJob"
        self.archived += args
        return True


QUESTION = {"OP_ID": "OP_OS_DIAGNOSE", "names": []}


def info(name: str, when: int = 0) -> list[dict[str, Any]]:
    return [{"OP_ID": "OP_INSTANCE_QUERY_DATA", "instances": [name], "reason": [when]}]


def test_who_asks_meanwhile_gets_the_result_of_the_job_that_runs() -> None:
    async def test() -> None:
        queue = Queue()
        jobs = OpenJobs(queue.ask)
        asked = [asyncio.ensure_future(jobs.result(QUESTION, str(n % 5))) for n in range(100)]
        await until(lambda: bool(queue.submitted))
        asked[0].cancel()  # it does not break off what the others wait for
        queue.may_end.set()
        found = await asyncio.gather(*asked[1:])
        assert Counter(map(bytes, found)) == {b'"result of 1"': 99}
        await until(lambda: queue.archived == [1])
        assert bytes(await jobs.result(QUESTION, "later")) == b'"result of 2"'
        assert len(queue.submitted) == 2

    run(test())


def test_so_many_of_one_origin_wait_for_a_job() -> None:
    async def test() -> None:
        queue = Queue()
        jobs = OpenJobs(queue.ask)
        asked = [asyncio.ensure_future(jobs.result(QUESTION, "many")) for _ in range(40)]
        asked += [asyncio.ensure_future(jobs.result(QUESTION, "other"))]
        await until(lambda: bool(queue.submitted))
        queue.may_end.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        refused = [each for each in found if isinstance(each, HttpProblem)]
        assert [each.status for each in refused] == [503] * 8
        assert isinstance(found[-1], Raw)

    run(test())


def test_a_job_that_fails_is_told_and_archived_too() -> None:
    async def test() -> None:
        queue = Queue()
        queue.status = "error"
        queue.may_end.set()
        with pytest.raises(HttpProblem, match='Job 1 ended in error: "result of 1"') as found:
            await OpenJobs(queue.ask).result(QUESTION, "")
        assert found.value.status == 500
        await until(lambda: queue.archived == [1])

    run(test())


def test_a_job_that_does_not_end_is_waited_for_no_longer() -> None:
    async def test() -> None:
        queue = Queue()
        jobs = OpenJobs(queue.ask)
        with pytest.raises(HttpProblem) as found:
            await jobs.result(QUESTION, "")
        assert found.value.status == 504
        assert clock.monotonic() == JOB_S_MAX
        answers = await asyncio.gather(
            *(jobs.submit(info(f"web{number}"), "") for number in range(4)), return_exceptions=True
        )
        assert answers[:2] == [b"2", b"3"]
        assert [each.status for each in answers[3:] if isinstance(each, HttpProblem)] == [503]

    run_in_virtual_time(test())


def test_one_job_at_a_time_is_submitted_for_those_without_a_right() -> None:
    async def test() -> None:
        queue = Queue()
        jobs = OpenJobs(queue.ask)
        assert await jobs.submit(info("web1"), "a") == b"1"
        assert await jobs.submit(info("web1", when=5), "b") == b"1"  # it runs
        others = [asyncio.ensure_future(jobs.submit(info("web2"), "a")) for _ in range(2)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(queue.submitted) == 1
        others[0].cancel()
        queue.may_end.set()
        assert await others[1] == b"2"
        await until(lambda: not jobs._running and not jobs._turns._is_taken)
        assert await jobs.submit(info("web1"), "a") == b"3"
        assert queue.archived == []  # the client reads them

    run(test())


def test_a_job_that_cannot_be_submitted_keeps_no_turn() -> None:
    async def test() -> None:
        queue = Queue()
        jobs = OpenJobs(queue.ask)
        queue.is_full = True
        with pytest.raises(GenericError, match="the queue is full"):
            await jobs.submit(info("web1"), "a")
        queue.is_full = False
        assert await jobs.submit(info("web1"), "a") == b"1"

    run(test())
