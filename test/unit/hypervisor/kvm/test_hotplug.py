"""Disks that come and go: what QEMU is asked, and what is made of its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from guests.instances import make_instance

from ganeti.base.errors import HotplugError
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.hypervisor.kvm import hotplug
from ganeti.hypervisor.kvm.machine import Machine, build_machine
from ganeti.hypervisor.kvm.monitor import Monitor, MonitorError
from ganeti.protocol.qmp import Event


def disk(number: int, size_mib: int = 8) -> AssembledDisk:
    uuid = f"{number:032x}"
    return AssembledDisk(index=number, uuid=uuid, dev_path=f"/d{number}", size_mib=size_mib)


def machine(count: int = 1, **hvparams: object) -> Machine:
    disks = [disk(number) for number in range(count)]
    return build_machine(make_instance(**hvparams), disks, accelerator="tcg")


class FakeMonitor:
    """A QEMU that has the devices of a machine, and a guest that lets them go or does not."""

    def __init__(self, has: Machine, *, slots: tuple[int, ...] = (0, 1, 2, 12)) -> None:
        self.devices = {one.device_id for one in has.disks}
        self.images = {one.node_name for one in has.disks}
        self.slots = slots
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.refusals: dict[str, str] = {}
        self.events: list[Event] = []
        self.lets_go = True

    def execute(self, command: str, arguments: Any = None) -> object:
        if command == "qom-list":
            return [{"name": name} for name in self.devices]
        self.asked.append((command, arguments))
        if command in self.refusals:
            raise MonitorError(f"QEMU refused {command}: {self.refusals.pop(command)}")
        match command:
            case "blockdev-add":
                self.images.add(arguments["node-name"])
            case "blockdev-del":
                self.images.remove(arguments["node-name"])
            case "device_add":
                self.devices.add(arguments["id"])
            case "device_del" if self.lets_go:
                self.devices.remove(arguments["id"])
                self.events.append(Event("DEVICE_DELETED", {"path": "/machine/other"}))
                self.events.append(Event("DEVICE_DELETED", {"device": arguments["id"]}))
        return {}

    def query_list(self, command: str) -> list[Mapping[str, object]]:
        if command == "query-pci":
            return [{"devices": [{"slot": slot} for slot in self.slots]}]
        return [{"node-name": name} for name in self.images]

    def wait_event(self, _names: frozenset[str], _timeout_s: float) -> Event | None:
        return self.events.pop(0) if self.events else None

    def names(self) -> list[str]:
        return [command for command, _ in self.asked]


def plug(monitor: FakeMonitor, has: Machine, new: AssembledDisk) -> Machine:
    return hotplug.add_disk(cast("Monitor", monitor), has, new)[0]


def unplug(monitor: FakeMonitor, has: Machine, uuid: str) -> Machine:
    return hotplug.remove_disk(cast("Monitor", monitor), has, uuid)


def test_a_disk_gets_the_first_place_that_nobody_has() -> None:
    has = machine()
    monitor = FakeMonitor(has, slots=(0, 1, 12, 13))
    after = plug(monitor, has, disk(5))
    assert [one.slot for one in after.disks] == [12, 14]
    assert monitor.names() == ["blockdev-add", "device_add"]
    assert monitor.asked[1][1]["addr"] == "0xe"


def test_a_disk_on_the_scsi_bus_gets_a_free_number() -> None:
    has = machine(2, disk_type="scsi-hd")
    after = plug(FakeMonitor(has), has, disk(5))
    assert [one.unit for one in after.disks] == [0, 1, 2]
    back = unplug(FakeMonitor(after), after, disk(0).uuid)
    assert [one.unit for one in plug(FakeMonitor(back), back, disk(6)).disks] == [1, 2, 0]


def test_a_disk_that_is_there_is_left_as_it_is() -> None:
    has = machine()
    monitor = FakeMonitor(has)
    assert plug(monitor, has, disk(0)) == has
    assert monitor.asked == []


def test_a_disk_that_the_guest_gave_up_late_comes_back() -> None:
    has = machine()
    monitor = FakeMonitor(has)
    monitor.devices.clear()
    monitor.images.clear()
    assert len(plug(monitor, has, disk(0)).disks) == 1
    assert monitor.devices == {has.disks[0].device_id}


def test_an_image_is_closed_when_its_device_is_refused() -> None:
    has = machine()
    monitor = FakeMonitor(has)
    monitor.refusals["device_add"] = "no slot"
    with pytest.raises(HotplugError, match="no slot"):
        plug(monitor, has, disk(5))
    assert monitor.images == {has.disks[0].node_name}


@pytest.mark.parametrize(
    ("hvparams", "text"),
    [({"disk_type": "ide"}, "type ide cannot be changed"), ({"machine_version": "q35"}, "the bus")],
)
def test_machines_that_cannot_say_so(hvparams: dict[str, object], text: str) -> None:
    has = machine(**hvparams)
    with pytest.raises(HotplugError, match=text):
        plug(FakeMonitor(has), has, disk(5))


def test_a_disk_goes_once_its_guest_has_let_it_go() -> None:
    has = machine(2)
    monitor = FakeMonitor(has)
    after = unplug(monitor, has, disk(0).uuid)
    assert [one.uuid for one in after.disks] == [disk(1).uuid]
    assert monitor.names() == ["device_del", "blockdev-del"]
    assert unplug(monitor, after, disk(0).uuid) == after


def test_a_guest_that_refuses_keeps_its_disk() -> None:
    has = machine()
    monitor = FakeMonitor(has)
    monitor.lets_go = False
    device = has.disks[0].device_id
    monitor.events = [Event("DEVICE_UNPLUG_GUEST_ERROR", {"device": device})]
    with pytest.raises(HotplugError, match="the guest refuses"):
        unplug(monitor, has, disk(0).uuid)


def test_a_guest_that_does_nothing_keeps_its_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hotplug, "UNPLUG_TIMEOUT_S", 0.01)
    has = machine()
    monitor = FakeMonitor(has)
    monitor.lets_go = False
    with pytest.raises(HotplugError, match=r"did not let device .* go"):
        unplug(monitor, has, disk(0).uuid)


def test_a_request_that_is_pending_is_waited_for() -> None:
    has = machine()
    monitor = FakeMonitor(has)
    monitor.refusals["device_del"] = "Device disk is already in the process of unplug"
    monitor.events = [Event("DEVICE_DELETED", {"device": has.disks[0].device_id})]
    assert unplug(monitor, has, disk(0).uuid).disks == ()


def test_a_disk_that_grew_is_told() -> None:
    has = machine()
    monitor = FakeMonitor(has)
    hotplug.resize_disk(cast("Monitor", monitor), has, disk(0, size_mib=9))
    assert monitor.asked == [
        ("block_resize", {"node-name": has.disks[0].node_name, "size": 9 << 20})
    ]
    with pytest.raises(HotplugError, match="does not have disk"):
        hotplug.resize_disk(cast("Monitor", monitor), has, disk(5))
