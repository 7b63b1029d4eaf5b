"""Real QEMU with UEFI: variables on a disk of the instance, secure boot, and where it is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.waiting import wait_until
from guests.instances import make_instance
from guests.nodes import QEMU, KvmNodes, kvm_nodes

from ganeti.base.errors import HotplugError, OpPrereqError
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.hypervisor.kvm.hardware import firmware
from ganeti.hypervisor.kvm.monitor import Monitor
from ganeti.objects.rpc_instance import RpcInstance

CODE = Path("/usr/share/OVMF/OVMF_CODE_4M.fd")
VARS_BYTES = 540672
SECURE: Mapping[str, object] = {"machine_version": "q35", "firmware": "uefi-secure"}
pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(QEMU is None, reason="needs qemu-system-x86_64"),
    pytest.mark.skipif(not CODE.exists(), reason="needs the firmware of the package ovmf"),
]


@pytest.fixture
def nodes() -> Iterator[KvmNodes]:
    with kvm_nodes(2) as found:
        yield found


def instance(**hvparams: object) -> RpcInstance:
    return make_instance(
        memory_mib=128,
        kernel_path="",
        kvm_flag="disabled",
        **({"firmware": "uefi"} | hvparams),  # type: ignore[arg-type]  # only hvparams
    )


def store(nodes: KvmNodes, size_mib: int = 4) -> AssembledDisk:
    """Return an empty disk for variables."""
    disk = nodes.boot_disk(1)
    os.truncate(disk.dev_path, 0)
    os.truncate(disk.dev_path, size_mib << 20)
    return replace(disk, size_mib=size_mib, name="uefi-vars")


@pytest.mark.parametrize("kind", [{}, SECURE], ids=["plain", "secure"])
def test_variables_begin_as_the_packages_and_move_with_the_machine(
    nodes: KvmNodes, kind: Mapping[str, object]
) -> None:
    source, target = nodes.nodes
    of, boot, kept = instance(**kind), nodes.boot_disk(), store(nodes)
    source.driver.start(of, [boot, kept], paused=True)
    initial = "OVMF_VARS_4M.ms.fd" if kind else "OVMF_VARS_4M.fd"
    content = Path(kept.dev_path).read_bytes()
    assert content[:VARS_BYTES] == CODE.with_name(initial).read_bytes()
    assert not content[VARS_BYTES:].strip(b"\0")
    with Monitor.connect(of.name, source.files(of.name).socket_path("control")) as monitor:
        devices = monitor.execute("qom-list", {"path": "/machine/peripheral"})
        assert isinstance(devices, list)
        assert sum(str(row["name"]).startswith("disk-") for row in devices) == 1
        monitor.execute("cont")
    with pytest.raises(HotplugError, match="its machine keeps state"):
        source.driver.hotplug.remove_disk(of, kept.uuid)
    with pytest.raises(HotplugError, match="uefi-vars cannot be changed"):
        source.driver.hotplug.add_disk(of, replace(kept, uuid="f" * 32))
    nodes.move(of, [boot, kept])
    target.driver.stop(of.name, force=True)


@pytest.mark.skipif(
    not os.environ.get("GANETI_TEST_FIRMWARE"), reason="emulated; GANETI_TEST_FIRMWARE=1 runs it"
)
def test_the_firmware_runs_and_keeps_what_it_writes(nodes: KvmNodes) -> None:
    node = nodes.nodes[0]
    of, kept = instance(), store(nodes)
    node.driver.start(of, [nodes.boot_disk(), kept])
    initial = CODE.with_name("OVMF_VARS_4M.fd").read_bytes()
    wait_until(
        lambda: Path(kept.dev_path).read_bytes()[:VARS_BYTES] != initial, "variables", timeout_s=120
    )
    node.driver.stop(of.name, force=True)
    written = Path(kept.dev_path).read_bytes()
    node.driver.start(of, [nodes.boot_disk(), kept], paused=True)
    assert Path(kept.dev_path).read_bytes() == written


def test_what_is_missing_is_named(nodes: KvmNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    node, boot = nodes.nodes[0], nodes.boot_disk()
    with pytest.raises(OpPrereqError, match="--disk add:size=4m,name=uefi-vars inst1"):
        node.driver.start(instance(), [boot])
    kept = store(nodes)
    for disk, text in (
        (replace(kept, size_mib=0), "too small: 540672 bytes are kept"),
        (replace(kept, uri="rbd:pool/x"), "must be raw, and a device"),
    ):
        with pytest.raises(OpPrereqError, match=f"disk uefi-vars.*{text}"):
            node.driver.start(instance(), [boot, disk])
    other = bytearray(CODE.with_name("OVMF_VARS.fd").read_bytes())
    Path(kept.dev_path).write_bytes(other.ljust(4 << 20, b"\0"))
    with pytest.raises(
        OpPrereqError, match=r"has 131072 bytes of variables, the firmware .* 540672"
    ):
        node.driver.start(instance(), [boot, kept])
    with pytest.raises(OpPrereqError, match="uefi-secure needs machine_version q35"):
        node.driver.check_params(instance(firmware="uefi-secure").hvparams)
    monkeypatch.setattr(firmware, "_PLACES", {"uefi": [("/no/code", "/no/vars")]})
    with pytest.raises(
        OpPrereqError, match=r"node node1.* no such firmware .package ovmf.*/no/code"
    ):
        node.driver.check_on_node(instance().hvparams)
    assert node.process(instance().name) is None
