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
from fakes.waiting import wait_until

from ganeti.system import daemon_control, failpoints

PORT = 1811
PARTNERS = ("ganeti-luxid", "ganeti-wconfd")  # replace each other
MASTERS = (*PARTNERS, "ganeti-rapi", "ganeti-maintd")
EVERYWHERE = ("ganeti-noded", "ganeti-confd", "ganeti-mond")
PREPARED = ("gnt-job-nursery", "gnt-job-warm")
OF_NODED = ("noded-helper", "noded-spare", "noded-call")
WRITTEN = {  # by whom
    "master": (
        *("config.data", "locks.data", "tempres.data", "job-", "serial"),
        *("ssconf_instance_list", "ssconf_cluster_tags"),
    ),
    "other": ("config.data", "job-", "serial", "ssconf_node_list"),
}
JOURNAL = "config.journal"
NOT_TO_FAIL = frozenset({"after_rename", "after_fsync"})  # a disk fails before
AGE_S = 5.0
SILENT_S = 3600.0


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
    name = chance.choice(PREPARED)
    kill(processes_named(world.cluster, world.master, name))
    return name


def hang_master_daemon(world: World, chance: random.Random) -> str:
    """LuxiD and WConfD replace each other, NodeD both; nobody lets them go on."""
    daemons = chance.choice([PARTNERS[:1], PARTNERS[1:], PARTNERS])
    for daemon in daemons:
        kill(pids_of(world, world.master, daemon), signal.SIGSTOP)
    return " and ".join(daemons)


def pause_daemon(world: World, chance: random.Random) -> str:
    """A daemon that nobody replaces within seconds stands still for a while."""
    daemon = chance.choice([each for each in (*MASTERS, *EVERYWHERE) if each not in PARTNERS])
    node = world.master if daemon in MASTERS else chance.choice(world.nodes)
    with stopped(pids_of(world, node, daemon)):
        time.sleep(chance.uniform(0.5, 4))
    return f"{daemon} of {node}"


def hang_prepared(world: World, chance: random.Random) -> str:
    name = chance.choice(PREPARED)
    kill(processes_named(world.cluster, world.master, name), signal.SIGSTOP)
    return name


def kill_of_noded(world: World, chance: random.Random) -> str:
    """Processes that carry out the calls of a node, or wait for that, are killed."""
    node, name = chance.choice(world.nodes), chance.choice(OF_NODED)
    kill(processes_named(world.cluster, node, name))
    return f"{name} of {node}"


def hang_of_noded(world: World, chance: random.Random) -> str:
    """NodeD replaces what hangs and has not begun; what is at work goes on after a while."""
    node, name = chance.choice(world.nodes), chance.choice(OF_NODED)
    pids = processes_named(world.cluster, node, name)
    if name == "noded-call":
        with stopped(pids):
            time.sleep(chance.uniform(0.5, 3))
    else:
        kill(pids, signal.SIGSTOP)
    return f"{name} of {node}"


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


def pause_master(world: World, chance: random.Random) -> str:
    """Nothing of the master goes on for a while, and nobody else takes over."""
    node = world.master
    with world.busy, stopped([each.pid for each in world.cluster.processes_of(node)]):
        time.sleep(chance.uniform(0.5, 4))
    return node


# Disks, clocks, lines.


def fail_write(world: World, chance: random.Random) -> str:
    """The next writer of a file is killed, stopped for a moment, slow or refused at some point."""
    node = chance.choice(world.nodes)
    names = WRITTEN["master" if node == world.master else "other"]
    name = chance.choice([*names, *([JOURNAL, JOURNAL] if world.journal else [])])
    point = chance.choice(failpoints.POINTS)
    actions = ["kill", "stop", "delay", *(() if point in NOT_TO_FAIL else ("enospc", "eio"))]
    rule = (point, name, chance.choice(actions))
    path = world.rule(node, *rule)
    path.touch()
    end = time.monotonic() + AGE_S
    while path.exists() and time.monotonic() < end:
        time.sleep(0.01)  # until somebody comes by
    path.unlink(missing_ok=True)
    if "stop" in rule:
        time.sleep(chance.uniform(0.2, 5))
        kill([each.pid for each in world.cluster.processes_of(node)], signal.SIGCONT)
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
    """What goes to a node is late or lost, or its connections are reset at random moments."""
    node = chance.choice(world.others())
    paths, address = world.cluster.paths_of(node), world.cluster.layout.address_of(node)
    delay_s, resets = chance.choice([(0.3, 0.0), (0.0, 0.3), (0.05, 0.1), (SILENT_S, 0.0)])
    with world.busy:
        daemon_control.stop_daemon(paths, "ganeti-noded")
        with BadLine(address, PORT, PORT + 1, delay_s, resets, chance.randrange(1 << 30)):
            args = [f"--port={PORT + 1}"]
            daemon_control.start_daemon(paths, "ganeti-noded", args, hostname=node)
            time.sleep(chance.uniform(1, 3))
            daemon_control.stop_daemon(paths, "ganeti-noded")
    return f"{node}, {delay_s:g} s late, {resets:.0%} reset"


