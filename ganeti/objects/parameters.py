"""Parameter groups as tables: names, types, defaults; and the rules for changing them.

Filling in defaults from cluster, group and so on is `ganeti.objects.fill`.

Source: constants.json, "hvparams", "beparams", "nicparams", "ndparams", "diskparams", "ipolicy".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from ganeti.base.errors import TypeEnforcementError, UnitParseError
from ganeti.base.units import parse_unit
from ganeti.objects.disk_templates import DiskTemplate

VALUE_DEFAULT: Final = "default"  # given for a parameter: forget the own value
VALUE_NONE: Final = "none"


class ValueType(StrEnum):
    """Types of parameters."""

    BOOL = "bool"
    FLOAT = "float"
    INT = "int"
    MAYBE_STRING = "maybe-string"
    SIZE = "size"  # MiB; text with a unit is understood
    STRING = "string"


class ParamSpec(msgspec.Struct, frozen=True):
    """One parameter: type, default, and whether only the cluster may set it."""

    type: ValueType
    default: object
    cluster_wide: bool = False


ParamTable: TypeAlias = Mapping[str, ParamSpec]


def _text(default: str, cluster_wide: bool = False) -> ParamSpec:
    return ParamSpec(ValueType.STRING, default, cluster_wide)


def _maybe(default: str) -> ParamSpec:
    return ParamSpec(ValueType.MAYBE_STRING, default)


def _flag(default: bool) -> ParamSpec:
    return ParamSpec(ValueType.BOOL, default)


def _int(default: int, cluster_wide: bool = False) -> ParamSpec:
    return ParamSpec(ValueType.INT, default, cluster_wide)


def _size(default: int) -> ParamSpec:
    return ParamSpec(ValueType.SIZE, default)


def _float(default: float) -> ParamSpec:
    return ParamSpec(ValueType.FLOAT, default)


HVPARAMS: Final[Mapping[str, ParamTable]] = {
    "chroot": {
        "init_script": _text("/ganeti-chroot"),
    },
    "fake": {
        "migration_mode": _text("live", cluster_wide=True),
    },
    "kvm": {
        "acpi": _flag(True),
        "boot_order": _text("disk"),
        "cdrom2_image_path": _text(""),
        "cdrom_disk_type": _text(""),
        "cdrom_image_path": _text(""),
        "cpu_cores": _int(0),
        "cpu_mask": _text("all"),
        "cpu_sockets": _int(0),
        "cpu_threads": _int(0),
        "cpu_type": _text(""),
        "disk_aio": _text("threads"),
        "disk_cache": _text("default"),
        "disk_discard": _text("default"),
        "disk_type": _text("paravirtual"),
        "floppy_image_path": _text(""),
        "initrd_path": _text(""),
        "kernel_args": _text("ro"),
        "kernel_path": _text("/boot/vmlinuz-3-kvmU"),
        "keymap": _text(""),
        "kvm_extra": _text(""),
        "kvm_flag": _text(""),
        "kvm_path": _text("/usr/bin/kvm"),
        "kvm_pci_reservations": _int(12),
        "machine_version": _text(""),
        "mem_path": _text(""),
        "migration_bandwidth": _int(32, cluster_wide=True),
        "migration_caps": _text(""),
        "migration_downtime": _int(30),
        "migration_mode": _text("live", cluster_wide=True),
        "migration_port": _int(8102, cluster_wide=True),
        "nic_type": _text("paravirtual"),
        "reboot_behavior": _text("reboot"),
        "root_path": _maybe("/dev/vda1"),
        "scsi_controller_type": _text("lsi"),
        "security_domain": _text(""),
        "security_model": _text("none"),
        "serial_console": _flag(True),
        "serial_speed": _int(38400),
        "soundhw": _text(""),
        "spice_bind": _text(""),
        "spice_image_compression": _text(""),
        "spice_ip_version": _int(0),
        "spice_jpeg_wan_compression": _text(""),
        "spice_password_file": _text(""),
        "spice_playback_compression": _flag(True),
        "spice_streaming_video": _text(""),
        "spice_tls_ciphers": _text("HIGH:-DES:-3DES:-EXPORT:-DH"),
        "spice_use_tls": _flag(False),
        "spice_use_vdagent": _flag(True),
        "spice_zlib_glz_wan_compression": _text(""),
        "usb_devices": _text(""),
        "usb_mouse": _text(""),
        "use_chroot": _flag(False),
        "use_guest_agent": _flag(False),
        "use_localtime": _flag(False),
        "user_shutdown": _flag(False),
        "vga": _text(""),
        "vhost_net": _flag(False),
        "virtio_net_queues": _int(1),
        "vnc_bind_address": _text(""),
        "vnc_password_file": _text(""),
        "vnc_tls": _flag(False),
        "vnc_x509_path": _text(""),
        "vnc_x509_verify": _flag(False),
        "vnet_hdr": _flag(True),
    },
    "lxc": {
        "cpu_mask": _text(""),
        "devices": _text(
            "c 1:3 rw,c 1:5 rw,c 1:7 rw,c 1:8 rw,c 1:9 rw,c 1:10 rw,"
            "c 5:0 rw,c 5:1 rw,c 5:2 rw,c 136:* rw"
        ),
        "drop_capabilities": _text("mac_override,sys_boot,sys_module,sys_time,sys_admin"),
        "extra_cgroups": _text(""),
        "extra_config": _text(""),
        "num_ttys": _int(6),
        "startup_timeout": _int(30),
    },
    "xen-hvm": {
        "acpi": _flag(True),
        "blockdev_prefix": _text("hd"),
        "boot_order": _text("cd"),
        "cdrom_image_path": _text(""),
        "cpu_cap": _int(0),
        "cpu_mask": _text("all"),
        "cpu_weight": _int(256),
        "cpuid": _text(""),
        "device_model": _text("/usr/lib/xen/bin/qemu-dm"),
        "disk_type": _text("paravirtual"),
        "kernel_path": _text("/usr/lib/xen/boot/hvmloader"),
        "migration_mode": _text("non-live", cluster_wide=True),
        "migration_port": _int(8002, cluster_wide=True),
        "nic_type": _text("rtl8139"),
        "pae": _flag(True),
        "pci_pass": _text(""),
        "reboot_behavior": _text("reboot"),
        "soundhw": _text(""),
        "use_localtime": _flag(False),
        "vif_script": _text(""),
        "vif_type": _text("ioemu"),
        "viridian": _flag(False),
        "vnc_bind_address": _text("0.0.0.0"),  # noqa: S104 - a console address, as specified
        "vnc_password_file": _text("/etc/ganeti/vnc-cluster-password"),
        "xen_cmd": _text("xm", cluster_wide=True),
    },
    "xen-pvm": {
        "blockdev_prefix": _text("sd"),
        "bootloader_args": _text(""),
        "bootloader_path": _text(""),
        "cpu_cap": _int(0),
        "cpu_mask": _text("all"),
        "cpu_weight": _int(256),
        "cpuid": _text(""),
        "initrd_path": _text(""),
        "kernel_args": _text("ro"),
        "kernel_path": _text("/boot/vmlinuz-3-xenU"),
        "migration_mode": _text("live", cluster_wide=True),
        "migration_port": _int(8002, cluster_wide=True),
        "reboot_behavior": _text("reboot"),
        "root_path": _maybe("/dev/xvda1"),
        "soundhw": _text(""),
        "use_bootloader": _flag(False),
        "vif_script": _text(""),
        "xen_cmd": _text("xm", cluster_wide=True),
    },
}
BEPARAMS: Final[ParamTable] = {
    "always_failover": _flag(False),
    "auto_balance": _flag(True),
    "maxmem": _size(128),
    "minmem": _size(128),
    "spindle_use": _int(1),
    "vcpus": _int(1),
}
NICPARAMS: Final[ParamTable] = {
    "link": _text("xen-br0"),
    "mode": _text("bridged"),
    "vlan": _text(""),
}
NDPARAMS: Final[ParamTable] = {
    "cpu_speed": _float(1.0),
    "exclusive_storage": _flag(False),
    "oob_program": _text(""),
    "ovs": _flag(False),
    "ovs_link": _maybe(""),
    "ovs_name": _maybe("switch1"),
    "spindle_count": _int(1),
    "ssh_port": _int(22),
}
DISKPARAMS: Final[Mapping[str, ParamTable]] = {
    "blockdev": {},
    "diskless": {},
    "drbd": {
        "c-delay-target": _int(1),
        "c-fill-target": _int(0),
        "c-max-rate": _int(61440),
        "c-min-rate": _int(4096),
        "c-plan-ahead": _int(20),
        "data-stripes": _int(1),
        "disk-barriers": _text("n"),
        "disk-custom": _text(""),
        "dynamic-resync": _flag(False),
        "meta-barriers": _flag(False),
        "meta-stripes": _int(1),
        "metavg": _text("xenvg"),
        "net-custom": _text(""),
        "protocol": _text("C"),
        "resync-rate": _int(61440),
    },
    "ext": {
        "access": _text("kernelspace"),
    },
    "file": {},
    "gluster": {
        "access": _text("kernelspace"),
        "host": _text("127.0.0.1"),
        "port": _int(24007),
        "volume": _text("gv0"),
    },
    "plain": {
        "stripes": _int(1),
    },
    "rbd": {
        "access": _text("kernelspace"),
        "pool": _text("rbd"),
    },
    "sharedfile": {},
}

NDPARAMS_CLUSTER_AND_GROUP: Final = frozenset({"exclusive_storage"})
"""Node parameters that cannot be set for one node alone."""

DISK_STATE_PARAMS: Final[ParamTable] = {
    "disk_overhead": _int(0),
    "disk_reserved": _int(0),
    "disk_total": _int(0),
}
HV_STATE_PARAMS: Final[ParamTable] = {
    "cpu_node": _int(1),
    "cpu_total": _int(1),
    "mem_hv": _int(0),
    "mem_node": _int(0),
    "mem_total": _int(0),
}

ISPEC_PARAMS: Final = (
    "memory-size",
    "disk-size",
    "disk-count",
    "cpu-count",
    "nic-count",
    "spindle-use",
)
ISPEC_TABLE: Final[ParamTable] = {
    name: _size(0) if name.endswith("-size") else _int(0) for name in ISPEC_PARAMS
}
IPOLICY_RATIOS: Final = ("spindle-ratio", "vcpu-ratio")
IPOLICY_DEFAULTS: Final[Mapping[str, object]] = {
    "minmax": [
        {
            "min": {
                "memory-size": 128,
                "disk-size": 1024,
                "disk-count": 1,
                "cpu-count": 1,
                "nic-count": 1,
                "spindle-use": 1,
            },
            "max": {
                "memory-size": 32768,
                "disk-size": 1048576,
                "disk-count": 16,
                "cpu-count": 8,
                "nic-count": 8,
                "spindle-use": 12,
            },
        }
    ],
    "std": {
        "memory-size": 128,
        "disk-size": 1024,
        "disk-count": 1,
        "cpu-count": 1,
        "nic-count": 1,
        "spindle-use": 1,
    },
    "spindle-ratio": 32.0,
    "vcpu-ratio": 4.0,
    "disk-templates": [str(template) for template in DiskTemplate],
}


def defaults_of(table: ParamTable) -> dict[str, object]:
    """Return the default of each parameter of a table."""
    return {name: spec.default for name, spec in table.items()}


def _as_bool(value: object) -> bool:
    if isinstance(value, str):
        match value.lower():
            case "true" | "yes":
                return True
            case "false" | "no" | "":
                return False
        raise ValueError
    if isinstance(value, bool | int):
        return bool(value)
    raise ValueError


def _as_int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError  # noqa: TRY004 - one error for all, converted by the caller
    return int(value)


def _as_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError  # noqa: TRY004 - one error for all, converted by the caller
    return float(value)


def _as_size(value: object) -> int:
    if isinstance(value, str):
        return parse_unit(value)
    return _as_int(value)


def _as_text(value: object) -> str:
    if value is False:  # "no_name" on the command line
        return ""
    if isinstance(value, str):
        return value
    raise ValueError


def _as_maybe_text(value: object) -> str | None:
    return None if value is None else _as_text(value)


_CONVERT: Final = {
    ValueType.BOOL: (_as_bool, "true or false"),
    ValueType.FLOAT: (_as_float, "a number"),
    ValueType.INT: (_as_int, "an integer"),
    ValueType.MAYBE_STRING: (_as_maybe_text, "text or nothing"),
    ValueType.SIZE: (_as_size, "a size in MiB or with a unit, such as 512 or 10g"),
    ValueType.STRING: (_as_text, "text"),
}


def enforce_types(
    params: Mapping[str, object], table: ParamTable, *, what: str = "parameter"
) -> dict[str, object]:
    """Return the parameters with each value converted to its type; "default" is left as it is.

    Raises:
        TypeEnforcementError: a parameter is unknown or its value cannot be converted; ``what``
            names the group in the text ("backend parameter").
    """
    enforced: dict[str, object] = {}
    for name, value in params.items():
        spec = table.get(name)
        if spec is None:
            known = ", ".join(sorted(table)) or "none"
            raise TypeEnforcementError(f"unknown {what} {name!r}; known are: {known}")
        if value == VALUE_DEFAULT:
            enforced[name] = value
            continue
        convert, expected = _CONVERT[spec.type]
        try:
            enforced[name] = convert(value)
        except (ValueError, UnitParseError) as err:
            raise TypeEnforcementError(
                f"{what} {name!r}: expected {expected}, got {value!r}"
            ) from err
    return enforced


def apply_changes(
    old: Mapping[str, object], changes: Mapping[str, object], *, none_removes: bool = False
) -> dict[str, object]:
    """Lay changes over parameters; the value "default" (and perhaps null) removes one."""
    params = {**old, **changes}
    return {
        name: value
        for name, value in params.items()
        if not (name in changes and (value == VALUE_DEFAULT or (none_removes and value is None)))
    }


def cluster_wide_only(params: Mapping[str, object], table: ParamTable) -> list[str]:
    """Return the names of given parameters that only the cluster may set, sorted."""
    return sorted(name for name in params if name in table and table[name].cluster_wide)


def text_param(params: Mapping[str, object], name: str) -> str:
    """Read a text parameter of a filled group.

    Raises:
        TypeEnforcementError: it is missing or not text (the configuration is wrong).
    """
    value = params.get(name)
    if isinstance(value, str):
        return value
    raise TypeEnforcementError(f"parameter {name!r}: expected text, got {value!r}")


def int_param(params: Mapping[str, object], name: str) -> int:
    """Read an integer parameter of a filled group.

    Raises:
        TypeEnforcementError: it is missing or not an integer (the configuration is wrong).
    """
    value = params.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeEnforcementError(f"parameter {name!r}: expected an integer, got {value!r}")


def bool_param(params: Mapping[str, object], name: str) -> bool:
    """Read a true-or-false parameter of a filled group.

    Raises:
        TypeEnforcementError: it is missing or neither (the configuration is wrong).
    """
    value = params.get(name)
    if isinstance(value, bool):
        return value
    raise TypeEnforcementError(f"parameter {name!r}: expected true or false, got {value!r}")
