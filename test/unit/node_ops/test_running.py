"""Devices that come to and go from a running instance: what the node does in which order."""

from __future__ import annotations

from typing import Any

import pytest
from guests.instances import make_instance

from ganeti.base.errors import GenericError, HotplugError
from ganeti.base.paths import Paths
from ganeti.node_ops.context import NodeContext
from ganeti.node_ops.instances import running
from ganeti.objects.rpc_instance import RpcNIC

INSTANCE = make_instance(nics=2)
OLD = INSTANCE.nics[1]
NEW = RpcNIC.from_wire(OLD.to_wire() | {"mac": "aa:00:00:00:00:99"})


class Driver:
    """Records what is done; refuses some MAC addresses and removals."""

    def __init__(self, refused: str = "", keeps: bool = False) -> None:
        self.done: list[tuple[str, str, int | None]] = []
        self._refused = refused
        self._keeps = keeps
        self.hotplug = self

    def add_nic(self, _instance: object, nic: RpcNIC, index: int) -> str:
        self.done.append(("plug", nic.mac, index))
        if nic.mac == self._refused:
            raise HotplugError("no")
        return "pci.0/0x10"

    def remove_nic(self, _instance: object, uuid: str) -> None:
        if self._keeps:
            raise HotplugError("the guest keeps it")
        self.done.append(("unplug", uuid, None))


def change(monkeypatch: pytest.MonkeyPatch, driver: Driver, action: str, nic: RpcNIC) -> Any:
    monkeypatch.setattr(NodeContext, "hypervisor_of", lambda _context, _instance: driver)
    context = NodeContext(Paths("/proc/nowhere"), "node1.example.com")
    return running.RunningInstances(context).hotplug_device(
        INSTANCE, action, "nic", nic.to_wire(), None, 1
    )


def test_a_nic_is_changed_by_replacing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    assert change(monkeypatch, driver, "hotmod", NEW) == "pci.0/0x10"
    assert driver.done == [("unplug", OLD.uuid, None), ("plug", NEW.mac, 1)]


def test_the_old_one_comes_back_when_the_new_one_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(refused=NEW.mac)
    with pytest.raises(HotplugError, match="no"):
        change(monkeypatch, driver, "hotmod", NEW)
    assert driver.done[-1] == ("plug", OLD.mac, 1)


def test_a_nic_that_the_guest_keeps_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(keeps=True)
    with pytest.raises(HotplugError, match="keeps"):
        change(monkeypatch, driver, "hotmod", NEW)
    assert driver.done == []


def test_an_unknown_change_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GenericError, match="hotplug of 'nic' by 'dance' is not known"):
        change(monkeypatch, Driver(), "dance", NEW)
