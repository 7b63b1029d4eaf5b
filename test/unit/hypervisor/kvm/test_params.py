"""Hypervisor parameters checked against each other."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ganeti.base.errors import NotSupportedError, OpPrereqError
from ganeti.hypervisor.kvm.params import KvmParams, problems, usb_device_option
from ganeti.objects.hypervisors import HVPARAMS

DEFAULTS = {name: spec.default for name, spec in HVPARAMS["kvm"].items()}
VNC = {"vnc_bind_address": "0.0.0.0"}
SPICE = {"spice_bind": "127.0.0.1"}


def check_params(hvparams: Mapping[str, object]) -> None:
    for problem in problems(hvparams):
        raise problem


def test_defaults_are_right() -> None:
    check_params(DEFAULTS)


@pytest.mark.parametrize(
    "changes",
    [
        {"kernel_path": "", "root_path": None},
        {"boot_order": "cdrom", "cdrom_image_path": "https://example.com/cd.iso"},
        {"boot_order": "floppy", "floppy_image_path": "/f"},
        {**VNC, "vnc_tls": True, "vnc_x509_path": "/x", "vnc_x509_verify": True},
        {"vnc_bind_address": "/var/run/ganeti/kvm"},
        {**SPICE, "spice_ip_version": 4, "spice_use_tls": True},
        {"spice_bind": "eth0", "spice_ip_version": 6},
        {"vnc_bind_address": "eth0"},
        {"security_model": "user", "security_domain": "nobody"},
        {"security_model": "pool"},
        {"disk_aio": "native"},
        {"disk_aio": "native", "disk_cache": "none"},
        {"usb_devices": "tablet, host:1234:abcd host:1.2"},
        {"migration_caps": "xbzrle:multifd"},
        {"virtio_net_queues": 4, "vhost_net": True},
        {"cpu_mask": "0-1:2"},
        {"kvm_extra": "-device 'a b'"},
    ],
    ids=str,
)
def test_right_combinations_pass(changes: dict[str, object]) -> None:
    check_params({**DEFAULTS, **changes})


@pytest.mark.shows("2.0/validation/syntax")
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"boot_order": "tape"}, "boot_order"),
        ({"boot_order": "cdrom"}, "boot_order"),
        ({"boot_order": "floppy"}, "boot_order"),
        ({"boot_order": 7}, "boot_order"),
        ({"acpi": "yes"}, "acpi"),
        ({"cpu_cores": True}, "cpu_cores"),
        ({"cpu_cores": -1}, "cpu_cores"),
        ({"cpu_mask": "x"}, "cpu_mask"),
        ({"initrd_path": "/i", "kernel_path": ""}, "initrd_path"),
        ({"kernel_path": "vmlinuz"}, "kernel_path"),
        ({"cdrom_image_path": "cd.iso"}, "cdrom_image_path"),
        ({"serial_speed": 12345}, "serial_speed"),
        ({"disk_type": "tape"}, "disk_type"),
        ({"disk_aio": "native", "disk_cache": "writeback"}, "disk_aio"),
        ({"nic_type": "e1000", "vhost_net": True}, "vhost_net"),
        ({"nic_type": "e1000", "virtio_net_queues": 2}, "virtio_net_queues"),
        ({"vnc_bind_address": "some where"}, "vnc_bind_address"),
        ({"vnc_bind_address": "192.0.2"}, "vnc_bind_address"),
        ({"vga": "voodoo"}, "vga"),
        ({"vnc_tls": True}, "vnc_tls"),
        ({"vnc_password_file": "/p"}, "vnc_password_file"),
        ({**VNC, "vnc_x509_verify": True}, "vnc_x509_verify"),
        ({**VNC, "vnc_x509_path": "/x"}, "vnc_x509_path"),
        ({**VNC, **SPICE}, "spice_bind"),
        ({"spice_bind": "an-interface-with-a-long-name"}, "spice_bind"),
        ({"spice_bind": "/path"}, "spice_bind"),
        ({**SPICE, "spice_ip_version": 6}, "spice_ip_version"),
        ({"spice_ip_version": 5}, "spice_ip_version"),
        ({"spice_use_tls": True}, "spice_use_tls"),
        ({"spice_password_file": "/p"}, "spice_password_file"),
        ({"security_model": "user"}, "security_domain"),
        ({"security_domain": "nobody"}, "security_domain"),
        ({"security_model": "pool", "security_domain": "nobody"}, "security_domain"),
        ({"usb_devices": "toaster"}, "usb_devices"),
        ({"migration_caps": "Über"}, "migration_caps"),
        ({"migration_port": 0}, "migration_port"),
        ({"migration_downtime": 0}, "migration_downtime"),
        ({"kvm_extra": "'"}, "kvm_extra"),
        ({"kvm_pci_reservations": 99}, "kvm_pci_reservations"),
        ({"vnc_bind_address": "/run/../etc"}, "vnc_bind_address"),
    ],
    ids=str,
)
def test_wrong_values_are_named(changes: dict[str, object], named: str) -> None:
    with pytest.raises(OpPrereqError, match=f"hypervisor parameter {named}"):
        check_params({**DEFAULTS, **changes})


@pytest.mark.parametrize(
    "changes",
    [{"disk_type": "pflash"}, {"cdrom_disk_type": "paravirtual"}, {"use_chroot": True}],
    ids=str,
)
def test_what_is_not_built_says_so(changes: dict[str, object]) -> None:
    with pytest.raises(NotSupportedError, match=f"{next(iter(changes))}.*is not supported"):
        check_params({**DEFAULTS, **changes})


@given(
    st.sampled_from(sorted(DEFAULTS)),
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.floats()),
)
def test_no_value_is_died_of(name: str, value: object) -> None:
    with contextlib.suppress(OpPrereqError):
        check_params({**DEFAULTS, name: value})


def test_missing_parameter_is_named() -> None:
    with pytest.raises(OpPrereqError, match="parameter acpi"):
        KvmParams({}).flag("acpi")
    with pytest.raises(OpPrereqError, match="parameter turbo: hypervisor kvm has no such"):
        check_params({**DEFAULTS, "turbo": True})


def test_usb_devices() -> None:
    assert usb_device_option("tablet") == "usb-tablet"
    assert usb_device_option("host:12:ab") == "usb-host,vendorid=0x12,productid=0xab"
    assert usb_device_option("host:1.2") == "usb-host,hostbus=1,hostaddr=2"
    assert usb_device_option("host:") is None


def test_all_findings_are_listed_and_the_first_is_raised() -> None:
    found = list(problems({**DEFAULTS, "boot_order": "tape", "cpu_cores": -1}))
    assert ["boot_order" in found[0].message, "cpu_cores" in found[1].message] == [True, True]
    with pytest.raises(OpPrereqError, match="boot_order"):
        check_params({**DEFAULTS, "boot_order": "tape", "cpu_cores": -1})
