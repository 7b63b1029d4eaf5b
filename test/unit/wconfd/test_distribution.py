"""When a change counts as sent to the nodes, by deliveries that the test makes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
from fakes.large_config import MASTER, large_config_bytes

from ganeti.base.paths import Paths
from ganeti.clients import couriers
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.couriers import Courier, Delivery
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


def test_a_change_is_sent_once_the_last_node_has_its_simple_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "PATIENCE_S", NEVER)
    monkeypatch.setattr(couriers, "PATIENCE_S", NEVER)
    paths = Paths(str(tmp_path))
    files.ensure_directory(paths.data_dir)
    files.ensure_directory(paths.livelock_dir)
    files.ensure_directory(paths.lock_dir)
    write_config(paths, large_config_bytes(1, 3, 2))
    keeper = Keeper(paths, main.read_files(paths))

    async def run(tasks: asyncio.TaskGroup) -> None:
        may_arrive, has_begun = asyncio.Event(), asyncio.Event()
        delivered: list[str] = []

        async def deliver(courier: Courier, versions: Versions) -> Delivery:
            if courier.name == OTHER:
                await may_arrive.wait()
            delivered.append(courier.name)
            has_begun.set()
            return Delivery(versions)

        def spawn(work: Coroutine[Any, Any, None], name: str) -> None:
            tasks.create_task(work, name=name)

        rpc = cast("AsyncNodeRpcClient", None)
        distributor = Distributor(keeper, rpc, MASTER, spawn, None)
        monkeypatch.setattr(distributor, "deliver", deliver)
        writing = tasks.create_task(keeper.committer.run())
        await keeper.change(lambda change: changes.add_tags(change, "cluster", "", ["x"]))
        flush = tasks.create_task(distributor.flush(None))
        await has_begun.wait()
        await asyncio.sleep(0.01)
        assert not flush.done()
        may_arrive.set()
        async with asyncio.timeout(60):
            await flush
        assert delivered[-1] == OTHER
        writing.cancel()

    async def play() -> None:
        async with asyncio.TaskGroup() as tasks:
            await run(tasks)

    asyncio.run(play())
    keeper.close()
