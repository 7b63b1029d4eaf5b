"""Power cuts at random moments of random steps in the life of instances on real nodes.

``GANETI_TEST_ROUNDS`` says how many cuts; ``GANETI_TEST_SEED`` plays those of an earlier run again.  Each cut
meets a step of one instance with a logical volume and one of another with DRBD; in some rounds a second machine
loses its power, too.  Then the machines are switched on again, what was begun is resumed by the commands
that a person would type, and every copy of the disk has to hold all that the guest was told to be written.
Exports that were taken between are imported in the end.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pytest
from rig.containers import TIMEOUT_S, Machine
from rig.virtual_machines import SYNC_DATA, VirtualMachine, VirtualMachines
from rig.writer import ADD, OS_TYPE, Writer, volumes, volumes_of, wait_for_sync

from ganeti.objects.disk_templates import supported_templates

ROUNDS = int(os.environ.get("GANETI_TEST_ROUNDS", "2"))
SEED = os.environ.get("GANETI_TEST_SEED") or str(random.SystemRandom().randrange(1 << 32))
LONGEST_S = 60.0  # the power is cut at the latest then
PAUSE_S = 0.1
CUTS_OF_A_ROUND = (1, 2, 2)  # one of them by chance
SIZE_MIB = 16
NODES = [f"node{n}.example.com" for n in (1, 2, 3)]
EXPORTS_ON = NODES[0]
ORPHAN = re.compile(r"ENODEORPHANLV:node:([^:]+):volume (\S+) ")
# Neither has a part in it, and each costs a machine that boots seconds.
LEFT_OUT = ("ganeti-mond.service", "ganeti-maintd.service", "ganeti-rapi.service")
START_AGAIN = (
    "systemctl enable {units}; systemctl start ganeti-node.target;"
    " ! systemctl is-active ganeti-master.target || systemctl start ganeti-master.target"
)


@dataclass(frozen=True)
class Step:
    """A step in the life of an instance.

    Attributes:
        resume: the command that ends it after it failed, the command itself if "".
        target: the node that has the disks when it was done, "" if that does not tell.
        template: of the disks when it was done, "" if that does not tell.
        rebuilds: the copy on the primary node may be incomplete in the middle of it.
    """

    command: str
    resume: str = ""
    target: str = ""
    template: str = ""
    rebuilds: bool = False


class Life:
    """An instance, where it is, and a command on it that runs."""

    def __init__(self, writer: Writer, template: str) -> None:
        self.writer, self.template = writer, template  # conversions change it
        self.chance = random.Random(f"{SEED} {template}")
        self._command: subprocess.Popen[bytes]
        self.holders: list[Machine] = []
        self.look()

    def look(self) -> str:
        """See where it is; returns its status."""
        found = self.writer.field("disk_template,status,pnode,snodes")
        self.template, status, *names = re.split("[|,]", found)
        self.holders = [
            machine for name in names for machine in self.writer.machines if machine.name == name
        ]
        return status

    def other_node(self) -> str:
        """Return a node that the instance is not on."""
        return self.chance.choice([name for name in NODES if name not in self.names()])

    def names(self) -> list[str]:
        """Return the nodes that the instance was on."""
        return [machine.name for machine in self.holders]

    def begin(self) -> Step:
        """Begin a step, and do not wait for it."""
        step = self.chance.choice(STEPS[self.template])(self)
        nothing = subprocess.DEVNULL
        self._command = subprocess.Popen(
            self.writer.master.ssh("--", step.command.format(name=self.writer.name)),
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
        )
        return step

    def is_busy(self) -> bool:
        """Return whether the step goes on."""
        return self._command.poll() is None

    def was_done(self, step: Step) -> bool:
        """Wait for the end of the step, and return whether nothing is left to do."""
        is_well = self._command.wait(TIMEOUT_S) == 0
        return is_well or step.target in self.names() or step.template == self.template


def grow(life: Life) -> Step:
    return Step(f"gnt-instance grow-disk {{name}} 0 {life.chance.choice((4, 8))}m")


def reboot(life: Life) -> Step:
    return Step(f"gnt-instance reboot --type={life.chance.choice(('hard', 'full'))} {{name}}")


def stop_and_start(life: Life) -> Step:
    return Step("gnt-instance shutdown {name} && gnt-instance start {name}")


def move(life: Life) -> Step:
    target = life.other_node()
    return Step(f"gnt-instance move --force -n {target} {{name}}", target=target)


def migrate(life: Life) -> Step:
    command = "gnt-instance migrate --force {name}"
    return Step(command, resume=command.replace("--force", "--cleanup --force"))


def fail_over(life: Life) -> Step:
    command = "gnt-instance failover --force {name}"
    return Step(command, resume=command.replace("--force", "--cleanup --force"))


def replace_secondary(life: Life) -> Step:
    target = life.other_node()
    command = f"gnt-instance replace-disks -n {target} {{name}}"
    # It needs copies that are in use, and says so.
    first = "gnt-instance activate-disks --wait-for-sync {name}"
    return Step(command, resume=f"{first} && {command}", target=target)


def fail_over_anywhere(life: Life) -> Step:
    return Step(
        f"gnt-instance failover --force -n {life.other_node()} {{name}}",
        resume="gnt-instance failover --cleanup --force {name}",
        rebuilds=True,
    )


def convert(life: Life) -> Step:
    template = "plain" if life.template == "drbd" else f"drbd -n {life.other_node()}"
    command = f"gnt-instance shutdown {{name}} && gnt-instance modify -t {template} {{name}}"
    return Step(
        f"{command} && gnt-instance start {{name}}", resume=command, template=template.split()[0]
    )


def export(life: Life) -> Step:
    return Step(f"gnt-backup export --incremental --noshutdown -n {EXPORTS_ON} {{name}}")


ANY: tuple[Callable[[Life], Step], ...] = (grow, reboot, stop_and_start, convert, export)
STEPS: dict[str, tuple[Callable[[Life], Step], ...]] = {
    "plain": (*ANY, move),
    "drbd": (*ANY, migrate, fail_over, fail_over_anywhere, replace_secondary),
}
PLACES = {"plain": NODES[1], "drbd": f"{NODES[1]}:{NODES[2]}"}


@pytest.fixture
def lives(nodes: VirtualMachines) -> Iterator[list[Life]]:
    units = " ".join(LEFT_OUT)
    made = []
    with contextlib.ExitStack() as undo:
        nodes.at_all(lambda machine: machine.run(f"systemctl disable --now {units}; sync"))
        undo.callback(nodes.at_all, lambda machine: machine.run(START_AGAIN.format(units=units)))
        for template in sorted(STEPS.keys() & set(supported_templates())):
            writer = undo.enter_context(Writer(f"cuts-{template}.example.com", nodes.machines))
            options = f"-t {template} -s {SIZE_MIB}m -n {PLACES[template]}"
            writer.master.run(f"{ADD} {options} -H kvm:disk_cache=writethrough {writer.name}")
            writer.goes_on()
            made.append(Life(writer, template))
        yield made
        for life in made:
            life.writer.check()
            import_newest(life.writer)
            life.writer.master.run(f"gnt-instance remove --force {life.writer.name}")
        remove_orphans(made[0].writer)
        assert not any(volumes(machine) for machine in nodes.machines)


def import_newest(writer: Writer) -> None:
    """Make an instance of the newest export, if there is one, and look at its disk."""
    exports = f"gnt-backup list --no-headers -n {EXPORTS_ON} -o export"
    if writer.name not in writer.master.run(exports).split():
        return
    with Writer(f"imported-{writer.name}", writer.machines) as copy:
        command = ADD.replace("gnt-instance add", "gnt-backup import").replace(OS_TYPE, "")
        source = f"--src-node={EXPORTS_ON} --src-dir={writer.name}"
        writer.master.run(f"{command} -t plain -n {NODES[2]} {source} {copy.name}")
        assert 0 < copy.copies_have_all() <= writer.last
        writer.master.run(f"gnt-instance remove --force {copy.name}")
    writer.master.run(f"gnt-backup remove {writer.name}")


def remove_orphans(writer: Writer) -> None:
    """Remove volumes that interrupted steps have left, as the verification tells."""
    said = writer.master.try_run("gnt-cluster verify --error-codes").out
    for node, path in ORPHAN.findall(said):
        print(f"    {path} was left on {node}")
        (machine,) = (each for each in writer.machines if each.name == node)
        machine.run(f"lvremove --yes {path}; {SYNC_DATA}")


@dataclass(frozen=True)
class Cut:
    """A power cut to come, in seconds since the round began; the seed decides what caches write out."""

    machine: VirtualMachine
    after_s: float
    seed: str


def draw(nodes: VirtualMachines, chance: random.Random, cuts_max: int) -> list[Cut]:
    """Return the cuts of a round."""
    count = min(chance.choice(CUTS_OF_A_ROUND), cuts_max)
    return [
        Cut(machine, chance.uniform(0, LONGEST_S), str(chance.random()))
        for machine in chance.sample(nodes.machines, count)
    ]


def cut(nodes: VirtualMachines, lives: Sequence[Life], begun: float, planned: Cut) -> None:
    """Pull the plug when it is time, or when nothing goes on, and switch the machine on again."""
    while time.monotonic() < begun + planned.after_s and any(life.is_busy() for life in lives):
        time.sleep(PAUSE_S)
    for life in lives:
        life.writer.acknowledged()
    nodes.pull_plug(planned.machine)
    nodes.start(planned.machine, planned.seed)
    nodes.wait_for(planned.machine)


def wait_for_master(master: VirtualMachine) -> None:
    """Wait until the master answers, and no job is under way."""
    master.wait_until("gnt-job list", TIMEOUT_S)
    ended = "! gnt-job list --no-headers -o status | grep -E 'running|waiting|queued|canceling'"
    master.wait_until(ended, TIMEOUT_S)


def play(nodes: VirtualMachines, lives: Sequence[Life], number: int, cuts: Sequence[Cut]) -> None:
    """Begin a step of each instance, cut the power somewhere in them, and go on."""
    begun = time.monotonic()
    words = " and ".join(f"{each.machine.name} after {each.after_s:.1f} s" for each in cuts)
    print(f"cut {number}: {words}")
    steps = [life.begin() for life in lives]
    for life, step in zip(lives, steps, strict=True):
        print("   ", step.command.format(name=life.writer.name))
    with ThreadPoolExecutor() as pool:
        list(pool.map(partial(cut, nodes, lives, begun), cuts))
    wait_for_master(nodes.machines[0])
    back_s = time.monotonic() - begun
    with ThreadPoolExecutor() as pool:
        list(pool.map(resume, lives, steps))
    print(f"    back after {back_s:.0f} s, ended after {time.monotonic() - begun:.0f} s")


def resume(life: Life, step: Step) -> None:
    """Do what a person does after a power cut, and look at all copies of the disk."""
    writer, status = life.writer, life.look()
    if not life.was_done(step):
        writer.master.run((step.resume or step.command).format(name=writer.name))
        status = life.look()
    if any(len(volumes_of(machine, writer.name)) > 1 for machine in life.holders):
        remove_orphans(writer)
    if status == "running":
        writer.listen(life.holders[0])
    else:
        check_before_start(life, step)
        writer.start()
    if life.template == "drbd":
        wait_for_sync(writer)
    writer.goes_on(1)
    writer.copies_have_all(life.holders)


def check_before_start(life: Life, step: Step) -> None:
    """Look at the disk that the guest will go on with; it would write again what it does not find."""
    try:
        life.writer.copies_have_all(life.holders[:1])
    except AssertionError:
        if not step.rebuilds or len(life.holders) < 2:
            raise
        life.writer.copies_have_all(life.holders[1:])  # the data still comes from there


def test_nothing_is_lost_by_power_cuts(
    nodes: VirtualMachines, lives: list[Life], limit_again: Callable[[], None]
) -> None:
    print(f"GANETI_TEST_SEED={SEED}")
    chance, done = random.Random(SEED), 0
    while done < ROUNDS:
        limit_again()
        cuts = draw(nodes, chance, ROUNDS - done)
        play(nodes, lives, done + 1, cuts)
        done += len(cuts)
