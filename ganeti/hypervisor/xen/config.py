"""The configuration of a domain, as text of xl: deciding, not doing.

Source: xl.cfg(5), xl-disk-configuration(5), xl-network-configuration(5); constants.json,
"hvparams" of xen-pvm and xen-hvm; manual page gnt-instance(8).
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ganeti.base.errors import GenericError, OpPrereqError
from ganeti.hypervisor import pci
from ganeti.hypervisor.interface import AssembledDisk, Disks
from ganeti.hypervisor.params import HvParams, assign_cpus, parse_cpu_mask, wrong_param
from ganeti.objects.disk_templates import DiskMode
from ganeti.objects.hypervisors import HVPARAMS, Hypervisor
from ganeti.objects.nic import NicMode, parse_vlan
from ganeti.objects.rpc_instance import RpcInstance, RpcNIC

VNC_BASE_PORT: Final = 5900
_DISKS_MAX: Final = 24  # letters from a on
_CD_DRIVE: Final = "hdc"
_EMULATED_PREFIXES: Final = ("hd", "sd")
_PCI_DEVICE: Final = re.compile(rf"{pci.ADDRESS.pattern}(,\S+)?")
_PREFIX: Final = re.compile(r"[a-z]{1,8}")
_MARK: Final = "# Made by Ganeti at each start of the instance; changes are lost.\n"
_HVM: Final = str(Hypervisor.XEN_HVM)
_DEFAULTS: Final = {name: spec.default for name, spec in HVPARAMS[_HVM].items()}

# The text of each value is like that of Python: strings in quotes, lists in brackets.
Value = str | int | Sequence[str]
# A backslash before anything that is no escape is an error to xl, and so is a line's end in quotes.
_ESCAPED: Final = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"))


@dataclass(frozen=True, slots=True)
class Place:
    """What the node has for a domain.

    Attributes:
        keeps_after_shutdown: a domain whose guest shuts down stays, so that it is seen.
        files: where the files of parameters are here, if elsewhere.
        vnc_address: where VNC listens; "" if it does not.
        vnc_password: "" for none.
    """

    keeps_after_shutdown: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    vnc_address: str = ""
    vnc_password: str = ""


def pci_devices(params: HvParams) -> list[str]:
    """Return the PCI devices that are passed on to a guest."""
    parts = re.split(r"[;\s]+|,(?=[0-9a-fA-F]{2,4}:)", params.text("pci_pass"))
    return [part for part in parts if part]


def problems(name: str, hvparams: Mapping[str, object]) -> Iterator[GenericError]:
    """Find parameters that are wrong by themselves, or do not fit each other."""
    params = HvParams(hvparams)
    try:
        parse_cpu_mask(params.text("cpu_mask"))
    except OpPrereqError as err:
        yield err
    if not _PREFIX.fullmatch(params.text("blockdev_prefix")):
        text = f"{params.text('blockdev_prefix')!r} does not begin a name such as xvd, sd or hd"
        yield wrong_param("blockdev_prefix", text)
    yield from (_hvm_problems if name == _HVM else _pv_problems)(params)


def _pv_problems(params: HvParams) -> Iterator[GenericError]:
    if params.flag("use_bootloader"):
        if not params.text("bootloader_path"):
            yield wrong_param("use_bootloader", "needs bootloader_path, such as pygrub")
    elif not params.text("kernel_path"):
        yield wrong_param("kernel_path", "is needed, or use_bootloader with bootloader_path")


def _hvm_problems(params: HvParams) -> Iterator[GenericError]:
    address = params.text("vnc_bind_address")
    try:
        if address:
            ipaddress.ip_address(address)
    except ValueError:
        yield wrong_param("vnc_bind_address", f"{address!r} is not an IP address")
    prefix = params.text("blockdev_prefix")
    if params.text("disk_type") == "ioemu" and prefix not in _EMULATED_PREFIXES:
        names = " or ".join(_EMULATED_PREFIXES)
        yield wrong_param("disk_type", f"ioemu needs blockdev_prefix {names}, not {prefix}")
    image = params.text("cdrom_image_path")
    if image and not image.startswith("/"):
        yield wrong_param("cdrom_image_path", f"Xen reads images from files only, not from {image}")
    for device in pci_devices(params):
        if not _PCI_DEVICE.fullmatch(device):
            yield wrong_param("pci_pass", f"{device!r} is not a PCI device such as 0000:01:00.0")


def config_text(instance: RpcInstance, disks: Disks, place: Place) -> str:
    """Return the configuration of a domain.

    Raises:
        OpPrereqError: disks or network interfaces cannot be given to a domain.
    """
    params = HvParams(instance.hvparams)
    is_hvm = instance.hypervisor == _HVM
    lines = [
        ("name", instance.name),
        ("uuid", instance.uuid),
        ("type", "hvm" if is_hvm else "pv"),
        *(_hvm if is_hvm else _pv)(instance, params, place),
        ("memory", instance.beparams["maxmem"]),
        ("maxmem", instance.beparams["maxmem"]),
        ("vcpus", instance.beparams["vcpus"]),
        *_processors(instance, params),
        ("disk", _disks(instance, params, disks, place)),
        ("vif", [_vif(nic, params, is_hvm=is_hvm) for nic in instance.nics]),
        ("on_poweroff", "preserve" if place.keeps_after_shutdown else "destroy"),
        ("on_reboot", "restart" if params.text("reboot_behavior") == "reboot" else "destroy"),
        ("on_crash", "restart"),
    ]
    return _MARK + "".join(f"{key} = {_quoted(value)}\n" for key, value in lines)


def _quoted(value: Value) -> str:
    """Write a value as xl reads it."""
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        return f"[{', '.join(map(_quoted, value))}]"
    for character, written in _ESCAPED:
        value = value.replace(character, written)
    return f'"{value}"'


def _processors(instance: RpcInstance, params: HvParams) -> Iterator[tuple[str, Value]]:
    mask = params.text("cpu_mask")
    sets = assign_cpus(mask, instance.beparams["vcpus"])
    if any(sets):
        parts = [part.strip() for part in mask.split(":")]
        yield "cpus", parts[0] if len(parts) == 1 else parts
    yield "cpu_weight", params.number("cpu_weight")
    yield "cap", params.number("cpu_cap")
    if cpuid := params.text("cpuid"):
        yield "cpuid", cpuid


def _pv(_instance: RpcInstance, params: HvParams, place: Place) -> Iterator[tuple[str, Value]]:
    def local(name: str) -> str:
        path = params.text(name)
        return place.files.get(path, path)

    if params.flag("use_bootloader"):
        yield "bootloader", local("bootloader_path")
        if arguments := params.text("bootloader_args"):
            yield "bootloader_args", arguments.split()
    else:
        yield "kernel", local("kernel_path")
        if params.text("initrd_path"):
            yield "ramdisk", local("initrd_path")
    if root := params.text("root_path"):
        yield "root", root
    yield "extra", params.text("kernel_args")
    if card := params.text("soundhw"):
        yield "soundhw", card


def _hvm(instance: RpcInstance, params: HvParams, place: Place) -> Iterator[tuple[str, Value]]:
    # The defaults are those of the old toolstack, and of places that this one finds by itself.
    for name, key in (("kernel_path", "firmware_override"), ("device_model", _MODEL)):
        path = params.text(name)
        if path and path != _DEFAULTS[name]:
            yield key, place.files.get(path, path)
    yield "boot", params.text("boot_order")
    for name in ("pae", "acpi", "viridian"):
        yield name, int(params.flag(name))
    yield "apic", 1
    yield "localtime", int(params.flag("use_localtime"))
    yield "serial", "pty"
    yield "usb", 1
    yield "usbdevice", "tablet"
    yield from _vnc(instance, place)
    if devices := pci_devices(params):
        yield "pci", devices
    if card := params.text("soundhw"):
        yield "soundhw", card


_MODEL: Final = "device_model_override"


def _vnc(instance: RpcInstance, place: Place) -> Iterator[tuple[str, Value]]:
    yield "sdl", 0
    yield "vnc", int(bool(place.vnc_address))
    if not place.vnc_address:
        return
    yield "vnclisten", place.vnc_address
    port = instance.network_port or 0
    if port > VNC_BASE_PORT:
        yield "vncdisplay", port - VNC_BASE_PORT
    yield "vncunused", int(port <= VNC_BASE_PORT)
    if place.vnc_password:
        yield "vncpasswd", place.vnc_password


def _disks(instance: RpcInstance, params: HvParams, disks: Disks, place: Place) -> list[str]:
    cd = params.text("cdrom_image_path") if instance.hypervisor == _HVM else ""
    found = [_disk(disk, params.text("blockdev_prefix"), cd) for disk in disks]
    if len(disks) > _DISKS_MAX:
        raise OpPrereqError(f"Xen has names for {_DISKS_MAX} disks, not {len(disks)}")
    if cd:
        target = place.files.get(cd, cd)
        found.append(f"format=raw,vdev={_CD_DRIVE},access=r,devtype=cdrom,target={target}")
    return found


def _disk(disk: AssembledDisk, prefix: str, cd: str) -> str:
    if disk.uri is not None:
        raise OpPrereqError(f"disk {disk.index}: Xen needs a device; set access to kernelspace")
    name = prefix + chr(ord("a") + disk.index)
    if cd and name == _CD_DRIVE:
        text = f"is {name} in the guest, which is the CD drive; set blockdev_prefix to xvd or sd"
        raise OpPrereqError(f"disk {disk.index} {text}")
    access = "r" if disk.mode is DiskMode.RO else "w"
    backend = "" if os.path.isfile(disk.dev_path) else "backendtype=phy,"
    return f"format=raw,{backend}vdev={name},access={access},target={disk.dev_path}"


_MODES: Final[Mapping[str, Callable[[RpcNIC, bool], dict[str, str]]]] = {
    NicMode.BRIDGED: lambda nic, scripted: _bridged(nic, scripted=scripted),
    NicMode.ROUTED: lambda nic, _scripted: {
        "ip": nic.ip or "",
        "script": "vif-route",
        "gatewaydev": nic.nicparams["link"],
    },
    NicMode.OPENVSWITCH: lambda nic, _scripted: {
        "bridge": _switch_port(nic),
        "script": "vif-openvswitch",
    },
}


def _bridged(nic: RpcNIC, *, scripted: bool) -> dict[str, str]:
    if nic.nicparams["vlan"] and not scripted:
        text = f"network interface {nic.mac}: Xen's script vif-bridge knows no VLANs"
        raise OpPrereqError(f"{text}; use mode openvswitch, or a vif_script that does")
    ip = {"ip": nic.ip} if nic.ip else {}
    return {"bridge": nic.nicparams["link"], **ip}


def _switch_port(nic: RpcNIC) -> str:
    """Return a switch with the VLANs of a port, as vif-openvswitch reads it."""
    vlan = parse_vlan(nic.nicparams["vlan"])
    access = "" if vlan.access is None else f".{vlan.access}"
    return nic.nicparams["link"] + access + "".join(f":{tag}" for tag in vlan.trunks)


def _vif(nic: RpcNIC, params: HvParams, *, is_hvm: bool) -> str:
    """Return one network interface."""
    script = params.text("vif_script")
    words = {"mac": nic.mac}
    if is_hvm:
        card = params.text("nic_type")
        emulated = card != "paravirtual" and params.text("vif_type") == "ioemu"
        words["type"] = "ioemu" if emulated else "vif"
        if emulated:
            words["model"] = card
    words |= _MODES[nic.nicparams["mode"]](nic, bool(script))
    if script:
        words["script"] = script
    return ",".join(f"{key}={value}" for key, value in words.items() if value)
