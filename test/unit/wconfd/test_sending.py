"""How a node is sent the newest configuration."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ganeti.base.paths import Paths
from ganeti.clients import master_poll
from ganeti.clients.async_node_rpc import AsyncNodeRpcClient
from ganeti.clients.couriers import Courier
from ganeti.clients.node_rpc import RpcResult, Target
from ganeti.copies.node import NodeCopies
from ganeti.jobs.votes import Answer
from ganeti.protocol.node_rpc_values import ConfigVersion, NodeFacts
from ganeti.system import files
from ganeti.wconfd.copies.sending import CONFIG, Sender
from ganeti.wconfd.keeper import Keeper


class Cluster:
    """A configuration that changes, and a node that takes all that it is sent."""

    def __init__(self, directory: Path) -> None:
        paths = Paths(str(directory))
        files.ensure_directory(paths.data_dir)
        Path(paths.config_data).write_text("{}")
        self.keeper = SimpleNamespace(paths=paths)
        self.calls: list[str] = []
        self.courier = Courier(Target("node2", "127.0.0.2", offline=False), NodeCopies(trips_max=1))
        self.sender = Sender(cast("Keeper", self.keeper), cast("AsyncNodeRpcClient", self))
        self.change_to(1)

    def change_to(self, serial_no: int) -> None:
        pieces = [b'{"serial_no":', str(serial_no).encode(), b"}"]
        version = ConfigVersion(serial_no, 1.5)
        self.keeper.state = SimpleNamespace(serial_no=serial_no, version=version, pieces=pieces)

    async def call_one(self, method: Any, target: Target, *_args: object) -> RpcResult[Any]:
        self.calls.append(method.__name__)
        return RpcResult(target.name, payload=True)

    async def send(self) -> int:
        sent = await self.sender.send_file(self.courier, None)
        assert sent.error is None
        self.courier.copies.has[CONFIG] = sent.serial_no
        return sent.serial_no


def test_a_change_during_the_first_question_does_not_send_the_file_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)

    async def ask(*_args: object) -> Answer:
        cluster.change_to(2)
        return Answer("node2", NodeFacts(master_name="node1", patches_config=True))

    monkeypatch.setattr(master_poll, "ask_one", ask)

    async def scene() -> None:
        assert await cluster.send() == 2
        cluster.change_to(3)
        assert await cluster.send() == 3

    asyncio.run(scene())
    assert cluster.calls == ["upload_file_single", "config_patch"]
