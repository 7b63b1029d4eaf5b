"""Snapshots of real logical volumes, thin ones and others, of a guest that writes all the time.

What a snapshot has is told by the numbers of the guest: all that were said before it was taken, none that
were said afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from guests import pattern
from rig.containers import Machine
from rig.virtual_machines import SYNC_DATA, VOLUME_GROUP, VirtualMachines
from rig.writer import ADD, Writer, read, volumes

SIZE_MIB, MORE_MIB = 16, 8
NODE = "node3.example.com"


@pytest.fixture
def machine(nodes: VirtualMachines) -> Iterator[Machine]:
    machine = nodes.machines[2]
    machine.run(
        f"lvcreate --yes --type=thin-pool --size=64m --name=pool {VOLUME_GROUP}; {SYNC_DATA}"
    )
    yield machine
    machine.run(f"lvremove --yes {VOLUME_GROUP}/pool; {SYNC_DATA}")


def used(machine: Machine, name: str) -> float:
    """Return how much of a thin volume or pool was written, in percent."""
    return float(machine.run(f"lvs --noheadings -o data_percent {VOLUME_GROUP}/{name}"))


@pytest.mark.parametrize("pool", ["none", "pool"])
def test_a_disk_goes_back_to_a_snapshot_and_stays_there_after_a_power_cut(
    nodes: VirtualMachines, machine: Machine, pool: str
) -> None:
    with Writer(f"{pool}.example.com", nodes.machines) as writer:
        run, name = writer.master.run, writer.name
        disk = f"-t plain -n {NODE} --disk 0:size={SIZE_MIB}m,thin-pool={pool}"
        run(f"{ADD} {disk} -H kvm:disk_cache=writethrough {name}")
        own = volumes(machine) - {"pool"}
        (volume,) = (f"/dev/{VOLUME_GROUP}/{each}" for each in own)
        before = writer.goes_on()
        run(f"gnt-instance snapshot create {name} first")
        after = writer.goes_on(1)
        run(f"gnt-instance snapshot create {name} second")
        writer.goes_on()
        if pool == "pool":  # others do not grow while there are snapshots
            run(f"gnt-instance grow-disk {name} 0 {MORE_MIB}m")
            assert used(machine, "pool") < 50
        refused = writer.master.try_run(f"gnt-instance snapshot --force restore {name} first")
        assert "is running on node" in refused.err
        run(f"gnt-instance shutdown {name}")
        said = writer.acknowledged()
        run(f"gnt-instance snapshot --force restore {name} first")
        nodes.pull_plug(nodes.machines[2])
        nodes.start(nodes.machines[2])
        nodes.wait_for(nodes.machines[2])
        assert before <= pattern.check(read(machine, volume), before) <= after < said
        grown = MORE_MIB if pool == "pool" else 0
        assert int(machine.run(f"blockdev --getsize64 {volume}")) == (SIZE_MIB + grown) << 20
        writer.begins_anew()
        writer.start()
        run(f"gnt-instance shutdown {name}")
        run(f"gnt-instance snapshot --force restore {name} second")
        assert after <= pattern.check(read(machine, volume), after) < said
        listed = run(f"gnt-instance snapshot --no-headers list {name}")
        assert [line.split()[0] for line in listed.splitlines()] == ["first", "second"]
        run(f"gnt-instance remove --force {name}")
        assert volumes(machine) == {"pool"}
        assert used(machine, "pool") == 0
