"""Network interfaces that come to a running machine; no rights needed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from guests.instances import make_instance
from guests.nodes import QEMU, KvmNodes, kvm_nodes

from ganeti.base.errors import HotplugError
from ganeti.hypervisor.interface import get_hypervisor
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.hypervisor.kvm.state import load_runtime
from ganeti.objects.rpc_instance import RpcInstance

pytestmark = [pytest.mark.qemu, pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64")]
AFTER = make_instance(kernel_path="", kvm_flag="disabled", nics=2)
BEFORE = RpcInstance.from_wire(AFTER.to_wire() | {"nics": [AFTER.nics[0].to_wire()]})
NEW = AFTER.nics[1]


@pytest.fixture
def nodes() -> Iterator[KvmNodes]:
    with kvm_nodes(2) as found:
        yield found


def macs(nodes: KvmNodes, index: int = 0) -> list[str]:
    """Return the MAC addresses that the guest's cards have."""
    files = nodes.nodes[index].files(AFTER.name)
    with Monitor.connect(AFTER.name, files.socket_path("control")) as monitor:
        return [
            str(
                monitor.execute(
                    "qom-get", {"path": f"/machine/peripheral/{name}", "property": "mac"}
                )
            )
            for name in peripherals(monitor)
            if name.startswith("nic-")
        ]


def peripherals(monitor: Monitor) -> list[str]:
    rows = monitor.execute("qom-list", {"path": "/machine/peripheral"})
    assert isinstance(rows, list)
    return sorted(str(row["name"]) for row in rows)


def test_a_nic_comes_and_moves_with_the_machine(nodes: KvmNodes) -> None:
    source = nodes.nodes[0]
    disk = nodes.boot_disk()
    source.driver.start(BEFORE, [disk])
    again = get_hypervisor("kvm", source.env, {})  # nothing is remembered in the driver
    assert again.hotplug.add_nic(BEFORE, NEW, 1).startswith("pci.0/")
    assert macs(nodes) == ["aa:00:00:00:00:00", "aa:00:00:00:00:01"]
    with pytest.raises(HotplugError, match="already"):
        source.driver.hotplug.add_nic(BEFORE, NEW, 1)

    nodes.move(AFTER, [disk])
    assert macs(nodes, 1) == ["aa:00:00:00:00:00", "aa:00:00:00:00:01"]


def test_a_nic_that_does_not_fit_leaves_nothing(nodes: KvmNodes) -> None:
    node = nodes.nodes[0]
    full = make_instance(kernel_path="", kvm_flag="disabled", nics=1, kvm_pci_reservations=31)
    node.driver.start(full, [])
    before = load_runtime(node.files(full.name))
    with pytest.raises(HotplugError, match="kvm_pci_reservations"):
        node.driver.hotplug.add_nic(full, NEW, 1)
    assert load_runtime(node.files(full.name)) == before
    node.driver.hotplug.remove_nic(full, NEW.uuid)  # it has no such interface: nothing to do
    assert macs(nodes) == ["aa:00:00:00:00:00"]


def test_what_qemu_refuses_leaves_nothing(nodes: KvmNodes) -> None:
    node = nodes.nodes[0]
    instance = make_instance(kernel_path="", kvm_flag="disabled", nics=1)
    node.driver.start(instance, [])
    files = node.files(instance.name)
    before = load_runtime(files)
    broken = type(NEW).from_wire(NEW.to_wire() | {"mac": "no mac"})
    with pytest.raises(HotplugError, match="mac"):
        node.driver.hotplug.add_nic(instance, broken, 1)
    assert load_runtime(files) == before
    assert node.driver.hotplug.add_nic(instance, NEW, 1)  # its names are free again
