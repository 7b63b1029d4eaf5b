"""Nodes that do not answer cost one list its deadline, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest
from fakes.loop import run_in_virtual_time

from ganeti.base.errors import GenericError
from ganeti.clients.node_rpc import RpcResult, Target
from ganeti.luxid.live_calls import LiveCalls
from ganeti.luxid.tasks import Tasks
from ganeti.protocol.node_calls import NodeCalls
from ganeti.protocol.node_rpc import NodeCall
from ganeti.protocol.service import call_of

CALL = call_of(NodeCalls.restricted_command)
DEADLINE_S = 20.0
GRACE_S = 5.0
GOOD, DEAD = Target("good", "192.0.2.1"), Target("dead", "192.0.2.2")


class FakeNodes:
    """`good` answers at once, `dead` only when it is woken; counts what is under way there."""

    def __init__(self) -> None:
        self.awake = asyncio.Event()
        self.waiting = 0
        self.error: str | None = None

    async def perform(
        self, call: NodeCall, targets: Mapping[Target, Sequence[object]]
    ) -> dict[str, RpcResult[object]]:
        [(target, args)] = targets.items()
        if target == DEAD:
            self.waiting += 1
            try:
                await self.awake.wait()
            finally:
                self.waiting -= 1
        payload = [call.name, *args]
        return {target.name: RpcResult(target.name, payload=payload, error=self.error)}


def with_calls(test: Callable[[FakeNodes, LiveCalls], Awaitable[None]]) -> None:
    async def body() -> None:
        async with asyncio.TaskGroup() as group:
            tasks = Tasks(group)
            nodes = FakeNodes()
            calls = LiveCalls(nodes, tasks, deadline_s=DEADLINE_S, grace_s=GRACE_S)
            await test(nodes, calls)
            tasks.cancel()

    run_in_virtual_time(body())


async def timed(calls: LiveCalls, *targets: Target) -> tuple[dict[str, RpcResult[object]], float]:
    loop = asyncio.get_running_loop()
    started = loop.time()
    results = await calls.ask(CALL, {target: ["x"] for target in targets})
    return results, loop.time() - started


@pytest.mark.shows("2.12/overview/luxid-noded")
def test_a_dead_node_is_waited_for_once() -> None:
    async def test(nodes: FakeNodes, calls: LiveCalls) -> None:
        first, took_s = await timed(calls, GOOD, DEAD)
        assert took_s >= DEADLINE_S
        assert first["good"].payload == ["restricted_command", "x"]
        assert first["dead"].error == "no answer in time"
        second, took_s = await timed(calls, DEAD, GOOD)
        assert GRACE_S <= took_s < DEADLINE_S
        assert [result.error is None for result in second.values()] == [False, True]

    with_calls(test)


def test_a_node_that_is_back_is_noticed_by_the_question_left_behind() -> None:
    async def test(nodes: FakeNodes, calls: LiveCalls) -> None:
        for _ in range(3):
            await timed(calls, DEAD)
        await asyncio.sleep(0)
        assert nodes.waiting == 1  # of those given up one goes on, not three
        nodes.awake.set()
        await asyncio.sleep(0)
        nodes.awake.clear()
        _, took_s = await timed(calls, DEAD)
        assert took_s >= DEADLINE_S

    with_calls(test)


def test_a_quick_refusal_makes_nobody_silent() -> None:
    async def test(nodes: FakeNodes, calls: LiveCalls) -> None:
        nodes.error = "connection refused"
        results, _ = await timed(calls, GOOD)
        assert results["good"].error == "connection refused"
        nodes.error = None
        results, _ = await timed(calls, GOOD)
        assert results["good"].error is None

    with_calls(test)


def test_a_late_failure_makes_a_node_silent() -> None:
    async def test(nodes: FakeNodes, calls: LiveCalls) -> None:
        nodes.error = "no connection within 5 s"
        asyncio.get_running_loop().call_later(2 * GRACE_S, nodes.awake.set)
        await timed(calls, DEAD)
        nodes.awake.clear()
        _, took_s = await timed(calls, DEAD)
        assert took_s < DEADLINE_S

    with_calls(test)


def test_a_call_that_cannot_be_made_is_an_error_of_each_node() -> None:
    class NoCertificate:
        async def perform(
            self, call: NodeCall, targets: Mapping[Target, Sequence[object]]
        ) -> dict[str, RpcResult[object]]:
            raise GenericError("no certificate")

    async def body() -> None:
        async with asyncio.TaskGroup() as group:
            calls = LiveCalls(NoCertificate(), Tasks(group))
            results = await calls.ask(CALL, {GOOD: [], DEAD: []})
            assert {result.error for result in results.values()} == {"no certificate"}

    run_in_virtual_time(body())


def test_nobody_to_ask() -> None:
    async def test(nodes: FakeNodes, calls: LiveCalls) -> None:
        assert await calls.ask(CALL, {}) == {}

    with_calls(test)
