"""A node dies, and the maintenance daemon is killed at random moments while it acts on that.

Five virtual nodes and a real etcd, in which the proof stands as an agent would write it.  Every
instance of the dead node runs once afterwards, and no job was submitted twice.

``GANETI_TEST_SEED`` plays the same damage again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from fakes.chance import seed
from fakes.failing_cluster import FailingCluster, failing_cluster
from fakes.waiting import wait_until
from rig import etcd
from rig.etcd import Member

from ganeti.availability.records import ACTING, LOSSES, MASTER_KEY, Loss, Mastership, Pause, Proof
from ganeti.base.errors import GenericError
from ganeti.base.json import dumps
from ganeti.clients.etcd import Delete, EtcdClient, Put
from ganeti.store.availability import State, write_state
from ganeti.system import clock, daemon_control, process

pytestmark = pytest.mark.skipif(not etcd.is_there(), reason="needs etcd")

MAINTD = "ganeti-maintd"
KILLS = int(os.environ.get("GANETI_TEST_KILLS", "10"))
SEED = seed()
DEADLINE_S = 180.0
KILL_S_MAX = 13.0  # it waits for ten seconds after each start
PREFIX = "/ganeti/kills/"
NEW = "--no-name-check --no-ip-check -o test -B memory=16 --disk 0:size=8m -t sharedfile"
GUESTS = [f"i{number}.example.com" for number in range(5)]
NEVER = GUESTS[4]


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Sequence[Member]]:
    with etcd.members(tmp_path) as found:
        yield found


@pytest.fixture
def five(members: Sequence[Member]) -> Iterator[FailingCluster]:
    """Five nodes, of which the last one has all guests, and high availability for maintd."""
    with failing_cluster(5, without=("ganeti-rapi", "ganeti-ha")) as made:
        jobs = [made.submit(f"instance add {NEW} -n {made.nodes[4]} {name}") for name in GUESTS]
        for job in jobs:
            made.gnt(f"job wait {job}")
        made.gnt(f"instance add-tags {GUESTS[3]} ha:priority:5")
        made.gnt(f"instance add-tags {NEVER} ha:priority:never")
        settings = {"endpoints": [member.url for member in members], "prefix": PREFIX}
        now_s = clock.monotonic()
        state = State(time=now_s, master_until=now_s + 3600, holder=made.master)
        write_state(made.paths, state)
        Path(made.paths.high_availability).write_text(json.dumps(settings))
        yield made


def change(members: Sequence[Member], *changes: Put | Delete) -> None:
    async def whole() -> None:
        async with EtcdClient([m.url for m in members], None, PREFIX, 10.0) as client:
            assert await client.change([], *changes)

    asyncio.run(whole())


def keys(members: Sequence[Member]) -> set[str]:
    async def whole() -> set[str]:
        async with EtcdClient([m.url for m in members], None, PREFIX, 10.0) as client:
            return set((await client.read()).entries)

    with contextlib.suppress(GenericError):
        return asyncio.run(whole())
    return {"etcd does not answer"}


def kill(cluster: FailingCluster) -> None:
    """Kill the daemon, and start it anew as the watcher does."""
    pid = daemon_control.running_pid(cluster.paths, MAINTD)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        assert process.wait_gone(pid, DEADLINE_S)
    daemon_control.start_daemon(cluster.paths, MAINTD, hostname=cluster.master)


def jobs_of_losses(cluster: FailingCluster) -> Counter[tuple[str, str]]:
    """Return how many jobs each thing to do for a loss had, by kind and name."""
    done: Counter[tuple[str, str]] = Counter()
    with cluster.luxi() as luxi:
        for ops, status in luxi.query_jobs(None, ["ops", "status"]):
            for op in ops:
                if any(source == "gnt:daemon:maintd" for source, _, _ in op["reason"]):
                    done[op["OP_ID"], op.get("instance_name") or op["node_name"]] += 1
                    assert status in ("success", "queued", "waiting", "running"), (SEED, op)
    return done


def places(cluster: FailingCluster) -> dict[str, tuple[str, str]]:
    lines = cluster.gnt("instance list --no-headers --separator=: -o name,pnode,status").lines
    return {line.split(":")[0]: (line.split(":")[1], line.split(":")[2].strip()) for line in lines}


def test_killed_anywhere_it_starts_everything_once(
    five: FailingCluster, members: Sequence[Member]
) -> None:
    chance = random.Random(SEED)
    dead = five.nodes[4]
    five.kill_node(dead)
    own = Mastership(node=five.master, boot_id="own")
    loss = Loss(uuid="boot@9", node=dead, boot_id="boot", proof=Proof.WATCHDOG, by=five.master)
    pause = Pause(until=clock.now() + 3600, by="somebody", why="a test")
    was = Mastership(node=dead, boot_id="boot")
    change(
        members,
        Put(MASTER_KEY, dumps(own.to_wire())),
        Put(LOSSES + dead, dumps(loss.to_wire())),
        Put(ACTING + dead, dumps(was.to_wire())),
        Put("pause", dumps(pause.to_wire())),
    )
    log = Path(five.paths.log_file(MAINTD))
    wait_until(
        lambda: f"{dead} waits: high availability is paused by somebody: a test" in log.read_text(),
        "the pause",
        timeout_s=DEADLINE_S,
    )
    assert not jobs_of_losses(five)
    change(members, Delete("pause"))
    for _ in range(KILLS):
        time.sleep(chance.uniform(0, KILL_S_MAX))  # that is the damage, not a wait
        kill(five)
    wait_until(
        lambda: not any(key.startswith(LOSSES) for key in keys(members)),
        f"the end of the loss, seed {SEED}: {jobs_of_losses(five)}, {log.read_text()[-3000:]}",
        timeout_s=DEADLINE_S,
        step_s=0.5,
    )
    found = places(five)
    assert found.pop(NEVER)[0] == dead
    assert {status for _, status in found.values()} == {"running"}
    assert dead not in {node for node, _ in found.values()}
    wanted = {("OP_INSTANCE_FAILOVER", name): 1 for name in GUESTS[:4]}
    assert jobs_of_losses(five) == {**wanted, ("OP_NODE_SET_PARAMS", dead): 1}
    assert five.gnt(f"node list --no-headers -o role {dead}").out.strip() == "O"
