"""The life of one mirrored disk on two machines with the real driver, call by call of the node daemon.

The tests build on one another, in the order of the file.  They take machines that run already, and the
sources of this tree, when they are named: GANETI_TEST_NODES=~/nodes, as `make nodes-up` made them.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rig.node_calls import PYTHON, NodeCaller
from rig.virtual_machines import VOLUME_GROUP, VirtualMachines

from ganeti.base.paths import Paths
from ganeti.logical_units.instance.storage.generations import Age, compare
from ganeti.protocol.node_rpc_values import CopySide
from ganeti.storage.drbd import show

ROOT = Path(__file__).parents[2]
MINOR, PORT, SECRET = 40, 14990, "5ecret"
DEVICE = f"/dev/drbd{MINOR}"
HELPER = "/sys/module/drbd/parameters/usermode_helper"
AVAILABLE = Paths().high_availability  # the file that says that high availability is on
TURN_OFF = """from ganeti.base.paths import Paths
from ganeti.storage.drbd import fencing
fencing.apply(Paths(), "/bin/true")
"""
NAME = "drbd-life"
INFO = "originstname+web1"
SYNC_TIMEOUT_S = 300
SIZE_MIB, MORE_MIB = 128, 64


class Side:
    """One of the two machines, with its side of the disk."""

    def __init__(self, machines: VirtualMachines, index: int) -> None:
        self.machines, self.index = machines, index
        self.machine = machines.machines[index]
        self.peer = machines.machines[1 - index]
        self.size_mib, self.secret = SIZE_MIB, SECRET
        self.params: dict[str, object] = {}

    def __enter__(self) -> Side:
        self.call = NodeCaller(self.machine)
        self.call.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.call.__exit__(*error)

    def child(self, part: str, size_mib: int, suffix: str = "") -> dict[str, Any]:
        name = f"{NAME}.disk0_{part}{suffix}"
        return _disk(f"{NAME}-{part}{suffix}", "plain", [VOLUME_GROUP, name], size_mib)

    def halves(self, suffix: str = "") -> list[dict[str, Any]]:
        return [self.child("data", self.size_mib, suffix), self.child("meta", 128, suffix)]

    @property
    def disk(self) -> dict[str, Any]:
        """The disk as this node gets it."""
        place = ["uuid1", "uuid2", PORT, MINOR, MINOR, self.secret]
        found = _disk(NAME, "drbd", place, self.size_mib)
        found["params"] = self.params
        found["children"] = self.halves()
        found["dynamic_params"] = {
            "port": PORT,
            "local-minor": MINOR,
            "remote-minor": MINOR,
            "local-ip": self.machine.secondary,
            "remote-ip": self.peer.secondary,
        }
        return found

    def create(self, on_primary: bool) -> None:
        for disk in (*self.halves(), self.disk):
            is_whole = disk["dev_type"] == "drbd"
            opened = on_primary and is_whole
            self.call("blockdev_create", disk, disk["size"], "web1", opened, INFO, False)

    def assemble(self, on_primary: bool) -> None:
        self.call("blockdev_assemble", self.disk, INSTANCE, on_primary, 0)

    def status(self) -> dict[str, Any]:
        [(is_well, status)] = self.call("blockdev_getmirrorstatus_multi", [self.disk])
        assert is_well, status
        return status

    def write(self, megabyte: int) -> None:
        """Write another pattern over one megabyte; it is on disks when this returns."""
        where = f"of={DEVICE} bs=1M count=1 seek={megabyte} oflag=direct conv=fsync"
        self.machine.run(f"dd if=/dev/urandom {where} status=none")

    def sum(self) -> str:
        return self.machine.run(f"md5sum < {DEVICE}").strip()

    def resource(self) -> show.Resource | None:
        found = show.parse(self.machine.run("drbdsetup show"))
        return next((each for each in found if each.name == f"resource{MINOR}"), None)


def _disk(uuid: str, template: str, logical_id: list[object], size_mib: int) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "dev_type": template,
        "logical_id": logical_id,
        "size": size_mib,
        "params": {},
        "children": [],
        "serial_no": 1,
        "iv_name": "",
        "mode": "rw",
        "nodes": [],
        "dynamic_params": {},
    }


INSTANCE = {
    "name": "web1",
    "uuid": "i1",
    "primary_node": "uuid1",
    "os": "none",
    "hypervisor": "kvm",
    "hvparams": {},
    "osparams": {},
    "admin_state": "up",
    "admin_state_source": "admin",
    "disks": [],
    "nics": [],
    "disks_active": True,
    "serial_no": 1,
    "ctime": 0,
    "mtime": 0,
    "beparams": {
        "minmem": 1,
        "maxmem": 1,
        "vcpus": 1,
        "spindle_use": 1,
        "auto_balance": True,
        "always_failover": False,
    },
}


def _copy_tree(machines: VirtualMachines) -> None:
    """Let machines that run already use the sources of this tree."""
    packed = subprocess.run(
        ["tar", "c", "--exclude=__pycache__", "ganeti"], cwd=ROOT, capture_output=True, check=True
    )
    for machine in machines.machines[:2]:
        machine.run("mkdir -p /root/tree && tar x -C /root/tree", packed.stdout)
        machine.run("ln -sfn /opt/ganeti/lib/ganeti/tools /root/tree/tools")  # the kernel runs one


@pytest.fixture(scope="module")
def machines(request: pytest.FixtureRequest) -> VirtualMachines:
    named = os.environ.get("GANETI_TEST_NODES")
    if named is None:
        return request.getfixturevalue("nodes")
    running = VirtualMachines.of(Path(named).expanduser())
    _copy_tree(running)
    return running


@pytest.fixture(scope="module")
def pair(machines: VirtualMachines) -> Iterator[tuple[Side, Side]]:
    with Side(machines, 0) as first, Side(machines, 1) as second:
        yield first, second
    left = f"$(lvs --noheadings -o lv_path {VOLUME_GROUP} | grep {NAME})"
    for side in (first, second):
        side.machine.run(f"drbdsetup down resource{MINOR}; lvremove -qf {left}; true")


def both(pair: tuple[Side, Side], action: Callable[[Side], object]) -> list[Any]:
    """Do the same on both machines at once, as the master does."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(action, pair))


