"""Real QEMU processes with a guest in one boot sector: its whole life on one node."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from fakes.waiting import wait_until
from guests.instances import make_instance
from guests.nodes import QEMU, KvmNode, KvmNodes, kvm_nodes

from ganeti.base.errors import HypervisorError, OpPrereqError
from ganeti.hypervisor.interface import ConsoleNode, InstanceState, get_hypervisor
from ganeti.hypervisor.kvm import qemu
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.hypervisor.kvm.qemu import probe
from ganeti.hypervisor.kvm.state import start_process
from ganeti.objects.hypervisors import RebootType

pytestmark = [pytest.mark.qemu, pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64")]
INSTANCE = make_instance(kernel_path="", kvm_flag="disabled")
NAME = INSTANCE.name


@pytest.fixture
def nodes() -> Iterator[KvmNodes]:
    with kvm_nodes() as found:
        yield found


@pytest.fixture
def node(nodes: KvmNodes) -> KvmNode:
    return nodes.nodes[0]


def states(node: KvmNode) -> dict[str, InstanceState]:
    return {info.name: info.state for info in node.driver.all_instances_info()}


@pytest.mark.shows("backend/overview/kvm")
def test_life_of_an_instance(nodes: KvmNodes, node: KvmNode) -> None:
    disk = nodes.boot_disk()
    assert node.driver.list_instances() == []
    node.driver.start(INSTANCE, [disk])
    node.wait_serial(NAME, "start 1")
    assert node.driver.list_instances() == [NAME]
    again = get_hypervisor("kvm", node.env, {})  # nothing is remembered in the driver
    info = again.instance_info(NAME)
    assert info is not None
    assert (info.memory_mib, info.vcpus, info.state) == (16, 1, InstanceState.RUNNING)
    assert info.cpu_time_s > 0
    with pytest.raises(HypervisorError, match="already here, and running"):
        again.start(INSTANCE, [disk])
    again.stop(NAME, timeout_s=60)
    assert "power off" in node.serial(NAME)
    assert again.instance_info(NAME) is None
    again.stop(NAME)
    left = [path for path in nodes.base.rglob("*") if path.is_file() or path.is_socket()]
    assert {path.suffix for path in left} <= {".log", ""}
    assert node.process(NAME) is None


def start_as_3_0(node: KvmNode, disk: str) -> list[str]:
    """Start QEMU with the files that 3.0 makes; returns those."""
    files = node.files(NAME)
    files.make_directories()
    directory = Path(node.env.paths.kvm_dir)
    ctrl, nics = directory / "ctrl", directory / "nic" / NAME
    for path in (directory / "uid", nics):
        path.mkdir(parents=True)
    (nics / "0").write_text("tap0")
    command = [
        *(str(QEMU), "-name", NAME, "-m", "24", "-smp", "1", "-pidfile", files.pid_file),
        *("-daemonize", "-machine", "pc", "-accel", "tcg", "-display", "none", "-nodefaults"),
        *("-monitor", f"unix:{ctrl}/{NAME}.monitor,server=on,wait=off"),
        *("-qmp", f"unix:{ctrl}/{NAME}.qmp,server=on,wait=off"),
        *("-serial", f"unix:{ctrl}/{NAME}.serial,server=on,wait=off"),
        *("-drive", f"file={disk},format=raw,if=ide"),
    ]
    subprocess.run(command, check=True, timeout=60)
    words: list[object] = [int(word) if word == "24" else word for word in command]
    runtime = [words, [], dict(INSTANCE.hvparams), []]
    Path(files.runtime).write_text(json.dumps(runtime))
    return [str(path) for path in directory.rglob("*") if path.is_file() or path.is_socket()]


def test_a_machine_of_3_0_is_taken_over(nodes: KvmNodes, node: KvmNode) -> None:
    disk = nodes.boot_disk()
    made = start_as_3_0(node, disk.dev_path)
    assert len(made) >= 6
    (info,) = node.driver.all_instances_info()
    assert (info.name, info.memory_mib, info.state) == (NAME, 24, InstanceState.RUNNING)
    assert node.driver.verify() is None
    (console, *_) = node.driver.consoles(INSTANCE, ConsoleNode("node1", "127.0.0.1"))
    assert f"{node.env.paths.kvm_dir}/ctrl/{NAME}.serial" in console.command
    with pytest.raises(HypervisorError, match="already here, and running"):
        node.driver.start(INSTANCE, [disk])
    assert node.driver.migration is not None
    with pytest.raises(HypervisorError, match=f"3.0, .*reboot --type=full {NAME}"):
        node.driver.migration.describe(INSTANCE)
    before = node.process(NAME)
    node.driver.reboot(INSTANCE, [disk], kind=RebootType.FULL, timeout_s=60)
    node.wait_serial(NAME, "start 2")  # the guest of the first start wrote that it had started
    after = node.process(NAME)
    assert before is not None
    assert after is not None
    assert after.pid != before.pid
    assert not [path for path in made if os.path.exists(path) and not path.endswith(known_ends())]
    assert node.driver.migration.describe(INSTANCE)
    node.driver.stop(NAME, timeout_s=60)
    assert node.process(NAME) is None


def known_ends() -> tuple[str, ...]:
    """The ends of names that our machines have as well."""
    return (f"pid/{NAME}", f"{NAME}.runtime", f"{NAME}.serial", f"{NAME}.monitor")


@pytest.mark.parametrize("content", ["[1, 2]", "[[]", '{"format": 99}'])
def test_a_description_that_cannot_be_read_is_told(
    nodes: KvmNodes, node: KvmNode, content: str
) -> None:
    disk = nodes.boot_disk()
    node.driver.start(INSTANCE, [disk])
    Path(node.files(NAME).runtime).write_text(content)
    found = node.driver.verify()
    assert found is not None
    assert f"{NAME}.runtime: no description of a machine" in found
    assert node.driver.list_instances() == [NAME]
    os.unlink(node.files(NAME).runtime)
    assert "is missing" in str(node.driver.verify())
    node.driver.stop(NAME, force=True)


def test_disk_keeps_what_the_guest_wrote(nodes: KvmNodes, node: KvmNode) -> None:
    disk = nodes.boot_disk()
    for count in (1, 2):
        node.driver.start(INSTANCE, [disk])
        node.wait_serial(NAME, f"start {count}")
        node.driver.stop(NAME, force=True)


def test_deaf_guest_is_ended_after_its_time(nodes: KvmNodes, node: KvmNode) -> None:
    node.driver.start(INSTANCE, [])
    started = time.monotonic()
    node.driver.stop(NAME, timeout_s=0.5)
    assert time.monotonic() - started > 0.4
    assert node.process(NAME) is None


def test_guest_without_a_power_button_is_ended_at_once(nodes: KvmNodes, node: KvmNode) -> None:
    node.driver.start(make_instance(kernel_path="", kvm_flag="disabled", acpi=False), [])
    started = time.monotonic()
    node.driver.stop(NAME, timeout_s=60)
    assert time.monotonic() - started < 30
    assert node.process(NAME) is None


def test_paused_start_waits(nodes: KvmNodes, node: KvmNode) -> None:
    node.driver.start(INSTANCE, [nodes.boot_disk()], paused=True)
    with Monitor.connect(NAME, node.files(NAME).socket_path("info")) as monitor:
        assert monitor.status() == "prelaunch"
    assert states(node) == {NAME: InstanceState.RUNNING}
    with pytest.raises(HypervisorError, match="already here"):
        node.driver.start(INSTANCE, [nodes.boot_disk(1)])


def test_soft_reboot_keeps_the_process(nodes: KvmNodes, node: KvmNode) -> None:
    disk = nodes.boot_disk()
    node.driver.start(INSTANCE, [disk])
    node.wait_serial(NAME, "start 1")
    before = node.process(NAME)
    node.driver.reboot(INSTANCE, [disk], kind=RebootType.SOFT, timeout_s=60)
    output = node.wait_serial(NAME, "start 2")
    assert "power off" in output  # the guest was asked, not only reset
    after = node.process(NAME)
    assert before is not None
    assert after is not None
    assert before.pid == after.pid
    node.driver.stop(NAME, timeout_s=60)
    assert node.process(NAME) is None  # the next power-off ends QEMU again


def test_soft_reboot_of_a_guest_that_exits_at_reboots_starts_it_again(
    nodes: KvmNodes, node: KvmNode
) -> None:
    """QEMU would end at the reset that a soft reboot in the same machine comes down to."""
    instance, disk = make_instance(kernel_path="", reboot_behavior="exit"), nodes.boot_disk()
    node.driver.start(instance, [disk])
    node.wait_serial(NAME, "start 1")
    before = node.process(NAME)
    node.driver.reboot(instance, [disk], kind=RebootType.SOFT, timeout_s=60)
    node.wait_serial(NAME, "start 2")
    after = node.process(NAME)
    assert before is not None
    assert after is not None
    assert before.pid != after.pid
    assert states(node) == {NAME: InstanceState.RUNNING}


@pytest.mark.shows("2.0/commands/cdrom")
@pytest.mark.parametrize("controller", ["lsi", "megasas", "virtio-scsi-pci"])
def test_a_scsi_disk_finds_a_place_beside_a_scsi_cd(
    nodes: KvmNodes, node: KvmNode, controller: str
) -> None:
    image = nodes.base / "cd.iso"
    image.write_bytes(b"\0" * 4096)
    instance = make_instance(
        kernel_path="",
        disk_type="scsi-hd",
        scsi_controller_type=controller,
        cdrom_image_path=str(image),
        cdrom2_image_path=str(image),
        cdrom_disk_type="scsi-cd",
    )
    node.driver.start(instance, [nodes.boot_disk()])
    assert node.driver.hotplug.add_disk(instance, nodes.boot_disk(1)) == "scsi.0/1"


def test_hard_reboot_makes_a_new_process(nodes: KvmNodes, node: KvmNode) -> None:
    disk = nodes.boot_disk()
    node.driver.start(INSTANCE, [disk])
    node.wait_serial(NAME, "start 1")
    before = node.process(NAME)
    node.driver.reboot(INSTANCE, [disk], kind=RebootType.HARD, timeout_s=60)
    node.wait_serial(NAME, "start 2")
    after = node.process(NAME)
    assert before is not None
    assert after is not None
    assert before.pid != after.pid


def test_user_shutdown_is_told_from_a_crash(nodes: KvmNodes, node: KvmNode) -> None:
    instance = make_instance(kernel_path="", kvm_flag="disabled", user_shutdown=True)
    disk = nodes.boot_disk()
    node.driver.start(instance, [disk])
    node.wait_serial(NAME, "start 1")
    with Monitor.connect(NAME, node.files(NAME).socket_path("control")) as monitor:
        monitor.execute("system_powerdown")  # as from inside the guest
    wait_until(lambda: states(node) == {NAME: InstanceState.SHUTDOWN}, "shutdown state")
    node.driver.start(instance, [disk])  # replaces what is left of it
    node.wait_serial(NAME, "start 2")
    process = node.process(NAME)
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: states(node) == {}, "end of the process")
    node.driver.start(instance, [disk])  # nor does a crash leave anything in the way
    node.wait_serial(NAME, "start 3")
    node.driver.stop(NAME, timeout_s=60)
    assert node.process(NAME) is None


def test_message_of_a_qemu_that_dies_is_in_the_error(nodes: KvmNodes, node: KvmNode) -> None:
    instance = make_instance(kernel_path="", kvm_flag="disabled", kvm_extra="-device nonsense")
    with pytest.raises(HypervisorError, match=r"QEMU ended at its start.*nonsense"):
        node.driver.start(instance, [nodes.boot_disk()])
    assert node.driver.list_instances() == []
    left = [path.name for path in Path(node.env.paths.run_dir).rglob("*") if not path.is_dir()]
    assert left == []


def test_start_that_was_cut_off_is_made_good(nodes: KvmNodes, node: KvmNode) -> None:
    """A child of the node daemon is killed between the start of QEMU and that of the guest."""
    disk = nodes.boot_disk()
    node.driver.start(INSTANCE, [disk], paused=True)
    runtime = Path(node.files(NAME).runtime)
    runtime.write_text(runtime.read_text().replace('"paused":true', '"paused":false'))
    assert states(node) == {NAME: InstanceState.SHUTDOWN}
    node.driver.start(INSTANCE, [disk])
    node.wait_serial(NAME, "start 1")


def test_number_of_another_process_is_not_mistaken(nodes: KvmNodes, node: KvmNode) -> None:
    files = node.files(NAME)
    files.make_directories()
    Path(files.pid_file).write_text(f"{os.getpid()}\n")
    assert node.driver.list_instances() == []
    node.driver.stop(NAME, force=True)
    node.driver.start(INSTANCE, [nodes.boot_disk()])
    node.wait_serial(NAME, "start 1")


def test_hanging_qemu_is_seen_and_ended(
    nodes: KvmNodes, node: KvmNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ganeti.hypervisor.kvm.state.INFO_TIMEOUT_S", 0.2)
    monkeypatch.setattr("ganeti.hypervisor.kvm.launch._CONNECT_TIMEOUT_S", 0.2)
    monkeypatch.setattr("ganeti.hypervisor.kvm.launch._EXIT_TIMEOUT_S", 0.2)
    monkeypatch.setattr("ganeti.hypervisor.kvm.state._TERM_TIMEOUT_S", 0.2)
    node.driver.start(INSTANCE, [nodes.boot_disk()])
    process = node.process(NAME)
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    info = node.driver.instance_info(NAME)
    assert info is not None
    assert (info.memory_mib, info.vcpus) == (16, 1)
    node.driver.stop(NAME)
    assert node.process(NAME) is None


def test_many_instances_are_told_apart(nodes: KvmNodes, node: KvmNode) -> None:
    names = [f"inst{number}.example.com" for number in (1, 2, 10)]
    for number, name in enumerate(names):
        node.driver.start(
            make_instance(name, kernel_path="", kvm_flag="disabled"), [nodes.boot_disk(number)]
        )
    assert node.driver.list_instances() == names
    node.driver.stop(names[1], force=True)
    assert node.driver.list_instances() == [names[0], names[2]]


def test_serial_console_takes_a_client(nodes: KvmNodes, node: KvmNode) -> None:
    node.driver.start(INSTANCE, [nodes.boot_disk()])
    node.wait_serial(NAME, "start 1")
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(node.files(NAME).link("serial"))
        received = b""
        while b"beat" not in received:
            received += client.recv(100)
    consoles = node.driver.consoles(INSTANCE, ConsoleNode("node1", "127.0.0.1"))
    assert [str(console.kind) for console in consoles] == ["ssh"]


@pytest.mark.shows("backend/overview/console", "2.1/vnc/parameter")
def test_vnc_asks_for_the_password(nodes: KvmNodes, node: KvmNode) -> None:
    password = Path(node.env.paths.vnc_password_file)
    password.parent.mkdir(parents=True)
    password.write_text("secret\n")
    instance = make_instance(
        kernel_path="",
        kvm_flag="disabled",
        vnc_bind_address="127.0.0.1",
        vnc_password_file="/etc/ganeti/vnc-cluster-password",
        network_port=11007,
    )
    node.driver.start(instance, [nodes.boot_disk()])
    with socket.create_connection((node.env.address, 11007), 60) as client:
        assert client.recv(12).startswith(b"RFB 003.")
        client.sendall(b"RFB 003.008\n")
        count = client.recv(1)[0]
        assert client.recv(count) == b"\x02"  # password only
    kinds = [
        (str(console.kind), console.host, console.port, console.display)
        for console in node.driver.consoles(instance, ConsoleNode("n", "192.0.2.1"))
    ]
    assert kinds == [("ssh", "n", None, None), ("vnc", "192.0.2.1", 11007, 5107)]


def test_vnc_has_its_socket_in_the_directory_that_was_named(nodes: KvmNodes, node: KvmNode) -> None:
    instance = make_instance(kernel_path="", kvm_flag="disabled", vnc_bind_address="/run/vnc")
    link = Path(node.env.paths.localize(f"/run/vnc/{NAME}.vnc"))
    link.parent.mkdir(parents=True)
    link.symlink_to("/left/by/an/earlier/run")
    node.driver.start(instance, [])
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(os.path.realpath(link))
        assert client.recv(12).startswith(b"RFB 003.")
    node.driver.stop(NAME, force=True)
    assert not link.is_symlink()


@pytest.mark.parametrize(
    "hvparams",
    [
        {"disk_type": "ide"},
        {"disk_type": "scsi-hd", "scsi_controller_type": "virtio-scsi-pci"},
        {"disk_type": "scsi"},
        {"machine_version": "q35", "kvm_pci_reservations": 16},
        {"disk_cache": "none", "disk_aio": "native", "disk_discard": "unmap"},
        {"disk_cache": "writethrough"},
        {"use_guest_agent": True, "usb_mouse": "tablet", "usb_devices": "keyboard"},
        {"soundhw": "hda", "vga": "cirrus", "use_localtime": True, "keymap": "de"},
        {"reboot_behavior": "exit", "cpu_sockets": 1, "cpu_cores": 1, "cpu_threads": 1},
        {"cpu_mask": "0"},
        {"cpu_sockets": 2, "cpu_cores": 3, "max_vcpus": 4},
        {
            "kvm_pci_reservations": 4,
            "use_guest_agent": True,
            "soundhw": "hda",
            "usb_mouse": "tablet",
        },
    ],
    ids=lambda hvparams: "-".join(hvparams),
)
def test_guest_boots_with(nodes: KvmNodes, node: KvmNode, hvparams: dict[str, object]) -> None:
    instance = make_instance(kernel_path="", kvm_flag="disabled", **hvparams)
    node.driver.check_params(instance.hvparams)
    node.driver.start(instance, [nodes.boot_disk()])
    node.wait_serial(NAME, "start 1")


@pytest.mark.parametrize("machine_version", ["pc", "q35"])
def test_a_floppy_fits_every_machine(nodes: KvmNodes, node: KvmNode, machine_version: str) -> None:
    image = nodes.base / "floppy.img"
    image.write_bytes(b"\0" * 1474560)
    instance = make_instance(
        kernel_path="",
        kvm_flag="disabled",
        machine_version=machine_version,
        floppy_image_path=str(image),
    )
    node.driver.start(instance, [nodes.boot_disk()])
    node.wait_serial(NAME, "start 1")


@pytest.mark.parametrize("nic_type", ["paravirtual", "e1000", "rtl8139", "ne2k_isa", "pcnet"])
def test_network_without_rights(nodes: KvmNodes, node: KvmNode, nic_type: str) -> None:
    instance = make_instance(kernel_path="", kvm_flag="disabled", nics=1, nic_type=nic_type)
    node.driver.start(instance, [nodes.boot_disk()])
    node.wait_serial(NAME, "start 1")


@pytest.mark.shows("2.0/validation/on-node")
@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("kernel_path", "/nowhere/vmlinuz"),
        ("cdrom_image_path", "/nowhere/cd.iso"),
        ("kvm_path", "/nowhere/qemu"),
        ("vnc_password_file", "/nowhere/password"),
        ("machine_version", "commodore64"),
        ("cpu_type", "z80"),
        ("mem_path", "/nowhere"),
        ("kvm_path", "/bin/true"),
        ("keymap", "klingon"),
        ("migration_caps", "xbzrle:teleport"),
        ("cpu_mask", "all:0-8191"),
        ("vnc_bind_address", "nosuch0"),
        ("vnc_bind_address", "203.0.113.77"),
        ("security_model", "pool"),
    ],
)
def test_what_the_node_lacks_is_named(node: KvmNode, parameter: str, value: str) -> None:
    hvparams = {"kernel_path": "", "vnc_bind_address": "127.0.0.1", parameter: value}
    with pytest.raises(OpPrereqError, match=parameter):
        node.driver.check_on_node(make_instance(**hvparams).hvparams)


@pytest.mark.skipif(os.path.exists("/dev/vhost-net"), reason="this machine has vhost-net")
def test_vhost_needs_its_device(node: KvmNode) -> None:
    with pytest.raises(OpPrereqError, match=r"vhost_net: there is no /dev/vhost-net on node node1"):
        node.driver.check_on_node(make_instance(kernel_path="", vhost_net=True).hvparams)


def test_parameters_that_fit_this_node(node: KvmNode) -> None:
    hvparams = {"kernel_path": "", "machine_version": "pc", "cpu_type": "qemu64"}
    hvparams |= {"keymap": "de", "migration_caps": "xbzrle", "cpu_mask": "0"}
    node.driver.check_on_node(make_instance(**hvparams).hvparams)
    assert node.driver.verify() is None
    assert int(str(node.driver.node_info()["memory_total"])) > 0


def test_launch_of_nothing_is_an_error(node: KvmNode) -> None:
    node.files(NAME).make_directories()
    with pytest.raises(HypervisorError, match="/nowhere"):
        start_process(["/nowhere"], node.files(NAME), [])


def test_whether_kvm_works_is_found_by_running_a_guest(nodes: KvmNodes, node: KvmNode) -> None:
    assert QEMU is not None
    found = probe(QEMU, node.env.paths)
    assert found.usable or found.reason
    with mock.patch.object(qemu, "_probe", side_effect=AssertionError("it ran again")):
        assert probe(QEMU, node.env.paths) == found
    assert set(os.listdir(node.env.paths.kvm_dir)) == {"accelerator", ".accelerator.lock"}
    node.driver.start(make_instance(kernel_path=""), [nodes.boot_disk()])
    process = node.process(NAME)
    assert process is not None
    assert process.argument("-accel") == ("kvm" if found.usable else "tcg")
    node.wait_serial(NAME, "start 1")
