"""Real QEMU: processors, memory, disks and NICs that come to a running machine, and move with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from guests.instances import make_instance
from guests.nodes import QEMU, KvmNode, KvmNodes, kvm_nodes

from ganeti.base.errors import HotplugError, HypervisorError, OpPrereqError
from ganeti.hypervisor.interface import InstanceState
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.hypervisor.kvm.state import load_runtime
from ganeti.objects.rpc_instance import RpcInstance

pytestmark = [pytest.mark.qemu, pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64")]
Q35: Mapping[str, object] = {"machine_version": "q35", "pcie_ports": 10}


@pytest.fixture
def nodes() -> Iterator[KvmNodes]:
    with kvm_nodes(2) as found:
        yield found


def instance(nics: int = 0, **hvparams: object) -> RpcInstance:
    room: dict[str, object] = {"max_vcpus": 4, "max_memory": 512}
    return make_instance(
        nics=nics,
        kernel_path="",
        kvm_flag="disabled",
        **(room | hvparams),  # type: ignore[arg-type]  # only hvparams
    )


def size(node: KvmNode, of: RpcInstance) -> tuple[int, int]:
    info = node.driver.instance_info(of.name)
    assert info is not None
    assert info.state is InstanceState.RUNNING
    return info.vcpus, info.memory_mib


@pytest.mark.parametrize("machine", [{}, Q35], ids=["pc", "q35"])
def test_a_machine_grows_and_moves(nodes: KvmNodes, machine: Mapping[str, object]) -> None:
    source, target = nodes.nodes
    of = instance(**machine)
    disk = nodes.boot_disk()
    source.driver.start(of, [disk])
    source.wait_serial(of.name, "start 1")
    assert size(source, of) == (1, 16)
    source.driver.hotplug.grow(of, vcpus=3, memory_mib=16 + 128)
    source.driver.hotplug.grow(of, vcpus=3, memory_mib=16 + 128)  # it has that already
    source.driver.hotplug.grow(of, vcpus=3, memory_mib=16 + 3 * 128)
    assert size(source, of) == (3, 400)
    runtime = load_runtime(source.files(of.name))
    assert runtime is not None
    assert [dimm.size_mib for dimm in runtime.machine.dimms] == [128, 256]
    nodes.move(of, [disk])
    assert size(target, of) == (3, 400)
    target.driver.hotplug.grow(of, vcpus=4, memory_mib=400)
    assert size(target, of) == (4, 400)
    target.driver.stop(of.name, timeout_s=60)
    assert "power off" in target.serial(of.name)  # the guest went on, and hears the button


def test_what_there_is_no_room_for_is_refused(nodes: KvmNodes) -> None:
    node = nodes.nodes[0]
    of = instance(max_vcpus=2, max_memory=0)
    node.driver.start(of, [], paused=True)
    for vcpus, memory_mib, text in (
        (3, 16, "not started with room for 3 processors.* max_vcpus=3 .*reboot -t full"),
        (1, 256, "not started with room for 256 MiB.* max_memory=256 "),
        (1, 8, "less only after a restart"),
    ):
        with pytest.raises(HotplugError, match=text):
            node.driver.hotplug.grow(of, vcpus=vcpus, memory_mib=memory_mib)
    assert node.driver.instance_info(of.name).vcpus == 1


def test_devices_come_and_move_on_the_ports_of_q35(nodes: KvmNodes) -> None:
    source, target = nodes.nodes
    after = instance(2, **Q35)
    before = RpcInstance.from_wire(after.to_wire() | {"nics": [after.nics[0].to_wire()]})
    boot, new = nodes.boot_disk(), nodes.boot_disk(1)
    source.driver.start(before, [boot])
    source.wait_serial(after.name, "start 1")  # it is read from behind a port
    assert source.driver.hotplug.add_nic(after, after.nics[1], 1) == "port2"
    assert source.driver.hotplug.add_disk(after, new) == "port3"
    nodes.move(after, [boot, new])
    with Monitor.connect(after.name, target.files(after.name).socket_path("control")) as monitor:
        there = monitor.execute("qom-list", {"path": "/machine/peripheral"})
    assert isinstance(there, list)
    names = [str(row["name"]) for row in there]
    assert [sum(name.startswith(kind) for name in names) for kind in ("disk-", "nic-")] == [2, 2]
    assert sum(name.startswith("port") for name in names) == 10


def test_a_machine_without_ports_says_so(nodes: KvmNodes) -> None:
    node = nodes.nodes[0]
    of = instance(machine_version="q35")
    node.driver.start(of, [], paused=True)
    path = str(nodes.base / "new")
    with open(path, "wb") as file:
        os.truncate(file.fileno(), 1 << 20)
    disk = replace(nodes.boot_disk(), dev_path=path)
    with pytest.raises(HotplugError, match=r"without ports .hypervisor parameter pcie_ports"):
        node.driver.hotplug.add_disk(of, disk)


def test_a_disk_has_a_queue_for_each_processor(nodes: KvmNodes) -> None:
    node = nodes.nodes[0]
    of = make_instance(kernel_path="", kvm_flag="disabled", vcpus=3)
    node.driver.start(of, [nodes.boot_disk()])
    runtime = load_runtime(node.files(of.name))
    assert runtime is not None
    [disk] = runtime.machine.disks
    with Monitor.connect(of.name, node.files(of.name).socket_path("control")) as monitor:
        where = {"path": f"/machine/peripheral/{disk.device_id}", "property": "num-queues"}
        assert monitor.execute("qom-get", where) == 3


def test_a_device_of_the_node_is_refused_where_there_is_none(nodes: KvmNodes) -> None:
    source = nodes.nodes[0]
    of = instance(pci_pass="ffff:1f:1f.7")
    with pytest.raises(OpPrereqError, match=r"PCI device ffff:1f:1f\.7 to a guest: it does not"):
        source.driver.start(of, [nodes.boot_disk()])
    assert source.driver.instance_info(of.name) is None


def test_a_machine_with_devices_of_its_node_is_not_migrated(nodes: KvmNodes) -> None:
    source = nodes.nodes[0]
    source.driver.start(instance(), [nodes.boot_disk()])
    assert source.driver.migration is not None
    source.driver.migration.check(instance())
    with pytest.raises(HypervisorError, match="pci_pass"):
        source.driver.migration.check(instance(pci_pass="01:00.0"))