def wait_in_sync(side: Side) -> None:
    until = time.monotonic() + SYNC_TIMEOUT_S
    while not side.call("drbd_wait_sync", [side.disk])[0]:
        assert time.monotonic() < until, side.status()


def connect(pair: tuple[Side, Side], *, dual: bool = False) -> None:
    both(pair, lambda side: side.call("drbd_attach_net", [side.disk], dual))


def disconnect(pair: tuple[Side, Side]) -> None:
    both(pair, lambda side: side.call("drbd_disconnect_net", [side.disk]))


def test_both_halves_are_made_and_the_first_is_copied(pair: tuple[Side, Side]) -> None:
    first, second = pair
    for side in pair:
        side.params = {"resync-rate": 1024}  # so slow that it can be watched
    second.create(on_primary=False)
    first.create(on_primary=True)
    status = first.status()
    assert (status["dev_path"], status["major"], status["minor"]) == (DEVICE, 147, MINOR)
    assert status["is_degraded"]
    assert second.status()["ldisk_status"] == 2
    [(paused, _)] = first.call("blockdev_pause_resume_sync", [first.disk], True)
    assert paused
    assert 0 <= first.status()["sync_percent"] < 100
    first.call("blockdev_pause_resume_sync", [first.disk], False)
    for side in pair:
        side.params = {}
        side.assemble(on_primary=side is first)
    wait_in_sync(first)
    for side in pair:
        status = side.status()
        assert (status["sync_percent"], status["is_degraded"]) == (None, False)
        assert status["ldisk_status"] == 1


