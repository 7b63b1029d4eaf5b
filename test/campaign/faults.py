"""The table of faults: each does its damage, perhaps for a while, and says in words what it did.

Whatever chance decides comes from the generator that is given: the same seed plays the same again.
Daemons that end are started again by `world.Keeper`.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from campaign.world import World, processes_named
from fakes.bad_line import BadLine
from fakes.campaign import is_running, jobs_on

from ganeti.system import daemon_control, failpoints

PORT = 1811
MASTERS = ("ganeti-luxid", "ganeti-wconfd", "ganeti-rapi")
EVERYWHERE = ("ganeti-noded", "ganeti-confd")
WRITTEN = {  # by whom
    "master": ("config.data", "locks.data", "tempres.data", "job-", "serial"),
    "other": ("config.data", "job-", "serial", "ssconf_node_list"),
}
NOT_TO_FAIL = frozenset({"after_rename", "after_fsync"})  # a disk fails before
AGE_S = 5.0


def kill(pids: Sequence[int], number: signal.Signals = signal.SIGKILL) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def stopped(pids: Sequence[int]) -> Iterator[None]:
    kill(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        kill(pids, signal.SIGCONT)


def pids_of(world: World, node: str, daemon: str) -> list[int]:
    pid = daemon_control.running_pid(world.cluster.paths_of(node), daemon)
    return [] if pid is None else [pid]


def some_daemon(world: World, chance: random.Random) -> tuple[str, str]:
    """Return a node and a daemon that runs there."""
    daemon = chance.choice([*MASTERS, *EVERYWHERE])
    return world.master if daemon in MASTERS else chance.choice(world.nodes), daemon


# Processes.


def kill_daemon(world: World, chance: random.Random) -> str:
    node, daemon = some_daemon(world, chance)
    kill(pids_of(world, node, daemon))
    return f"{daemon} of {node}"


def kill_job(world: World, chance: random.Random) -> str:
    jobs = [job for job in jobs_on(world.cluster, world.master) if is_running(job)]
    if not jobs:
        return "none runs"
    victim = chance.choice(jobs)
    kill([victim.process_id or 0])
    return f"job {victim.id}"


def kill_prepared(world: World, chance: random.Random) -> str:
    name = chance.choice(["gnt-job-nursery", "gnt-job-warm"])
    kill(processes_named(world.cluster, world.master, name))
    return name


def hang_master_daemon(world: World, chance: random.Random) -> str:
    """LuxiD and WConfD replace each other; nobody else lets them go on."""
    daemon = chance.choice(["ganeti-luxid", "ganeti-wconfd"])
    kill(pids_of(world, world.master, daemon), signal.SIGSTOP)
    return daemon


def hang_prepared(world: World, chance: random.Random) -> str:
    name = chance.choice(["gnt-job-nursery", "gnt-job-warm"])
    kill(processes_named(world.cluster, world.master, name), signal.SIGSTOP)
    return name


def pause_job(world: World, chance: random.Random) -> str:
    jobs = [job for job in jobs_on(world.cluster, world.master) if is_running(job)]
    with stopped([job.process_id or 0 for job in jobs[:1]]):
        time.sleep(chance.uniform(0.5, 2))
    return f"{len(jobs[:1])}"


def pause_node(world: World, chance: random.Random) -> str:
    """Nothing of a node goes on for a while; it is not the master."""
    node = chance.choice(world.others())
    with world.busy, stopped([each.pid for each in world.cluster.processes_of(node)]):
        time.sleep(chance.uniform(0.5, 3))
    return node


# Disks, clocks, lines.


def fail_write(world: World, chance: random.Random) -> str:
    """The next writer of a file is killed, stopped for a moment, slow or refused at some point."""
    node = chance.choice(world.nodes)
    name = chance.choice(WRITTEN["master" if node == world.master else "other"])
    point = chance.choice(failpoints.POINTS)
    actions = ["kill", "delay", *(() if point in NOT_TO_FAIL else ("enospc", "eio"))]
    rule = (point, name, chance.choice(actions))
    path = world.rule(node, *rule)
    path.touch()
    end = time.monotonic() + AGE_S
    while path.exists() and time.monotonic() < end:
        time.sleep(0.01)  # until somebody comes by
    path.unlink(missing_ok=True)
    return f"{' '.join(rule)} on {node}"


def fill_disk(world: World, chance: random.Random) -> str:
    """No process of a node may write any file for a while: each write is refused."""
    node = chance.choice(world.nodes)
    with world.busy:
        try:
            _limit_files(world, node, 0)
            time.sleep(chance.uniform(0.2, 1.5))
        finally:
            for _ in range(2):  # there may be new ones meanwhile
                _limit_files(world, node, resource.RLIM_INFINITY)
    return node


def _limit_files(world: World, node: str, size_bytes: int) -> None:
    for each in world.cluster.processes_of(node):
        with contextlib.suppress(ProcessLookupError):
            hard = resource.prlimit(each.pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(each.pid, resource.RLIMIT_FSIZE, (size_bytes, hard))


def jump_clock(world: World, chance: random.Random) -> str:
    """A node's clock is wrong for a while."""
    node, shift_s = chance.choice(world.nodes), chance.choice([-3600, -5, 5, 3600])
    path = world.rule(node, failpoints.CLOCK)
    path.write_text(f"{shift_s}")
    time.sleep(chance.uniform(0.5, 2))
    path.unlink()
    return f"{node} by {shift_s} s"


