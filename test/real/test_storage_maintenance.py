"""A disk that dies below DRBD while maintenance is switched on: its node is repaired, or emptied.

A diagnose command on each node looks for devices of DRBD that have lost their disk above volumes that return
errors.  It asks for a repair as long as there is something to put in their place, else for the node to be
emptied.  (A device without its disk above good volumes is mended by `gnt-cluster verify-disks`.)  The guest goes
on all the time, also while it leaves the node whose disk died.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rig.containers import Machine
from rig.virtual_machines import SYNC_DATA, VOLUME_GROUP, VirtualMachines
from rig.writer import ADD, Writer, break_volume, volume_of, volumes, wait_for_sync

SIZE_MIB = 32
FIRST, SECOND, THIRD = (f"node{n}.example.com" for n in (1, 2, 3))
ERRORS = "0 {size} error"
DEADLINE_S = 600.0
SPARE = "/srv/spare"  # is there when a disk that died can be replaced
DIAGNOSE = f"""#!/bin/sh
lost=$(sed -n 's/^ *\\([0-9]*\\): cs:.* ds:Diskless.*/\\1/p' /proc/drbd | head -1)
if [ -z "$lost" ] || ! dmsetup table | grep -q ': [0-9]* [0-9]* error'; then
    echo '{{"status": "Ok"}}'
elif [ -e {SPARE} ]; then
    echo '{{"status": "live-repair", "command": "replace-disk", "details": {{"minor": '$lost'}}}}'
else echo '{{"status": "evacuate", "details": {{"minor": '$lost'}}}}'; fi
"""
REPAIR = f"""#!/bin/sh
set -e
grep -q '"minor": *[0-9]'
for volume in $(lvs --noheadings --options=lv_path {VOLUME_GROUP}); do lvchange --refresh $volume; done
rm {SPARE}
"""
COMMANDS = {"node-diagnose-commands/disks": DIAGNOSE, "node-repair-commands/replace-disk": REPAIR}


@pytest.fixture(scope="module")
def writer(nodes: VirtualMachines) -> Iterator[Writer]:
    for machine in nodes.machines:
        for name, text in COMMANDS.items():
            path = f"/etc/ganeti/{name}"
            machine.run(f"mkdir -p $(dirname {path}); cat > {path}; chmod 700 {path}", text)
    with Writer("maintained.example.com", nodes.machines) as writer:
        options = f"-t drbd -s {SIZE_MIB}m -n {SECOND}:{THIRD} -H kvm:disk_cache=writethrough"
        writer.master.run(f"{ADD} {options} {writer.name}")
        writer.goes_on()
        writer.master.run(
            "gnt-cluster modify --data-collector-interval=diagnose=5 --default-iallocator=hail"
            " --diagnose-data-collector-filename=disks --maintenance-interval=60"
        )
        yield writer
        writer.master.run(
            "gnt-cluster modify --maintenance-interval=0 --diagnose-data-collector-filename="
        )
        writer.master.run(f"gnt-instance remove --force {writer.name}")


def until_completed(writer: Writer, node: str, action: str) -> str:
    """Wait until the event of a node was acted on; returns the tag that the node got."""
    row = f"'^[^,]*,{node},{action},completed,'"
    found = writer.master.wait_until(
        f"gnt-maint list --no-headers --separator=, | grep {row}", DEADLINE_S
    )
    tag = f"maintd:repairready:{found.partition(',')[0]}"
    assert writer.master.run(f"gnt-node list-tags {node}").split() == [tag]
    return tag


def acknowledge(writer: Writer, node: str, tag: str) -> None:
    """Say that a node is well again, and wait until its event is forgotten."""
    writer.master.run(f"gnt-node remove-tags {node} {tag}")
    writer.master.wait_until('test -z "$(gnt-maint list --no-headers)"', DEADLINE_S)


def lose_disk(writer: Writer, machine: Machine) -> None:
    """Let the disk of the instance on a machine die, and the guest notice it."""
    break_volume(machine, volume_of(machine, writer.name), ERRORS)
    writer.goes_on()


@pytest.mark.shows("maintd/status/live-repair")
def test_a_disk_that_died_is_replaced_while_the_guest_writes(writer: Writer) -> None:
    primary = writer.primary()
    primary.run(f"touch {SPARE}")
    lose_disk(writer, primary)
    tag = until_completed(writer, SECOND, "live-repair")
    before = writer.goes_on()
    writer.master.run("gnt-cluster verify-disks")  # as the watcher does: the new disk is filled
    wait_for_sync(writer)
    acknowledge(writer, SECOND, tag)
    assert writer.goes_on() > before
    assert [machine.name for machine in writer.holders()] == [SECOND, THIRD]
    writer.copies_have_all()


@pytest.mark.shows("maintd/status/evacuate")
def test_a_node_that_lost_its_copy_is_emptied_while_the_guest_writes(writer: Writer) -> None:
    _, lost = writer.holders()
    before = writer.goes_on()
    lose_disk(writer, lost)
    tag = until_completed(writer, THIRD, "evacuate")
    assert [machine.name for machine in writer.holders()] == [SECOND, FIRST]
    assert writer.goes_on() > before
    role = f"gnt-node list --no-headers -o role,pinst_cnt,sinst_cnt {THIRD}"
    assert writer.master.run(role).split() == ["O", "0", "0"]
    writer.copies_have_all()
    assert volumes(lost) == set()
    lost.run(SYNC_DATA)
    writer.master.run(f"gnt-node modify --offline=no {THIRD}")
    acknowledge(writer, THIRD, tag)
    assert "ERROR" not in writer.master.try_run("gnt-cluster verify").out


def test_a_guest_leaves_the_node_whose_disk_died_and_writes_all_the_time(writer: Writer) -> None:
    left, other = writer.holders()
    writer.listen(other)
    before = writer.goes_on()
    lose_disk(writer, left)
    tag = until_completed(writer, SECOND, "evacuate")
    [spare] = {FIRST, SECOND, THIRD} - {left.name, other.name}
    assert [machine.name for machine in writer.holders()] == [other.name, spare]
    assert writer.goes_on() > before
    role = f"gnt-node list --no-headers -o role,pinst_cnt,sinst_cnt {SECOND}"
    assert writer.master.run(role).split() == ["O", "0", "0"]
    writer.copies_have_all()
    assert volumes(left) == set()
    left.run(SYNC_DATA)
    writer.master.run(f"gnt-node modify --offline=no {SECOND}")
    acknowledge(writer, SECOND, tag)
    assert "ERROR" not in writer.master.try_run("gnt-cluster verify").out