def test_what_the_driver_shows_is_what_it_shows_of_3_0(pair: tuple[Side, Side]) -> None:
    found = pair[0].resource()
    assert found is not None
    assert found.options == {
        "cram-hmac-alg": "md5",
        "shared-secret": SECRET,
        "after-sb-0pri": "discard-zero-changes",
        "after-sb-1pri": "consensus",
    }
    [volume] = found.volumes.values()
    assert volume.data == f"/dev/{VOLUME_GROUP}/{NAME}.disk0_data"
    assert volume.options["size"] == f"{SIZE_MIB * 2048}s"
    assert volume.options["resync-rate"] == "61440k"


def test_a_node_tells_its_devices(pair: tuple[Side, Side]) -> None:
    asked = dict.fromkeys(("drbd-helper", "drbd-list", "drbd-version"), "")
    for side in pair:
        found = side.call("node_verify", asked, "c", {})
        assert found["drbd-helper"] == [True, side.call("drbd_helper")]
        assert MINOR in found["drbd-list"]
        assert found["drbd-version"].startswith("8.4.")


def test_the_primary_role_changes_sides(pair: tuple[Side, Side]) -> None:
    first, second = pair
    first.write(3)
    written = first.sum()
    first.call("blockdev_close", "web1", [first.disk])
    second.call("blockdev_open", "web1", [second.disk], True)
    assert second.sum() == written
    is_well, message = first.call.ask("blockdev_open", "web1", [first.disk], True)
    assert not is_well
    assert "Multiple primaries not allowed" in message


def test_both_write_while_a_migration_lasts(pair: tuple[Side, Side]) -> None:
    first, second = pair
    disconnect(pair)
    connect(pair, dual=True)
    first.call("blockdev_open", "web1", [first.disk], False)
    first.write(4)
    second.call("blockdev_close", "web1", [second.disk])
    connect(pair)
    is_well, _message = second.call.ask("blockdev_open", "web1", [second.disk], True)
    assert not is_well
    assert not first.status()["is_degraded"]


def test_parameters_reach_the_device_while_it_runs(pair: tuple[Side, Side]) -> None:
    first, _second = pair
    first.params = {"dynamic-resync": True, "c-max-rate": 50000, "disabled-barriers": "f"}
    first.assemble(on_primary=True)
    found = first.resource()
    assert found is not None
    [volume] = found.volumes.values()
    assert volume.options["c-max-rate"] == "50000k"
    assert volume.options["disk-flushes"] == "no"
    first.params = {"disk-custom": "--no-such=1"}
    is_well, message = first.call.ask("blockdev_assemble", first.disk, INSTANCE, True, 0)
    assert not is_well
    assert "unrecognized option '--no-such=1'" in message
    first.params = {}
    first.assemble(on_primary=True)


def test_a_stranger_is_left_alone(pair: tuple[Side, Side]) -> None:
    first, _second = pair
    before = first.resource()
    stranger = {**first.disk, "uuid": "other", "children": first.halves("_other")}
    for disk in stranger["children"]:
        first.call("blockdev_create", disk, disk["size"], "web2", False, INFO, False)
    for ask in (
        lambda: first.call.ask("blockdev_create", stranger, SIZE_MIB, "web2", True, INFO, False),
        lambda: first.call.ask("blockdev_assemble", stranger, INSTANCE, True, 0),
    ):
        is_well, message = ask()
        assert not is_well
        assert f"{NAME}.disk0_data and" in message
    first.call("blockdev_remove", stranger)
    assert first.resource() == before
    assert not first.status()["is_degraded"]


