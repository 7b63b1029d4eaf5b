"""The life of instances whose data is on two machines, with the power cut in between.

Three machines with real LVM and DRBD.  A guest writes a pattern and says how far it is, all the time; what
it said is looked for on its disk after each calamity.  The tests build on one another, in the order of
the file.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from guests import pattern
from rig.containers import Machine
from rig.virtual_machines import VOLUME_GROUP, VirtualMachines
from rig.writer import ADD, Writer, read, volumes

from ganeti.objects.disk_templates import supported_templates

pytestmark = pytest.mark.skipif(
    "drbd" not in supported_templates(), reason="there are no disks of template drbd yet"
)
SIZE_MIB = 64
not_yet = pytest.mark.skip(reason="instances on two nodes cannot do this yet")


@pytest.fixture(scope="module")
def writer(nodes: VirtualMachines) -> Iterator[Writer]:
    with Writer("two.example.com", nodes.machines) as writer:
        yield writer


def data_volume(writer: Writer, machine: Machine) -> str:
    (name,) = {name for name in volumes(machine) if name.endswith(".disk0_data")}
    return f"/dev/{VOLUME_GROUP}/{name}"


def wait_for_sync(writer: Writer) -> None:
    """Wait until both copies are the same."""
    writer.master.wait_until(
        f"gnt-instance activate-disks --wait-for-sync {writer.name}", timeout_s=300
    )


def assert_both_copies_have_all(writer: Writer) -> None:
    """Stop the guest and look at the volumes below DRBD on both machines; start it again."""
    last = writer.check()
    for name in (writer.field("pnode"), *writer.field("snodes").split(",")):
        machine = next(each for each in writer.machines if each.name == name)
        assert pattern.check(read(machine, data_volume(writer, machine)), last) == last
    writer.start()


def test_an_instance_is_made_on_two_nodes(writer: Writer) -> None:
    options = f"-t drbd -s {SIZE_MIB}m -n node1.example.com:node2.example.com"
    writer.master.run(f"{ADD} {options} {writer.name}")
    writer.listen(writer.primary())
    writer.goes_on()
    for machine in writer.machines[:2]:
        assert len(volumes(machine)) == 2
    assert volumes(writer.machines[2]) == set()


def test_the_secondary_loses_power_and_catches_up(nodes: VirtualMachines, writer: Writer) -> None:
    second = nodes.machines[1]
    writer.listen(writer.primary())
    nodes.pull_plug(second)
    writer.goes_on()
    nodes.start(second)
    nodes.wait_for(second)
    wait_for_sync(writer)
    assert_both_copies_have_all(writer)


def test_it_moves_to_the_other_node_while_it_writes(writer: Writer) -> None:
    before = writer.goes_on()
    writer.master.run(f"gnt-instance migrate --force {writer.name}")
    assert writer.field("pnode") == "node2.example.com"
    writer.listen(writer.primary())
    assert writer.goes_on() > before


def test_its_node_loses_power_and_nothing_that_it_said_is_lost(
    nodes: VirtualMachines, writer: Writer
) -> None:
    writer.goes_on()
    nodes.pull_plug(nodes.machines[1])
    said = writer.acknowledged()
    writer.master.run("gnt-node modify --offline=yes node2.example.com")
    writer.master.run(f"gnt-instance failover --force --ignore-consistency {writer.name}")
    assert writer.field("pnode") == "node1.example.com"
    writer.listen(writer.primary())
    assert writer.goes_on() > said
    assert writer.check() >= said
    writer.start()


def test_the_node_comes_back_and_catches_up(nodes: VirtualMachines, writer: Writer) -> None:
    nodes.start(nodes.machines[1])
    nodes.wait_for(nodes.machines[1])
    writer.master.run("gnt-node modify --offline=no node2.example.com")
    wait_for_sync(writer)
    assert_both_copies_have_all(writer)


def test_the_second_copy_moves_to_the_third_node(writer: Writer) -> None:
    writer.master.run(f"gnt-instance replace-disks -n node3.example.com {writer.name}")
    assert writer.field("snodes") == "node3.example.com"
    wait_for_sync(writer)
    assert_both_copies_have_all(writer)
    assert volumes(writer.machines[1]) == set()


def test_it_fails_over_to_the_new_node(writer: Writer) -> None:
    said = writer.goes_on()
    writer.master.run(f"gnt-instance failover --force {writer.name}")
    assert writer.field("pnode") == "node3.example.com"
    writer.listen(writer.primary())
    assert writer.goes_on() > said


def test_its_disk_grows(writer: Writer) -> None:
    writer.master.run(f"gnt-instance grow-disk {writer.name} 0 64m")
    assert writer.field("disk.size/0") == f"{SIZE_MIB + 64}M"
    wait_for_sync(writer)
    assert_both_copies_have_all(writer)


@not_yet
def test_it_becomes_plain_and_drbd_again(writer: Writer) -> None:
    writer.check()
    writer.master.run(f"gnt-instance modify --disk-template=plain {writer.name}")
    assert writer.field("disk_template") == "plain"
    assert volumes(writer.machines[0]) == set()
    writer.start()
    writer.check()
    writer.master.run(
        f"gnt-instance modify --disk-template=drbd -n node2.example.com {writer.name}"
    )
    wait_for_sync(writer)
    assert_both_copies_have_all(writer)


@not_yet
def test_it_is_exported_and_imported(writer: Writer) -> None:
    said = writer.check()
    writer.master.run(f"gnt-backup export -n node1.example.com {writer.name}")
    writer.start()
    options = (
        f"-t drbd -s {SIZE_MIB + 64}m -n node1.example.com:node2.example.com"
        f" --src-node=node1.example.com --src-dir={writer.name}"
    )
    with Writer("three.example.com", writer.machines) as copy:
        command = ADD.replace("gnt-instance add", "gnt-backup import")
        writer.master.run(f"{command} {options} {copy.name}")
        copy.last = said
        assert copy.check() >= said
        writer.master.run(f"gnt-instance remove --force {copy.name}")


def test_its_removal_leaves_nothing(nodes: VirtualMachines, writer: Writer) -> None:
    writer.check()
    writer.master.run(f"gnt-instance remove --force {writer.name}")
    for machine in nodes.machines:
        assert volumes(machine) == set()
        assert "cs:" not in machine.run("cat /proc/drbd").replace("cs:Unconfigured", "")
    assert "ERROR" not in writer.master.try_run("gnt-cluster verify").out
