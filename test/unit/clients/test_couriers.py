"""Couriers: batches, waiting, nodes that hang, refuse, come back or leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from ganeti.clients import couriers as module
from ganeti.clients.couriers import Courier, Couriers, Delivery, NodeSilentError
from ganeti.clients.node_rpc import Target
from ganeti.copies import node as node_module
from ganeti.copies.node import NodeCopies, Versions

NEVER = 60.0


class FakeCargo:
    """Nodes of which some are down, some hang, and some refuse files."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.losing: set[str] = set()  # of those that hang: their answers get lost, nothing else
        self.hanging: dict[str, asyncio.Event] = {}
        self.refused: set[str] = set()
        self.withheld: set[str] = set()
        self._happened = asyncio.Event()
        self.sent: list[tuple[str, dict[str, int]]] = []
        self.greeted: list[str] = []
        self.results: list[tuple[str, bool, bool]] = []

    async def until(self, is_done: Callable[[], bool]) -> None:
        async with asyncio.timeout(NEVER):
            while not is_done():
                self._happened.clear()
                await self._happened.wait()

    def may_send(self, file: str) -> bool:
        return file not in self.withheld

    async def greet(self, courier: Courier) -> str | None:
        self.greeted.append(courier.name)
        self._happened.set()
        if courier.name in self.hanging and courier.name not in self.losing:
            await self.hanging[courier.name].wait()
        return "connection refused" if courier.name in self.down else None

    async def deliver(self, courier: Courier, versions: Versions) -> Delivery:
        self.sent.append((courier.name, dict(versions)))
        self._happened.set()
        if courier.name in self.hanging:
            await self.hanging[courier.name].wait()
        if courier.name in self.down:
            raise NodeSilentError("connection refused")
        refused = {file: "no" for file in versions if file in self.refused}
        return Delivery({f: v for f, v in versions.items() if f not in refused}, refused)

    def on_result(self, courier: Courier, *, was_missing: bool, error_before: str | None) -> None:
        self.results.append((courier.name, was_missing, courier.copies.is_missing))


class Scene:
    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.cargo = FakeCargo()
        self.tasks: list[asyncio.Task[Any]] = []

        def spawn(work: Coroutine[Any, Any, None], name: str) -> None:
            self.tasks.append(group.create_task(work, name=name))

        self.couriers = Couriers(self.cargo, spawn, files_max=10, trip_s_max=NEVER)
        for name in ("n2", "n3"):
            self.add(name)

    def add(self, name: str) -> Courier:
        courier = self.couriers.add(Target(name, "192.0.2.1"), NodeCopies())
        courier.takes_many = courier.is_known = True
        return courier

    def want(self, file: str, version: int) -> None:
        for courier in self.couriers:
            courier.copies.want(file, version)
        self.couriers.start_soon()

    def having(self, file: str, version: int) -> list[str]:
        return [c.name for c in self.couriers if c.copies.has_version(file, version)]

    async def all_have(self, file: str, version: int) -> None:
        def is_done() -> bool:
            return len(self.having(file, version)) == len(list(self.couriers))

        assert await self.couriers.wait_until(file, is_done, NEVER)