def test_it_grows_on_both_sides(pair: tuple[Side, Side]) -> None:
    for dryrun in (True, False):
        for side in pair:
            side.call("blockdev_grow", side.disk, MORE_MIB, dryrun, True, False)
    first = pair[0]
    first.call("blockdev_grow", first.disk, MORE_MIB, False, False, False)
    for side in pair:
        side.size_mib = SIZE_MIB + MORE_MIB
        [(size, _spindles)] = side.call("blockdev_getdimensions", [side.disk])
        assert size == side.size_mib << 20
    wait_in_sync(first)


def test_a_node_without_power_is_waited_for_and_catches_up(
    machines: VirtualMachines, pair: tuple[Side, Side]
) -> None:
    first, second = pair
    machines.pull_plug(second.machine)
    first.write(7)
    first.machine.wait_until(f"grep -E '^ *{MINOR}: cs:(WFC|NetworkF|Unconn)' /proc/drbd")
    assert first.status()["is_degraded"]
    is_well, message = first.call.ask("drbd_wait_sync", [first.disk])
    assert not is_well
    assert "WFConnection" in message
    second.call.__exit__()
    machines.start(second.machine)
    machines.wait_for(second.machine)
    second.__enter__()
    assert second.call("drbd_needs_activation", [second.disk]) == [NAME]
    second.assemble(on_primary=False)
    connect(pair)
    wait_in_sync(first)
    written = first.sum()
    first.call("blockdev_close", "web1", [first.disk])
    second.call("blockdev_open", "web1", [second.disk], True)
    assert second.sum() == written
    second.call("blockdev_close", "web1", [second.disk])
    first.call("blockdev_open", "web1", [first.disk], True)


def test_a_copy_left_behind_is_known_and_can_be_marked(pair: tuple[Side, Side]) -> None:
    first, second = pair
    before = [CopySide(*side.call("drbd_sides", [side.disk])[0]) for side in pair]
    assert [(side.is_connected, side.is_open) for side in before] == [(True, True), (True, False)]
    disconnect(pair)
    first.write(5)
    writer, left = (CopySide(*side.call("drbd_sides", [side.disk])[0]) for side in pair)
    assert (writer.is_open, left.is_open, left.is_outdated) == (True, False, False)
    assert compare(left, writer) is Age.OLDER
    assert compare(writer, left) is Age.NEWER
    assert left.alone_since is not None
    second.call("drbd_outdate", [second.disk])
    [side] = second.call("drbd_sides", [second.disk])
    assert CopySide(*side).is_outdated
    is_well, message = second.call.ask("blockdev_open", "web1", [second.disk], True)
    assert not is_well
    assert "UpToDate" in message
    connect(pair)
    wait_in_sync(first)
    second.call("drbd_outdate", [second.disk])  # means nothing while they are connected
    [side] = second.call("drbd_sides", [second.disk])
    assert not CopySide(*side).is_outdated


def test_under_high_availability_no_write_counts_before_the_copy_is_written_off(
    pair: tuple[Side, Side],
) -> None:
    first, second = pair  # the first machine is the master, whose daemons read the file too
    first.call("blockdev_close", "web1", [first.disk])
    second.call("blockdev_open", "web1", [second.disk], True)
    for side in pair:
        side.machine.run(f"touch {AVAILABLE}")
        try:
            side.assemble(on_primary=side is second)
        finally:
            side.machine.run(f"rm {AVAILABLE}")  # so that the helper says yes, without etcd
        resource = side.resource()
        assert resource is not None
        [volume] = resource.volumes.values()
        assert volume.options["fencing"] == "resource-and-stonith"
    helper = second.machine.run(f"cat {HELPER}").strip()
    assert helper.endswith("/drbd-fence-peer")
    second.machine.run("dmesg --clear")
    first.machine.run("ip link set eth1 down")
    try:
        second.write(6)
        log = second.machine.run("dmesg")
        assert f"{helper} fence-peer" in log
        assert "fence-peer helper returned 4 (peer was fenced)" in log
        assert "Outdated" in second.machine.run(f"grep -E '^ *{MINOR}: ' /proc/drbd")
    finally:
        first.machine.run("ip link set eth1 up")
    connect(pair)
    wait_in_sync(second)
    for side in pair:
        side.machine.run(f"{PYTHON} -", TURN_OFF)
        resource = side.resource()
        assert resource is not None
        assert all("fencing" not in each.options for each in resource.volumes.values())
        assert side.machine.run(f"cat {HELPER}").strip() == "/bin/true"
    written = second.sum()
    second.call("blockdev_close", "web1", [second.disk])
    first.call("blockdev_open", "web1", [first.disk], True)
    assert first.sum() == written


