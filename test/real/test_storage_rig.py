"""The machines on which storage is tried are what the other tests take them for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rig.virtual_machines import SYNC_DATA, VOLUME_GROUP, VirtualMachine, VirtualMachines

DISK = f"/dev/{VOLUME_GROUP}/rig"
BLOCKS = 64
WRITE = f"dd if=/dev/zero bs=64k count={BLOCKS} | tr '\\0' '{{letter}}' | dd of={DISK} bs=64k oflag=direct iflag=fullblock"
COUNT = f"dd if={DISK} bs=64k count={BLOCKS} iflag=direct | tr -cd '{{letter}}' | wc -c"


@pytest.fixture(scope="module")
def machine(nodes: VirtualMachines) -> Iterator[VirtualMachine]:
    machine = nodes.machines[2]
    machine.run(f"lvcreate --yes --size 64m --name rig {VOLUME_GROUP} && sync {DISK}")
    yield machine
    machine.run(f"lvremove --yes {DISK}; {SYNC_DATA}")


def cut_and_start(nodes: VirtualMachines, machine: VirtualMachine) -> None:
    nodes.pull_plug(machine)
    nodes.start(machine)
    nodes.wait_for(machine)


def test_a_power_cut_loses_what_was_not_flushed_and_only_that(
    nodes: VirtualMachines, machine: VirtualMachine
) -> None:
    machine.run(WRITE.format(letter="a") + " conv=fsync")
    machine.run("echo kept > /root/kept; sync /root /root/kept; echo lost > /root/lost")
    machine.run(WRITE.format(letter="b"))
    cut_and_start(nodes, machine)
    old, new = (int(machine.run(COUNT.format(letter=letter))) for letter in "ab")
    assert old > 0
    assert old + new == BLOCKS << 16
    assert machine.run("cat /root/kept; ls /root/lost || true") == "kept\n"


def test_a_disk_returns_errors_when_told(machine: VirtualMachine) -> None:
    name = f"{VOLUME_GROUP}-rig"
    table = machine.run(f"dmsetup table {name}").strip()
    size = table.split()[1]
    turn = f"dmsetup suspend {name}; dmsetup load {name} --table '{{}}'; dmsetup resume {name}"
    machine.run(turn.format(f"0 {size} error"))
    failed = machine.try_run(COUNT.format(letter="a"))
    assert "Input/output error" in failed.err
    machine.run(turn.format(table))
    assert "Input/output error" not in machine.try_run(COUNT.format(letter="a")).err


def test_machines_reach_one_another_by_the_network_for_replication(nodes: VirtualMachines) -> None:
    first, *others = nodes.machines
    for other in others:
        first.run(f"ping -c 1 -I eth1 {other.secondary}")
    assert "10.96.0.11" in first.run("gnt-node info node1.example.com")


def test_guests_have_kvm(machine: VirtualMachine) -> None:
    machine.run("test -c /dev/kvm && grep -q svm /proc/cpuinfo && lsmod | grep -q ^drbd")
