"""Disks that return errors, both nodes lost, split brain, and minors of others, on real nodes.

An instance on the second and the third node; the first one is the master.  Its guest writes a pattern all
the time, and has to go on, or to have on its disk all that it said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from rig.virtual_machines import SYNC_DATA, VOLUME_GROUP, VirtualMachines
from rig.writer import ADD, Writer, break_volume, volume_of, volumes, wait_for_sync

SIZE_MIB = 32
FIRST, SECOND, THIRD = (f"node{n}.example.com" for n in (1, 2, 3))
ERRORS = "0 {size} error"
WRITE_ERRORS = "0 {size} flakey {place} 0 600 1 error_writes"


@pytest.fixture(scope="module")
def writer(nodes: VirtualMachines) -> Iterator[Writer]:
    with Writer("errors.example.com", nodes.machines) as writer:
        options = f"-t drbd -s {SIZE_MIB}m -n {SECOND}:{THIRD} -H kvm:disk_cache=writethrough"
        writer.master.run(f"{ADD} {options} {writer.name}")
        writer.listen(writer.primary())
        writer.goes_on()
        yield writer
        writer.master.run(f"gnt-instance remove --force {writer.name}")


@pytest.mark.parametrize(
    ("side", "table", "command"),
    [(0, ERRORS, "repair"), (1, WRITE_ERRORS, "replace-disks --auto")],
    ids=["primary", "secondary"],
)
def test_a_disk_with_errors_is_detached_told_and_replaced(
    writer: Writer, side: int, table: str, command: str
) -> None:
    machine = writer.holders()[side]
    break_volume(machine, volume_of(machine, writer.name), table)
    writer.goes_on()
    said = writer.master.try_run("gnt-cluster verify --error-codes").out
    assert f"EINSTANCEFAULTYDISK:instance:{writer.name}:disk/0 on {machine.name}" in said
    assert f"gnt-instance replace-disks -a {writer.name}" in said
    assert writer.field("disk.copies") != "['up to date']"
    writer.master.run(f"gnt-instance {command} {writer.name}")
    before = writer.goes_on()
    assert writer.field("disk.copies") == "['up to date']"
    writer.copies_have_all()
    assert writer.goes_on() > before


def fail_over(writer: Writer) -> None:
    writer.master.run(f"gnt-instance failover --force --ignore-consistency {writer.name}")
    assert (writer.field("pnode"), writer.field("snodes")) == (THIRD, SECOND)
    writer.listen(writer.primary())


def start(writer: Writer) -> None:
    writer.start()
    assert (writer.field("pnode"), writer.field("snodes")) == (THIRD, SECOND)


@pytest.mark.parametrize("resume", [fail_over, start], ids=["secondary", "primary"])
def test_both_nodes_are_lost_and_one_comes_back(
    nodes: VirtualMachines, writer: Writer, resume: Callable[[Writer], None]
) -> None:
    _, second, third = nodes.machines
    writer.goes_on()
    nodes.pull_plug(second)
    nodes.pull_plug(third)
    said = writer.acknowledged()
    nodes.start(third)
    writer.master.run(f"gnt-node modify --offline=yes {SECOND}")
    nodes.wait_for(third)
    resume(writer)
    assert writer.goes_on() > said
    nodes.start(second)  # its time to boot is used
    assert writer.copies_have_all([third]) > said
    nodes.wait_for(second)
    writer.master.run(f"gnt-node modify --offline=no {SECOND}")
    wait_for_sync(writer)
    writer.copies_have_all()


def part(writer: Writer) -> None:
    """Let the two copies lose each other while the guest writes; its nodes go on."""
    primary, secondary = writer.holders()
    parted = "until grep -q 'cs:WFConnection' /proc/drbd; do sleep 0.2; done"
    secondary.run(f"ip link set eth1 down; {parted}")
    primary.run(parted)
    writer.goes_on()


def test_a_copy_that_was_left_behind_is_marked_and_not_taken(
    nodes: VirtualMachines, writer: Writer
) -> None:
    primary, secondary = writer.holders()
    part(writer)
    refused = writer.master.try_run(f"gnt-instance failover --force {writer.name}")
    assert "is not connected with" in refused.err
    told = writer.master.run("gnt-cluster verify-disks")
    assert f"a copy of a disk of instance {writer.name} lacks what was written" in told
    assert "ds:Outdated" in secondary.run("cat /proc/drbd")
    before = writer.goes_on()
    nodes.pull_plug(primary)
    writer.master.run(f"gnt-node modify --offline=yes {primary.name}")
    refused = writer.master.try_run(f"gnt-instance failover --force {writer.name}")
    assert refused.status != 0
    assert "outdated" in refused.err.lower()
    assert writer.primary().name == primary.name
    secondary.run("ip link set eth1 up")
    nodes.start(primary)
    nodes.wait_for(primary)
    writer.master.run(f"gnt-node modify --offline=no {primary.name}")
    writer.start()
    wait_for_sync(writer)
    assert writer.goes_on() > before
    writer.copies_have_all()


def test_a_split_brain_is_told_and_decided_by_a_person(writer: Writer) -> None:
    primary, secondary = writer.holders()
    part(writer)
    strange = "dd if=/dev/urandom of=/dev/drbd0 bs=4k count=1 seek=1000 oflag=direct status=none"
    secondary.run(f"drbdsetup primary 0 && {strange} && drbdsetup secondary 0")
    secondary.run("ip link set eth1 up")
    for machine in (primary, secondary):
        machine.wait_until("grep -q 'cs:\\(StandAlone\\|WFConnection\\)' /proc/drbd")
    primary.wait_until("dmesg | grep -q 'Split-Brain detected'")
    said = writer.master.run(f"gnt-instance activate-disks {writer.name}")
    generations = {
        machine.run("drbdsetup show-gi 0 | grep -o '[0-9A-F]\\{16\\}' | head -1").strip()
        for machine in (primary, secondary)
    }
    assert len(generations) == 2
    assert "split brain" in said
    assert all(generation[:-1] in said for generation in generations)
    assert f"gnt-instance replace-disks -s {writer.name}" in said
    before = writer.goes_on()
    writer.master.run(f"gnt-instance replace-disks --on-secondary {writer.name}")
    assert writer.goes_on() > before
    writer.copies_have_all()


def test_a_minor_of_others_is_left_alone(writer: Writer) -> None:
    first, before = writer.machines[0], writer.holders()
    first.run(
        f"lvcreate --yes --size 32m --name other_data {VOLUME_GROUP};"
        f" lvcreate --yes --size 128m --name other_meta {VOLUME_GROUP};"
        f" drbdmeta --force 0 v08 /dev/{VOLUME_GROUP}/other_meta 0 create-md;"
        " drbdsetup new-resource other && drbdsetup new-minor other 0 0 &&"
        f" drbdsetup attach 0 /dev/{VOLUME_GROUP}/other_data /dev/{VOLUME_GROUP}/other_meta 0"
    )
    seen = first.run("cat /proc/drbd")
    answer = writer.master.try_run(f"gnt-instance replace-disks -n {FIRST} {writer.name}")
    assert answer.status != 0
    assert "DRBD minor 0 is in use" in answer.err
    assert "drbdsetup down other" in answer.err
    assert first.run("cat /proc/drbd") == seen
    assert writer.holders() == before
    assert volumes(first) == {"other_data", "other_meta"}
    writer.goes_on()
    assert writer.field("disk.copies") == "['up to date']"
    first.run(
        "drbdsetup down other && lvremove --yes"
        f" {VOLUME_GROUP}/other_data {VOLUME_GROUP}/other_meta; {SYNC_DATA}"
    )
    writer.master.run(f"gnt-instance replace-disks -n {FIRST} {writer.name}")
    assert writer.field("snodes") == FIRST
    writer.copies_have_all()
