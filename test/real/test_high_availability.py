"""High availability on real nodes: DRBD, a guest that writes, a watchdog of the kernel, etcd.

Each round loses something at random while the guest writes.  A node that is lost has to be proved
dead, and the guest has to run on the other node of its disk, with all that it was told to be
written; where nothing but a copy or a member of etcd is lost it has to go on where it is.  Then the node
comes back, and both copies have to be the same again, so the guest has not run twice.

``GANETI_TEST_ROUNDS`` says how many rounds; ``GANETI_TEST_SEED`` plays those of an earlier run again.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from guests import pattern
from rig.containers import TIMEOUT_S
from rig.virtual_machines import VirtualMachine, VirtualMachines, shared_disk
from rig.writer import ADD, SYNC_TIMEOUT_S, Writer, wait_for_sync

ROUNDS = int(os.environ.get("GANETI_TEST_ROUNDS", "3"))
SEED = os.environ.get("GANETI_TEST_SEED") or str(random.SystemRandom().randrange(1 << 32))
SIZE_MIB = 16
PAUSE_S = 0.2
# Ten times the usual ones, as an emulated machine is that much slower.
TIMES = "lease=40,beat=4,answer=25,watchdog=45"
WRITES = 20
# Longer than a proof by the watchdog takes after the reset, which comes early: lease + watchdog.
SLOW = "[Service]\nExecStartPre=/bin/sleep 180\n"
PATIENT = "[Service]\nWatchdogSec=600\n"
LEASE_DISK = shared_disk(0)
WITHOUT_NETWORK_S = 150.0  # a watchdog that nobody feeds has reset its node by then
MASTER, ENDED = "ganeti-wconfd ganeti-luxid", "-e inactive -e failed -e ''"
OUTDATED = "high availability lets nobody start from this copy"


def addresses(nodes: VirtualMachines, of: VirtualMachine, *, both: bool) -> list[str]:
    others = [machine for machine in nodes.machines if machine is not of]
    found = [machine.secondary for machine in others]
    return [*found, *(machine.address for machine in others)] if both else found


def cut_off(nodes: VirtualMachines, machine: VirtualMachine, *, both: bool = True) -> None:
    """Let a machine reach none of the others, by one network or both; we still reach it."""
    routes = [f"ip route add blackhole {each}" for each in addresses(nodes, machine, both=both)]
    machine.run("; ".join(["set -e", *routes]))


def switch_off(nodes: VirtualMachines, machine: VirtualMachine) -> None:
    """Pull the plug."""
    nodes.pull_plug(machine)


def hang(nodes: VirtualMachines, machine: VirtualMachine) -> None:
    """Let the agent stand still."""
    machine.run("kill -STOP $(systemctl show -P MainPID ganeti-ha)")


def lose_copy(nodes: VirtualMachines, machine: VirtualMachine) -> None:
    """Break the network for replication."""
    cut_off(nodes, machine, both=False)


def join(nodes: VirtualMachines, machine: VirtualMachine, *, both: bool = False) -> None:
    """Mend it."""
    routes = [f"ip route del blackhole {each}" for each in addresses(nodes, machine, both=both)]
    machine.run("; ".join(["set -e", *routes]))


def kill_member(nodes: VirtualMachines, machine: VirtualMachine) -> None:
    """Kill the member of etcd on a machine."""
    machine.run("systemctl kill --signal=KILL ganeti-etcd")


def kill_agent(nodes: VirtualMachines, machine: VirtualMachine) -> None:
    """Kill the agent, which systemd starts again."""
    machine.run("systemctl kill --signal=KILL ganeti-ha")


def configure(machine: VirtualMachine, unit: str, settings: str) -> None:
    directory = f"/etc/systemd/system/{unit}.service.d"
    machine.run(f"mkdir -p {directory}; cat > {directory}/slow.conf; sync", settings)


def boot_slowly(machine: VirtualMachine) -> None:
    """Let the next boots take long, as those of servers do: it comes back after it was proved dead."""
    configure(machine, "own-address", SLOW)


def wait_longer(machine: VirtualMachine) -> None:
    """Let systemd, too, wait ten times as long before it kills an agent that stands still."""
    configure(machine, "ganeti-ha", PATIENT)
    machine.run("systemctl daemon-reload")


@dataclass(frozen=True)
class Trouble:
    """Something that happens to a machine.

    Attributes:
        is_loss: the node is dead then.
        heal: what mends it, if it does not mend itself.
    """

    strike: Callable[[VirtualMachines, VirtualMachine], None]
    is_loss: bool
    heal: Callable[[VirtualMachines, VirtualMachine], None] | None = None


TROUBLES = (
    Trouble(switch_off, True, VirtualMachines.start),
    Trouble(cut_off, True),
    Trouble(hang, True),
    Trouble(lose_copy, False, join),
    Trouble(kill_member, False),
    Trouble(kill_agent, False),
)
# As often as all others together.
LOSSES = tuple(trouble for trouble in TROUBLES if trouble.is_loss)


@pytest.fixture
def writer(nodes: VirtualMachines) -> Iterator[Writer]:
    nodes.at_all(wait_longer)
    first = master_of(nodes)  # a test before this one may have lost another one
    first.run(f"gnt-cluster ha-enable --watchdog=/dev/watchdog --timing={TIMES}")
    nodes.at_all(boot_slowly)
    try:
        with Writer("alive.example.com", nodes.machines) as made:
            made.master = first
            places = ":".join(each.name for each in nodes.machines if each is not first)
            options = f"-t drbd -s {SIZE_MIB}m -n {places} -H kvm:disk_cache=writethrough"
            first.run(f"{ADD} {options} {made.name}")
            made.goes_on()
            yield made
            made.check()
            made.master.run(f"gnt-instance remove --force {made.name}")
    finally:
        master_of(nodes).run("gnt-cluster ha-disable --force")


def master_of(nodes: VirtualMachines, but: VirtualMachine | None = None) -> VirtualMachine:
    """Wait until a machine is the master and answers."""
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        for machine in nodes.machines:
            if machine is but or not machine.processes():
                continue
            if (
                machine.try_run("systemctl is-active --quiet ganeti-luxid && gnt-job list").status
                == 0
            ):
                return machine
        time.sleep(PAUSE_S)
    raise AssertionError("no machine is the master")


def boot_of(machine: VirtualMachine) -> str:
    return machine.run("cat /proc/sys/kernel/random/boot_id").strip()


def wait_for_restart(writer: Writer, machine: VirtualMachine) -> None:
    """Wait until the guest writes on a machine that it was not on; it may go on elsewhere till then."""
    heard, until = writer.listen(machine), time.monotonic() + TIMEOUT_S
    while not pattern.acknowledged(heard.read_text("ascii", "replace")):
        assert time.monotonic() < until, f"{writer.name} does not run on {machine.name}"
        time.sleep(PAUSE_S)
    writer.acknowledged()


def come_back(nodes: VirtualMachines, writer: Writer, machine: VirtualMachine, boot: str) -> None:
    """Wait until a machine has booted again, and make it a node again, as a person would."""
    machine.wait_until(f'test "$(cat /proc/sys/kernel/random/boot_id)" != {boot}', TIMEOUT_S)
    nodes.wait_for(machine)
    # The daemons of one that was the master have to learn that it is not any more.
    machine.wait_until(f"! systemctl show -P ActiveState {MASTER} | grep -qvx {ENDED}", TIMEOUT_S)
    writer.master.run(f"gnt-node modify --offline=no --auto-promote --force {machine.name}")
    writer.master.run("gnt-cluster verify-disks")


def wait_offline(master: VirtualMachine, machine: VirtualMachine) -> None:
    """Wait until a lost machine was set offline: it was proved dead."""
    shown = f"gnt-node list --no-headers -o offline {machine.name} | grep -q Y"
    master.wait_until(shown, TIMEOUT_S)


def wait_good(writer: Writer) -> None:
    """Wait until both copies are the same, and etcd knows: from then on one node can be lost."""
    wait_for_sync(writer)
    shown = "gnt-cluster ha-status > /run/ha-status; test $? -ne 1"
    writer.master.wait_until(f"{shown} && ! grep 'lacks writes' /run/ha-status", SYNC_TIMEOUT_S)


def play(nodes: VirtualMachines, writer: Writer, chance: random.Random, number: int) -> None:
    """Let something happen to the machine that the guest runs on, and look at all copies."""
    machine, other = writer.holders()
    trouble = chance.choice((*TROUBLES, *LOSSES))
    name = trouble.strike.__name__
    print(f"round {number}: {name} of {machine.name}, which {writer.name} runs on")
    boot = boot_of(machine)
    writer.goes_on()
    other.run(f"rm -f {writer.log}")  # of an earlier round
    begun = time.monotonic()
    trouble.strike(nodes, machine)
    if not trouble.is_loss:
        writer.goes_on(WRITES)
        print(f"    goes on after {time.monotonic() - begun:.1f} s")
        if trouble.heal is not None:
            trouble.heal(nodes, machine)
        assert boot_of(machine) == boot, "the node was reset for nothing"
    else:
        was_master = machine is writer.master
        if was_master:
            writer.master = master_of(nodes, machine)
            print(f"    {writer.master.name} is the master after {time.monotonic() - begun:.1f} s")
        wait_for_restart(writer, other)
        print(f"    runs on {other.name} after {time.monotonic() - begun:.1f} s")
        if trouble.heal is not None:
            trouble.heal(nodes, machine)
        come_back(nodes, writer, machine, boot)
        assert writer.primary() is other
    wait_good(writer)
    writer.goes_on()
    writer.copies_have_all()


def test_nothing_runs_twice_and_nothing_is_lost(
    nodes: VirtualMachines, writer: Writer, limit_again: Callable[[], None]
) -> None:
    print(f"GANETI_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    for number in range(ROUNDS):
        limit_again()
        play(nodes, writer, chance, number)


def test_a_copy_that_was_left_behind_is_not_started_from(
    nodes: VirtualMachines, writer: Writer
) -> None:
    machine, other = writer.holders()
    lose_copy(nodes, machine)
    last = writer.goes_on(WRITES)
    boot = boot_of(machine)
    switch_off(nodes, machine)
    if machine is writer.master:
        writer.master = master_of(nodes, machine)
    # Nothing starts it, and a person who tries hears why.
    wait_offline(writer.master, machine)
    failed = writer.master.try_run(
        f"gnt-instance failover --force --ignore-consistency {writer.name}"
    )
    assert failed.status != 0
    assert OUTDATED in failed.out + failed.err
    nodes.start(machine)
    come_back(nodes, writer, machine, boot)
    writer.master.run(f"gnt-instance failover --cleanup --force {writer.name} || true")
    # Nothing starts there until the maintenance daemon has closed the loss.
    writer.master.wait_until(f"gnt-instance start {writer.name}", TIMEOUT_S)
    writer.listen(writer.primary())
    writer.goes_on()
    assert writer.last > last
    wait_good(writer)
    writer.copies_have_all()
    assert other in writer.holders()


def test_a_lost_master_is_followed(nodes: VirtualMachines, writer: Writer) -> None:
    old = writer.master
    assert old is not writer.primary()
    boot, begun = boot_of(old), time.monotonic()
    switch_off(nodes, old)
    writer.master = master_of(nodes, old)
    print(f"    {writer.master.name} is the master after {time.monotonic() - begun:.1f} s")
    writer.goes_on()
    wait_offline(writer.master, old)
    nodes.start(old)
    come_back(nodes, writer, old, boot)
    writer.goes_on()


def wait_on_disk(master: VirtualMachine) -> None:
    master.wait_until(
        f"gnt-cluster ha-status | grep -q '3 of 3 nodes hold a lease on {LEASE_DISK}'", TIMEOUT_S
    )


def test_a_lease_disk_spares_nodes_without_network_and_proves_dead_who_is_cut_off(
    nodes: VirtualMachines, writer: Writer
) -> None:
    first = writer.master
    first.run(f"dd if=/dev/zero of={LEASE_DISK} bs=1M count=8 oflag=direct status=none")
    first.run(f"gnt-cluster ha-enable --lease-disk={LEASE_DISK}")
    wait_on_disk(first)
    writer.goes_on()
    boots = {machine.name: boot_of(machine) for machine in nodes.machines}
    nodes.at_all(lambda machine: cut_off(nodes, machine))
    time.sleep(WITHOUT_NETWORK_S)  # that is the damage, not a wait
    nodes.at_all(lambda machine: join(nodes, machine, both=True))
    writer.master = master_of(nodes)
    wait_on_disk(writer.master)
    writer.goes_on()
    assert {machine.name: boot_of(machine) for machine in nodes.machines} == boots
    wait_good(writer)
    writer.copies_have_all()
    machine, other = writer.holders()
    other.run(f"rm -f {writer.log}")
    begun = time.monotonic()
    cut_off(nodes, machine)
    if machine is writer.master:
        writer.master = master_of(nodes, machine)
    wait_for_restart(writer, other)
    print(f"    runs on {other.name} after {time.monotonic() - begun:.1f} s")
    writer.master.run(f"grep '{machine.name} is proved dead: disk' /var/log/ganeti/ha-agent.log")
    come_back(nodes, writer, machine, boots[machine.name])
    wait_good(writer)
    writer.goes_on()
    writer.copies_have_all()