def spoil_line(world: World, chance: random.Random) -> str:
    """What goes to a node is late, or its connections are reset at random moments."""
    node = chance.choice(world.others())
    paths, address = world.cluster.paths_of(node), world.cluster.layout.address_of(node)
    delay_s, resets = chance.choice([(0.3, 0.0), (0.0, 0.3), (0.05, 0.1)])
    with world.busy:
        daemon_control.stop_daemon(paths, "ganeti-noded")
        with BadLine(address, PORT, PORT + 1, delay_s, resets, chance.randrange(1 << 30)):
            args = [f"--port={PORT + 1}"]
            daemon_control.start_daemon(paths, "ganeti-noded", args, hostname=node)
            time.sleep(chance.uniform(1, 3))
            daemon_control.stop_daemon(paths, "ganeti-noded")
    return f"{node}, {delay_s} s late, {resets:.0%} reset"


# Nodes.


def lose_node(world: World, chance: random.Random) -> str:
    node = chance.choice(world.others())
    with world.busy:
        world.cut_power(node)
    time.sleep(chance.uniform(0, 2))
    with world.busy:
        world.switch_on(node)
    return node


def lose_master(world: World, chance: random.Random) -> str:
    """The master's power is cut; another node takes over, and then it comes back."""
    old, new = world.master, chance.choice(world.others())
    with world.busy:
        world.cut_power(old)
        world.term += 1
        world.cluster.fail_over(new)
    time.sleep(chance.uniform(0, 1))
    with world.busy:
        world.switch_on(old)
        world.cluster.wait_all_follow()
    return f"{old}, {new} takes over"


def hand_over(world: World, chance: random.Random) -> str:
    new = chance.choice(world.others())
    with world.busy:
        world.mend()  # or there is nobody to finish the jobs
        world.term += 1
        world.cluster.fail_over(new)
    return f"to {new}"


@dataclass(frozen=True)
class Fault:
    """One row; rows are drawn in proportion to their weights."""

    name: str
    inflict: Callable[[World, random.Random], str]
    weight: int = 1


FAULTS = (
    Fault("a daemon is killed", kill_daemon, 4),
    Fault("a job is killed", kill_job, 3),
    Fault("prepared job processes are killed", kill_prepared),
    Fault("LuxiD or WConfD hangs", hang_master_daemon, 2),
    Fault("prepared job processes hang", hang_prepared),
    Fault("a job is paused", pause_job),
    Fault("a node is paused", pause_node, 2),
    Fault("a write fails", fail_write, 6),
    Fault("a disk is full", fill_disk, 2),
    Fault("a clock is wrong", jump_clock),
    Fault("a line is bad", spoil_line, 2),
    Fault("a node loses its power", lose_node, 2),
    Fault("the master loses its power", lose_master, 2),
    Fault("the master hands over", hand_over, 2),
)
