"""The machine that a guest sees."""

from __future__ import annotations

from dataclasses import replace

import pytest
from guests.instances import make_instance

from ganeti.base.errors import HypervisorError, OpPrereqError
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.hypervisor.kvm.machine import build_machine, with_machine_type
from ganeti.hypervisor.kvm.state import Runtime, decode_runtime, runtime_for_migration
from ganeti.objects.disk_templates import UEFI_VARS, DiskMode


def disks(count: int) -> list[AssembledDisk]:
    return [
        AssembledDisk(
            index=index, uuid=f"{index:032x}", dev_path=f"/d{index}", size_mib=1, mode=DiskMode.RW
        )
        for index in range(count)
    ]


@pytest.mark.parametrize(
    ("hvparams", "first"),
    [
        ({}, 4),
        ({"vga": "none"}, 4),
        ({"use_guest_agent": True}, 5),
        ({"spice_bind": "127.0.0.1"}, 5),
        ({"use_guest_agent": True, "soundhw": "hda"}, 6),
        ({"soundhw": "sb16"}, 4),
        ({"cdrom_image_path": "/cd", "cdrom_disk_type": "scsi-cd"}, 5),
        ({"pci_pass": "01:00.0,01:00.1"}, 6),
        ({"use_guest_agent": True, "kvm_pci_reservations": 8}, 8),
    ],
)
def test_too_few_places_for_other_devices_are_made_more(
    hvparams: dict[str, object], first: int
) -> None:
    instance = make_instance(**{"kvm_pci_reservations": 4, **hvparams})  # type: ignore[arg-type]
    machine = build_machine(instance, disks(1), accelerator="tcg")
    assert machine.disks[0].slot == first


def test_devices_get_their_places_after_the_reserved_ones() -> None:
    machine = build_machine(make_instance(nics=2), disks(2), accelerator="kvm")
    assert [disk.slot for disk in machine.disks] == [12, 13]
    assert [nic.slot for nic in machine.nics] == [14, 15]
    assert machine.cpu_type == ""


@pytest.mark.parametrize(
    ("count", "hvparams", "units"),
    [
        (4, {}, [1, 2, 3]),
        (7, {"cdrom_image_path": "/cd", "cdrom_disk_type": "scsi-cd"}, [1, 2, 3, 4, 5, 0]),
        (8, {}, [1, 2, 3, 4, 5, 6, 0]),
    ],
)
def test_a_disk_that_the_guest_does_not_see_takes_no_place_on_the_scsi_bus(
    count: int, hvparams: dict[str, object], units: list[int]
) -> None:
    hidden, *others = disks(count)
    instance = make_instance(disk_type="scsi-hd", firmware="uefi", **hvparams)  # type: ignore[arg-type]
    machine = build_machine(instance, [replace(hidden, name=UEFI_VARS), *others], accelerator="tcg")
    assert [disk.unit for disk in machine.disks] == [None, *units]


def test_emulation_offers_every_feature_it_has() -> None:
    assert build_machine(make_instance(), [], accelerator="tcg").cpu_type == "max"
    machine = build_machine(make_instance(cpu_type="qemu64"), [], accelerator="tcg")
    assert machine.cpu_type == "qemu64"


def test_names_of_devices_fit_qemu_and_differ() -> None:
    machine = build_machine(make_instance(nics=2), disks(3), accelerator="tcg")
    names = [disk.node_name for disk in machine.disks]
    assert all(len(name) <= 31 for name in names)
    assert len(set(names)) == 3
    ids = [device.device_id for device in (*machine.disks, *machine.nics)]
    assert len(set(ids)) == 5
    assert names[0].startswith("image-")


def test_too_many_devices_are_refused_with_a_way_out() -> None:
    with pytest.raises(OpPrereqError, match="lower hypervisor parameter kvm_pci_reservations"):
        build_machine(make_instance(nics=8), disks(13), accelerator="tcg")
    build_machine(make_instance(nics=8, kvm_pci_reservations=8), disks(16), accelerator="tcg")


@pytest.mark.parametrize(
    ("hvparams", "possible"),
    [
        ({"disk_type": "ide"}, 4),
        ({"disk_type": "ide", "cdrom_image_path": "/cd"}, 3),
        ({"disk_type": "ide", "cdrom_image_path": "/cd", "cdrom_disk_type": "scsi"}, 4),
        ({"disk_type": "scsi-hd"}, 7),
        ({"disk_type": "scsi-hd", "cdrom_image_path": "/cd", "cdrom_disk_type": "scsi-cd"}, 6),
        ({"disk_type": "scsi-hd", "scsi_controller_type": "virtio-scsi-pci"}, 16),
    ],
)
def test_buses_have_room_for_so_many_disks(hvparams: dict[str, object], possible: int) -> None:
    instance = make_instance(**hvparams)
    build_machine(instance, disks(possible), accelerator="tcg")
    if possible < 16:
        with pytest.raises(OpPrereqError, match=f"at most {possible} are possible"):
            build_machine(instance, disks(possible + 1), accelerator="tcg")


def test_alias_becomes_the_exact_machine_type() -> None:
    machine = build_machine(make_instance(), [], accelerator="tcg")
    known = [{"name": "pc-q35-7.2", "alias": "q35"}, {"name": "pc-i440fx-7.2", "alias": "pc"}]
    assert with_machine_type(machine, known).machine_type == "pc-i440fx-7.2"
    assert with_machine_type(machine, []).machine_type == "pc"
    q35 = build_machine(make_instance(machine_version="q35,usb=on"), [], accelerator="tcg")
    assert with_machine_type(q35, known).machine_type == "pc-q35-7.2,usb=on"
    assert (machine.pci_bus, q35.pci_bus) == ("pci.0", "pcie.0")


def test_description_travels_unchanged_but_for_what_is_the_nodes() -> None:
    machine = build_machine(make_instance(nics=1), disks(1), accelerator="tcg")
    text = runtime_for_migration(Runtime(machine=machine, taps=("tap0",)), paused=True)
    assert decode_runtime(text, "x") == Runtime(machine=machine, paused=True)
    for wrong in ("", "[]", "{}", text.replace("tcg", "\\x")):
        with pytest.raises(HypervisorError, match="no description of a machine"):
            decode_runtime(wrong, "x")
