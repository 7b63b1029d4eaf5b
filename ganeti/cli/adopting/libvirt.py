"""Domains of libvirt as machines: the XML document of ``virsh dumpxml``.

A document with a type definition is refused, for that is where entities are declared: libvirt
writes none.

Source: libvirt's documentation of the domain format.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from typing import Final
from xml.parsers import expat

from ganeti.base.errors import ProtocolError
from ganeti.cli.adopting.machine import (
    CACHES,
    DEVICES_MAX,
    VGA,
    FoundDisk,
    FoundNic,
    Machine,
    whole_number,
)

_ELEMENTS_MAX: Final = 10_000
_UNITS: Final[Mapping[str, int]] = {
    "b": 1,
    "bytes": 1,
    "KB": 1000,
    "k": 1 << 10,
    "KiB": 1 << 10,
    "MB": 1000**2,
    "M": 1 << 20,
    "MiB": 1 << 20,
    "GB": 1000**3,
    "G": 1 << 30,
    "GiB": 1 << 30,
    "TB": 1000**4,
    "T": 1 << 40,
    "TiB": 1 << 40,
}
_MIB: Final = 1 << 20
_SHOWN_MAX: Final = 20  # letters of a wrong number
_BUSES: Final = {"virtio": "paravirtual", "ide": "ide", "scsi": "scsi-hd"}
_BOOT: Final = {"hd": "disk", "cdrom": "cdrom", "fd": "floppy", "network": "network"}
_SOUND: Final = {"ac97": "ac97", "es1370": "es1370", "ich6": "hda", "ich9": "hda", "sb16": "sb16"}
_HOSTS: Final = frozenset({"host-passthrough", "host-model", "maximum"})
# Devices that every machine has, or that mean nothing without another
_USUAL: Final = frozenset(
    ["console", "controller", "emulator", "hub", "memballoon", "parallel", "panic", "rng", "serial"]
)
_AGENT: Final = "org.qemu.guest_agent.0"


def read_xml(data: bytes) -> ET.Element:
    """Parse a document without a type definition.

    Raises:
        ProtocolError: it is none, has a type definition, or too many elements.
    """
    builder, parser, count = ET.TreeBuilder(), expat.ParserCreate(), 0

    def refuse(*_: object) -> None:
        raise ProtocolError("a document with a type definition (<!DOCTYPE) is not read")

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > _ELEMENTS_MAX:
            raise ProtocolError(f"the document has more than {_ELEMENTS_MAX} elements")
        builder.start(name, attributes)

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError, ValueError) as err:  # the latter for an encoding
        raise ProtocolError(f"the document cannot be read: {err}") from err
    return builder.close()


def read_domain(data: bytes) -> Machine:
    """Read the XML of a domain.

    Raises:
        ProtocolError: it is none of KVM or QEMU that can be understood.
    """
    domain = read_xml(data)
    if domain.tag != "domain":
        raise ProtocolError(f"this is a document <{domain.tag}>, not a <domain> of libvirt")
    kind = domain.get("type", "")
    if kind not in ("kvm", "qemu"):
        raise ProtocolError(f"a domain of type {kind!r} cannot be adopted, only kvm and qemu")
    machine = Machine(name=_text(domain, "name"))
    if kind == "qemu":
        machine.hvparams["kvm_flag"] = "disabled"
    _size(domain, machine)
    _boot(domain, machine)
    devices = list(domain.find("devices") or ())
    for device in devices:
        _DEVICES.get(device.tag, _other)(device, machine)
    if len(machine.disks) > DEVICES_MAX or len(machine.nics) > DEVICES_MAX:
        raise ProtocolError(f"the domain has more than {DEVICES_MAX} disks or interfaces")
    for index, device in enumerate(domain.findall("devices/*/boot[@order='1']/..")):
        if index == 0:
            kind = "network" if device.tag == "interface" else device.get("device", "")
            machine.hvparams["boot_order"] = kind if kind in _BOOT.values() else "disk"
    return machine


def _text(element: ET.Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _memory(domain: ET.Element, name: str) -> int:
    """Return a size of memory in MiB; 0 where there is none."""
    found = domain.find(name)
    if found is None:
        return 0
    unit = found.get("unit", "KiB")
    text = (found.text or "").strip()
    number = whole_number(text)
    if unit not in _UNITS or number is None:
        raise ProtocolError(f"<{name}>: {text[:_SHOWN_MAX]} {unit} is not a size")
    return number * _UNITS[unit] // _MIB


def _size(domain: ET.Element, machine: Machine) -> None:
    text = _text(domain, "vcpu") or "1"
    vcpus = whole_number(text)
    if vcpus is None:
        raise ProtocolError(f"<vcpu>: {text[:_SHOWN_MAX]!r} is not a number")
    machine.vcpus = vcpus
    machine.maxmem_mib = _memory(domain, "memory")
    if not machine.maxmem_mib:
        raise ProtocolError("the domain has no <memory>")
    machine.minmem_mib = min(machine.maxmem_mib, _memory(domain, "currentMemory") or 1 << 40)
    cpu = domain.find("cpu")
    if cpu is None:
        return
    if cpu.get("mode") in _HOSTS:
        machine.hvparams["cpu_type"] = "host"
    elif model := _text(cpu, "model"):
        machine.hvparams["cpu_type"] = model
    if cpu.findall("feature"):
        machine.leave("features of the processor that are switched on or off")
    topology = cpu.find("topology")
    for name in ("sockets", "cores", "threads") if topology is not None else ():
        assert topology is not None
        machine.hvparams[f"cpu_{name}"] = topology.get(name, "1")


def _boot(domain: ET.Element, machine: Machine) -> None:
    os = domain.find("os")
    params = machine.hvparams
    params["kernel_path"] = _text(domain, "os/kernel")
    if params["kernel_path"]:
        params["initrd_path"] = _text(domain, "os/initrd")
        params["kernel_args"], params["root_path"] = _text(domain, "os/cmdline"), ""
    if os is not None:
        kind = os.find("type")
        if kind is not None and kind.get("machine"):
            params["machine_version"] = kind.get("machine", "")
        if os.get("firmware") == "efi" or os.find("loader") is not None:
            machine.leave("UEFI firmware and its variables: the guest starts by BIOS")
        boot = os.find("boot")
        if boot is not None and boot.get("dev") in _BOOT:
            params["boot_order"] = _BOOT[boot.get("dev", "")]
    if domain.find("features/acpi") is None:
        params["acpi"] = "no"
    clock = domain.find("clock")
    if clock is not None and clock.get("offset") == "localtime":
        params["use_localtime"] = "yes"


def _disk(device: ET.Element, machine: Machine) -> None:
    kind, params = device.get("device", "disk"), machine.hvparams
    source = device.find("source")
    source = source if source is not None else ET.Element("source")
    target = device.find("target")
    label = target.get("dev", "?") if target is not None else "?"
    bus = target.get("bus", "") if target is not None else ""
    path = source.get("file") or source.get("dev") or ""
    if kind == "cdrom":
        if path:
            name = "cdrom2_image_path" if params.get("cdrom_image_path") else "cdrom_image_path"
            params[name] = path
        return
    if kind == "floppy":
        if path:
            params["floppy_image_path"] = path
        return
    driver = device.find("driver")
    driver = driver if driver is not None else ET.Element("driver")
    machine.set_disk_type(_BUSES.get(bus), bus or "not named")
    if driver.get("cache", "default") in CACHES:
        params["disk_cache"] = driver.get("cache", "")
    if driver.get("io") == "native":
        params["disk_aio"] = "native"
    if driver.get("discard") in ("unmap", "ignore"):
        params["disk_discard"] = driver.get("discard", "")
    problem = ""
    if device.find("backingStore/source") is not None:
        problem = "it is a layer over another image; flatten it with 'virsh blockpull'"
    elif device.find("encryption") is not None:
        problem = "it is encrypted by libvirt"
    elif not path:
        problem = f"its source is of type {device.get('type', '?')!r}, not a file or block device"
    machine.disks.append(
        FoundDisk(
            label=label,
            path=path,
            format=driver.get("type", "raw"),
            read_only=device.find("readonly") is not None,
            problem=problem,
        )
    )


def _nic(device: ET.Element, machine: Machine) -> None:
    source, mac = device.find("source"), device.find("mac")
    port, model = device.find("virtualport"), device.find("model")
    bridge = source.get("bridge", "") if source is not None else ""
    if device.get("type") not in ("bridge", "network"):
        machine.leave(f"the network interface's type {device.get('type')}")
    if model is not None:
        machine.set_nic_type(model.get("type", ""))
    tags = [tag.get("id", "") for tag in device.findall("vlan/tag")]
    trunk = device.find("vlan[@trunk='yes']") is not None
    machine.nics.append(
        FoundNic(
            mac=mac.get("address", "") if mac is not None else "",
            link=bridge if device.get("type") == "bridge" else "",
            vlan="".join(f":{tag}" for tag in tags) if trunk else (tags or [""])[0],
            is_switch=port is not None and port.get("type") == "openvswitch",
        )
    )


def _graphics(device: ET.Element, machine: Machine) -> None:
    kind = device.get("type", "")
    if kind not in ("vnc", "spice"):
        machine.leave(f"graphics of type {kind}")
        return
    if device.get("passwd"):
        machine.leave(f"the password of {kind}: put it into a file for {kind}_password_file")
    listen = device.find("listen")
    address = device.get("listen") or (listen.get("address") if listen is not None else "")
    params = machine.hvparams
    if {"vnc_bind_address", "spice_bind"} & params.keys():
        machine.leave(f"graphics of type {kind} beside the first")
        return
    params["vnc_bind_address" if kind == "vnc" else "spice_bind"] = address or "127.0.0.1"


def _video(device: ET.Element, machine: Machine) -> None:
    model = device.find("model")
    name = model.get("type", "") if model is not None else ""
    if name in VGA:
        machine.hvparams["vga"] = VGA[name]
    else:
        machine.leave(f"the graphics card {name}")


def _sound(device: ET.Element, machine: Machine) -> None:
    name = device.get("model", "")
    if name in _SOUND:
        machine.hvparams["soundhw"] = _SOUND[name]
    else:
        machine.leave(f"the sound card {name}")


def _input(device: ET.Element, machine: Machine) -> None:
    if device.get("bus") == "usb" and device.get("type") in ("tablet", "mouse"):
        machine.hvparams["usb_mouse"] = device.get("type", "")


def _channel(device: ET.Element, machine: Machine) -> None:
    target = device.find("target")
    if target is not None and target.get("name") == _AGENT:
        machine.hvparams["use_guest_agent"] = "yes"


def _other(device: ET.Element, machine: Machine) -> None:
    if device.tag not in _USUAL:
        kind = device.get("type") or device.get("model") or ""
        machine.leave(f"the device {device.tag} {kind}".rstrip())


_DEVICES: Final[Mapping[str, Callable[[ET.Element, Machine], None]]] = {
    "channel": _channel,
    "disk": _disk,
    "graphics": _graphics,
    "input": _input,
    "interface": _nic,
    "sound": _sound,
    "video": _video,
}