def play(script: Callable[[Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            scene = Scene(group)
            await script(scene)
            for courier in list(scene.couriers):
                scene.couriers.remove(courier.name)
            for task in scene.tasks:
                task.cancel()

    asyncio.run(run())


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_module, "RETRY_DELAYS_S", (0.001,))
    monkeypatch.setattr(node_module, "PATIENCE_S", 0.02)
    monkeypatch.setattr(module, "PATIENCE_S", 0.02)
    monkeypatch.setattr(module, "OVERDUE_S", 0.05)
    monkeypatch.setattr(module, "_GREET_AGAIN_S", 0.01)


def test_files_that_are_wanted_together_go_in_one_trip() -> None:
    async def script(scene: Scene) -> None:
        scene.want("a", 1)
        scene.want("b", 2)
        await scene.all_have("b", 2)
        assert sorted(scene.cargo.sent) == [("n2", {"a": 1, "b": 2}), ("n3", {"a": 1, "b": 2})]

    play(script)


def test_a_node_that_takes_one_file_at_a_time_gets_them_so() -> None:
    async def script(scene: Scene) -> None:
        for courier in scene.couriers:
            courier.takes_many = False
        scene.want("a", 1)
        scene.want("b", 2)
        await scene.all_have("a", 1)
        await scene.all_have("b", 2)
        assert max(len(versions) for _, versions in scene.cargo.sent) == 1

    play(script)


def test_a_node_that_hangs_delays_nobody_for_long_and_gets_the_newest_later() -> None:
    async def script(scene: Scene) -> None:
        hangs = scene.cargo.hanging["n3"] = asyncio.Event()
        slow = scene.couriers.get("n3")
        assert slow is not None
        for version in range(1, 6):
            scene.want("a", version)

            def has_one(version: int = version) -> bool:
                return bool(scene.having("a", version))

            def lacking(version: int = version) -> list[Courier]:
                return [c for c in scene.couriers if not c.copies.has_version("a", version)]

            assert await scene.couriers.wait_until("a", has_one, NEVER)
            await scene.couriers.wait_for_all("a", lacking)
            assert slow.copies.patience_left_s(asyncio.get_running_loop().time()) <= 0.02
        assert [versions for name, versions in scene.cargo.sent if name == "n3"] == [{"a": 1}]
        hangs.set()
        await scene.all_have("a", 5)
        assert [v["a"] for name, v in scene.cargo.sent if name == "n3"] == [1, 5]

    play(script)


def test_a_node_that_is_back_is_greeted_first_and_gets_everything() -> None:
    async def script(scene: Scene) -> None:
        scene.cargo.down = {"n3"}
        scene.want("a", 1)
        assert await scene.couriers.wait_until("a", lambda: bool(scene.cargo.greeted), NEVER)
        sent = len(scene.cargo.sent)
        scene.want("b", 2)
        assert await scene.couriers.wait_until("b", lambda: scene.having("b", 2) == ["n2"], NEVER)
        assert ("n3", {"b": 2}) not in scene.cargo.sent[sent:], "a node that is down is only asked"
        scene.cargo.down = set()
        await scene.all_have("b", 2)
        await scene.all_have("a", 1)
        assert ("n3", False, True) in scene.cargo.results
        assert ("n3", True, False) in scene.cargo.results

    play(script)


def test_what_got_lost_on_the_way_is_sent_again_as_soon_as_the_node_answers() -> None:
    """A connection may stay silent for ever after a network, or a node, was away."""

    async def script(scene: Scene) -> None:
        scene.cargo.hanging["n3"] = asyncio.Event()
        scene.want("a", 1)
        assert await scene.couriers.wait_until("a", lambda: scene.having("a", 1) == ["n2"], NEVER)
        await scene.cargo.until(lambda: "n3" in scene.cargo.greeted)
        assert scene.having("a", 1) == ["n2"]
        scene.cargo.losing = {"n3"}  # it is back, and knows nothing of the trip
        await scene.cargo.until(lambda: len(scene.cargo.sent) == 3)
        del scene.cargo.hanging["n3"]
        await scene.all_have("a", 1)
        courier = scene.couriers.get("n3")
        assert courier is not None
        assert not courier.copies.in_doubt
        sent = [versions for name, versions in scene.cargo.sent if name == "n3"]
        assert len(sent) >= 3, "an acknowledgement after a doubt does not count"

    play(script)


def test_a_slow_trip_to_a_node_that_hangs_is_not_cut() -> None:
    async def script(scene: Scene) -> None:
        hangs = scene.cargo.hanging["n3"] = asyncio.Event()
        scene.want("a", 1)
        await scene.cargo.until(lambda: "n3" in scene.cargo.greeted)
        hangs.set()
        await scene.all_have("a", 1)
        assert [v for name, v in scene.cargo.sent if name == "n3"] == [{"a": 1}]

    play(script)


def test_files_that_cannot_be_had_wait_for_the_next_start() -> None:
    async def script(scene: Scene) -> None:
        scene.cargo.withheld = {"a"}
        scene.want("a", 1)
        scene.want("b", 2)
        await scene.all_have("b", 2)
        assert scene.having("a", 1) == []
        scene.cargo.withheld = set()
        scene.couriers.start_soon()
        await scene.all_have("a", 1)

    play(script)


def test_a_node_less_ends_a_wait_for_it() -> None:
    async def script(scene: Scene) -> None:
        scene.cargo.hanging["n3"] = asyncio.Event()
        scene.want("a", 1)
        waiting = asyncio.ensure_future(scene.all_have("a", 1))
        await asyncio.sleep(0)
        scene.couriers.remove("n3")
        await waiting
        scene.cargo.hanging["n3"].set()

    play(script)


def test_a_wait_ends_with_its_time() -> None:
    async def script(scene: Scene) -> None:
        assert not await scene.couriers.wait_until("a", lambda: False, 0.01)

    play(script)
