"""The agent of high availability as a daemon, with a real etcd."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.noded_node import free_address
from fakes.waiting import wait_until
from rig import etcd
from rig.etcd import Member

from ganeti.availability.records import (
    ACTING,
    GUARDS,
    MASTER_KEY,
    NODES,
    PAUSE_KEY,
    Guard,
    Mastership,
    Pause,
)
from ganeti.availability.timing import Timing
from ganeti.base.daemons import AGENT
from ganeti.base.errors import CommandError
from ganeti.base.json import dumps
from ganeti.base.paths import Paths
from ganeti.clients.etcd import Delete, EtcdClient, Put, Snapshot
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.machine.availability import Availability
from ganeti.protocol.node_rpc_values import CompressedText
from ganeti.store import availability, ssconf
from ganeti.store.availability import Settings, State
from ganeti.system import clock, daemon_control, files
from ganeti.system.filelock import PidFile

pytestmark = pytest.mark.skipif(not etcd.is_there(), reason="needs etcd")

NAME = "node1.example.com"
PREFIX = "/ganeti/daemon/"


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Member]]:
    with etcd.members(tmp_path_factory.mktemp("etcd"), 1) as members:
        yield members


@pytest.fixture
def paths(members: Sequence[Member]) -> Iterator[Paths]:
    """A node that is the only candidate of its cluster; its daemon is stopped at the end."""
    base = tempfile.mkdtemp(prefix="gnt")  # the paths of sockets are short
    paths = Paths(f"{base}/{NAME}")
    for directory in (paths.data_dir, paths.lock_dir, os.path.dirname(paths.etc_hosts)):
        os.makedirs(directory)
    address = free_address()
    Path(paths.etc_hosts).write_text(f"{address} {NAME}\n")
    files.write_atomic(paths.hmac_key, b"key\n")
    values = {
        "master_candidates": NAME,
        "master_node": NAME,
        "node_primary_ips": f"{NAME} {address}",
        "offline_nodes": "",
    }
    ssconf.write_values(paths, values)
    settings = Settings(endpoints=[each.url for each in members], prefix=PREFIX, watchdog="")
    files.write_atomic(paths.high_availability, dumps(settings))
    yield paths
    daemon_control.stop_daemon(paths, AGENT)
    shutil.rmtree(base)


def shelf(members: Sequence[Member]) -> Snapshot:
    async def ask() -> Snapshot:
        async with EtcdClient([each.url for each in members], None, PREFIX, 10.0) as client:
            return await client.read()

    return asyncio.run(ask())


def change(members: Sequence[Member], *changes: Put | Delete) -> None:
    async def ask() -> None:
        async with EtcdClient([each.url for each in members], None, PREFIX, 10.0) as client:
            await client.change([], *changes)

    asyncio.run(ask())


def is_told_master(paths: Paths) -> bool:
    state = availability.read_state(paths)
    return state is not None and state.is_master(clock.monotonic())


def locked_kib(pid: int) -> int:
    [line] = [
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmLck:")
    ]
    return int(line.split()[1])


def test_a_node_is_present_while_the_daemon_runs_and_leaves_in_order(
    paths: Paths, members: Sequence[Member]
) -> None:
    assert daemon_control.start_daemon(paths, AGENT, hostname=NAME)
    wait_until(lambda: NODES + NAME in shelf(members).entries, "the node")
    wait_until(lambda: availability.read_state(paths) is not None, "its state")
    pid = daemon_control.running_pid(paths, AGENT)
    assert pid is not None
    log = Path(paths.log_file(AGENT))
    assert locked_kib(pid) > 0 or "memory is not locked" in log.read_text()
    assert daemon_control.stop_daemon(paths, AGENT)
    left = shelf(members)
    guard = left.one(GUARDS + NAME, Guard)
    assert guard is not None
    assert guard.has_left
    assert NODES + NAME not in left.entries
    assert left.one(MASTER_KEY, Mastership) is None
    state = availability.read_state(paths)
    assert state is not None
    assert not state.is_master(clock.monotonic())
    assert log.read_text().rstrip().endswith("Stopped")


@pytest.mark.parametrize("ends", [True, False])
def test_an_agent_that_stops_lets_the_master_end_first(
    paths: Paths, members: Sequence[Member], ends: bool
) -> None:
    """One command stops the whole node; a mark that stayed would hold up restarts elsewhere."""
    os.makedirs(os.path.dirname(paths.pid_file("ganeti-luxid")), exist_ok=True)
    with PidFile(paths.pid_file("ganeti-luxid")) as master:
        master.acquire()
        daemon_control.start_daemon(paths, AGENT, hostname=NAME)
        wait_until(lambda: is_told_master(paths), "its agent knows that it is the master")
        files.write_atomic(paths.high_availability, b"damaged")
        assert daemon_control.stop_daemon(paths, AGENT, waits=False)
        if ends:
            master.release()
        wait_until(lambda: daemon_control.running_pid(paths, AGENT) is None, "its end")
    left = shelf(members)
    assert (left.one(ACTING + NAME, Mastership) is None) is ends
    assert left.one(MASTER_KEY, Mastership) is None
    text = Path(paths.log_file(AGENT)).read_text()
    assert ("run on here without this agent" in text) is not ends
    assert "begins to take over" not in text
    change(members, Delete(ACTING + NAME))


def test_an_agent_that_is_switched_off_with_etcd_gone_ends_at_once(
    paths: Paths, members: Sequence[Member]
) -> None:
    daemon_control.start_daemon(paths, AGENT, hostname=NAME)
    wait_until(lambda: NODES + NAME in shelf(members).entries, "the node")
    members[0].hang()
    try:
        Availability(NodeContext(paths, NAME, "ha_stop", "test")).ha_stop("")
        assert daemon_control.running_pid(paths, AGENT) is None
    finally:
        members[0].go_on()
    text = Path(paths.log_file(AGENT)).read_text()
    assert "Left without telling etcd: etcd does not answer" in text
    assert text.rstrip().endswith("Stopped")


def test_stopped_after_the_others_it_ends_at_once_if_all_is_paused(
    paths: Paths, members: Sequence[Member]
) -> None:
    pause = Pause(until=clock.now() + 600, by="root@a", why="new power")
    change(members, Put(PAUSE_KEY, dumps(pause.to_wire())))
    daemon_control.start_daemon(paths, AGENT, hostname=NAME)
    wait_until(lambda: NODES + NAME in shelf(members).entries, "the node")
    members[0].hang()
    try:
        assert daemon_control.stop_daemon(paths, AGENT)
    finally:
        members[0].go_on()
        change(members, Delete(PAUSE_KEY))
    text = Path(paths.log_file(AGENT)).read_text()
    assert "Left without telling etcd: etcd does not answer" in text
    assert text.rstrip().endswith("Stopped")


def test_a_disk_that_takes_no_log_keeps_nobody_from_feeding(
    paths: Paths, members: Sequence[Member]
) -> None:
    log = paths.log_file(AGENT)
    os.makedirs(os.path.dirname(log), exist_ok=True)
    os.mkfifo(log)  # what is written to a full one waits, as on a disk that hangs
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    daemon_control.start_daemon(paths, AGENT, hostname=NAME)
    wait_until(lambda: NODES + NAME in shelf(members).entries, "the node")
    filler = os.open(log, os.O_WRONLY | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(filler, b"x")

    def state() -> State:
        return availability.read_state(paths) or State(time=0.0)

    members[0].hang()
    try:
        wait_until(lambda: state().etcd, "it misses etcd, and logs that")
        seen_s = state().time
        wait_until(lambda: state().time > seen_s, "it goes on")
    finally:
        members[0].go_on()
    wait_until(lambda: not state().etcd, "etcd answers again")
    os.read(reader, 1 << 20)
    assert daemon_control.stop_daemon(paths, AGENT)
    assert b"Etcd answers again" in os.read(reader, 1 << 20)
    os.close(filler)
    os.close(reader)


def test_other_settings_are_taken_up_without_a_new_start(
    paths: Paths, members: Sequence[Member]
) -> None:
    settings = availability.read(paths)
    assert settings is not None

    def start(**more: Any) -> int | None:
        text = dumps(msgspec.structs.replace(settings, **more))
        node = Availability(NodeContext(paths, NAME, "ha_start", "test"))
        node.ha_start(CompressedText(text), CompressedText(b""), CompressedText(b""))
        assert node.ha_report()["taken"] == availability.digest(text)
        return daemon_control.running_pid(paths, AGENT)

    pid = start()
    wait_until(lambda: shelf(members).one(MASTER_KEY, Mastership) is None, "no master yet")
    assert pid == start(timing=Timing(lease_s=6.0), helpers={NAME: "/bin/false"})
    guard = shelf(members).one(GUARDS + NAME, Guard)
    assert guard is not None
    assert guard.dead_after_s == Timing(lease_s=6.0).dead_after_s


def test_without_settings_it_says_how_to_switch_it_on(paths: Paths) -> None:
    os.unlink(paths.high_availability)
    with pytest.raises(CommandError, match="gnt-cluster ha-enable"):
        daemon_control.start_daemon(paths, AGENT, hostname=NAME)
