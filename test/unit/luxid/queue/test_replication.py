"""Copies of the queue on a candidate that is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.nodes_in_place import NodesInPlace

from ganeti.base.ids import JobId
from ganeti.base.paths import Paths
from ganeti.clients.node_rpc import RpcResult, Target
from ganeti.jobs import changes
from ganeti.jobs.merging import digest
from ganeti.jobs.record import encode_job
from ganeti.jobs.submission import make_job
from ganeti.luxid.queue.known_jobs import KnownJobs
from ganeti.luxid.queue.replication import Replication
from ganeti.luxid.tasks import Tasks
from ganeti.store import ssconf
from ganeti.store.job_files import JobFiles

DEADLINE_S = 60
JOB = make_job(JobId(7), [{"OP_ID": "OP_TEST_DELAY"}], (1, 1))
ENDED = changes.canceled(JOB, "ended", (2, 2))


class World:
    """The master n1, and n2, the other candidate; `called` are the calls that it gets."""

    def __init__(self, group: asyncio.TaskGroup, base: Path) -> None:
        self.paths, theirs = Paths(str(base / "n1")), Paths(str(base / "n2"))
        self.here, self.there = JobFiles(self.paths), JobFiles(theirs)
        for paths, files in ((self.paths, self.here), (theirs, self.there)):
            for directory in (paths.data_dir, paths.lock_dir):
                Path(directory).mkdir(parents=True)
            files.prepare()
        candidates = {"n1": "192.0.2.1", "n2": "192.0.2.2"}
        values = {
            "master_candidates": "\n".join(candidates),
            "master_candidates_ips": "\n".join(candidates.values()),
            "node_primary_ips": "\n".join(f"{n} {ip}" for n, ip in candidates.items()),
            "offline_nodes": "",
        }
        ssconf.write_values(self.paths, values)
        self.called: list[str] = []
        self._nodes = NodesInPlace({"n2": theirs})
        self.tasks = Tasks(group)
        rpc: Any = self
        self.replication = Replication(
            self.paths,
            "n1",
            rpc,
            self.tasks,
            KnownJobs(),
            on_quorum=lambda _is_lost: None,
            on_refused=lambda: None,
            confirm=confirmed,
            pass_over=lambda _job_id: None,
        )
        self.replication.names()
        for courier in self.replication._couriers:
            courier.is_known = True

    async def call_one(self, method: Any, target: Target, *args: Any) -> RpcResult[Any]:
        self.called.append(method.__name__)
        await asyncio.sleep(0)
        result: RpcResult[Any] = self._nodes.call_one(method, target, *args)
        return result

    async def save(self, path: str, data: bytes) -> None:
        def write() -> None:
            Path(path).write_bytes(data)

        await self.replication.write(path, data, write, wait_for_all=True)


async def confirmed() -> bool:
    """This node is the master."""
    return True


async def until(is_done: Callable[[], bool]) -> None:
    while not is_done():  # noqa: ASYNC110 - files on a disk wake nobody
        await asyncio.sleep(0.001)


def play(base: Path, act: Callable[[World], Awaitable[None]]) -> World:
    async def run() -> World:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as group:
            world = World(group, base)
            await act(world)
            world.tasks.cancel()
        return world

    return asyncio.run(run())


def test_a_job_is_archived_on_a_candidate_with_the_end_that_had_not_left_yet(
    tmp_path: Path,
) -> None:
    async def act(world: World) -> None:
        path = world.paths.job_file(JOB.id)
        await world.save(path, encode_job(JOB))
        assert world.there.read(JOB.id) == encode_job(JOB)
        world.here.write_durable(JOB.id, encode_job(ENDED))
        world.replication.spread(path, encode_job(ENDED))
        world.here.archive(JOB.id)
        await world.replication.archive([JOB.id])

    world = play(tmp_path, act)
    assert world.there.read_archived(JOB.id) == encode_job(ENDED)
    assert world.called == ["jobqueue_update", "jobqueue_update", "jobqueue_rename"]


def test_a_candidate_that_has_the_end_is_only_told_to_archive_it(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        await world.save(world.paths.job_file(JOB.id), encode_job(ENDED))
        world.here.archive(JOB.id)
        await world.replication.archive([JOB.id])

    world = play(tmp_path, act)
    assert world.there.read_archived(JOB.id) == encode_job(ENDED)
    assert world.called == ["jobqueue_update", "jobqueue_rename"]


@pytest.mark.parametrize("is_kept", [True, False])
def test_what_a_process_gave_up_waiting_for_is_no_candidates_last_version(
    tmp_path: Path, is_kept: bool
) -> None:
    """LuxiD stood still meanwhile: it sends what it still had, after the end that is there."""
    running = encode_job(changes.op_waiting(JOB, 0, (1, 5)))

    async def act(world: World) -> None:
        path = world.paths.job_file(JOB.id)
        await world.save(path, encode_job(JOB))
        for files in (world.here, world.there):
            files.write_durable(JOB.id, encode_job(ENDED))  # by the process itself
        world.replication.spread(path, running)
        if not is_kept:
            await until(lambda: world.there.read(JOB.id) == running)
        world.replication.settle(path, (), digest(running))
        await until(lambda: len(world.called) == 3 - is_kept)

    world = play(tmp_path, act)
    assert world.there.read(JOB.id) == encode_job(ENDED)


def test_an_end_that_went_the_usual_way_is_not_sent_again(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        path = world.paths.job_file(JOB.id)
        await world.replication.bring(path, encode_job(ENDED), 0.0)
        world.here.write_durable(JOB.id, encode_job(ENDED))
        world.replication.settle(path, (), digest(encode_job(ENDED)))
        await asyncio.sleep(0.01)

    assert play(tmp_path, act).called == ["jobqueue_update"]
