"""When a change counts as sent to the nodes, by deliveries that the test makes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
from fakes.large_config import MASTER, large_config_bytes, uuid_of

from ganeti.base.paths import Paths
from ganeti.clients import couriers
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.couriers import Courier, Delivery, NodeSilentError
from ganeti.config import changes
from ganeti.copies import node
from ganeti.copies.node import Versions
from ganeti.store.config_file import write_config
from ganeti.system import files
from ganeti.wconfd import main
from ganeti.wconfd.copies.distribution import Distributor
from ganeti.wconfd.keeper import Keeper

NEVER = 3600.0
OTHER = "node3.example.com"  # node2 is a candidate


Scene = Callable[[Distributor, Keeper], Coroutine[Any, Any, None]]


def play(tmp_path: Path, scene: Scene) -> None:
    """Play that with a WConfD of three nodes, which writes."""
    paths = Paths(str(tmp_path))
    files.ensure_directory(paths.data_dir)
    files.ensure_directory(paths.livelock_dir)
    files.ensure_directory(paths.lock_dir)
    write_config(paths, large_config_bytes(1, 3, 2))
    keeper = Keeper(paths, main.read_files(paths))

    async def run() -> None:
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:

            def spawn(work: Coroutine[Any, Any, None], name: str) -> None:
                tasks.create_task(work, name=name)

            rpc = cast("AsyncNodeRpcClient", None)
            distributor = Distributor(keeper, rpc, MASTER, spawn, None)
            writing = tasks.create_task(keeper.committer.run())
            await scene(distributor, keeper)
            writing.cancel()

    asyncio.run(run())
    keeper.close()


def test_a_change_is_sent_once_the_last_node_has_its_simple_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "PATIENCE_S", NEVER)
    monkeypatch.setattr(couriers, "PATIENCE_S", NEVER)

    async def scene(distributor: Distributor, keeper: Keeper) -> None:
        may_arrive, has_begun = asyncio.Event(), asyncio.Event()
        delivered: list[str] = []

        async def deliver(courier: Courier, versions: Versions) -> Delivery:
            if courier.name == OTHER:
                await may_arrive.wait()
            delivered.append(courier.name)
            has_begun.set()
            return Delivery(versions)

        monkeypatch.setattr(distributor, "deliver", deliver)
        await keeper.change(lambda change: changes.add_tags(change, "cluster", "", ["x"]))
        flush = asyncio.create_task(distributor.flush(None))
        await has_begun.wait()
        await asyncio.sleep(0.01)
        assert not flush.done()
        may_arrive.set()
        await flush
        assert delivered[-1] == OTHER

    play(tmp_path, scene)


def test_a_node_of_the_group_that_was_silent_is_tried_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have come back only now, and rests for a while after each failure."""
    monkeypatch.setattr(node, "RETRY_DELAYS_S", (NEVER,))

    async def scene(distributor: Distributor, keeper: Keeper) -> None:
        silent, is_told = {OTHER}, asyncio.Event()

        async def deliver(courier: Courier, versions: Versions) -> Delivery:
            if courier.name in silent:
                is_told.set()
                raise NodeSilentError("connection refused")
            return Delivery(versions)

        async def greet(courier: Courier) -> str | None:
            return "connection refused" if courier.name in silent else None

        def failed() -> list[object]:
            return [row["node"] for row in distributor.status() if row["error"]]

        for courier in distributor._couriers:
            courier.copies.silent_delay_s_max = NEVER
        monkeypatch.setattr(distributor, "deliver", deliver)
        monkeypatch.setattr(distributor, "greet", greet)
        await keeper.change(lambda change: changes.add_tags(change, "cluster", "", ["x"]))
        await is_told.wait()
        await distributor.flush(uuid_of("group", 0))
        assert failed() == [OTHER]
        silent.clear()
        await distributor.flush(uuid_of("group", 1))
        assert failed() == [OTHER]
        await distributor.flush(uuid_of("group", 0))
        assert failed() == []

    play(tmp_path, scene)
