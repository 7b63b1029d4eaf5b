"""The life of an instance with a logical volume on one node, with the power cut in between.

Its guest writes a pattern and says how far it is; every write is flushed before it is told so
(``disk_cache=writethrough``), so all that it said has to be on the disk after a power cut.  The tests
build on one another, in the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rig.virtual_machines import VirtualMachines
from rig.writer import ADD, Writer, volumes

SIZE_MIB = 16


@pytest.fixture(scope="module")
def writer(nodes: VirtualMachines) -> Iterator[Writer]:
    with Writer("plain.example.com", nodes.machines) as writer:
        yield writer


def test_an_instance_gets_a_logical_volume(writer: Writer) -> None:
    options = f"-t plain -s {SIZE_MIB}m -n node3.example.com -H kvm:disk_cache=writethrough"
    writer.master.run(f"{ADD} {options} {writer.name}")
    assert len(volumes(writer.machines[2])) == 1
    writer.listen(writer.primary())
    writer.goes_on()


def test_a_power_cut_loses_nothing_that_the_guest_was_told(
    nodes: VirtualMachines, writer: Writer
) -> None:
    third = nodes.machines[2]
    writer.goes_on()
    nodes.pull_plug(third)
    said = writer.acknowledged()
    nodes.start(third)
    nodes.wait_for(third)
    writer.master.wait_until("gnt-instance list --no-headers -o status | grep -q ERROR_down")
    assert writer.check() >= said
    writer.start()


def test_its_volume_grows(writer: Writer) -> None:
    writer.master.run(f"gnt-instance grow-disk {writer.name} 0 16m")
    assert writer.field("disk.size/0") == f"{SIZE_MIB + 16}"
    writer.goes_on()


def test_it_is_copied_to_another_node(writer: Writer) -> None:
    said = writer.goes_on()
    writer.master.run(f"gnt-instance move --force -n node2.example.com {writer.name}")
    assert volumes(writer.machines[2]) == set()
    assert len(volumes(writer.machines[1])) == 1
    assert writer.check() >= said


def test_its_removal_leaves_nothing(writer: Writer) -> None:
    writer.master.run(f"gnt-instance remove --force {writer.name}")
    for machine in writer.machines:
        assert volumes(machine) == set()