def test_the_storage_of_one_side_is_replaced(pair: tuple[Side, Side]) -> None:
    first, _second = pair
    written = first.sum()
    old, new = first.halves(), first.halves("_new")
    for disk in new:
        first.call("blockdev_create", disk, disk["size"], "web1", False, INFO, False)
    first.call("blockdev_removechildren", first.disk, old)
    assert first.status()["ldisk_status"] == 4
    for moved, suffix in ((old, "_replaced"), (new, "")):
        target = first.halves(suffix)
        names = [each["logical_id"] for each in target]
        pairs = list(zip(moved, names, strict=True))
        first.call("blockdev_rename", pairs)
    first.call("blockdev_addchildren", first.disk, old)
    wait_in_sync(first)
    assert first.sum() == written
    for disk in first.halves("_replaced"):
        first.call("blockdev_remove", disk)


def test_a_disk_with_errors_is_detached_and_told(pair: tuple[Side, Side]) -> None:
    first, second = pair
    volume = f"{VOLUME_GROUP}-{NAME.replace('-', '--')}.disk0_data"
    first.machine.run(f"dmsetup wipe_table --noflush {volume}")
    first.write(9)  # by the other node
    status = first.status()
    assert status["ldisk_status"] == 4
    assert first.call("drbd_needs_activation", [first.disk]) == [NAME]
    first.machine.run(f"lvchange --refresh {VOLUME_GROUP}/{NAME}.disk0_data")
    first.assemble(on_primary=True)
    wait_in_sync(first)
    assert not second.status()["is_degraded"]


def test_only_who_knows_the_secret_is_connected(pair: tuple[Side, Side]) -> None:
    first, second = pair
    disconnect(pair)
    second.secret = "0ther"
    second.assemble(on_primary=False)
    is_well, message = first.call.ask("drbd_attach_net", [first.disk], False)
    assert not is_well
    assert "not connected" in message or "another secret" in message
    second.secret = SECRET
    disconnect(pair)
    connect(pair)
    wait_in_sync(first)


def test_a_split_brain_is_told_and_decided_by_the_operator(pair: tuple[Side, Side]) -> None:
    first, second = pair
    disconnect(pair)
    first.write(1)
    second.call("blockdev_open", "web1", [second.disk], True)
    second.write(2)
    second.call("blockdev_close", "web1", [second.disk])
    answers = both(pair, lambda side: side.call.ask("drbd_attach_net", [side.disk], False))
    assert not any(is_well for is_well, _ in answers)
    told = [message for _, message in answers if "split brain" in message]
    assert told
    assert "gnt-instance replace-disks -s INSTANCE" in told[0]
    written = first.sum()
    second.call("blockdev_remove", second.disk)  # what replace-disks -s does
    second.create(on_primary=False)
    connect(pair)
    wait_in_sync(first)
    assert first.sum() == written


def test_nothing_is_left(pair: tuple[Side, Side]) -> None:
    for side in pair:
        side.call("blockdev_shutdown", side.disk)
        assert side.call("blockdev_find", side.disk) is None
        side.call("blockdev_remove", side.disk)
        side.call("blockdev_remove", side.disk)
        assert side.resource() is None
        assert NAME not in side.machine.run(f"lvs --noheadings -o lv_name {VOLUME_GROUP}")
