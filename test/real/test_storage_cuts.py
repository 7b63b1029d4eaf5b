"""Power cuts at random moments of random steps in the life of instances on real nodes.

``GANETI_TEST_ROUNDS`` says how many; ``GANETI_TEST_SEED`` plays those of an earlier run again.  After each cut
the machine is switched on again, what was begun is resumed by the commands that a person would type, and
the guest's disk has to hold all that the guest was told to be written.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from rig.containers import TIMEOUT_S
from rig.virtual_machines import VirtualMachine, VirtualMachines
from rig.writer import ADD, Writer, volumes

from ganeti.objects.disk_templates import supported_templates

ROUNDS = int(os.environ.get("GANETI_TEST_ROUNDS", "2"))
SEED = os.environ.get("GANETI_TEST_SEED") or str(random.SystemRandom().randrange(1 << 32))
LONGEST_S = 60.0  # the power is cut at the latest then
SIZE_MIB = 16
NODES = [f"node{n}.example.com" for n in (1, 2, 3)]


@dataclass
class Life:
    """An instance, the machines, and chance."""

    nodes: VirtualMachines
    writer: Writer
    chance: random.Random
    template: str
    told: list[str] = field(default_factory=list)

    def other_node(self) -> str:
        """Return a node that the instance is not on."""
        used = {self.writer.field("pnode"), *self.writer.field("snodes").split(",")}
        return self.chance.choice([name for name in NODES if name not in used])

    def cut(self, machine: VirtualMachine) -> None:
        """Pull the plug, and switch the machine on again."""
        self.writer.acknowledged()
        self.nodes.pull_plug(machine)
        self.nodes.start(machine, seed=str(self.chance.random()))
        self.nodes.wait_for(machine)
        self.writer.master.wait_until("gnt-job list", TIMEOUT_S)

    def jobs_end(self) -> None:
        """Wait until no job is running or waiting."""
        self.writer.master.wait_until(
            "! gnt-job list --no-headers -o status | grep -E 'running|waiting|queued|canceling'",
            TIMEOUT_S,
        )


def grow(life: Life) -> str:
    return f"gnt-instance grow-disk {{name}} 0 {life.chance.choice((4, 8))}m"


def reboot(life: Life) -> str:
    return f"gnt-instance reboot --type={life.chance.choice(('hard', 'full'))} {{name}}"


def stop_and_start(life: Life) -> str:
    return "gnt-instance shutdown {name} && gnt-instance start {name}"


def move(life: Life) -> str:
    return f"gnt-instance move --force -n {life.other_node()} {{name}}"


def migrate(life: Life) -> str:
    return "gnt-instance migrate --force {name}"


def fail_over(life: Life) -> str:
    return "gnt-instance failover --force {name}"


def replace_secondary(life: Life) -> str:
    return f"gnt-instance replace-disks -n {life.other_node()} {{name}}"


ANY: tuple[Callable[[Life], str], ...] = (grow, reboot, stop_and_start)
STEPS: dict[str, tuple[Callable[[Life], str], ...]] = {
    "plain": (*ANY, move),
    "drbd": (*ANY, migrate, fail_over, replace_secondary),
}


@pytest.fixture(params=[name for name in STEPS if name in supported_templates()])
def life(request: pytest.FixtureRequest, nodes: VirtualMachines) -> Iterator[Life]:
    template = request.param
    places = {"plain": "node2.example.com", "drbd": "node2.example.com:node3.example.com"}
    with Writer(f"cuts-{template}.example.com", nodes.machines) as writer:
        life = Life(nodes, writer, random.Random(f"{SEED} {template}"), template)
        options = (
            f"-t {template} -s {SIZE_MIB}m -n {places[template]} -H kvm:disk_cache=writethrough"
        )
        writer.master.run(f"{ADD} {options} {writer.name}")
        writer.listen(writer.primary())
        writer.goes_on()
        yield life
        writer.master.run(f"gnt-instance remove --force --ignore-failures {writer.name}")


def play(life: Life, number: int) -> None:
    """Begin a step, cut the power of a machine somewhere in it, and go on."""
    step = life.chance.choice(STEPS[life.template])
    command = step(life).format(name=life.writer.name)
    machine = life.chance.choice(life.nodes.machines)
    after_s = life.chance.uniform(0, LONGEST_S)
    print(f"{life.template} {number}: {command}; {machine.name} is cut after {after_s:.1f} s")
    begun = time.monotonic()
    with subprocess.Popen(
        life.writer.master.ssh("--", command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        life.cut(machine)
        process.wait(TIMEOUT_S)
    life.jobs_end()
    resume(life, command, succeeded=process.returncode == 0)
    print(f"    ended after {time.monotonic() - begun:.0f} s")


def resume(life: Life, command: str, *, succeeded: bool) -> None:
    """Do what a person does after a power cut, and look at the disk."""
    writer = life.writer
    for action in ("migrate", "failover"):
        if action in command and not succeeded:
            writer.master.run(f"gnt-instance {action} --cleanup --force {writer.name}")
    if writer.field("status") == "running":
        writer.listen(writer.primary())
        writer.goes_on(1)
    said = writer.acknowledged()
    assert writer.check() >= said
    writer.start()
    kept = {name for machine in life.nodes.machines for name in volumes(machine)}
    assert kept


def test_nothing_is_lost_by_power_cuts(life: Life, limit_again: Callable[[], None]) -> None:
    print(f"GANETI_TEST_SEED={SEED}")
    for number in range(ROUNDS):
        limit_again()
        play(life, number)
