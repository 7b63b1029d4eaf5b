"""The configuration of a domain: every parameter has its place in it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from guests.instances import UUID, make_instance
from msgspec.structs import replace

from ganeti.base.errors import OpPrereqError
from ganeti.hypervisor.interface import AssembledDisk, Disks
from ganeti.hypervisor.xen.config import Place, config_text, problems
from ganeti.objects.disk_templates import DiskMode
from ganeti.objects.hypervisors import HVPARAMS
from ganeti.objects.rpc_instance import RpcInstance, RpcNIC

DISK = AssembledDisk(0, "u", "/dev/xenvg/d0", 1024)
PLAIN = Place()
VNC = Place(vnc_address="192.0.2.1", vnc_password="secret")


def read(instance: RpcInstance, disks: Disks = (DISK,), place: Place = PLAIN) -> dict[str, Any]:
    lines = config_text(instance, disks, place).splitlines()
    assert lines[0].startswith("# Made by Ganeti")
    return {
        key: ast.literal_eval(value) for key, value in (each.split(" = ", 1) for each in lines[1:])
    }


def pv(**more: Any) -> RpcInstance:
    return make_instance("web1", "xen-pvm", **more)


def hvm(**more: Any) -> RpcInstance:
    return make_instance("web1", "xen-hvm", **more)


def test_the_defaults_of_a_paravirtual_guest() -> None:
    assert read(pv()) == {
        "name": "web1",
        "uuid": UUID,
        "type": "pv",
        "kernel": "/boot/vmlinuz-3-xenU",
        "root": "/dev/xvda1",
        "extra": "ro",
        "memory": 16,
        "maxmem": 16,
        "vcpus": 1,
        "cpu_weight": 256,
        "cap": 0,
        "disk": ["format=raw,backendtype=phy,vdev=sda,access=w,target=/dev/xenvg/d0"],
        "vif": [],
        "on_poweroff": "destroy",
        "on_reboot": "restart",
        "on_crash": "restart",
    }


def test_the_defaults_of_a_full_machine() -> None:
    found = read(hvm(), place=VNC)
    assert "kernel" not in found  # what 3.0 names there, Xen finds by itself
    assert {
        key: found[key] for key in ("type", "boot", "pae", "acpi", "viridian", "localtime")
    } == {"type": "hvm", "boot": "cd", "pae": 1, "acpi": 1, "viridian": 0, "localtime": 0}
    assert [found[key] for key in ("vnc", "vnclisten", "vncdisplay", "vncunused", "vncpasswd")] == [
        *(1, "192.0.2.1", 5100, 0, "secret")
    ]
    assert found["disk"][0].split(",")[2] == "vdev=hda"
    assert read(hvm())["vnc"] == 0
    assert read(hvm(network_port=None), place=VNC)["vncunused"] == 1


# What each parameter does, beside the defaults: {parameter: (value, key, its value in the text)}
EFFECTS_PV: dict[str, tuple[Any, str, Any]] = {
    "blockdev_prefix": (
        "xvd",
        "disk",
        ["format=raw,backendtype=phy,vdev=xvda,access=w,target=/dev/xenvg/d0"],
    ),
    "bootloader_args": ("-q --debug", "bootloader_args", None),
    "bootloader_path": ("pygrub", "bootloader", None),
    "cpu_cap": (50, "cap", 50),
    "cpu_mask": ("1-2", "cpus", "1-2"),
    "cpu_weight": (512, "cpu_weight", 512),
    "cpuid": ("host,tm=0", "cpuid", "host,tm=0"),
    "initrd_path": ("/boot/initrd", "ramdisk", "/boot/initrd"),
    "kernel_args": ("ro quiet", "extra", "ro quiet"),
    "kernel_path": ("/boot/k", "kernel", "/boot/k"),
    "reboot_behavior": ("exit", "on_reboot", "destroy"),
    "root_path": ("", "root", None),
    "soundhw": ("hda", "soundhw", "hda"),
}
EFFECTS_HVM: dict[str, tuple[Any, str, Any]] = {
    **{name: EFFECTS_PV[name] for name in ("cpu_cap", "cpu_mask", "cpu_weight", "cpuid")},
    **{name: EFFECTS_PV[name] for name in ("blockdev_prefix", "reboot_behavior", "soundhw")},
    "acpi": (False, "acpi", 0),
    "boot_order": ("n", "boot", "n"),
    "device_model": ("/opt/qemu", "device_model_override", "/opt/qemu"),
    "kernel_path": ("/opt/hvmloader", "firmware_override", "/opt/hvmloader"),
    "pae": (False, "pae", 0),
    "pci_pass": (
        "01:00.0;0000:02:00.1,msitranslate=1",
        "pci",
        ["01:00.0", "0000:02:00.1,msitranslate=1"],
    ),
    "use_localtime": (True, "localtime", 1),
    "viridian": (True, "viridian", 1),
}
# Shown by the tests below, or by those of the driver
ELSEWHERE = {
    *("migration_mode", "migration_port", "xen_cmd", "vif_script", "use_bootloader"),
    *("cdrom_image_path", "disk_type", "nic_type", "vif_type"),
    *("vnc_bind_address", "vnc_password_file"),
}


def test_every_parameter_is_shown_somewhere() -> None:
    assert set(EFFECTS_PV) | ELSEWHERE >= set(HVPARAMS["xen-pvm"])
    assert set(EFFECTS_HVM) | ELSEWHERE >= set(HVPARAMS["xen-hvm"])


@pytest.mark.parametrize("name", EFFECTS_PV)
def test_what_a_parameter_of_xen_pvm_does(name: str) -> None:
    value, key, shown = EFFECTS_PV[name]
    assert read(pv(**{name: value})).get(key) == shown


@pytest.mark.parametrize("name", EFFECTS_HVM)
def test_what_a_parameter_of_xen_hvm_does(name: str) -> None:
    value, key, shown = EFFECTS_HVM[name]
    assert read(hvm(**{name: value})).get(key) == shown


def test_a_boot_loader_takes_the_place_of_the_kernel() -> None:
    found = read(pv(use_bootloader=True, bootloader_path="pygrub", bootloader_args="-q --debug"))
    assert (found["bootloader"], found["bootloader_args"]) == ("pygrub", ["-q", "--debug"])
    assert "kernel" not in found


def test_masks_and_what_is_kept() -> None:
    assert read(pv(vcpus=2, cpu_mask="0:all"))["cpus"] == ["0", "all"]
    assert read(pv(), place=Place(keeps_after_shutdown=True))["on_poweroff"] == "preserve"
    assert read(pv(), place=Place(files={"/boot/vmlinuz-3-xenU": "/root/k"}))["kernel"] == "/root/k"
    for text in ('a="b"', "\"'", "C:\\kernel", "ends\\", 'x\\"', "one\ntwo", "é"):
        assert read(pv(kernel_args=text))["extra"] == text


def test_disks(tmp_path: Path) -> None:
    file = tmp_path / "disk"
    file.touch()
    disks = [AssembledDisk(0, "u", str(file), 1), AssembledDisk(1, "v", "/dev/x", 1, DiskMode.RO)]
    assert read(hvm(cdrom_image_path="/srv/a.iso"), disks)["disk"] == [
        f"format=raw,vdev=hda,access=w,target={file}",
        "format=raw,backendtype=phy,vdev=hdb,access=r,target=/dev/x",
        "format=raw,vdev=hdc,access=r,devtype=cdrom,target=/srv/a.iso",
    ]
    third = [AssembledDisk(2, "w", "/dev/x", 1)]
    with pytest.raises(OpPrereqError, match="disk 2 is hdc in the guest, which is the CD drive"):
        read(hvm(cdrom_image_path="/srv/a.iso"), third)
    with pytest.raises(OpPrereqError, match="set access to kernelspace"):
        read(pv(), [AssembledDisk(0, "u", "", 1, uri="rbd:a/b")])
    with pytest.raises(OpPrereqError, match="names for 24 disks"):
        read(pv(), [DISK] * 25)


def vif(instance: RpcInstance, **nicparams: str) -> dict[str, str]:
    [nic] = instance.nics
    params: Any = {**nic.nicparams, **nicparams}
    changed: RpcNIC = replace(nic, nicparams=params, ip="192.0.2.7")
    [text] = read(replace(instance, nics=[changed]))["vif"]
    return dict(pair.split("=", 1) for pair in text.split(","))


def test_network_interfaces() -> None:
    mac = {"mac": "aa:00:00:00:00:00", "ip": "192.0.2.7"}
    assert vif(pv(nics=1)) == {**mac, "bridge": "xen-br0"}
    assert vif(pv(nics=1), mode="routed", link="t1") == {
        **mac,
        "script": "vif-route",
        "gatewaydev": "t1",
    }
    found = vif(pv(nics=1), mode="openvswitch", link="sw0", vlan=".10:20:30")
    assert found == {"mac": mac["mac"], "bridge": "sw0.10:20:30", "script": "vif-openvswitch"}
    with pytest.raises(OpPrereqError, match="vif-bridge knows no VLANs"):
        vif(pv(nics=1), vlan=".10")
    assert vif(pv(nics=1, vif_script="/etc/x"), vlan=".10")["script"] == "/etc/x"


@pytest.mark.parametrize(
    ("params", "shown"),
    [
        ({}, {"type": "ioemu", "model": "rtl8139"}),
        ({"nic_type": "e1000"}, {"type": "ioemu", "model": "e1000"}),
        ({"vif_type": "vif"}, {"type": "vif"}),
        ({"nic_type": "paravirtual"}, {"type": "vif"}),
    ],
)
def test_cards_of_a_full_machine(params: dict[str, str], shown: dict[str, str]) -> None:
    found = vif(hvm(nics=1, **params))
    assert {key: found[key] for key in ("type", "model") if key in found} == shown


@pytest.mark.parametrize(
    ("hypervisor", "params", "words"),
    [
        ("xen-pvm", {"cpu_mask": "x"}, "cpu_mask"),
        ("xen-pvm", {"blockdev_prefix": "/dev/"}, "blockdev_prefix"),
        ("xen-pvm", {"use_bootloader": True}, "needs bootloader_path"),
        ("xen-pvm", {"kernel_path": ""}, "kernel_path: is needed"),
        ("xen-hvm", {"vnc_bind_address": "eth0"}, "not an IP address"),
        ("xen-hvm", {"disk_type": "ioemu", "blockdev_prefix": "xvd"}, "needs blockdev_prefix"),
        ("xen-hvm", {"cdrom_image_path": "http://x/a.iso"}, "from files only"),
        ("xen-hvm", {"pci_pass": "01:00.0;nonsense"}, "'nonsense' is not a PCI device"),
    ],
)
def test_values_that_do_not_fit(hypervisor: str, params: dict[str, Any], words: str) -> None:
    defaults = {key: spec.default for key, spec in HVPARAMS[hypervisor].items()}
    assert list(problems(hypervisor, defaults)) == []
    [problem] = problems(hypervisor, {**defaults, **params})
    assert words in str(problem)
