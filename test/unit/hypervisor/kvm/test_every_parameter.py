"""No parameter of the hypervisor kvm is accepted and forgotten: each is used, or refused clearly."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from guests.instances import make_instance

from ganeti.base.errors import ErrorCode, NotSupportedError, OpPrereqError
from ganeti.base.paths import Paths
from ganeti.hypervisor.interface import AssembledDisk
from ganeti.hypervisor.kvm.command import Placement, command_line
from ganeti.hypervisor.kvm.files import FILE_PARAMETERS, read_password
from ganeti.hypervisor.kvm.launch import uses_vnet_hdr
from ganeti.hypervisor.kvm.machine import build_machine
from ganeti.hypervisor.kvm.migration import migration_port
from ganeti.hypervisor.kvm.params import KvmParams, problems
from ganeti.hypervisor.kvm.qemu import find_qemu
from ganeti.hypervisor.params import assign_cpus
from ganeti.netdev.backends import BackendKind, NicBackend
from ganeti.objects.hypervisors import HVPARAMS

VNC = {"vnc_bind_address": "127.0.0.1"}
SPICE = {"spice_bind": "127.0.0.1"}

# parameter -> what it is set to, and what else has to be set for that; it changes the command line
IN_COMMAND: Mapping[str, tuple[object, Mapping[str, object]]] = {
    "acpi": (False, {}),
    "boot_order": ("cdrom", {"cdrom_image_path": "/cd"}),
    "cdrom2_image_path": ("/cd", {}),
    "cdrom_disk_type": ("scsi-cd", {"cdrom_image_path": "/cd"}),
    "cdrom_image_path": ("/cd", {}),
    "cpu_cores": (2, {}),
    "cpu_sockets": (2, {}),
    "cpu_threads": (2, {}),
    "cpu_type": ("qemu64", {}),
    "disk_aio": ("native", {}),
    "disk_cache": ("writethrough", {}),
    "disk_discard": ("unmap", {}),
    "disk_type": ("scsi-hd", {}),
    "floppy_image_path": ("/floppy", {}),
    "initrd_path": ("/initrd", {}),
    "kernel_args": ("quiet", {}),
    "kernel_path": ("/other", {}),
    "keymap": ("de", {}),
    "kvm_extra": ("-no-hpet", {}),
    "kvm_pci_reservations": (5, {}),
    "machine_version": ("pc-i440fx-7.2", {}),
    "max_memory": (1024, {}),
    "max_vcpus": (4, {}),
    "mem_path": ("/huge", {}),
    "nic_type": ("e1000", {}),
    "pci_pass": ("0000:01:00.0", {}),
    "pcie_ports": (4, {"machine_version": "q35"}),
    "reboot_behavior": ("exit", {}),
    "root_path": ("/dev/sda", {}),
    "scsi_controller_type": ("megasas", {"disk_type": "scsi-hd"}),
    "serial_console": (False, {}),
    "serial_speed": (9600, {}),
    "shared_dirs": ("data=/srv/data", {}),
    "soundhw": ("hda", {}),
    "spice_bind": ("127.0.0.1", {}),
    "spice_image_compression": ("lz", SPICE),
    "spice_ip_version": (4, SPICE),
    "spice_jpeg_wan_compression": ("never", SPICE),
    "spice_playback_compression": (False, SPICE),
    "spice_streaming_video": ("all", SPICE),
    "spice_tls_ciphers": ("HIGH", {**SPICE, "spice_use_tls": True}),
    "spice_use_tls": (True, SPICE),
    "spice_use_vdagent": (False, SPICE),
    "spice_zlib_glz_wan_compression": ("never", SPICE),
    "usb_devices": ("keyboard", {}),
    "usb_mouse": ("tablet", {}),
    "use_guest_agent": (True, {}),
    "use_localtime": (True, {}),
    "user_shutdown": (True, {}),
    "vga": ("cirrus", {}),
    "vhost_net": (True, {}),
    "virtio_net_queues": (2, {}),
    "vnc_bind_address": ("127.0.0.1", {}),
    "vnc_tls": (True, VNC),
    "vnc_x509_path": ("/x509", {**VNC, "vnc_tls": True}),
    "vnc_x509_verify": (True, {**VNC, "vnc_tls": True, "vnc_x509_path": "/x509"}),
}


def _password(name: str) -> bool:
    """A password file is opened when the machine starts, and missed if it is not there."""
    with pytest.raises(OpPrereqError, match=f"{name}: cannot read /nowhere") as caught:
        read_password(name, "/nowhere", Paths("/no/such/root"))
    return caught.value.ecode == ErrorCode.ENVIRON and name in FILE_PARAMETERS


def _missing_qemu() -> bool:
    with pytest.raises(OpPrereqError, match="kvm_path"):
        find_qemu("/no/qemu")
    return True


# parameter -> proof that it is used elsewhere; how it works there is tested where it is used
ELSEWHERE: Mapping[str, Callable[[], object]] = {
    "cpu_mask": lambda: assign_cpus("0:1", 2) == [{0}, {1}],
    "kvm_path": _missing_qemu,
    "migration_caps": lambda: KvmParams(filled(migration_caps="xbzrle")).migration_capabilities(),
    "migration_port": lambda: migration_port(make_instance(migration_port=9000)) == 9000,
    "spice_password_file": lambda: _password("spice_password_file"),
    "vnc_password_file": lambda: _password("vnc_password_file"),
    "vnet_hdr": lambda: not uses_vnet_hdr(KvmParams(filled(vnet_hdr=False))),
}

# Used where only a running QEMU or another node can tell; the test that does is named.
TESTED_WITH_QEMU: Mapping[str, str] = {
    "firmware": "test_kvm_firmware.py",
    "kvm_flag": "test_accelerator.py",
    "migration_bandwidth": "test_kvm_migration.py",
    "migration_downtime": "test_kvm_migration.py",
    "migration_mode": "test_moves.py: the default of gnt-instance migrate",
    "security_domain": "test_kvm_users.py",
    "security_model": "test_kvm_users.py",
    "tpm": "test_kvm_tpm.py",
}

REFUSED: Mapping[str, object] = {"use_chroot": True}


def filled(**changes: object) -> dict[str, object]:
    defaults = {name: spec.default for name, spec in HVPARAMS["kvm"].items()}
    return {**defaults, **changes}


def line(**hvparams: object) -> list[str]:
    """Return the command line of a machine with a disk and a NIC."""
    instance = make_instance(nics=1, **hvparams)  # type: ignore[arg-type]  # only hvparams
    assert not list(problems(instance.hvparams))
    disk = AssembledDisk(index=0, uuid="d", dev_path="/disk", size_mib=1)
    nic = NicBackend(instance.nics[0].uuid, BackendKind.TAP, tap="gnt0", link="br0")
    place = Placement(
        binary="qemu",
        pid_file="/pid",
        serial_log="/log",
        sockets={"control": 3, "info": 4, "serial": 5, "agent": 6, "share0": 7},
        disks={"d": disk},
        nics={nic.uuid: nic},
        console_address="127.0.0.1",
    )
    return command_line(build_machine(instance, [disk], accelerator="tcg"), place)


def test_the_tables_name_every_parameter_once() -> None:
    named = [*IN_COMMAND, *ELSEWHERE, *TESTED_WITH_QEMU, *REFUSED]
    assert sorted(named) == sorted(HVPARAMS["kvm"])


@pytest.mark.shows(
    "backend/overview/virtio", "2.0/instance-parameters/per-instance", "2.0/commands/cdrom"
)
@pytest.mark.parametrize("name", IN_COMMAND)
def test_the_command_line_follows(name: str) -> None:
    value, also = IN_COMMAND[name]
    assert value != HVPARAMS["kvm"][name].default
    assert line(**also, **{name: value}) != line(**{**also, **base(name)})


def base(name: str) -> dict[str, object]:
    """Return what the command line is compared with: mostly the parameter's default."""
    return {"boot_order": {"boot_order": "disk"}}.get(name, {})


@pytest.mark.parametrize("name", ELSEWHERE)
def test_others_are_used_elsewhere(name: str) -> None:
    assert ELSEWHERE[name]()


@pytest.mark.parametrize("name", REFUSED)
def test_the_rest_is_refused(name: str) -> None:
    with pytest.raises(NotSupportedError, match=f"{name}: .* is not supported"):
        raise next(problems(filled(**{name: REFUSED[name]})))
