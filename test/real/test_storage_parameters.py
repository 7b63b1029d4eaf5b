"""Parameters of disks as LVM and DRBD have them: stripes, volumes that exist, every option of DRBD.

Two machines get more physical volumes for the time of these tests: a second one in the volume group, and
one that is a group of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from guests import pattern
from rig.containers import Machine
from rig.virtual_machines import SYNC_DATA, VOLUME_GROUP, VirtualMachines
from rig.writer import ADD, Writer, volumes, wait_for_sync

from ganeti.objects import parameters
from ganeti.storage.drbd import show

SIZE_MIB = 16
FIRST, SECOND, THIRD = (f"node{n}.example.com" for n in (1, 2, 3))
FLUSHED = "-H kvm:disk_cache=writethrough"
OTHER_GROUP = "othervg"
MORE = f"""set -e
modprobe loop
for name in second other; do
    truncate -s 512M /srv/$name.disk
    losetup --find /srv/$name.disk
done
of() {{ losetup --noheadings --output=NAME --associated /srv/$1.disk; }}
vgextend {VOLUME_GROUP} $(of second)
vgcreate {OTHER_GROUP} $(of other)
"""
AGAIN = f"""set -e
for name in second other; do
    device=$(losetup --noheadings --output=NAME --associated /srv/$name.disk)
    [ $name = other ] && vgremove --yes {OTHER_GROUP} || vgreduce {VOLUME_GROUP} $device
    pvremove --yes $device
    losetup --detach $device
    rm /srv/$name.disk
