"""What the keeper answers when the files behind it cannot all be written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from fakes.large_config import disk, instance, large_config_bytes, uuid_of

from ganeti.base.errors import GenericError
from ganeti.base.paths import Paths
from ganeti.config import changes
from ganeti.config.instances import create_instance
from ganeti.config.transaction import Transaction
from ganeti.protocol.wconfd import ClientId
from ganeti.store.config_file import write_config
from ganeti.system import files
from ganeti.wconfd.keeper import Keeper
from ganeti.wconfd.main import read_files

NODE = uuid_of("node", 1)
OWNER = ClientId(7, "/var/run/ganeti/livelocks/job_000007_1", 1)


def play(directory: Path, scene: Callable[[Keeper], Awaitable[None]]) -> Keeper:
    """Run a scene with a keeper of a small configuration."""
    paths = Paths(str(directory))
    files.ensure_directory(paths.data_dir)
    write_config(paths, large_config_bytes(1))
    keeper = Keeper(paths, read_files(paths))

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(keeper.committer.run())
            await scene(keeper)
            writing.cancel()

    asyncio.run(run())
    keeper.close()
    return keeper


def add_instance(transaction: Transaction) -> None:
    one = disk(5, NODE)
    create_instance(transaction, {**instance(5, NODE, [one["uuid"]]), "network_port": 11000}, [one])


def test_a_durable_change_succeeds_though_its_reservations_cannot_be_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_space() -> None:
        raise GenericError("cannot write")

    async def scene(keeper: Keeper) -> None:
        assert keeper.reservations.allocate_port(keeper.state.head, OWNER) == 11000
        monkeypatch.setattr(keeper, "save_reservations", no_space)
        await keeper.change(add_instance)

    keeper = play(tmp_path, scene)
    assert keeper.durable.resolve("instances", "inst5") == uuid_of("instance", 5)


def test_ports_given_back_wait_for_a_change_that_succeeds(tmp_path: Path) -> None:
    async def scene(keeper: Keeper) -> None:
        for port in (11000, 11001):
            assert keeper.reservations.allocate_port(keeper.state.head, OWNER) == port
        keeper.reservations.release_port(OWNER, 11000)
        await keeper.change(lambda change: changes.modify(change, "cluster", "", {}))
        with pytest.raises(GenericError):
            await keeper.change(
                lambda change: changes.modify(change, "cluster", "", {"mac_prefix": "zz"})
            )
        assert keeper.reservations.dropped_ports == {11000}
        highest = {"highest_used_port": 11001}
        await keeper.change(lambda change: changes.modify(change, "cluster", "", highest))
        assert keeper.reservations.dropped_ports == set()

    assert play(tmp_path, scene).durable.cluster.tcpudp_port_pool == [11000]