def let_lie(world: World, chance: random.Random) -> str:
    """A node says that it is the master, of a configuration of its own, while the master starts."""
    liar, newer_by = chance.choice(world.others()), chance.choice([50_000, -1])
    with world.busy:
        world.cluster.let_lie(liar, named=liar, newer_by=newer_by)
        for daemon in PARTNERS:
            kill(pids_of(world, world.master, daemon))
    world.wait_works()
    for state in ("yes", "no"):  # as an operator does, who has repaired the node meanwhile
        world.run_job(
            [
                {
                    "OP_ID": "OP_NODE_SET_PARAMS",
                    "node_name": liar,
                    "offline": state == "yes",
                    "force": True,
                }
            ]
        )
    return f"{liar}, {newer_by:+} versions"


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
        told = world.fail_over(new)
    time.sleep(chance.uniform(0, 1))
    with world.busy:
        world.switch_on(old)
        world.cluster.wait_all_follow()
    return f"{old}, {told}"


def replace_paused_master(world: World, chance: random.Random) -> str:
    """The master stands still, another node takes over, and then the old one goes on: two live."""
    old, new = world.master, chance.choice(world.others())
    with world.busy, stopped([each.pid for each in world.cluster.processes_of(old)]):
        told = world.fail_over(new)
    wait_until(lambda: not world.cluster.running(old), f"{old} ends its daemons")
    world.cluster.wait_all_follow()
    return f"{old}, {told}"


def fail_over_twice(world: World, chance: random.Random) -> str:
    """The master's power is cut, and two operators fail over to two nodes at once."""
    old, both = world.master, chance.sample(world.others(), 2)
    with world.busy:
        world.cut_power(old)
        winner = world.fail_over_to_one_of(both)
        world.switch_on(old)
        world.cluster.wait_all_follow()
    return f"{old}, of {' and '.join(both)} {winner} takes over"


def hand_over(world: World, chance: random.Random) -> str:
    new = chance.choice(world.others())
    with world.busy:
        world.mend()  # or there is nobody to finish the jobs
        return world.fail_over(new)


@dataclass(frozen=True)
class Fault:
    """One row; rows are drawn in proportion to their weights.

    Attributes:
        is_quick: it does not wait for anything, and may come right after another one.
    """

    name: str
    inflict: Callable[[World, random.Random], str]
    weight: int = 1
    is_quick: bool = False


FAULTS = (
    Fault("a daemon is killed", kill_daemon, 4, is_quick=True),
    Fault("a job is killed", kill_job, 3, is_quick=True),
    Fault("prepared job processes are killed", kill_prepared, is_quick=True),
    Fault("processes of NodeD are killed", kill_of_noded, 2, is_quick=True),
    Fault("LuxiD or WConfD hangs, or both", hang_master_daemon, 3, is_quick=True),
    Fault("prepared job processes hang", hang_prepared, is_quick=True),
    Fault("processes of NodeD hang", hang_of_noded, 2, is_quick=True),
    Fault("another daemon stands still", pause_daemon, 2),
    Fault("a job is paused", pause_job),
    Fault("a node is paused", pause_node, 2),
    Fault("the master is paused", pause_master),
    Fault("a write fails", fail_write, 6),
    Fault("a disk is full", fill_disk, 2),
    Fault("a clock is wrong", jump_clock),
    Fault("a line is bad", spoil_line, 2),
    Fault("a node lies", let_lie),
    Fault("a node loses its power", lose_node, 2),
    Fault("the master loses its power", lose_master, 2),
    Fault("two fail over at once", fail_over_twice),
    Fault("a paused master is replaced", replace_paused_master, 2),
    Fault("the master hands over", hand_over, 2),
)
QUICK = tuple(fault for fault in FAULTS if fault.is_quick)
