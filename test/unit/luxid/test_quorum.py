"""Whether enough master candidates answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.node_rpc import RpcResult, Target
from ganeti.luxid import quorum
from ganeti.luxid.quorum import Quorum
from ganeti.luxid.tasks import Tasks

OTHERS = [Target("n2", "192.0.2.2"), Target("n3", "192.0.2.3")]


class FakeRpc(AsyncNodeRpcClient):
    """Nodes of which some answer."""

    def __init__(self) -> None:
        self.up: set[str] = set()
        self.asked: list[str] = []

    async def single(self, name: str, target: Target, *args: object) -> RpcResult:
        self.asked.append(target.name)
        if target.name in self.up:
            return RpcResult(target.name, payload={"master_name": "n1"})
        return RpcResult(target.name, error="connection refused", address="a:1")


class Scene:
    """A quorum among three candidates, and what it says."""

    def __init__(self, tasks: Tasks) -> None:
        self.rpc = FakeRpc()
        self.others = list(OTHERS)
        self.heard: list[bool] = []
        self.back: list[str] = []
        self.is_master = True
        self.votes = 0
        self.quorum = Quorum(lambda: self.others, self.rpc, tasks)
        self.quorum.on_changed = self.heard.append
        self.quorum.on_back = self.back.append
        self.quorum.confirm = self.confirm

    async def confirm(self) -> bool:
        self.votes += 1
        return self.is_master

    async def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(5000):
            if condition():
                return
            await asyncio.sleep(0.001)
        raise AssertionError("it did not come about")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum, "_DELAY_S_MIN", 0.001)
    monkeypatch.setattr(quorum, "_DELAY_S_MAX", 0.005)


def play(script: Callable[[Scene], Awaitable[None]]) -> Scene:
    async def run() -> Scene:
        async with asyncio.TaskGroup() as group:
            tasks = Tasks(group)
            scene = Scene(tasks)
            await script(scene)
            tasks.cancel()
            return scene

    return asyncio.run(run())


def test_one_of_two_others_is_enough() -> None:
    async def script(scene: Scene) -> None:
        scene.quorum.missed("n2")
        assert not scene.quorum.is_lost
        assert scene.quorum.is_missing("n2")
        scene.quorum.reached("n2")
        scene.quorum.reached("n3")

    scene = play(script)
    assert scene.heard == []
    assert scene.back == ["n2"]


def test_without_both_it_is_lost_until_one_answers_and_the_vote_is_good() -> None:
    async def script(scene: Scene) -> None:
        scene.is_master = False
        scene.quorum.missed("n2")
        scene.quorum.missed("n3")
        assert scene.heard == [True]
        scene.rpc.up = {"n3"}
        await scene.until(lambda: scene.votes > 1)
        assert scene.quorum.is_lost, "not master any more, as far as is known"
        scene.is_master = True
        await scene.until(lambda: not scene.quorum.is_lost)

    scene = play(script)
    assert scene.heard == [True, False]
    assert scene.back == ["n3"]


def test_the_text_names_who_is_missing_and_what_to_type() -> None:
    async def script(scene: Scene) -> None:
        scene.quorum.missed("n2")
        scene.quorum.missed("n3")
        text = scene.quorum.shortage("job 5")
        assert text.startswith("job 5 is on 1 of the 2 master candidates")
        assert "n2, n3" in text
        assert "gnt-node modify --offline=yes n2" in text

    play(script)


def test_whoever_submits_has_the_missing_asked_once_more() -> None:
    async def script(scene: Scene) -> None:
        scene.quorum.missed("n2")
        scene.quorum.missed("n3")
        assert not await scene.quorum.look()
        scene.rpc.up = {"n2"}
        await scene.until(lambda: not scene.quorum.is_lost)
        assert await scene.quorum.look()

    play(script)


def test_a_candidate_less_may_be_enough() -> None:
    async def script(scene: Scene) -> None:
        scene.quorum.missed("n2")
        scene.quorum.missed("n3")
        scene.others = OTHERS[:1]  # n3 is offline now: of two candidates one is enough
        await scene.until(lambda: not scene.quorum.is_lost)

    assert play(script).heard == [True, False]