done
{SYNC_DATA}
"""
STRIPED = f"lvs --noheadings --segments --units=k --nosuffix -o stripes,stripe_size {VOLUME_GROUP}"


@pytest.fixture(scope="module", autouse=True)
def pair(nodes: VirtualMachines) -> Iterator[list[Machine]]:
    """The two machines with more physical volumes."""
    pair: list[Machine] = list(nodes.machines[1:])
    for machine in pair:
        machine.run(MORE)
    yield pair
    for machine in pair:
        machine.run(AGAIN)


def stripes(machine: Machine) -> list[list[float]]:
    """Return [stripes, size of one in KiB] of each segment of the volumes of a machine."""
    return [list(map(float, line.split())) for line in machine.run(STRIPED).splitlines()]


def test_a_volume_has_the_stripes_of_its_disk(nodes: VirtualMachines, pair: list[Machine]) -> None:
    second, third = pair
    with Writer("striped.example.com", nodes.machines) as writer:
        run = writer.master.run
        disk = f"--disk 0:size={SIZE_MIB}m,stripes=2,stripe-size=16"
        run(f"{ADD} -t plain -n {THIRD} {disk} {FLUSHED} {writer.name}")
        assert stripes(third) == [[2, 16]]
        writer.goes_on()
        run(f"gnt-instance grow-disk {writer.name} 0 {SIZE_MIB}m")
        assert {count for count, _size in stripes(third)} == {2}
        said = writer.goes_on()
        run(f"gnt-instance move --force -n {SECOND} {writer.name}")
        assert stripes(second) == [[2, 16]]
        writer.listen(second)
        assert writer.goes_on() > said
        assert writer.check() > said
        run(f"gnt-instance remove --force {writer.name}")
        assert volumes(second) == volumes(third) == set()


def test_a_volume_that_exists_becomes_a_disk_and_keeps_its_data(
    nodes: VirtualMachines, pair: list[Machine]
) -> None:
    _second, third = pair
    third.run(
        f"lvcreate --yes --size={SIZE_MIB}m --name=precious {VOLUME_GROUP};"
        f" dd of=/dev/{VOLUME_GROUP}/precious bs=64k conv=fsync; {SYNC_DATA}",
        pattern.image(),
    )
    with Writer("adopted.example.com", nodes.machines) as writer:
        run = writer.master.run
        add = f"{ADD} -t plain -n {THIRD} --no-install --disk 0:adopt="
        refused = writer.master.try_run(f"{add}missing {writer.name}")
        assert f"there is no logical volume {VOLUME_GROUP}/missing" in refused.err
        run(f"{add}precious {FLUSHED} {writer.name}")
        assert volumes(third) == {"precious"}
        assert writer.field("disk.size/0") == f"{SIZE_MIB}"
        writer.start()  # without an installation it was not
        writer.check()
        run(f"gnt-instance modify -t drbd -n {SECOND} {writer.name}")
        writer.start()
        wait_for_sync(writer)
        writer.copies_have_all()
        run(f"gnt-instance remove --force {writer.name}")
        for machine in pair:
            assert volumes(machine) == set()


# Each parameter of DRBD with another value than its default, and what the device then has.
FIXED_SPEED = {"resync-rate": "20480"}, {"resync-rate": "20480k"}
CONTROLLED = (
    {
        "dynamic-resync": "yes",
        "c-plan-ahead": "30",
        "c-fill-target": "200",
        "c-delay-target": "5",
        "c-max-rate": "40960",
        "c-min-rate": "2048",
    },
    {
        "c-plan-ahead": "30",
        "c-fill-target": "200s",
        "c-delay-target": "5",
        "c-max-rate": "40960k",
        "c-min-rate": "2048k",
    },
)
OTHERS = (
    {
        "disk-barriers": "bf",
        "meta-barriers": "yes",
        "disk-custom": "--al-extents=257",
        "net-custom": "--max-buffers=4000",
        "protocol": "B",
    },
    {
        "disk-flushes": "no",
        "md-flushes": "no",
        "al-extents": "257",
        "max-buffers": "4000",
        "protocol": "B",
    },
)
OF_VOLUMES = {"data-stripes": "2", "meta-stripes": "2", "metavg": OTHER_GROUP}


def options(machine: Machine) -> dict[str, str]:
    """Return all options of the only device of a machine."""
    [resource] = show.parse(machine.run("drbdsetup show"))
    [volume] = resource.volumes.values()
    return {**resource.options, **volume.options}


def set_parameters(master: Machine, values: dict[str, str]) -> None:
    given = ",".join(f"{name}={value}" for name, value in values.items())
    master.run(f"gnt-cluster modify --disk-parameters=drbd:{given}")


def test_every_parameter_of_drbd_reaches_the_device(
    nodes: VirtualMachines, pair: list[Machine]
) -> None:
    master = nodes.machines[0]
    tried = (FIXED_SPEED, CONTROLLED, OTHERS)
    names = {name for given, _ in tried for name in given} | OF_VOLUMES.keys()
    assert names == parameters.DISKPARAMS["drbd"].keys()
    usual = {name: parameters.DISKPARAMS["drbd"][name].default for name in names}
    try:
        with Writer("options.example.com", nodes.machines) as writer:
            given, wanted = OTHERS
            set_parameters(master, {**given, **FIXED_SPEED[0], "data-stripes": "2"})
            disk = f"--disk 0:size={SIZE_MIB}m,metavg={OTHER_GROUP}"
            master.run(f"{ADD} -t drbd -n {SECOND}:{THIRD} {disk} {FLUSHED} {writer.name}")
            for machine in pair:
                assert options(machine).items() >= {**wanted, **FIXED_SPEED[1]}.items()
                assert stripes(machine)[0][0] == 2
                assert len(machine.run(f"lvs --noheadings {OTHER_GROUP}").splitlines()) == 1
            writer.goes_on()
            set_parameters(master, CONTROLLED[0])
            master.run(f"gnt-instance activate-disks {writer.name}")  # while it writes
            for machine in pair:
                assert options(machine).items() >= CONTROLLED[1].items()
            writer.goes_on()
            writer.copies_have_all()
            master.run(f"gnt-instance remove --force {writer.name}")
        set_parameters(master, {"meta-stripes": "2"})
        with Writer("meta.example.com", nodes.machines) as writer:
            disk = f"--disk 0:size={SIZE_MIB}m"
            master.run(f"{ADD} -t drbd -n {SECOND}:{THIRD} {disk} --no-start {writer.name}")
            for machine in pair:
                assert [count for count, _size in stripes(machine)] == [2, 2]
            master.run(f"gnt-instance remove --force {writer.name}")
        for machine in pair:
            assert volumes(machine) == set()
    finally:
        set_parameters(master, {name: f"{value}" for name, value in usual.items()})
