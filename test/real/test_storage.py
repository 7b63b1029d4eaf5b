"""The life of instances whose data is on two machines, with the power cut in between.

Three machines with real LVM and DRBD.  A guest writes a pattern and says how far it is, all the time; what
it said is looked for on its disk after each calamity.  The tests build on one another, in the order of
the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from rig.virtual_machines import SYNC_DATA, VOLUME_GROUP, VirtualMachines
from rig.writer import ADD, OS_TYPE, Writer, volumes, wait_for_sync

SIZE_MIB = 64
HALVES = {"disk0_data", "disk0_meta"}
FIRST, SECOND, THIRD = (f"node{n}.example.com" for n in (1, 2, 3))


@pytest.fixture(scope="module")
def writer(nodes: VirtualMachines) -> Iterator[Writer]:
    with Writer("two.example.com", nodes.machines) as writer:
        yield writer


@contextlib.contextmanager
def imported(writer: Writer) -> Iterator[Writer]:
    """Yield an instance made of an export of the writer; it never ran."""
    options = (
        f"-t drbd -s {SIZE_MIB + 64}m -n {FIRST}:{SECOND}"
        f" --src-node={FIRST} --src-dir={writer.name}"
    )
    with Writer("three.example.com", writer.machines) as copy:
        command = ADD.replace("gnt-instance add", "gnt-backup import").replace(OS_TYPE, "")
        writer.master.run(f"{command} {options} {copy.name}")
        yield copy
        writer.master.run(f"gnt-instance remove --force {copy.name}")
        writer.master.run(f"gnt-backup remove {writer.name}")


@pytest.mark.short
def test_an_instance_is_made_on_two_nodes(writer: Writer) -> None:
    options = f"-t drbd -s {SIZE_MIB}m -n {FIRST}:{SECOND} -H kvm:disk_cache=writethrough"
    writer.master.run(f"{ADD} {options} {writer.name}")
    writer.listen(writer.primary())
    writer.goes_on()
    for machine in writer.machines[:2]:
        assert len(volumes(machine)) == 2
    assert volumes(writer.machines[2]) == set()


@pytest.mark.short
def test_the_secondary_loses_power_and_catches_up(nodes: VirtualMachines, writer: Writer) -> None:
    second = nodes.machines[1]
    nodes.pull_plug(second)
    writer.goes_on()
    nodes.start(second)
    nodes.wait_for(second)
    wait_for_sync(writer)
    writer.goes_on()


@pytest.mark.short
def test_it_moves_to_the_other_node_while_it_writes(writer: Writer) -> None:
    before = writer.goes_on()
    writer.master.run(f"gnt-instance migrate --force {writer.name}")
    assert writer.field("pnode") == SECOND
    writer.listen(writer.primary())
    assert writer.goes_on() > before


@pytest.mark.short
def test_its_node_loses_power_and_nothing_that_it_said_is_lost(
    nodes: VirtualMachines, writer: Writer
) -> None:
    writer.goes_on()
    nodes.pull_plug(nodes.machines[1])
    said = writer.acknowledged()
    writer.master.run(f"gnt-node modify --offline=yes {SECOND}")
    writer.master.run(f"gnt-instance failover --force --ignore-consistency {writer.name}")
    assert writer.field("pnode") == FIRST
    writer.listen(writer.primary())
    assert writer.goes_on() > said
    nodes.start(nodes.machines[1])  # its time to boot is used
    assert writer.copies_have_all([nodes.machines[0]]) > said


@pytest.mark.short
def test_the_node_comes_back_and_catches_up(nodes: VirtualMachines, writer: Writer) -> None:
    nodes.wait_for(nodes.machines[1])
    writer.master.run(f"gnt-node modify --offline=no {SECOND}")
    wait_for_sync(writer)
    writer.copies_have_all()


def test_the_volumes_of_each_side_are_replaced_while_it_writes(writer: Writer) -> None:
    for side in ("--on-primary", "--on-secondary"):
        before = writer.goes_on()
        writer.master.run(f"gnt-instance replace-disks {side} {writer.name}")
        assert writer.goes_on() > before
    for machine in writer.holders():
        assert {name.partition(".")[2] for name in volumes(machine)} == HALVES
    writer.copies_have_all()


def test_the_second_copy_moves_to_the_third_node(writer: Writer) -> None:
    before = writer.goes_on()
    writer.master.run(f"gnt-instance replace-disks --new-secondary={THIRD} {writer.name}")
    assert writer.field("snodes") == THIRD
    assert writer.goes_on() > before
    assert volumes(writer.machines[1]) == set()
    writer.copies_have_all()


def test_it_fails_over_to_the_new_node(writer: Writer) -> None:
    said = writer.goes_on()
    writer.master.run(f"gnt-instance failover --force {writer.name}")
    assert writer.field("pnode") == THIRD
    writer.listen(writer.primary())
    assert writer.goes_on() > said
    assert writer.check_by_device() > said
    writer.start()


def test_it_fails_over_to_a_node_without_a_copy(writer: Writer) -> None:
    said = writer.goes_on()
    writer.master.run(f"gnt-instance failover --force -n {SECOND} {writer.name}")
    assert (writer.field("pnode"), writer.field("snodes")) == (SECOND, FIRST)
    writer.listen(writer.primary())
    assert writer.goes_on() > said
    assert volumes(writer.machines[2]) == set()
    writer.copies_have_all()


def test_it_fails_over_from_a_dead_node_to_one_without_a_copy(
    nodes: VirtualMachines, writer: Writer
) -> None:
    second = nodes.machines[1]
    writer.goes_on()
    nodes.pull_plug(second)
    said = writer.acknowledged()
    writer.master.run(f"gnt-node modify --offline=yes {SECOND}")
    writer.master.run(f"gnt-instance failover --force -n {THIRD} {writer.name}")
    assert (writer.field("pnode"), writer.field("snodes")) == (THIRD, FIRST)
    writer.listen(writer.primary())
    assert writer.goes_on() > said
    writer.copies_have_all()
    nodes.start(second)
    nodes.wait_for(second)
    writer.master.run(f"gnt-node modify --offline=no {SECOND}")
    left = " ".join(f"{VOLUME_GROUP}/{name}" for name in volumes(second))
    second.run(f"lvremove --yes {left}; {SYNC_DATA}")  # as the failover has told


def test_its_disk_grows(writer: Writer) -> None:
    before = writer.goes_on()
    writer.master.run(f"gnt-instance grow-disk {writer.name} 0 64m")
    assert writer.field("disk.size/0") == f"{SIZE_MIB + 64}"
    assert writer.goes_on() > before
    wait_for_sync(writer)
    writer.copies_have_all()


def test_it_becomes_plain_and_drbd_again(writer: Writer) -> None:
    said = writer.check()
    writer.master.run(f"gnt-instance modify --disk-template=plain {writer.name}")
    assert writer.field("disk_template") == "plain"
    assert volumes(writer.machines[0]) == set()
    writer.start()
    assert writer.check() > said
    writer.master.run(f"gnt-instance modify --disk-template=drbd -n {SECOND} {writer.name}")
    assert (writer.field("pnode"), writer.field("snodes")) == (THIRD, SECOND)
    writer.start()
    wait_for_sync(writer)
    writer.copies_have_all()


def test_it_is_exported_and_imported(writer: Writer) -> None:
    writer.goes_on()
    writer.master.run(f"gnt-backup export -n {FIRST} {writer.name}")
    said = writer.check()
    with imported(writer) as copy:
        assert 0 < copy.check() <= said
    writer.start()


def test_exports_grow_with_what_it_writes(writer: Writer) -> None:
    export = f"gnt-backup export --incremental --noshutdown -n {FIRST} {writer.name}"
    before = [writer.goes_on()]
    for _ in range(2):
        writer.master.run(export)
        before.append(writer.goes_on())
    with imported(writer) as copy:
        copy.last = before[1]  # said before the second export began
        assert before[1] <= copy.check() <= before[2]


def test_lost_disks_are_made_anew(writer: Writer) -> None:
    writer.check()
    for machine in writer.holders():
        lost = " ".join(f"{VOLUME_GROUP}/{name}" for name in volumes(machine))
        machine.run(f"lvremove --yes {lost}; {SYNC_DATA}")
    writer.master.run(f"gnt-instance recreate-disks {writer.name}")
    writer.master.run(f"gnt-instance reinstall --force {writer.name}")
    for machine in writer.holders():
        assert len(volumes(machine)) == 2
    writer.begins_anew()
    writer.start()
    writer.copies_have_all()


@pytest.mark.short
def test_its_removal_leaves_nothing(nodes: VirtualMachines, writer: Writer) -> None:
    writer.copies_have_all()
    writer.master.run(f"gnt-instance remove --force {writer.name}")
    for machine in nodes.machines:
        assert volumes(machine) == set()
        assert "cs:" not in machine.run("cat /proc/drbd").replace("cs:Unconfigured", "")
    assert "ERROR" not in writer.master.try_run("gnt-cluster verify").out
